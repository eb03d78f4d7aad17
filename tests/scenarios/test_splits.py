"""Splits and aggregators: one scope per item, results in item order, windows, everything an item can come to."""

from __future__ import annotations

import pytest

from tests.scenarios.documents import (
    aggregator,
    conditional,
    echo,
    error_object,
    graph,
    hold,
    merge,
    race,
    split,
    task,
)
from tests.scenarios.stage import Stage


def test_items_run_in_scopes_of_their_own_and_meet_in_item_order(stage: Stage) -> None:
    nodes = {
        "s": split("$trigger.items"),
        "w": echo({"item": "{{ $item }}", "index": "{{ $index }}", "total": "{{ $s.total }}"}),
        "g": aggregator(),
    }
    ended = stage.run(graph("s > w > g > end", nodes), {"items": ["x", "y", "z"]})
    expected = [{"item": item, "index": index, "total": 3} for index, item in enumerate("xyz")]
    assert ended.context == {
        "$trigger": {"items": ["x", "y", "z"]},
        "$s": {"total": 3, "failed": 0},
        "$g": expected,
        "$end": "end",
    }
    assert ended.nodes == {
        "s": ("COMPLETED", 1),
        "w": ("COMPLETED", 3),
        "g": ("COMPLETED", 1),
        "end": ("COMPLETED", 1),
    }
    assert len({event.scope for event in ended.of("NodeCompleted", "w")}) == 3
    assert [(event.arrived, event.expected) for event in ended.of("NodeWaiting", "g")] == [(1, 3), (2, 3)]


def test_an_empty_list_jumps_to_the_aggregator(stage: Stage) -> None:
    ended = stage.run(graph("s > w > g > end", {"s": split([]), "g": aggregator()}))
    assert ended.context == {"$trigger": {}, "$s": {"total": 0, "failed": 0}, "$g": [], "$end": "end"}
    assert ended.nodes == {
        "s": ("COMPLETED", 1),
        "w": ("SKIPPED", 0),
        "g": ("COMPLETED", 1),
        "end": ("COMPLETED", 1),
    }


def test_items_straight_from_the_split_to_the_aggregator(stage: Stage) -> None:
    ended = stage.run(graph("s > g", {"s": split([1, [2], None]), "g": aggregator()}))
    assert ended.output == [1, [2], None]


def test_what_is_not_a_list_fails_the_split(stage: Stage) -> None:
    ended = stage.run(graph("s > w > g", {"s": split("$trigger"), "g": aggregator()}), {"a": 1})
    assert ended.state == "FAILED"
    assert ended.error == error_object(
        "'input_array' should be a list, but is an object",
        "NOT_A_LIST",
        "s",
        details={"parameter": "input_array", "type": "an object"},
    )


def test_a_failed_item_leaves_its_error_in_its_slot(stage: Stage) -> None:
    nodes = {
        "s": split([1, 2, 3]),
        "w": task("fail_if", {"when": "{{ $item == 2 }}", "value": "{{ $item * 10 }}"}),
        "g": aggregator(),
    }
    ended = stage.run(graph("s > w > g", nodes))
    assert ended.state == "COMPLETED"
    assert ended.output == [10, {"error": error_object("refused", "REFUSED", "w")}, 30]
    assert ended.context["$s"] == {"total": 3, "failed": 1}
    assert ended.nodes["w"] == ("FAILED", 3)
    waiting = ended.of("NodeWaiting", "g")
    assert [(event.arrived, event.expected) for event in waiting] == [(1, 3), (2, 3)]


@pytest.mark.parametrize("early", [0, 1, 2])
def test_an_item_that_ends_early_leaves_null(stage: Stage, early: int) -> None:
    nodes = {
        "s": split([0, 1, 2]),
        "c": conditional(f"$item != {early}"),
        "w": echo("{{ $item }}"),
        "g": aggregator(),
    }
    ended = stage.run(graph("s > c > w > g", nodes))
    assert ended.output == [None if item == early else item for item in range(3)]
    assert ended.context["$s"] == {"total": 3, "failed": 0}


@pytest.mark.parametrize("early", [0, 2])
def test_an_item_that_ends_early_and_last_opens_the_aggregator(stage: Stage, early: int) -> None:
    nodes = {
        "s": split([0, 1, 2]),
        "c": conditional(f"$item == {early}"),
        "h": hold("late"),
        "w": echo("{{ $item }}"),
        "g": aggregator(),
    }
    handle = stage.start(graph("s > c > h, c > w > g", nodes))
    stage.until_comers(handle, "late")
    stage.until_event(handle, "NodeWaiting", "g", times=2)
    stage.door("late").open()
    assert stage.end_of(handle).output == [None if item == early else item for item in range(3)]


def test_a_merge_inside_a_split_is_per_item(stage: Stage) -> None:
    nodes = {
        "s": split([1, 2]),
        "x": echo("{{ $item * 10 }}"),
        "y": echo("{{ $item * 100 }}"),
        "m": merge(),
        "g": aggregator(),
    }
    ended = stage.run(graph("s > x > m, s > y > m, m > g", nodes))
    assert ended.output == [[10, 100], [20, 200]]
    assert ended.nodes["m"] == ("COMPLETED", 2)


def test_a_merge_right_behind_the_split_takes_the_item_itself(stage: Stage) -> None:
    nodes = {"s": split([1, 2]), "x": echo("{{ $item * 10 }}"), "m": merge(), "g": aggregator()}
    ended = stage.run(graph("s > x > m, s > m, m > g", nodes))
    assert ended.output == [[10, 1], [20, 2]]


