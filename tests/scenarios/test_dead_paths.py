"""Edges that close unused: merges go on at once with what lives, everything else is skipped."""

from __future__ import annotations

import pytest

from tests.scenarios.documents import conditional, error_object, fail, graph, hold, merge, split, switch, task
from tests.scenarios.stage import Stage


@pytest.mark.parametrize("way", ["b", "c"])
def test_a_conditional_into_a_merge_proceeds_at_once_with_the_living_branch(stage: Stage, way: str) -> None:
    nodes = {"gate": conditional("$trigger.way == 'b'"), "m": merge()}
    ended = stage.run(graph("gate > b > m, gate > c > m", nodes), {"way": way})
    dead = "c" if way == "b" else "b"
    assert ended.output == [way]
    assert ended.nodes == {
        "gate": ("COMPLETED", 1),
        way: ("COMPLETED", 1),
        dead: ("SKIPPED", 0),
        "m": ("COMPLETED", 1),
    }
    assert ended.count("NodeSkipped", dead) == 1
    assert ended.count("NodeWaiting", "m") == 0
    assert stage.clock.now() == ended.events[-1].at


@pytest.mark.parametrize("truth", [True, False])
def test_a_conditional_whose_both_edges_lead_to_the_same_merge(stage: Stage, truth: bool) -> None:
    nodes = {"gate": conditional("$trigger.truth"), "m": merge()}
    ended = stage.run(graph("a > gate > m, gate > m", nodes), {"truth": truth})
    assert ended.output == ["a"]
    assert ended.nodes["m"] == ("COMPLETED", 1)


@pytest.mark.parametrize("fails", [True, False])
def test_an_error_handler_rejoins_a_merge(stage: Stage, fails: bool) -> None:
    nodes = {"work": task("fail_if", {"when": "{{ $trigger.fails }}", "value": "fine"}), "m": merge()}
    ended = stage.run(graph("work > next > m, work !> rescue > m", nodes), {"fails": fails})
    if fails:
        assert ended.output == ["rescue"]
        assert ended.context["$work"] == {"error": error_object("refused", "REFUSED", "work")}
        assert ended.states == {"work": "FAILED", "next": "SKIPPED", "rescue": "COMPLETED", "m": "COMPLETED"}
    else:
        assert ended.output == ["next"]
        assert ended.context["$work"] == "fine"
        assert ended.states == {
            "work": "COMPLETED",
            "next": "COMPLETED",
            "rescue": "SKIPPED",
            "m": "COMPLETED",
        }
    assert ended.state == "COMPLETED"


def test_an_error_edge_straight_into_a_merge_is_a_slot_like_any_other(stage: Stage) -> None:
    nodes = {"work": fail("no", "NO"), "m": merge()}
    ended = stage.run(graph("a > work > next > m, work !> m, a > m", nodes))
    assert ended.output == [{"error": error_object("no", "NO", "work")}, "a"]


def test_death_travels_through_whole_chains_and_merges(stage: Stage) -> None:
    nodes = {"gate": conditional("false"), "m1": merge(), "m2": merge()}
    ended = stage.run(graph("gate > b > c > m1, b > d > m1, m1 > e > m2, gate > z > m2", nodes))
    assert ended.output == ["z"]
    assert ended.states == {
        "gate": "COMPLETED", "b": "SKIPPED", "c": "SKIPPED", "d": "SKIPPED", "m1": "SKIPPED", "e": "SKIPPED",
        "z": "COMPLETED", "m2": "COMPLETED",
    }  # fmt: skip


def test_a_merge_none_of_whose_branches_lives_is_skipped_and_the_execution_completes(stage: Stage) -> None:
    nodes = {"gate": conditional("false"), "m": merge()}
    document = graph("gate > b > m > end, b > c > m", nodes)
    ended = stage.run(document)
    assert ended.state == "COMPLETED"
    assert ended.output is None
    assert ended.states == {
        "gate": "COMPLETED", "b": "SKIPPED", "c": "SKIPPED", "m": "SKIPPED", "end": "SKIPPED",
    }  # fmt: skip


