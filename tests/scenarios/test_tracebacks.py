"""Where a task or node raised its exception: kept with the failure, and shown wherever the failure is."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest

from dalsegno import NodeContext, WorkflowFailed, sleep
from dalsegno.engine.steps.run_node import LARGEST_TRACEBACK
from dalsegno.errors import is_debugging
from dalsegno.model.failure import RetryPolicy
from tests.scenarios.conftest import ONE_STACK
from tests.scenarios.stage import Ended, Stage

HERE = f'File "{__file__}", line '
RAISED = "raise ValueError(f'no {thing}')"


def refuse(thing: str) -> None:
    raise ValueError(f'no {thing}')  # fmt: skip


def boil() -> None:
    refuse("tea")


async def boil_soon() -> None:
    refuse("tea")


def with_cause() -> None:
    try:
        refuse("tea")
    except ValueError as error:
        raise RuntimeError("no breakfast") from error


def with_context() -> None:
    try:
        refuse("tea")
    except ValueError:
        raise RuntimeError("no breakfast")  # noqa: B904 - what Python makes of it is the point


def several() -> None:
    problems: list[Exception] = []
    for thing in ("tea", "milk"):
        try:
            refuse(thing)
        except ValueError as error:
            problems.append(error)
    raise ExceptionGroup("no breakfast", problems)


def fall(depth: int) -> None:
    if depth:
        fall(depth - 1)
    refuse("floor")


def deep() -> None:
    fall(400)


def long() -> None:
    raise ValueError("x" * 1_000_000)


def run_task(stage: Stage, function: Any, **options: Any) -> Ended:
    """In a Python workflow."""
    task = stage.app.task(**options)(function)

    @stage.app.workflow
    async def breakfast() -> None:
        await task()

    return stage.end_of(stage.app.start(breakfast))


def traceback_in(error: dict[str, Any]) -> str:
    found: str = error["traceback"]
    assert len(found) < LARGEST_TRACEBACK + 100
    assert "/dalsegno/" not in found.replace(__file__, ""), "frames of ours are cut"
    return found


@pytest.mark.parametrize("task", [boil, boil_soon])
def test_traceback_of_a_task_is_in_the_error_and_in_the_history(stage: Stage, task: Any) -> None:
    ended = run_task(stage, task)

    (event,) = ended.data("TaskFailed", task.__name__)
    for error in (ended.error, event["error"]):
        told = traceback_in(error)
        assert f"in {task.__name__}\n" in told
        assert HERE in told
        assert RAISED in told
        assert told.endswith("\nValueError: no tea")
    (ending,) = ended.data("ExecutionFailed", "")
    assert "traceback" not in ending["error"], "it is stored once per failure"


def test_exception_shows_it_with_the_line_that_awaited(stage: Stage) -> None:
    ended = run_task(stage, boil)

    with pytest.raises(WorkflowFailed) as failed:
        ended.handle.result(10)

    assert failed.value.traceback == ended.error["traceback"]
    assert RAISED in str(failed.value)
    assert f"at breakfast ({__file__}:" in str(failed.value)


def test_cause_is_part_of_it(stage: Stage) -> None:
    cause = traceback_in(run_task(stage, with_cause).error)
    assert (
        cause.index("ValueError: no tea")
        < cause.index("direct cause")
        < cause.index("RuntimeError: no breakfast")
    )


def test_context_is_part_of_it(stage: Stage) -> None:
    context = traceback_in(run_task(stage, with_context).error)
    assert "ValueError: no tea" in context
    assert "During handling of the above exception" in context


def test_members_of_a_group_have_their_own(stage: Stage) -> None:
    told = traceback_in(run_task(stage, several).error)

    assert "ExceptionGroup: no breakfast (2 sub-exceptions)" in told
    for thing in ("tea", "milk"):
        assert f"  | ValueError: no {thing}" in told
    assert told.count(RAISED) == 2


def test_deep_recursion_keeps_both_ends(stage: Stage) -> None:
    told = traceback_in(run_task(stage, deep).error)

    assert "in deep\n" in told
    assert "frames are left out" in told
    assert told.splitlines()[-1] == "ValueError: no floor"
    assert RAISED in told.splitlines()[-2]


def test_long_message_is_cut(stage: Stage) -> None:
    told = traceback_in(run_task(stage, long).error)

    assert "(1,000,000 characters)" in told


def test_attempts_that_are_retried_keep_one_line(stage: Stage) -> None:
    ended = run_task(stage, boil, retries=RetryPolicy(max_attempts=3, initial_delay=0.0))

    retried = ended.data("TaskRetrying", "boil")
    assert len(retried) == 2
    for each in retried:
        assert each["error"]["traceback"].startswith(HERE)
        assert each["error"]["traceback"].endswith("in refuse")
    assert RAISED in ended.error["traceback"]


def test_caught_exception_has_it_in_the_history_and_in_the_chain(stage: Stage) -> None:
    task = stage.app.task(boil)

    @stage.app.workflow
    async def careful() -> None:
        try:
            await task()
        except ValueError as error:
            raise RuntimeError(f"no breakfast, {hasattr(error, 'traceback')}") from error

    ended = stage.end_of(stage.app.start(careful))

    told = ended.error["details"]["traceback"]
    assert told.index(RAISED) < told.index("awaited here:") < told.index("RuntimeError: no breakfast, False")
    (event,) = ended.data("TaskFailed", "boil")
    assert RAISED in event["error"]["traceback"]


def test_task_that_fails_while_another_error_is_handled_shows_both(stage: Stage) -> None:
    """As in a saga whose refund fails: what it was undone for is seen, too."""
    task = stage.app.task(boil)

    @stage.app.workflow
    async def careful() -> None:
        try:
            await sleep(0)
            raise RuntimeError("nobody is hungry")
        except RuntimeError:
            await task()

    ended = stage.end_of(stage.app.start(careful))

    told = traceback_in(ended.error)
    order = ["RuntimeError: nobody is hungry", "During handling of", RAISED, "awaited here:"]
    assert sorted(order, key=told.index) == order
    assert told.endswith("\nValueError: no tea")
    assert ended.error["message"] == "no tea"


def test_script_ends_with_it_and_cannot_read_it(stage: Stage) -> None:
    stage.app.task(boil)

    uncaught = stage.run_script("return await Task.run('boil', null)")
    caught = stage.run_script(
        "try { await Task.run('boil', null) } catch (e) { return e.traceback }", name="caught"
    )

    assert RAISED in traceback_in(uncaught.error)
    assert (caught.state, caught.error["code"]) == ("FAILED", "PROPERTY_NOT_FOUND")


def test_script_that_keeps_an_error_over_an_await_ends_with_it(stage: Stage) -> None:
    """As sagas do: undo what was done, then throw the error again."""
    stage.app.task(boil)
    handle = stage.start_script(
        """
        try {
          await Task.run("boil", null)
        } catch (problem) {
          await Signal.next("undone")
          throw problem
        }
        """
    )
    stage.until("it undoes", handle, lambda: [each.kind for each in handle.why()] == ["signal"])
    stage.app.engine.scripts.hot.take(handle.id)  # another worker goes on with it

    handle.signal("undone")

    assert RAISED in traceback_in(stage.end_of(handle).error)


def node(strategy: str = "halt", **more: Any) -> dict[str, Any]:
    return {
        "name": "kitchen",
        "nodes": [{"id": "kettle", "type": "kettle", "error": {"type": strategy}, **more}],
    }


@pytest.mark.parametrize("strategy", ["halt", "ignore"])
def test_own_node_types_have_it_and_contexts_do_not(stage: Stage, strategy: str) -> None:
    @stage.app.node("kettle")
    async def kettle(ctx: NodeContext, parameters: dict[str, Any]) -> None:
        boil()

    ended = stage.run(node(strategy))

    (event,) = ended.data("NodeFailed", "kettle")
    assert RAISED in traceback_in(event["error"])
    assert ended.state == ("FAILED" if strategy == "halt" else "COMPLETED")
    if strategy == "halt":
        assert traceback_in(ended.error) == event["error"]["traceback"]
    assert "traceback" not in str(ended.context)


def test_retry_begins_with_a_context_without_it(stage: Stage) -> None:
    """Contexts are made from the history then, which has it."""

    @stage.app.node("kettle")
    async def kettle(ctx: NodeContext, parameters: dict[str, Any]) -> None:
        boil()

    graph = node("ignore")
    graph["nodes"].append({"id": "shaky", "type": "task", "parameters": {"task": "boil"}})
    graph["edges"] = [{"src": "kettle", "dst": "shaky"}]
    stage.app.task(boil)
    failed = stage.run(graph)

    again = stage.end_of(failed.handle.retry())

    assert again.context["$kettle"]["error"]["message"] == "no tea"
    assert "traceback" not in str(again.context)
    assert RAISED in traceback_in(again.error)


def test_task_of_a_graph_has_it(stage: Stage) -> None:
    stage.app.task(boil)

    ended = stage.run(
        {"name": "kitchen", "nodes": [{"id": "kettle", "type": "task", "parameters": {"task": "boil"}}]}
    )

    assert RAISED in traceback_in(ended.error)
    assert ended.error["node"] == "kettle"


def test_failure_of_a_child_keeps_it(stage: Stage) -> None:
    task = stage.app.task(boil)

    @stage.app.workflow
    async def child() -> None:
        await task()

    @stage.app.workflow
    async def parent() -> None:
        await child()

    ended = stage.end_of(stage.app.start(parent))

    assert RAISED in traceback_in(ended.error)


def test_failures_of_ours_have_none(stage: Stage) -> None:
    ended = stage.run(
        {"name": "kitchen", "nodes": [{"id": "kettle", "type": "task", "parameters": {"task": "unknown"}}]}
    )

    assert "traceback" not in ended.error


@ONE_STACK
def test_log_line_of_each_attempt_has_it(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dalsegno.steps")

    run_task(stage, boil, retries=RetryPolicy(max_attempts=2, initial_delay=0.0))

    lines = [record.getMessage() for record in caplog.records if "failed (attempt" in record.getMessage()]
    assert len(lines) == 2
    for line in lines:
        assert RAISED in line
        assert "Traceback" not in line, "a log is searched for errors of Dal Segno by this word"


@ONE_STACK
def test_debugging_keeps_our_frames(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DALSEGNO_DEBUG", "1")

    told = run_task(stage, boil).error["traceback"]

    assert "/dalsegno/engine/steps/tasks.py" in told
    assert RAISED in told


@pytest.mark.parametrize(
    ("value", "is_on"), [("1", True), ("yes", True), ("0", False), ("", False), ("false", False)]
)
def test_debugging_is_off_where_it_says_so(monkeypatch: pytest.MonkeyPatch, value: str, is_on: bool) -> None:
    monkeypatch.setenv("DALSEGNO_DEBUG", value)
    assert is_debugging() is is_on


class Odd(Exception):
    def __str__(self) -> str:
        raise RuntimeError("I say nothing")


@ONE_STACK
def test_exceptions_that_cannot_be_shown_do_no_harm(stage: Stage) -> None:
    def mutter() -> None:
        error = Odd()
        error.__cause__ = error
        error.__notes__ = ["\ud800", 7]  # type: ignore[list-item]
        raise error

    ended = run_task(stage, mutter)

    assert "raise error" in traceback_in(ended.error)
    assert msgspec.json.encode(ended.error)
