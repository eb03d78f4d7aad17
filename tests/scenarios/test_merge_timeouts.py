"""Merges that give up: the deadline runs from the first arrival, their strategy applies, latecomers are dropped."""

from __future__ import annotations

from typing import Any

from dalsegno.handle import Handle
from tests.scenarios.documents import error_object, graph, hold, merge
from tests.scenarios.stage import Stage

PATHS = "a > quick > m, a > silent > m, m > next"
TIMED_OUT = error_object(
    "merge 'm' gave up after 5 s with 1 of 2 arrived",
    "MERGE_TIMEOUT",
    "m",
    type="TimeoutError",
    details={"arrived": 1, "expected": 2, "timeout": 5},
)


def started(stage: Stage, paths: str = PATHS, **fields: Any) -> Handle:
    """Up to the moment at which the quick branch waits and the silent one runs."""
    nodes = {"silent": hold("silent"), "m": merge(timeout=5, **fields)}
    handle = stage.start(graph(paths, nodes))
    stage.until_comers(handle, "silent")
    stage.until_event(handle, "NodeWaiting", "m")
    return handle


def test_before_its_deadline_a_merge_waits_and_says_for_what(stage: Stage) -> None:
    handle = started(stage)
    stage.pass_time(4.9)
    [waiting] = [wait for wait in handle.why() if wait.kind == "barrier"]
    assert (waiting.node, waiting.arrived, waiting.expected) == ("m", 1, 2)
    assert waiting.due is not None
    assert abs(waiting.due - stage.clock.now() - 0.1) < 0.01
    stage.door("silent").open()
    assert stage.end_of(handle).context["$m"] == ["quick", "silent"]


def test_halt_fails_the_execution_and_cancels_the_silent_branch(stage: Stage) -> None:
    handle = started(stage)
    stage.pass_time(5.1)
    ended = stage.end_of(handle)
    assert ended.state == "FAILED"
    assert ended.error == TIMED_OUT
    assert ended.nodes == {
        "a": ("COMPLETED", 1),
        "quick": ("COMPLETED", 1),
        "silent": ("CANCELLED", 0),
        "m": ("FAILED", 1),
        "next": ("PENDING", 0),
    }


def test_ignore_goes_on_with_the_error_in_the_context(stage: Stage) -> None:
    handle = started(stage, error={"type": "ignore"})
    stage.pass_time(5.1)
    stage.until_state(handle, "next", "COMPLETED")
    stage.door("silent").open()
    ended = stage.end_of(handle)
    assert ended.state == "COMPLETED"
    assert ended.output == "next"
    assert ended.context["$m"] == {"error": TIMED_OUT}
    assert ended.context["$quick"] == "quick"
    assert ended.nodes["m"] == ("FAILED", 1)


def test_a_late_arrival_changes_nothing(stage: Stage) -> None:
    handle = started(stage, error={"type": "ignore"})
    stage.pass_time(5.1)
    stage.until_state(handle, "next", "COMPLETED")
    stage.door("silent").open()
    ended = stage.end_of(handle)
    assert ended.count("ArrivalDropped", "m") == 1
    assert ended.nodes["m"] == ("FAILED", 1)
    assert ended.nodes["next"] == ("COMPLETED", 1)
    assert ended.nodes["silent"] == ("COMPLETED", 1)


def test_branch_takes_the_error_edge(stage: Stage) -> None:
    handle = started(stage, f"{PATHS}, m !> rescue", error={"type": "branch"})
    stage.pass_time(5.1)
    stage.until_state(handle, "rescue", "COMPLETED")
    stage.door("silent").open()
    ended = stage.end_of(handle)
    assert ended.state == "COMPLETED"
    assert ended.states["next"] == "SKIPPED"
    assert ended.states["rescue"] == "COMPLETED"
    assert ended.context["$m"] == {"error": TIMED_OUT}


def test_a_timeout_is_not_retried(stage: Stage) -> None:
    handle = started(stage, retry={"max_attempts": 5})
    stage.pass_time(5.1)
    ended = stage.end_of(handle)
    assert ended.error == TIMED_OUT
    assert ended.count("NodeRetrying") == 0


def test_an_opened_merge_has_no_deadline_left(stage: Stage) -> None:
    nodes = {"m": merge(timeout=5), "next": hold("next")}
    handle = stage.start(graph("a > b > m, a > c > m, m > next", nodes))
    stage.until_comers(handle, "next")
    stage.pass_time(60)
    stage.door("next").open()
    ended = stage.end_of(handle)
    assert ended.state == "COMPLETED"
    assert ended.nodes["m"] == ("COMPLETED", 1)
