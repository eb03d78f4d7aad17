"""Workflows as nodes of workflows: who is cancelled with whom."""

from __future__ import annotations

from tests.scenarios.children import child, deploy, until_children, workflow
from tests.scenarios.documents import aggregator, fail, graph, hold, race, split, task
from tests.scenarios.stage import Stage


def test_children_are_cancelled_with_a_cancelled_parent(stage: Stage) -> None:
    deploy(
        stage,
        child("h", {"h": hold("gate")}, name="inner"),
        child("y", {"y": workflow("inner", {})}, name="middle"),
    )
    handle = stage.start(graph("a, b", {"a": workflow("middle", {}), "b": workflow("inner", {}, wait=False)}))
    middle, started = sorted(until_children(stage, handle, 2), key=lambda one: one.status().relation or "")
    [inner] = until_children(stage, middle)
    stage.until_event(handle, "NodeCompleted", "b")
    handle.cancel()
    assert [stage.end_of(one).state for one in (middle, inner)] == ["CANCELLED", "CANCELLED"]
    assert started.status().state == "RUNNING"


def test_children_are_cancelled_with_a_failed_parent(stage: Stage) -> None:
    deploy(stage, child("h", {"h": hold("gate")}))
    document = graph("w, h > f", {"w": workflow("child", {}), "h": hold("failing"), "f": fail()})
    handle = stage.start(document)
    [one] = until_children(stage, handle)
    stage.door("failing").open()
    assert stage.end_of(handle).states["w"] == "CANCELLED"
    assert stage.end_of(one).state == "CANCELLED"


def test_children_are_cancelled_with_a_parent_whose_time_is_up(stage: Stage) -> None:
    deploy(stage, child("h", {"h": hold("gate")}))
    handle = stage.start(graph("w", {"w": workflow("child", {})}, timeout="1m"))
    [one] = until_children(stage, handle)
    stage.until_event(handle, "NodeWaiting", "w")
    stage.pass_time(61)
    assert stage.end_of(handle).error["code"] == "TIMEOUT"
    assert stage.end_of(one).state == "CANCELLED"


def test_children_of_a_failed_item_are_cancelled_and_those_of_others_are_not(stage: Stage) -> None:
    deploy(stage, child("h", {"h": task("hold", "{{ $trigger.door }}")}))
    document = graph(
        "s > a > g, s > b > f > g",
        {
            "s": split([{"door": "one", "bad": True}, {"door": "two", "bad": False}]),
            "a": workflow("child", "{{ $item }}"),
            "b": hold("failing"),
            "f": task("fail_if", {"when": "{{ $item.bad }}"}),
            "g": aggregator(output="$a"),
        },
    )
    handle = stage.start(document)
    first, second = sorted(until_children(stage, handle, 2), key=lambda one: bytes(one.status().input))
    stage.until_comers(handle, "one")
    stage.until_comers(handle, "two")
    stage.door("failing").open()
    assert stage.end_of(first).state == "CANCELLED"
    assert second.status().state == "RUNNING"
    stage.door("two").open()
    output = stage.end_of(handle).output
    assert (output[0]["error"]["code"], output[1]) == ("REFUSED", "two")


def test_children_of_all_items_are_cancelled_where_one_failure_fails_the_split(stage: Stage) -> None:
    deploy(stage, child("h", {"h": hold("gate")}))
    nodes = {
        "s": {**split([False, False, True], on_item_error="halt"), "error": {"type": "ignore"}},
        "f": task("fail_if", {"when": "{{ $item }}"}),
        "w": workflow("child", {}),
        "g": aggregator(),
        "z": hold("end"),
    }
    handle = stage.start(graph("s > w > g, s > b > f > g, g > z", {**nodes, "b": hold("failing")}))
    found = until_children(stage, handle, 3)
    stage.door("failing").open()
    assert {stage.end_of(one).state for one in found} == {"CANCELLED"}
    stage.door("end").open()
    assert stage.end_of(handle).state == "COMPLETED"


def test_children_of_items_are_cancelled_when_the_aggregator_gives_up(stage: Stage) -> None:
    deploy(stage, child("h", {"h": hold("gate")}))
    nodes = {
        "s": split([1, 2]),
        "w": workflow("child", {}),
        "g": {**aggregator(timeout=60), "error": {"type": "ignore"}},
        "z": hold("end"),
    }
    handle = stage.start(graph("s > w > g > z", nodes))
    found = until_children(stage, handle, 2)
    stage.until_event(handle, "NodeWaiting", "w", times=2)
    stage.pass_time(61)
    assert {stage.end_of(one).state for one in found} == {"CANCELLED"}
    stage.door("end").open()
    assert stage.end_of(handle).state == "COMPLETED"


def test_children_of_the_losers_of_a_race_are_cancelled(stage: Stage) -> None:
    deploy(stage, child("h", {"h": task("hold", "{{ $trigger.door }}")}))
    nodes = {
        "a": workflow("child", {"door": "fast"}),
        "b": workflow("child", {"door": "slow"}),
        "s": split([1]),
        "c": workflow("child", {"door": "slow"}),
        "g": aggregator(),
        "o": workflow("child", {"door": "aside"}),
        "m": race(losers="cancel", mode="first"),
        "z": hold("end"),
    }
    handle = stage.start(graph("a > m, b > m, s > c > g > m, o, m > z", nodes))
    found = {bytes(one.status().input): one for one in until_children(stage, handle, 4)}
    aside = found[b'{"door":"aside"}']
    losers = [
        one for one in until_children(stage, handle, 4) if bytes(one.status().input) == b'{"door":"slow"}'
    ]
    stage.door("fast").open()
    assert [stage.end_of(one).state for one in losers] == ["CANCELLED", "CANCELLED"]
    assert aside.status().state == "RUNNING"
    stage.door("aside").open()
    stage.door("end").open()
    assert stage.end_of(handle).state == "COMPLETED"
