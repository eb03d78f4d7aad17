"""Children of scripts: started once, told about once, ended with their parents where they are waited for."""

from __future__ import annotations

import pytest

from dalsegno.core.outbox_orders import Notice, StartOrder, encode_notice, order_start
from dalsegno.handle import Handle
from dalsegno.ports.ledger import OutboxEntry
from tests.scenarios.stage import Stage


def _children(stage: Stage, *known: Handle) -> list[Handle]:
    names = {handle.id for handle in known}
    return [handle for handle in stage.app.executions() if handle.id not in names]


def test_a_child_of_a_child_gives_its_result_through(stage: Stage) -> None:
    stage.app.deploy_script('return await Task.run("echo", inputs.n + 1)', "leaf")
    stage.app.deploy_script('return (await Workflow.run("leaf", {n: inputs.n})) * 2', "middle")
    assert stage.run_script('return await Workflow.run("middle", {n: 20})').output == 42


def test_cancel_reaches_grandchildren(stage: Stage) -> None:
    stage.app.deploy_script('await Signal.next("never")', "leaf")
    stage.app.deploy_script('await Workflow.run("leaf", {})', "middle")
    handle = stage.start_script('await Workflow.run("middle", {})')
    stage.until("all three run", handle, lambda: len(stage.app.executions()) == 3)
    handle.cancel()
    for one in stage.app.executions():
        assert stage.end_of(one).state == "CANCELLED"


def test_a_child_that_was_cancelled_by_itself_throws_at_the_await(stage: Stage) -> None:
    stage.app.deploy_script('await Signal.next("never")', "child")
    handle = stage.start_script('try { await Workflow.run("child", {}) } catch (e) { return e.code }')
    stage.until("the child runs", handle, lambda: len(_children(stage, handle)) == 1)
    _children(stage, handle)[0].cancel()
    assert stage.end_of(handle).output == "CancelledError"


def test_a_hundred_children(stage: Stage) -> None:
    stage.app.deploy_script('return await Task.run("echo", inputs.n)', "child")
    source = """
    let all = []
    for (let i = 0; i < 100; i++) { all.push(Workflow.run("child", {n: i})) }
    return (await Promise.all(all)).reduce((a, b) => a + b, 0)
    """
    ended = stage.run_script(source)
    assert ended.output == 4950
    assert ended.count("ChildEnded", "child") == 100


def test_a_child_takes_a_version_tags_and_a_priority(stage: Stage) -> None:
    stage.app.deploy_script("return 'old'", "child")
    stage.app.deploy_script("return 'new'", "child")
    source = """
    let old = await Workflow.with({version: 1, tags: {team: "blue"}, priority: 3}).run("child", {})
    return [old, await Workflow.run("child@1", {}), await Workflow.run("child", {})]
    """
    ended = stage.run_script(source)
    assert ended.output == ["old", "old", "new"]
    (tagged,) = stage.app.executions(tags={"team": "blue"})
    assert tagged.status().priority == 3


@pytest.mark.parametrize(
    "options",
    [
        '[{colour: "red"}][0]',  # written out, it would be found when it is deployed
        '{priority: "high"}',
        "{tags: [1]}",
        "{tags: {a: 1}}",
        "{version: 1.5}",
        "{version: []}",
    ],
)
def test_options_of_a_child_that_make_no_sense_fail_the_script(stage: Stage, options: str) -> None:
    stage.app.deploy_script("return 1", "child")
    ended = stage.run_script(f'return await Workflow.with({options}).run("child", {{}})')
    assert (ended.state, ended.error["code"]) == ("FAILED", "WRONG_ARG_TYPE")
    assert options.lstrip("[{").split(":", maxsplit=1)[0] in ended.error["message"]


