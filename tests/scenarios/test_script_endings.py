"""How scripts end: cancelled, timed out, handed over; and what becomes of what they have started."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from dalsegno.handle import Handle
from tests.scenarios.stage import Stage


def _waits_for(stage: Stage, handle: Handle, kind: str) -> None:
    stage.until(f"it waits for a {kind}", handle, lambda: any(wait.kind == kind for wait in handle.why()))


def _others(stage: Stage, *known: Handle) -> list[Handle]:
    names = {handle.id for handle in known}
    return [handle for handle in stage.app.executions() if handle.id not in names]


def _child(stage: Stage, handle: Handle) -> Handle:
    """The only other execution, as soon as there is one."""
    stage.until("there is a child", handle, lambda: len(_others(stage, handle)) == 1)
    return _others(stage, handle)[0]


@contextlib.contextmanager
def _no_worker(stage: Stage) -> Iterator[None]:
    """Nothing is begun inside the block: another execution takes the worker's only place."""
    worker, loop = stage.app.engine.worker, stage.app.host.loop
    assert worker is not None
    assert loop is not None
    worker.concurrency = 1
    busy = stage.start_script('await Task.run("hold", "busy")', name="busy")
    stage.until_comers(busy, "busy")
    yield
    worker.concurrency = 100
    loop.call_soon_threadsafe(worker._free.set)
    stage.door("busy").open()
    stage.end_of(busy)


# -- cancelling -----------------------------------------------------------------------------------------------


def test_what_a_cancelled_script_returns_is_kept(stage: Stage) -> None:
    source = 'try { await Signal.next("never") } catch (e) { return e.code }'
    handle = stage.start_script(source)
    _waits_for(stage, handle, "signal")
    handle.cancel("enough")
    ended = stage.end_of(handle)
    assert (ended.state, ended.output) == ("CANCELLED", "CancelledError")


def test_the_reason_of_a_cancellation_is_in_the_error_and_the_history(stage: Stage) -> None:
    handle = stage.start_script('await Signal.next("never")')
    _waits_for(stage, handle, "signal")
    handle.cancel("out of budget")
    ended = stage.end_of(handle)
    assert "out of budget" in ended.error["message"]
    assert ended.data("CancelRequested", "") == [{"reason": "out of budget"}]


def test_a_cancelled_script_is_told_once(stage: Stage) -> None:
    source = """
    let told = 0
    for (let i = 0; i < 3; i++) {
      try { await Promise.race([Signal.next("never"), Timer.delay(5)]) } catch (e) { told += 1 }
    }
    return told
    """
    handle = stage.start_script(source)
    stage.until_event(handle, "Suspended", "race of 2")
    handle.cancel()
    stage.until_event(handle, "Suspended", "race of 2", 2)
    stage.pass_time(5)
    stage.until_event(handle, "TimerFired")
    stage.pass_time(5)
    ended = stage.end_of(handle)
    assert (ended.state, ended.output) == ("CANCELLED", 1)


def test_a_script_cancelled_before_its_first_run_does_not_begin(stage: Stage) -> None:
    with _no_worker(stage):
        handle = stage.start_script('Task.run("note", "begun")\nawait Signal.next("never")')
        stage.pass_time(1)
        handle.cancel()
    assert stage.end_of(handle).state == "CANCELLED"
    assert stage.seen == []


@pytest.mark.parametrize("size", [10, 10_000])
def test_a_script_timed_out_before_its_first_run_fails_with_a_timeout(stage: Stage, size: int) -> None:
    with _no_worker(stage):
        handle = stage.start_script("```\ntimeout: 60s\n```\nawait Signal.next('never')", {"x": "y" * size})
        stage.pass_time(61)
    ended = stage.end_of(handle)
    assert (ended.state, ended.error["code"]) == ("FAILED", "TimeoutError")


def test_a_timeout_while_a_cancelled_script_cleans_up_changes_nothing(stage: Stage) -> None:
    source = """```
timeout: 60s
```
    try { await Signal.next("never") } finally { await Signal.next("cleaned") }
    """
    handle = stage.start_script(source)
    _waits_for(stage, handle, "signal")
    stage.pass_time(50)
    handle.cancel()
    stage.until_event(handle, "Suspended", "signal cleaned")
    stage.pass_time(15)
    handle.signal("cleaned")
    ended = stage.end_of(handle)
    assert (ended.state, ended.error["code"]) == ("CANCELLED", "CancelledError")


def test_children_of_a_clean_up_are_not_cancelled_with_the_request(stage: Stage) -> None:
    stage.app.deploy_script('await Task.run("hold", "undo")\nreturn "undone"', "undo")
    stage.app.deploy_script('await Signal.next("never")', "work")
    source = """
    let work = Workflow.run("work", {})
    try { await work } finally { await Task.run("note", await Workflow.run("undo", {})) }
    """
    handle = stage.start_script(source)
    _waits_for(stage, handle, "child")
    handle.cancel()
    stage.until_comers(handle, "undo")
    stage.door("undo").open()
    assert stage.end_of(handle).state == "CANCELLED"
    assert stage.seen == ["undone"]
    for child in _others(stage, handle):
        wanted = "CANCELLED" if child.status().workflow == "work" else "COMPLETED"
        assert stage.end_of(child).state == wanted


