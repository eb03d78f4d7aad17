"""Values on their way through scripts: large ones, odd ones, and those that cannot leave."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.errors import InvalidInput
from tests.scenarios.conftest import ONE_STACK
from tests.scenarios.stage import Stage

LARGE = "z" * 700_000


# -- large ----------------------------------------------------------------------------------------------------


def test_a_large_input(stage: Stage) -> None:
    assert stage.run_script("return inputs.text.length", {"text": LARGE}).output == len(LARGE)


def test_a_large_input_of_a_task(stage: Stage) -> None:
    source = 'let r = await Task.run("echo", {text: inputs.text})\nreturn r.text == inputs.text'
    assert stage.run_script(source, {"text": LARGE}).output is True


def test_a_large_result_of_the_script(stage: Stage) -> None:
    assert stage.run_script('return await Task.run("echo", inputs.text)', {"text": LARGE}).output == LARGE


def test_a_large_signal(stage: Stage) -> None:
    handle = stage.start_script('let s = await Signal.next("go")\nawait Task.run("echo", 1)\nreturn s.length')
    handle.signal("go", LARGE)
    assert stage.end_of(handle).output == len(LARGE)


def test_a_large_input_and_output_of_a_child(stage: Stage) -> None:
    stage.app.deploy_script('await Task.run("echo", 1)\nreturn inputs.text', "child")
    source = 'let r = await Workflow.run("child", {text: inputs.text})\nreturn r == inputs.text'
    assert stage.run_script(source, {"text": LARGE}).output is True


def test_a_large_value_of_a_promise_awaited_twice(stage: Stage) -> None:
    source = """
    let p = Task.run("echo", "z".repeat(700000))
    let first = (await p).length
    await Signal.next("go")
    return [first, (await p).length]
    """
    handle = stage.start_script(source)
    stage.until("it waits", handle, lambda: handle.why()[0].kind == "signal")
    stage.app.engine.scripts.hot.take(handle.id)
    handle.signal("go")
    assert stage.end_of(handle).output == [700000, 700000]


def test_a_large_variable_that_changes_at_every_await(stage: Stage) -> None:
    source = """
    let text = "x".repeat(50000)
    for (let i = 0; i < 5; i++) {
      text = text + await Task.run("echo", "" + i)
      stage = i
    }
    return text.slice(50000)
    """
    assert stage.run_script(source).output == "01234"


def test_a_value_beyond_its_limit_fails_the_task_that_returns_it(store_url: str) -> None:
    from dalsegno.engine.settings import EngineLimits

    with Stage(store_url, limits=EngineLimits(value_bytes=1000)) as stage:
        stage.app.task(_twice)
        source = 'try { await Task.run("_twice", "x".repeat(600)) } catch (e) { return e.message }'
        assert "value_bytes" in stage.run_script(source).output
        ended = stage.run_script('await Task.run("echo", "x".repeat(2000))', name="input")
        assert ended.state == "FAILED"
        assert "value_bytes" in ended.error["message"]
        ended = stage.run_script('return "x".repeat(2000)', name="output")
        assert ended.state == "FAILED"
        assert "value_bytes" in ended.error["message"]


async def _twice(text: str) -> str:
    return text + text


# -- odd ------------------------------------------------------------------------------------------------------

ODD: list[Any] = [
    None,
    "",
    "a\x00b",
    "\x00",
    "\u2028 \U0001f600 é",
    2**53 + 1,
    2**63,
    2**64 + 1,
    -(2**70),
    10**400,
    1.5e300,
    5e-324,
    {"": {"a.b": [], "c": {}}},
    {"__proto__": 1, "constructor": 2},
    [[[[]]]],
]


@pytest.mark.parametrize("value", ODD, ids=repr)
def test_odd_values_pass_through_everything(stage: Stage, value: Any) -> None:
    stage.app.deploy_script("return inputs.value", "child")
    source = """
    let kept = inputs.value
    let task = await Task.run("echo", {value: inputs.value})
    let child = await Workflow.run("child", {value: inputs.value})
    let signal = await Signal.next("go")
    return [kept, task.value, child, signal]
    """
    handle = stage.start_script(source, {"value": value})
    handle.signal("go", value)
    ended = stage.end_of(handle)
    assert ended.output == [value] * 4, ended.error
    assert [type(one) for one in ended.output] == [type(value)] * 4


@ONE_STACK
@pytest.mark.parametrize(
    "source",
    [
        'await Task.run("echo", {a: [1, 0/0]})',
        'await Workflow.run("child", {a: [1, 1/0]})',
        'Workflow.start("child", {a: [1, -1/0]})',
        "return {a: [1, 0/0]}",
        'await Task.run("echo", {a: [1, Task.run("echo", 1)]})',
        'return {a: [1, Task.run("echo", 1)]}',
    ],
)
def test_what_cannot_leave_the_script_is_named_by_its_path(stage: Stage, source: str) -> None:
    stage.app.deploy_script("return 1", "child")
    ended = stage.run_script(source)
    assert ended.state == "FAILED"
    assert "a[1]" in ended.error["message"] or "a.1" in ended.error["message"], ended.error


def test_an_unusable_input_of_a_task_can_be_caught(stage: Stage) -> None:
    source = 'try { await Task.run("echo", 0/0) } catch (e) { return e.code }'
    ended = stage.run_script(source)
    assert ended.state == "COMPLETED", ended.error


ODD_NAMES = """
try { await Task.run(inputs.name, {}) } catch (e) { log(e.message) }
return await Signal.next(inputs.name)
"""


@pytest.mark.parametrize("name", ["a b", "ключ", "x" * 400, "node:", "a\nb"])
def test_odd_names_of_tasks_and_signals_do_no_harm(stage: Stage, name: str) -> None:
    handle = stage.start_script(ODD_NAMES, {"name": name})
    handle.signal(name, 1)
    ended = stage.end_of(handle)
    assert ended.output == 1, ended.error


def test_a_nul_in_a_name_is_refused_on_every_store(stage: Stage) -> None:
    """PostgreSQL holds none in a text, and no store differs from the others."""
    handle = stage.start_script(ODD_NAMES, {"name": "\x00"})
    with pytest.raises(InvalidInput, match="NUL"):
        handle.signal("\x00", 1)
    ended = stage.end_of(handle)
    assert (ended.state, ended.error["message"]) == ("FAILED", "a name holds a NUL character")


def test_a_task_that_returns_what_json_cannot_carry_fails(stage: Stage) -> None:
    @stage.app.task
    async def odd(kind: str) -> Any:
        return {"nan": float("nan"), "object": object(), "surrogate": "\ud800", "set": {1, 2}}[kind]

    source = """
    let seen = []
    for (let kind of ["nan", "object", "surrogate"]) {
      try { await Task.run("odd", kind) } catch (e) { seen.push(e.type) }
    }
    return seen
    """
    assert stage.run_script(source).output == ["NotJson", "NotJson", "NotJson"]


# -- options --------------------------------------------------------------------------------------------------


@ONE_STACK
@pytest.mark.parametrize(
    "options",
    [
        "{retries: -1}",
        '{retries: "three"}',
        '{retry: {max_attempts: "x"}}',
        "{retry: {on: 5}}",
        "{retry: {factor: 1000000}}",
        "{retry: {wild: 1}}",
        "{priority: 99999999999999999999}",
        "{priority: 1.5}",
        '{timeout: "soon"}',
        "{timeout: -1}",
        "{queue: 5}",
        '{queue: ""}',
        "{key: {}}",
        "{delay: []}",
    ],
)
def test_options_of_a_task_that_make_no_sense_fail_the_script(stage: Stage, options: str) -> None:
    ended = stage.run_script(f'return await Task.with({options}).run("echo", 1)')
    assert (ended.state, ended.error["code"]) == ("FAILED", "WRONG_ARG_TYPE")
    assert options[1:].split(":", maxsplit=1)[0].removesuffix("s") in ended.error["message"]
