"""What waiting nodes survive: the end of their process, and time that passes without one."""

from __future__ import annotations

from typing import Any

from dalsegno.ports.archive import ExecutionFilter
from tests.scenarios.conftest import LASTING
from tests.scenarios.documents import echo, graph
from tests.scenarios.stage import Stage

pytestmark = LASTING
FORM = {"required": ["n"]}


def waiting(**parameters: Any) -> dict[str, Any]:
    return {"type": "wait", "parameters": {"resume": "signal", "signal": "go", **parameters}}


def test_a_wait_for_a_signal_goes_on_in_another_process(store_url: str) -> None:
    with Stage(store_url) as first:
        handle = first.start(graph("w > b", {"w": waiting(), "b": echo("{{ $w }}")}))
        first.until_event(handle, "NodeWaiting", "w")
    with Stage(store_url) as second:
        again = second.app.handle(handle.id)
        again.signal("go", "later")
        assert second.end_of(again).output == "later"


def test_a_signal_to_a_stopped_system_is_taken_when_it_runs_again(store_url: str) -> None:
    with Stage(store_url) as first:
        handle = first.start(graph("w", {"w": waiting()}))
        first.until_event(handle, "NodeWaiting", "w")
    asleep = Stage(store_url)
    asleep.app.handle(handle.id).signal("go", 1)
    asleep.app.close()
    with Stage(store_url) as second:
        assert second.end_of(second.app.handle(handle.id)).output == 1


def test_an_open_approval_is_asked_and_decided_in_another_process(store_url: str) -> None:
    node = {"type": "approval", "parameters": {"message": "{{ $trigger.n }}?", "form": FORM}}
    with Stage(store_url) as first:
        handle = first.start(graph("gate", {"gate": node}), {"n": 5})
        first.until_event(handle, "NodeWaiting", "gate")
    with Stage(store_url) as second:
        again = second.app.handle(handle.id)
        assert [(asked.message, asked.form) for asked in again.approvals()] == [("5?", FORM)]
        again.decide("gate", "approved", {"n": 1})
        assert second.end_of(again).output["data"] == {"n": 1}


def test_a_time_limit_passes_while_nothing_runs(store_url: str) -> None:
    with Stage(store_url) as first:
        handle = first.start(graph("w", {"w": waiting(timeout=60)}))
        first.until_event(handle, "NodeWaiting", "w")
    second = Stage(store_url)
    second.clock.advance(61)
    with second:
        assert second.end_of(second.app.handle(handle.id)).error["code"] == "TIMEOUT"


def test_a_child_outlives_the_process_that_started_it(store_url: str) -> None:
    child = {**graph("v", {"v": waiting()}), "name": "child"}
    with Stage(store_url) as first:
        first.app.deploy(child)
        node = {"type": "workflow", "parameters": {"name": "child", "input": {}}}
        handle = first.start(graph("w > b", {"w": node, "b": echo("{{ $w }}")}))
        where = ExecutionFilter(parent=handle.id)
        first.until("the child", handle, lambda: first.app.host.call(first.app.client.executions(where)))
        [view] = first.app.host.call(first.app.client.executions(where))
        first.until_event(first.app.handle(view.id), "NodeWaiting", "v")
    with Stage(store_url) as second:
        second.app.handle(view.id).signal("go", 9)
        assert second.end_of(second.app.handle(handle.id)).output == 9


def test_an_order_that_nobody_delivered_is_delivered_by_the_next_process(store_url: str) -> None:
    """A worker without the roles that deliver orders: the child is started by whoever comes next."""
    first = Stage(store_url)
    first.app.deploy({**graph("a"), "name": "child"})
    node = {"type": "workflow", "parameters": {"name": "child", "input": {}}}
    with first.app.running(scheduler=False):
        handle = first.start(graph("w", {"w": node}))
        first.until_event(handle, "NodeWaiting", "w")
    with Stage(store_url) as second:
        assert second.end_of(second.app.handle(handle.id)).output == "a"


def test_a_cancelled_parent_is_remembered_until_its_children_are_told(store_url: str) -> None:
    child = {**graph("v", {"v": waiting()}), "name": "child"}
    with Stage(store_url) as first:
        first.app.deploy(child)
        node = {"type": "workflow", "parameters": {"name": "child", "input": {}}}
        handle = first.start(graph("w", {"w": node}))
        where = ExecutionFilter(parent=handle.id)
        first.until("the child", handle, lambda: first.app.host.call(first.app.client.executions(where)))
        [view] = first.app.host.call(first.app.client.executions(where))
        first.until_event(first.app.handle(view.id), "NodeWaiting", "v")
    asleep = Stage(store_url)
    asleep.app.handle(handle.id).cancel()
    asleep.app.close()
    with Stage(store_url) as second:
        assert second.end_of(second.app.handle(view.id)).state == "CANCELLED"