def test_a_conditional_into_a_merge_inside_a_split_proceeds_per_item(stage: Stage) -> None:
    nodes = {"s": split([1, 2, 3]), "c": conditional("$item > 1"), "m": merge(), "g": aggregator()}
    ended = stage.run(graph("s > c > x > m, c > y > m, m > g", nodes))
    assert ended.output == [["y"], ["x"], ["x"]]
    assert ended.nodes["m"] == ("COMPLETED", 3)


@pytest.mark.parametrize("losers", ["keep", "cancel"])
def test_a_race_inside_a_split_is_per_item(stage: Stage, losers: str) -> None:
    nodes = {
        "s": split([1, 2]),
        "x": echo("{{ $item }}"),
        "y": hold("y"),
        "m": race(losers=losers),
        "g": aggregator(),
    }
    handle = stage.start(graph("s > x > m, s > y > m, m > g", nodes))
    if losers == "keep":
        stage.until_comers(handle, "y", 2)
        stage.door("y").open()
    ended = stage.end_of(handle)
    assert ended.output == [[1], [2]]
    assert ended.states["y"] == ("COMPLETED" if losers == "keep" else "CANCELLED")


def test_a_merge_that_times_out_inside_an_item_fails_that_item_only(stage: Stage) -> None:
    nodes = {
        "s": split([1, 2]),
        "x": echo("{{ $item }}"),
        "c": conditional("$item == 1"),
        "y": hold("y"),
        "m": merge(timeout=5),
        "g": aggregator(),
    }
    handle = stage.start(graph("s > x > m, s > c > y > m, c > z > m, m > g", nodes))
    stage.until_comers(handle, "y")
    stage.until_event(handle, "NodeWaiting", "g")
    stage.pass_time(6)
    ended = stage.end_of(handle)
    assert ended.output[0]["error"]["code"] == "MERGE_TIMEOUT"
    assert ended.output[1] == [2, "z"]
    assert ended.states["y"] == "CANCELLED"


def test_several_tokens_of_one_item_bring_the_payload_of_the_last_in_edge(stage: Stage) -> None:
    nodes = {"s": split([1, 2]), "x": hold("x"), "y": echo("{{ $item * 10 }}"), "g": aggregator()}
    handle = stage.start(graph("s > x > g, s > y > g", nodes))
    stage.until_state(handle, "y", "COMPLETED")
    stage.until_comers(handle, "x", 2)
    stage.door("x").open()
    ended = stage.end_of(handle)
    assert ended.output == [10, 20]
    assert ended.nodes["g"] == ("COMPLETED", 1)


def test_several_tokens_of_one_item_share_their_contexts_with_the_output_expression(stage: Stage) -> None:
    nodes = {
        "s": split([1, 2]),
        "x": echo("{{ $item + 1 }}"),
        "y": echo("{{ $item * 10 }}"),
        "g": aggregator(output="$x + $y"),
    }
    assert stage.run(graph("s > x > g, s > y > g", nodes)).output == [12, 23]


def test_the_aggregators_output_expression_is_evaluated_in_each_item(stage: Stage) -> None:
    nodes = {
        "s": split([1, 2, 3]),
        "w": echo({"big": "thing"}),
        "g": aggregator(output="{item: $item, at: $index, seen: $w.big}"),
    }
    ended = stage.run(graph("s > w > g", nodes))
    assert ended.output == [{"item": item, "at": item - 1, "seen": "thing"} for item in (1, 2, 3)]


def test_an_output_expression_that_fails_fails_its_item(stage: Stage) -> None:
    nodes = {"s": split([{"v": 1}, {}]), "w": echo("{{ $item }}"), "g": aggregator(output="$w.v + 1")}
    ended = stage.run(graph("s > w > g", nodes))
    assert ended.output[0] == 2
    assert ended.output[1]["error"]["type"] == "ExpressionFailed"
    assert ended.output[1]["error"]["node"] == "g"


def test_a_split_without_aggregator_runs_its_items_and_collects_nothing(stage: Stage) -> None:
    nodes = {"s": split([1, 2, 3]), "w": task("note", "{{ $item }}")}
    ended = stage.run(graph("a > s > w", nodes))
    assert ended.state == "COMPLETED"
    assert sorted(stage.seen) == [1, 2, 3]
    assert ended.context == {"$trigger": {}, "$a": "a", "$s": {"total": 3, "failed": 0}}
    assert ended.nodes["w"] == ("COMPLETED", 3)


def test_an_empty_split_without_aggregator_completes(stage: Stage) -> None:
    ended = stage.run(graph("s > w", {"s": split([])}))
    assert ended.state == "COMPLETED"
    assert ended.nodes == {"s": ("COMPLETED", 1), "w": ("SKIPPED", 0)}


def test_a_fan_out_inside_an_item_holds_the_item_open(stage: Stage) -> None:
    nodes = {"s": split([1, 2]), "w": echo("{{ $item }}"), "side": hold("side"), "g": aggregator()}
    handle = stage.start(graph("s > w > g, s > side > deeper", nodes))
    stage.until_comers(handle, "side", 2)
    assert handle.status().state == "RUNNING"
    stage.door("side").open()
    ended = stage.end_of(handle)
    assert ended.output == [1, 2]
    assert ended.nodes["deeper"] == ("COMPLETED", 2)


def test_a_split_visited_twice_has_a_barrier_per_visit(stage: Stage) -> None:
    nodes = {
        "b": echo([1, 2]),
        "c": echo([3]),
        "s": split("$json"),
        "w": task("note", "{{ $item }}"),
        "g": aggregator(),
    }
    ended = stage.run(graph("a > b > s, a > c > s, s > w > g", nodes))
    assert sorted(stage.seen) == [1, 2, 3]
    assert ended.nodes["g"] == ("COMPLETED", 2)
    assert ended.state == "COMPLETED"