def test_an_input_that_does_not_fit_the_child_throws_at_the_await(stage: Stage) -> None:
    source = "```\ninput_schema: {type: object, required: [n]}\n```\nreturn inputs.n"
    stage.app.deploy_script(source, "strict")
    ended = stage.run_script(
        'try { await Workflow.run("strict", {}) } catch (e) { return [e.code, e.message] }'
    )
    assert ended.output[0] == "INVALID_INPUT"
    assert "'n'" in ended.output[1]


def test_a_detached_child_that_cannot_be_started_is_told_in_the_history(stage: Stage) -> None:
    handle = stage.start_script('Workflow.start("nobody", {})\nawait Signal.next("never")')
    stage.until_event(handle, "ChildEnded", "nobody")
    handle.cancel()
    ended = stage.end_of(handle)
    assert "nobody" in ended.data("ChildEnded", "nobody")[0]["error"]["message"]


def test_an_ending_that_is_told_twice_counts_once(stage: Stage) -> None:
    stage.app.deploy_script("return 7", "child")
    source = (
        'let c = Workflow.run("child", {})\nlet v = await c\nawait Signal.next("go")\nreturn [v, await c]'
    )
    handle = stage.start_script(source)
    stage.until_event(handle, "ChildEnded", "child")
    (child,) = _children(stage, handle)
    notice = encode_notice(Notice(handle.id, 0))
    entry = OutboxEntry(f"{child.id}/ended", child.id, "ended", notice)
    for _ in range(2):
        stage.app.host.call(stage.app.engine.outbox._deliver(entry))
    handle.signal("go")
    ended = stage.end_of(handle)
    assert ended.output == [7, 7]
    assert ended.count("ChildEnded", "child") == 1


def test_an_order_to_start_that_is_delivered_twice_starts_once(stage: Stage) -> None:
    stage.app.deploy_script('await Signal.next("never")', "child")
    from msgspec import Raw

    order = order_start(StartOrder("derived", "child", Raw(b"{}")))
    for _ in range(2):
        entry = OutboxEntry(order.id, "nobody", order.topic, order.data)
        stage.app.host.call(stage.app.engine.outbox._deliver(entry))
    assert [handle.id for handle in stage.app.executions()] == ["derived"]


def test_a_child_ordered_by_a_parent_that_failed_meanwhile_is_not_started(stage: Stage) -> None:
    stage.app.deploy_script('await Task.run("note", "ran")', "child")
    ended = stage.run_script('Workflow.run("child", {})\nthrow "broken"')
    assert ended.state == "FAILED"
    stage.until("the order is delivered", ended.handle, lambda: not stage.app.host.call(_outbox(stage)))
    assert _children(stage, ended.handle) == []


async def _outbox(stage: Stage) -> list[OutboxEntry]:
    return await stage.app.engine.stack.ledger.outbox()


def test_a_child_may_be_awaited_by_a_script_that_was_paused_meanwhile(stage: Stage) -> None:
    stage.app.deploy_script('return await Task.run("hold", "child")', "child")
    handle = stage.start_script('return await Workflow.run("child", {})')
    stage.until_comers(handle, "child")
    handle.pause()
    stage.door("child").open()
    stage.until_event(handle, "ChildEnded", "child")
    assert handle.status().state == "PAUSED"
    handle.resume()
    assert stage.end_of(handle).output == "child"


def test_a_running_child_is_among_the_parts_of_its_parent(stage: Stage) -> None:
    stage.app.deploy_script('return await Task.run("hold", "child")', "child")
    handle = stage.start_script('return await Workflow.run("child", {})')
    stage.until_comers(handle, "child")
    assert handle.nodes()["child"].state == "RUNNING"
    stage.door("child").open()
    assert stage.end_of(handle).states == {"child": "COMPLETED"}


def test_a_script_may_start_itself(stage: Stage) -> None:
    source = """
    workflow countdown(inputs) {
      if (inputs.n == 0) { return 0 }
      return 1 + await Workflow.run("countdown", {n: inputs.n - 1})
    }
    """
    stage.app.deploy_script(source)
    assert stage.end_of(stage.app.start("countdown", {"n": 10})).output == 10
