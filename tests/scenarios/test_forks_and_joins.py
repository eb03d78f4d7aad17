"""Parallel branches: leaves, diamonds with and without a merge, payloads in edge order."""

from __future__ import annotations

from tests.scenarios.documents import conditional, echo, graph, hold, log, merge
from tests.scenarios.stage import Stage


def test_two_parallel_leaves_end_in_one_completion_with_both_outputs(stage: Stage) -> None:
    ended = stage.run(graph("a > b, a > c"), {"x": 1})
    assert ended.output == {"b": "b", "c": "c"}
    assert ended.context == {"$trigger": {"x": 1}, "$a": "a", "$b": "b", "$c": "c"}
    assert ended.nodes == {"a": ("COMPLETED", 1), "b": ("COMPLETED", 1), "c": ("COMPLETED", 1)}
    assert ended.count("ExecutionCompleted") == 1
    assert ended.events[-1].kind == "ExecutionCompleted"


def test_the_slow_leaf_is_waited_for(stage: Stage) -> None:
    handle = stage.start(graph("a > b, a > c", {"c": hold("c")}))
    stage.until_state(handle, "b", "COMPLETED")
    assert handle.status().state == "RUNNING"
    stage.door("c").open()
    assert stage.end_of(handle).output == {"b": "b", "c": "c"}


def test_a_single_leaf_is_the_output_itself(stage: Stage) -> None:
    ended = stage.run(graph("a > b > c", {"c": echo({"n": 3})}))
    assert ended.output == {"n": 3}


def test_several_entries_start_together(stage: Stage) -> None:
    ended = stage.run(graph("a > m, b > m, c > m", {"m": merge()}))
    assert ended.output == ["a", "b", "c"]


def test_a_diamond_without_merge_runs_the_join_node_twice(stage: Stage) -> None:
    document = graph("a > b > d, a > c > d", {"d": {**log("at d")}, "b": echo(1), "c": echo(2)})
    ended = stage.run(document)
    assert ended.nodes["d"] == ("COMPLETED", 2)
    assert ended.count("NodeCompleted", "d") == 2
    assert ended.count("ExecutionCompleted") == 1
    assert ended.context["$b"] == 1
    assert ended.context["$c"] == 2


def test_a_diamond_with_merge_runs_it_once_with_payloads_in_edge_order(stage: Stage) -> None:
    document = graph("a > b > m, a > c > m", {"b": hold("b"), "m": merge()})
    handle = stage.start(document)
    stage.until_event(handle, "NodeWaiting", "m")
    stage.door("b").open()
    ended = stage.end_of(handle)
    assert ended.output == ["b", "c"]
    assert ended.nodes["m"] == ("COMPLETED", 1)
    waiting = ended.of("NodeWaiting", "m")
    assert [(event.arrived, event.expected) for event in waiting] == [(1, 2)]


def test_a_merge_unites_the_contexts_of_its_branches(stage: Stage) -> None:
    document = graph("a > b > m, a > c > m, m > z", {"m": merge(), "z": echo("{{ [$a, $b, $c, $m] }}")})
    ended = stage.run(document)
    assert ended.output == ["a", "b", "c", ["b", "c"]]


def test_the_combine_mode_unites_objects_and_later_edges_win(stage: Stage) -> None:
    nodes = {"b": echo({"x": 1, "y": 1}), "c": echo({"y": 2}), "m": merge(mode="combine")}
    assert stage.run(graph("a > b > m, a > c > m", nodes)).output == {"x": 1, "y": 2}


def test_the_first_mode_takes_the_first_edge_not_the_first_arrival(stage: Stage) -> None:
    handle = stage.start(graph("a > b > m, a > c > m", {"b": hold("b"), "m": merge(mode="first")}))
    stage.until_event(handle, "NodeWaiting", "m")
    stage.door("b").open()
    assert stage.end_of(handle).output == "b"


def test_two_edges_between_the_same_nodes_fill_two_slots(stage: Stage) -> None:
    ended = stage.run(graph("a > m, a > m", {"m": merge()}))
    assert ended.output == ["a", "a"]
    assert ended.nodes["m"] == ("COMPLETED", 1)


def test_merges_behind_merges_wait_for_each_other(stage: Stage) -> None:
    paths = "a > b > m1, a > c > m1, a > d > m2, m1 > m2"
    ended = stage.run(graph(paths, {"m1": merge(), "m2": merge()}))
    assert ended.output == ["d", ["b", "c"]]


def test_pass_through_nodes_hand_on_the_payload_they_received(stage: Stage) -> None:
    nodes = {"c": conditional("true"), "l": log("x {{ $a }}"), "m": merge()}
    ended = stage.run(graph("a > c > m, a > l > m", nodes))
    assert ended.output == ["a", "a"]


def test_a_node_visited_twice_lets_everything_behind_it_run_twice(stage: Stage) -> None:
    ended = stage.run(graph("a > b > d, a > c > d, d > e > f"))
    assert {name: runs for name, (_, runs) in ended.nodes.items()} == {
        "a": 1, "b": 1, "c": 1, "d": 2, "e": 2, "f": 2,
    }  # fmt: skip
    assert ended.count("ExecutionCompleted") == 1
