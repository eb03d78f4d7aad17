"""Pause, resume, cancel, and the execution's own timeout."""

from __future__ import annotations

import pytest

from dalsegno.errors import Conflict, NotFound, WorkflowCancelled
from tests.scenarios.documents import error_object, graph, hold, split, task, wait
from tests.scenarios.stage import Stage


def test_a_running_step_commits_while_paused_and_what_it_spawns_is_held(stage: Stage) -> None:
    handle = stage.start(graph("h > b > c", {"h": hold("h")}))
    stage.until_comers(handle, "h")
    handle.pause()
    stage.door("h").open()
    stage.until_event(handle, "NodeCompleted", "h")
    assert handle.status().state == "PAUSED"
    assert handle.nodes()["b"].state == "QUEUED"
    assert [waiting.kind for waiting in handle.why()] == ["paused", "queued"]
    handle.resume()
    ended = stage.end_of(handle)
    assert ended.output == "c"
    kinds = [event.kind for event in ended.events if not event.node]
    assert kinds == ["ExecutionStarted", "ExecutionPaused", "ExecutionResumed", "ExecutionCompleted"]


def test_the_last_running_step_may_end_a_paused_execution(stage: Stage) -> None:
    handle = stage.start(graph("h", {"h": hold("h")}))
    stage.until_comers(handle, "h")
    handle.pause()
    stage.door("h").open()
    assert stage.end_of(handle).state == "COMPLETED"


def test_what_comes_due_while_paused_is_announced_on_resume_in_due_order(stage: Stage) -> None:
    order = (30, 10, 20)
    nodes = {f"w{seconds}": wait(seconds) for seconds in order}
    nodes |= {f"n{seconds}": task("note", seconds) for seconds in order}
    handle = stage.start(graph(", ".join(f"a > w{seconds} > n{seconds}" for seconds in order), nodes))
    for seconds in order:
        stage.until_event(handle, "NodeWaiting", f"w{seconds}")
    handle.pause()
    stage.pass_time(60)
    stage.until_state(handle, "w10", "QUEUED")
    stage.until_state(handle, "w20", "QUEUED")
    stage.until_state(handle, "w30", "QUEUED")
    assert stage.seen == []
    handle.resume()
    ended = stage.end_of(handle)
    woken = [event.node for event in ended.of("NodeCompleted") if event.node.startswith("w")]
    assert woken == ["w10", "w20", "w30"]


def test_pausing_twice_and_resuming_twice_changes_nothing(stage: Stage) -> None:
    handle = stage.start(graph("h > b", {"h": hold("h")}))
    stage.until_comers(handle, "h")
    for command in (handle.pause, handle.pause, handle.resume, handle.resume):
        command()
    stage.door("h").open()
    ended = stage.end_of(handle)
    assert ended.count("ExecutionPaused") == 1
    assert ended.count("ExecutionResumed") == 1


def test_cancel_ends_at_once_and_marks_what_was_live(stage: Stage) -> None:
    nodes = {"h": hold("h"), "w": wait(60)}
    handle = stage.start(graph("a > h > b, a > w > c", nodes))
    stage.until_comers(handle, "h")
    stage.until_event(handle, "NodeWaiting", "w")
    handle.cancel("no longer needed")
    ended = stage.end_of(handle)
    assert ended.state == "CANCELLED"
    assert ended.error["message"] == "the execution was cancelled: no longer needed"
    assert ended.states == {
        "a": "COMPLETED",
        "h": "CANCELLED",
        "b": "PENDING",
        "w": "CANCELLED",
        "c": "PENDING",
    }
    with pytest.raises(WorkflowCancelled):
        handle.result(1)


def test_a_paused_execution_can_be_cancelled(stage: Stage) -> None:
    handle = stage.start(graph("w > b", {"w": wait(5)}))
    stage.until_event(handle, "NodeWaiting", "w")
    handle.pause()
    handle.cancel()
    stage.pass_time(10)
    assert stage.end_of(handle).state == "CANCELLED"


def test_an_ended_execution_takes_no_commands(stage: Stage) -> None:
    handle = stage.run(graph("a")).handle
    for command in (handle.cancel, handle.pause, handle.resume):
        with pytest.raises(Conflict, match="has ended"):
            command()


def test_commands_to_nobody_say_so(stage: Stage) -> None:
    ghost = stage.app.handle("f" * 32)
    for command in (ghost.cancel, ghost.pause, ghost.resume, ghost.status, ghost.why, ghost.retry):
        with pytest.raises(NotFound, match="there is no execution"):
            command()


def test_cancelling_ends_every_item_of_a_split(stage: Stage) -> None:
    nodes = {"s": split([1, 2, 3]), "h": hold("h")}
    handle = stage.start(graph("s > h", nodes))
    stage.until_comers(handle, "h", 3)
    handle.cancel()
    assert stage.end_of(handle).states["h"] == "CANCELLED"


def test_the_executions_timeout_ends_it_failed(stage: Stage) -> None:
    handle = stage.start(graph("a > w > b", {"w": wait(600)}, timeout="1m"))
    stage.until_event(handle, "NodeWaiting", "w")
    stage.pass_time(59)
    assert handle.status().state == "RUNNING"
    stage.pass_time(2)
    ended = stage.end_of(handle)
    assert ended.state == "FAILED"
    assert ended.error == {
        **error_object("the execution did not end within its timeout of 60 s", "TIMEOUT", ""),
        "type": "TimeoutError",
        "node": None,
    }
    assert ended.states == {"a": "COMPLETED", "w": "CANCELLED", "b": "PENDING"}


def test_paused_time_does_not_count_for_the_timeout(stage: Stage) -> None:
    handle = stage.start(graph("h > b", {"h": hold("h")}, timeout=60))
    stage.until_comers(handle, "h")
    stage.pass_time(30)
    handle.pause()
    stage.pass_time(1000)
    handle.resume()
    [deadline] = [waiting for waiting in handle.why() if waiting.kind == "deadline"]
    assert deadline.due is not None
    assert deadline.due - stage.clock.now() == pytest.approx(30)
    stage.pass_time(29)
    assert handle.status().state == "RUNNING"
    stage.pass_time(2)
    assert stage.end_of(handle).state == "FAILED"


def test_an_execution_that_ends_in_time_hears_nothing_of_its_timeout(stage: Stage) -> None:
    ended = stage.run(graph("a > b", timeout=60))
    stage.pass_time(120)
    assert stage.end_of(ended.handle).events == ended.events
