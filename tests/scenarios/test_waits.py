"""Waits: parked tokens, due times, what they pass on."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.scenarios.documents import graph, merge, wait
from tests.scenarios.stage import Stage


def iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat()


def test_a_wait_holds_nothing_and_resumes_on_time(stage: Stage) -> None:
    handle = stage.start(graph("a > w > b", {"w": wait(90)}))
    stage.until_event(handle, "NodeWaiting", "w")
    due = stage.clock.now() + 90
    [waiting] = handle.why()
    assert (waiting.kind, waiting.node, waiting.due) == ("timer", "w", due)
    assert handle.nodes()["w"].state == "WAITING"
    stage.pass_time(89)
    assert handle.nodes()["w"].state == "WAITING"
    stage.pass_time(1.5)
    ended = stage.end_of(handle)
    assert ended.output == "b"
    assert datetime.fromisoformat(ended.context["$w"]["resume_at"]).timestamp() == due
    assert ended.nodes["w"] == ("COMPLETED", 1)


def test_success_is_recorded_at_wake_before_the_successor_runs(stage: Stage) -> None:
    handle = stage.start(graph("w > b", {"w": wait(10)}))
    stage.until_event(handle, "NodeWaiting", "w")
    stage.pass_time(11)
    ended = stage.end_of(handle)
    kinds = [(event.kind, event.node) for event in ended.events if event.node]
    assert kinds == [("NodeWaiting", "w"), ("NodeCompleted", "w"), ("NodeCompleted", "b")]
    assert ended.of("NodeCompleted", "w")[0].at == stage.clock.now()


def test_a_wait_until_a_point_in_time_from_an_expression(stage: Stage) -> None:
    node = {"type": "wait", "parameters": {"resume": "until", "until": "{{ $trigger.at }}"}}
    handle = stage.start(graph("w > b", {"w": node}), {"at": iso(stage.clock.now() + 3600)})
    stage.until_event(handle, "NodeWaiting", "w")
    assert handle.nodes()["w"].due == stage.clock.now() + 3600
    stage.pass_time(3601)
    assert stage.end_of(handle).output == "b"


def test_a_point_in_time_that_has_passed_does_not_wait(stage: Stage) -> None:
    node = {"type": "wait", "parameters": {"resume": "until", "until": iso(stage.clock.now() - 5)}}
    assert stage.run(graph("w > b", {"w": node})).output == "b"


def test_units_and_fractions(stage: Stage) -> None:
    node = {"type": "wait", "parameters": {"amount": "1.5", "unit": "hours"}}
    handle = stage.start(graph("w", {"w": node}))
    stage.until_event(handle, "NodeWaiting", "w")
    assert handle.nodes()["w"].due == stage.clock.now() + 5400
    stage.pass_time(5401)
    assert stage.end_of(handle).state == "COMPLETED"


def test_a_wait_passes_on_what_it_received(stage: Stage) -> None:
    handle = stage.start(graph("a > w > m, a > b > m", {"w": wait(5), "m": merge()}))
    stage.until_event(handle, "NodeWaiting", "m")
    stage.pass_time(6)
    assert stage.end_of(handle).output == ["a", "b"]


def test_waits_that_come_due_together_all_wake(stage: Stage) -> None:
    names = [f"w{seconds}" for seconds in (30, 10, 20)]
    nodes = {name: wait(int(name[1:])) for name in names}
    handle = stage.start(graph(", ".join(f"a > {name}" for name in names), nodes))
    for name in names:
        stage.until_event(handle, "NodeWaiting", name)
    stage.pass_time(31)
    ended = stage.end_of(handle)
    assert {ended.nodes[name] for name in names} == {("COMPLETED", 1)}