def test_a_dead_split_takes_its_region_and_aggregator_along(stage: Stage) -> None:
    nodes = {
        "gate": conditional("false"),
        "s": split([1, 2]),
        "g": {"type": "aggregator", "parameters": {}},
        "m": merge(),
    }
    ended = stage.run(graph("gate > s > w > g > m, gate > z > m", nodes))
    assert ended.output == ["z"]
    assert {ended.states[name] for name in ("s", "w", "g")} == {"SKIPPED"}


@pytest.mark.parametrize(("value", "route"), [("x", "b"), ("y", "c"), ("?", "d")])
def test_a_switch_takes_one_route_and_the_others_die(stage: Stage, value: str, route: str) -> None:
    nodes = {"s": switch("$trigger.value", "x", "y"), "m": merge()}
    ended = stage.run(graph("s > b > m, s > c > m, s > d > m", nodes), {"value": value})
    assert ended.output == [route]
    assert ended.context["$s"] == {"output_index": "bcd".index(route)}
    assert sorted(name for name, state in ended.states.items() if state == "SKIPPED") == sorted(
        {"b", "c", "d"} - {route}
    )


def test_a_switch_without_a_route_ends_its_branch(stage: Stage) -> None:
    nodes = {"s": switch("$trigger.value", "x"), "m": merge()}
    ended = stage.run(graph("a > s > b > m, a > c > m", nodes), {"value": "?"})
    assert ended.output == ["c"]
    assert ended.context["$s"] == {"output_index": None}


def test_a_conditional_without_a_false_edge_ends_its_branch(stage: Stage) -> None:
    nodes = {"gate": conditional("false")}
    ended = stage.run(graph("a > gate > b", nodes))
    assert ended.state == "COMPLETED"
    assert ended.output is None
    assert ended.states == {"a": "COMPLETED", "gate": "COMPLETED", "b": "SKIPPED"}


TWICE = {"x": hold("x"), "y": hold("y"), "gate": conditional("$json == 'x'"), "m": merge()}
TWICE_PATHS = "a > x > gate, a > y > gate, gate > left > m, gate > right > m"


def test_a_gate_that_goes_both_ways_feeds_both_slots_of_a_merge(stage: Stage) -> None:
    """Fifty runs with different interleavings end alike: deadness waits until the gate has seen its last visit."""
    document = graph(TWICE_PATHS, TWICE)
    outcomes = []
    for turn in range(50):
        stage.doors.clear()
        handle = stage.start(document)
        first, second = ("x", "y") if turn % 2 else ("y", "x")
        stage.until_comers(handle, first)
        stage.until_comers(handle, second)
        stage.door(first).open()
        if turn % 3:
            stage.until_event(handle, "NodeCompleted", "gate")
        if turn % 5 > 2:
            stage.until_event(handle, "NodeWaiting", "m")
        stage.door(second).open()
        ended = stage.end_of(handle)
        outcomes.append((ended.output, ended.nodes["gate"], ended.nodes["m"], ended.state))
    assert outcomes == [(["left", "right"], ("COMPLETED", 2), ("COMPLETED", 1), "COMPLETED")] * 50


def test_a_gate_that_goes_one_way_twice_drops_the_second_arrival(stage: Stage) -> None:
    nodes = {"gate": conditional("true"), "m": merge()}
    ended = stage.run(graph(TWICE_PATHS, nodes))
    assert ended.output == ["left"]
    assert ended.nodes["left"] == ("COMPLETED", 2)
    assert ended.nodes["right"] == ("SKIPPED", 0)
    assert ended.nodes["m"] == ("COMPLETED", 1)
    assert ended.count("ArrivalDropped", "m") == 1


def test_a_gate_whose_in_edges_all_die_is_skipped(stage: Stage) -> None:
    nodes = {"c": conditional("false"), "m": merge()}
    ended = stage.run(graph("c > x > gate, x > y > gate, gate > m, c > z > m", nodes))
    assert ended.output == ["z"]
    assert ended.nodes["gate"] == ("SKIPPED", 0)


def test_gates_behind_gates_close_in_their_order(stage: Stage) -> None:
    nodes = {"c": conditional("$json == 'x'"), "m": merge()}
    paths = "a > x > c, a > y > c, c > g, c > h, g > k, h > k, k > m, a > z > m"
    ended = stage.run(graph(paths, nodes))
    assert ended.nodes["k"] == ("COMPLETED", 2)
    assert ended.output == ["k", "z"]
    assert ended.count("ArrivalDropped", "m") == 1
