"""Limits by key, from documents, scripts and operators, with an engine at work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dalsegno.core.values import decode_value
from dalsegno.engine.operations.limits import OperatorLimits
from dalsegno.engine.scripts.programs import InvalidScript
from dalsegno.engine.starting.start import StartOptions
from dalsegno.errors import Conflict, InvalidInput
from dalsegno.handle import Handle
from dalsegno.model.limits import Allowance
from dalsegno.ports.node import NodeContext
from tests.scenarios.documents import graph, task
from tests.scenarios.stage import Stage

HELD = graph("a", {"a": {**task("hold", "door"), "concurrency": {"key": "mail", "limit": 2}}})
ONE_AT_A_TIME = graph(
    "a", {"a": task("hold", "{{ $trigger.door }}")}, concurrency={"key": "$trigger.customer", "limit": 1}
)
FAN = """workflow fan(inputs) {
  let all = []
  for (let n = 0; n < inputs.many; n = n + 1) {
    all.push(Task.with({concurrency: inputs.limit}).run("note", n))
  }
  return await Promise.all(all)
}
"""


def operators(stage: Stage) -> OperatorLimits:
    return OperatorLimits(stage.app.client.stack)


def call(stage: Stage, work: Any) -> Any:
    return stage.app.host.call(work)


def sentences(handle: Handle) -> list[str]:
    return [wait.sentence for wait in handle.why()]


def begin(stage: Stage, customer: str, door: str) -> Handle:
    return stage.start(ONE_AT_A_TIME, {"customer": customer, "door": door})


def test_a_nodes_limit_holds_over_executions_and_the_next_starts_when_a_slot_is_free(stage: Stage) -> None:
    first, second, third = (stage.start(HELD) for _ in range(3))
    stage.until_comers(second, "door", 2)

    [blocked] = [handle for handle in (first, second, third) if "free slot" in " ".join(sentences(handle))]
    assert sentences(blocked) == ["node 'a' waits for a free slot of limit 'mail' (2 of 2 in use)"]
    assert len(stage.door("door").comers) == 2
    stage.door("door").open()

    for handle in (first, second, third):
        assert stage.end_of(handle).state == "COMPLETED"


def test_an_operators_word_goes_before_the_documents(stage: Stage) -> None:
    call(stage, operators(stage).set("mail", concurrency=1))
    first, second = stage.start(HELD), stage.start(HELD)
    stage.until_comers(first, "door", 1)
    stage.until("second waits", second, lambda: "(1 of 1 in use)" in " ".join(sentences(second)))

    call(stage, operators(stage).set("mail", concurrency=2))

    stage.until_comers(second, "door", 2)
    stage.door("door").open()
    assert {stage.end_of(first).state, stage.end_of(second).state} == {"COMPLETED"}


def test_a_rate_lets_tasks_of_a_script_start_one_after_the_other(stage: Stage) -> None:
    handle = stage.start_script(FAN, {"many": 5, "limit": {"key": "api", "rate": "2/m"}})
    stage.until("two have started", handle, lambda: len(stage.seen) == 2)

    stage.until("others wait", handle, lambda: "rate 2/m" in " ".join(sentences(handle)))
    stage.pass_time(60)
    stage.until("four have started", handle, lambda: len(stage.seen) == 4)
    stage.pass_time(60)

    assert stage.end_of(handle).output == [0, 1, 2, 3, 4]


ONE_SCRIPT = """```
name: one-by-one
concurrency: {key: $trigger.customer, limit: 1}
```
workflow(ctx, inputs) { return await Task.run("hold", inputs.door) }
"""


def begin_script(stage: Stage, customer: str, door: str) -> Handle:
    return stage.start_script(ONE_SCRIPT, {"customer": customer, "door": door}, "one-by-one")


@pytest.mark.parametrize("begin_one", [begin, begin_script], ids=["graph", "script"])
def test_a_workflows_limit_queues_executions_of_the_same_key(
    stage: Stage, begin_one: Callable[[Stage, str, str], Handle]
) -> None:
    first, second = begin_one(stage, "ann", "one"), begin_one(stage, "ann", "two")
    other = begin_one(stage, "bob", "three")
    stage.until_comers(first, "one")
    stage.until_comers(other, "three")

    assert second.status().state == "PENDING"
    assert sentences(second) == ["the execution waits for a free slot of limit 'ann' (1 of 1 in use)"]
    stage.door("two").open()
    stage.door("one").open()

    assert stage.end_of(first).state == "COMPLETED"
    assert stage.end_of(second).state == "COMPLETED"
    stage.door("three").open()
    stage.end_of(other)


def test_a_cancelled_execution_gives_its_slot_to_the_next(stage: Stage) -> None:
    first, second = begin(stage, "ann", "one"), begin(stage, "ann", "two")
    stage.until_comers(first, "one")

    first.cancel()

    stage.until_comers(second, "two")
    stage.door("two").open()
    assert stage.end_of(second).state == "COMPLETED"


def test_what_is_triggered_by_hand_stands_in_line_too(stage: Stage) -> None:
    first = begin(stage, "ann", "one")
    stage.until_comers(first, "one")
    client = stage.app.client
    held = call(stage, client.submit("scenario", {"customer": "ann", "door": "two"}))

    call(stage, client.trigger(held))
    with pytest.raises(
        Conflict, match=r"with another input: it was triggered and waits in the queue \(PENDING\)"
    ):
        call(stage, client.trigger(held, {"customer": "ann", "door": "three"}))
    second = stage.app.handle(held)
    assert sentences(second) == ["the execution waits for a free slot of limit 'ann' (1 of 1 in use)"]

    stage.door("two").open()
    stage.door("one").open()
    assert stage.end_of(second).state == "COMPLETED"


@pytest.mark.parametrize("delay", [None, "1h"])
def test_a_trigger_with_another_input_stands_in_the_line_of_that_input(
    stage: Stage, delay: str | None
) -> None:
    first = begin(stage, "bob", "one")
    stage.until_comers(first, "one")
    client = stage.app.client
    options = StartOptions(delay=delay)
    held = call(stage, client.submit("scenario", {"customer": "ann", "door": "never"}, options))
    other = {"customer": "bob", "door": "two"}

    call(stage, client.trigger(held, other))
    call(stage, client.trigger(held, other))
    call(stage, client.trigger(held))
    with pytest.raises(Conflict, match="it was triggered and waits in the queue"):
        call(stage, client.trigger(held, {"customer": "ann", "door": "never"}))

    second = stage.app.handle(held)
    assert sentences(second) == ["the execution waits for a free slot of limit 'bob' (1 of 1 in use)"]
    stage.door("two").open()
    stage.door("one").open()
    assert stage.end_of(second).state == "COMPLETED"
    assert decode_value(second.status().input) == other
    assert stage.door("never").comers == []
    kinds = [event.kind for event in second.events()]
    assert (kinds[0], kinds.count("ExecutionStarted")) == ("ExecutionSubmitted", 1)


def test_a_key_without_a_value_is_refused_at_the_start(stage: Stage) -> None:
    with pytest.raises(InvalidInput, match="concurrency"):
        stage.start(ONE_AT_A_TIME, {"customer": None, "door": "x"})
    with pytest.raises(InvalidInput, match="concurrency"):
        stage.start(ONE_AT_A_TIME, {"door": "x"})


def test_a_registered_limit_holds_for_the_task_alone_in_scripts_and_in_graphs(stage: Stage) -> None:
    @stage.app.task(concurrency={"limit": 1})
    async def careful(ctx, door: str) -> str:  # type: ignore[no-untyped-def]
        await stage.door(door).passing(ctx.idempotency_key)
        return door

    alone = stage.app.start(careful, "door")
    stage.until_comers(alone, "door")
    script = stage.start_script('workflow w(i) { return await Task.run("careful", "door") }')

    stage.until("it waits", script, lambda: "limit 'task:careful' (1 of 1" in " ".join(sentences(script)))
    node = stage.start(graph("a", {"a": task("careful", "door")}))
    stage.until("it waits", node, lambda: "limit 'task:careful' (1 of 1" in " ".join(sentences(node)))
    view = call(stage, operators(stage).get("task:careful"))
    assert (view.in_use, view.rule) == (1, Allowance())
    stage.door("door").open()
    assert stage.end_of(script).output == "door"
    assert stage.end_of(node).state == "COMPLETED"


@pytest.mark.parametrize(
    ("concurrency", "said"),
    [
        (0, "at least 1"),
        ({"limit": 1, "burst": 3}, "no 'burst'"),
        ({"rate": "fast"}, "10/s"),
        ({}, "'limit'"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(stage: Stage, concurrency: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        stage.app.task(concurrency=concurrency)(lambda: None)


FLAKY = graph(
    "a > b",
    {"a": task("note", "{{ $trigger.door }}"), "b": task("shaky", "{{ $trigger.door }}")},
    concurrency={"key": "$trigger.customer", "limit": 1},
)


def test_a_scripts_limit_that_makes_no_sense_is_refused_with_its_line(stage: Stage) -> None:
    for wrong, told in (
        ("limit: 0", "at least 1"),
        ("limits: 1", "no 'limits'"),
        ("key: $nobody.x", "nobody"),
    ):
        source = ONE_SCRIPT.replace("key: $trigger.customer, limit: 1", wrong)
        with pytest.raises(InvalidScript, match=f"line 3, column 1: .*{told}"):
            stage.app.deploy_script(source, "one-by-one")


def test_a_python_workflows_limit_queues_its_executions(stage: Stage) -> None:
    @stage.app.task
    async def held(ctx: NodeContext, door: str) -> str:
        await stage.door(door).passing(ctx.idempotency_key)
        return door

    async def guarded(door: str) -> str:
        return await held(door)

    workflow = stage.app.workflow(concurrency=1)(guarded)
    first, second = stage.app.start(workflow, "one"), stage.app.start(workflow, "two")
    stage.until_comers(first, "one")

    assert sentences(second) == [
        "the execution waits for a free slot of limit 'workflow:guarded' (1 of 1 in use)"
    ]
    stage.door("two").open()
    stage.door("one").open()
    assert (stage.end_of(first).output, stage.end_of(second).output) == ("one", "two")


def test_a_python_workflows_limit_that_makes_no_sense_is_refused_where_it_is_defined(stage: Stage) -> None:
    async def guarded(door: str) -> str:
        return door

    with pytest.raises(InvalidInput, match=r"concurrency of workflow 'guarded' is not valid.*at least 1"):
        stage.app.workflow(concurrency=0)(guarded)


def test_retry_and_rerun_stand_in_line_like_any_other_start(stage: Stage) -> None:
    doors_that_fail = {"one"}

    async def shaky(ctx: NodeContext, door: str) -> str:
        if door in doors_that_fail:
            raise ValueError("not yet")
        await stage.door(door).passing(ctx.idempotency_key)
        return door

    stage.app.task(shaky)
    failed = stage.end_of(stage.start(FLAKY, {"customer": "ann", "door": "one"}))
    assert failed.state == "FAILED"
    doors_that_fail.clear()
    running = stage.start(FLAKY, {"customer": "ann", "door": "two"})
    stage.until_comers(running, "two")

    retried = failed.handle.retry()
    assert sentences(retried) == ["the execution waits for a free slot of limit 'ann' (1 of 1 in use)"]
    call(stage, stage.app.client.trigger(retried.id))  # who triggers it does not jump the line
    assert retried.status().state == "PENDING"
    stage.door("one").open()
    stage.door("two").open()

    ended = stage.end_of(retried)
    assert (ended.state, ended.output, retried.status().relation) == ("COMPLETED", "one", "retry")
    assert stage.seen == ["one", "two"]  # node a did not run again
    again = stage.end_of(retried.rerun("b", context={"a": "edited"}))
    assert (again.state, again.context["$a"]) == ("COMPLETED", "edited")
    assert stage.end_of(again.handle.rerun("b")).context["$a"] == "edited"  # the line of records holds


def test_a_retry_whose_record_is_removed_while_it_stands_in_line_fails_and_says_so(stage: Stage) -> None:
    stage._alarm.setLevel(100)  # it does complain, as it should
    failed = begin(stage, "ann", "one")
    stage.until_comers(failed, "one")
    failed.cancel()
    stage.end_of(failed)
    running = begin(stage, "ann", "two")
    stage.until_comers(running, "two")
    retried = failed.retry()

    assert call(stage, stage.app.client.stack.archive.remove([failed.id])) == [failed.id]
    stage.door("two").open()

    ended = stage.end_of(retried)
    error = ended.error or {}
    assert (ended.state, error["code"]) == ("FAILED", "NOT_FOUND")
    assert f"execution {failed.id}" in error["message"]
    assert "start the workflow again" in error["message"]


def test_a_script_that_is_retried_stands_in_line(stage: Stage) -> None:
    failed = begin_script(stage, "ann", "one")
    stage.until_comers(failed, "one")
    failed.cancel()
    stage.end_of(failed)
    running = begin_script(stage, "ann", "two")
    stage.until_comers(running, "two")

    retried = failed.retry()

    assert sentences(retried) == ["the execution waits for a free slot of limit 'ann' (1 of 1 in use)"]
    stage.door("one").open()
    stage.door("two").open()
    assert stage.end_of(retried).state == "COMPLETED"