def test_a_timed_out_script_takes_its_children_and_tasks_along(stage: Stage) -> None:
    stage.app.deploy_script('await Signal.next("never")', "child")
    source = """```
timeout: 60s
```
    let t = Task.run("hold", "task")
    await Workflow.run("child", {})
    """
    handle = stage.start_script(source)
    stage.until_comers(handle, "task")
    _waits_for(stage, handle, "child")
    child = _child(stage, handle)
    stage.pass_time(61)
    assert stage.end_of(handle).state == "FAILED"
    assert stage.end_of(child).state == "CANCELLED"
    assert [one.id for one in _others(stage, handle)] == [child.id]


def test_cleaning_up_with_tasks_that_fail_and_are_tried_again(stage: Stage) -> None:
    source = """
    try { await Signal.next("never") } finally {
      await Task.run("note", (await Task.with({retries: 2}).run("flaky", {failures: 1})).attempt)
    }
    """
    handle = stage.start_script(source)
    _waits_for(stage, handle, "signal")
    handle.cancel()
    stage.until_event(handle, "TaskRetrying", "flaky")
    stage.pass_time(1)
    assert stage.end_of(handle).state == "CANCELLED"
    assert stage.seen == [2]


# -- handing over ---------------------------------------------------------------------------------------------


def test_a_task_waiting_for_its_next_attempt_is_handed_over(stage: Stage) -> None:
    source = 'Task.with({retries: 2}).run("flaky", {failures: 1})\nawait Signal.next("go")\nreturn "over"'
    handle = stage.start_script(source)
    stage.until_event(handle, "TaskRetrying", "flaky")
    handle.signal("go")
    assert stage.end_of(handle).output == "over"
    (task,) = _others(stage, handle)
    stage.pass_time(1)
    ended = stage.end_of(task)
    assert (ended.state, ended.output["attempt"]) == ("COMPLETED", 2)


def test_a_task_that_begins_later_is_handed_over(stage: Stage) -> None:
    ended = stage.run_script('Task.with({delay: "1h"}).run("note", "late")\nreturn 1')
    (task,) = _others(stage, ended.handle)
    stage.pass_time(3600)
    assert stage.end_of(task).output == "late"


def test_a_task_handed_over_shows_the_input_it_was_given(stage: Stage) -> None:
    ended = stage.run_script('Task.run("note", {a: 1})\nreturn 1')
    (task,) = _others(stage, ended.handle)
    assert stage.end_of(task).context["$trigger"] == {"a": 1}


def test_a_failed_script_hands_its_tasks_over_and_cancels_its_children(stage: Stage) -> None:
    stage.app.deploy_script('await Signal.next("never")', "child")
    source = """
    let c = Workflow.run("child", {})
    let t = Task.run("hold", "task")
    await Signal.next("go")
    throw "broken"
    """
    handle = stage.start_script(source)
    stage.until_comers(handle, "task")
    _waits_for(stage, handle, "signal")
    child = _child(stage, handle)
    handle.signal("go")
    assert stage.end_of(handle).state == "FAILED"
    assert stage.end_of(child).state == "CANCELLED"
    (task,) = _others(stage, handle, child)
    stage.door("task").open()
    assert stage.end_of(task).output == "task"


def test_a_child_nobody_awaits_outlives_the_return(stage: Stage) -> None:
    stage.app.deploy_script('return await Task.run("hold", "child")', "child")
    ended = stage.run_script('Workflow.run("child", {})\nreturn "over"')
    child = _child(stage, ended.handle)
    stage.until_comers(child, "child")
    stage.door("child").open()
    assert stage.end_of(child).output == "child"


def test_a_handed_over_task_can_be_cancelled(stage: Stage) -> None:
    handle = stage.start_script('Task.run("hold", "task")\nawait Signal.next("go")')
    stage.until_comers(handle, "task")
    handle.signal("go")
    stage.end_of(handle)
    (task,) = _others(stage, handle)
    task.cancel()
    assert stage.end_of(task).state == "CANCELLED"


def test_a_task_of_its_own_can_be_tried_again(stage: Stage) -> None:
    ended = stage.run_script('Task.run("fail_if", {when: true})\nreturn 1')
    (task,) = _others(stage, ended.handle)
    assert stage.end_of(task).error["code"] == "REFUSED"
    again = stage.end_of(task.retry())
    assert (again.state, again.error["code"], again.context["$trigger"]) == (
        "FAILED",
        "REFUSED",
        {"when": True},
    )


def test_an_awaited_loser_that_was_cancelled_throws(stage: Stage) -> None:
    source = """
    let loser = Task.run("hold", "loser")
    await Task.race([Task.run("echo", 1), loser], {cancel: true})
    try { await loser } catch (e) { return e.code }
    """
    assert stage.run_script(source).output == "CancelledError"


def test_a_child_that_loses_a_race_is_cancelled_on_demand(stage: Stage) -> None:
    stage.app.deploy_script('await Signal.next("never")', "child")
    source = """
    let loser = Workflow.run("child", {})
    await Task.race([Task.run("echo", 1), loser], {cancel: true})
    try { await loser } catch (e) { return e.code }
    """
    ended = stage.run_script(source)
    assert ended.output == "CancelledError"
    (child,) = _others(stage, ended.handle)
    assert stage.end_of(child).state == "CANCELLED"
