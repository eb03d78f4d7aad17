"""What an execution puts out, and how it starts: triggers, output expressions, output nodes, leaves, dependencies."""

from __future__ import annotations

import pytest

from tests.scenarios.documents import conditional, dependencies, echo, graph, hold
from tests.scenarios.stage import Stage

MANUAL = {"type": "manual", "trigger": True}


def handler(name: str, value: object, *after: str) -> dict[str, object]:
    node = {"id": name, "handler": "task", "config": {"task": "echo", "input": value}}
    return {**node, "dependencies": list(after)} if after else node


def test_the_output_expression_sees_the_final_context(stage: Stage) -> None:
    document = graph("a > b, a > c", {"b": echo(2), "c": echo(3)}, output="{sum: $b + $c, of: $trigger.x}")
    assert stage.run(document, {"x": 9}).output == {"sum": 5, "of": 9}


def test_an_output_expression_on_a_chain(stage: Stage) -> None:
    assert stage.run(graph("a > b", {"b": echo([1, 2])}, output="$b[1]")).output == 2


@pytest.mark.parametrize("paths", ["a", "a > b, a > c"])
def test_an_output_expression_that_fails_ends_the_execution_failed(stage: Stage, paths: str) -> None:
    ended = stage.run(graph(paths, output="$a.no.such"))
    assert ended.state == "FAILED"
    assert ended.error["code"] == "OUTPUT_FAILED"
    assert ended.error["message"].startswith("the workflow's output expression failed: ")
    assert ended.states["a"] == "COMPLETED"
    assert ended.count("ExecutionFailed") == 1


def test_an_output_node_collects_what_came_before_it(stage: Stage) -> None:
    document = dependencies(
        handler("a", 1),
        handler("b", 2, "a"),
        handler("c", 3, "a"),
        {"id": "out", "handler": "output", "dependencies": ["b", "c"]},
        handler("side", 9, "a"),
    )
    assert stage.run(document).output == {"b": 2, "c": 3}


def test_an_input_node_passes_the_start_payload_on(stage: Stage) -> None:
    document = dependencies({"id": "in", "handler": "input"}, handler("a", "{{ $in.x }}", "in"), output="$a")
    assert stage.run(document, {"x": 5}).output == 5


def test_leaves_that_did_not_run_are_left_out(stage: Stage) -> None:
    ended = stage.run(graph("c > x, c > y", {"c": conditional("true")}))
    assert ended.output == {"x": "x"}
    assert ended.states["y"] == "SKIPPED"


def test_dependencies_join_all_and_unite_contexts(stage: Stage) -> None:
    document = dependencies(
        handler("a", 1),
        handler("b", 2),
        handler("sum", "{{ $a + $b }}", "a", "b"),
        handler("z", "{{ $sum }}", "sum"),
    )
    ended = stage.run(document)
    assert ended.output == 3
    assert ended.nodes["sum"] == ("COMPLETED", 1)


def test_dependencies_wait_for_the_slowest(stage: Stage) -> None:
    document = dependencies(
        handler("a", 1),
        {"id": "slow", "handler": "task", "config": {"task": "hold", "input": "slow"}},
        handler("end", "{{ [$a, $slow] }}", "a", "slow"),
    )
    handle = stage.start(document)
    stage.until_event(handle, "NodeWaiting", "end")
    stage.door("slow").open()
    assert stage.end_of(handle).output == [1, "slow"]


def test_a_conditional_among_dependencies_names_targets(stage: Stage) -> None:
    document = dependencies(
        {
            "id": "c",
            "handler": "conditional",
            "config": {"expression": "$trigger.big", "true_edge_id": "x", "false_edge_id": "y"},
        },
        handler("x", "x", "c"),
        handler("y", "y", "c"),
        handler("end", "{{ default($x, $y) }}", "x", "y"),
    )
    assert stage.run(document, {"big": True}).output == "x"
    assert stage.run(document, {"big": False}).output == "y"


def test_an_execution_starts_at_all_successors_of_its_triggers(stage: Stage) -> None:
    nodes = {"t": MANUAL, "u": MANUAL, "x": echo("{{ $trigger.n }}"), "y": echo("{{ input.n + 1 }}")}
    ended = stage.run(graph("t > x, t > y, u > z", nodes), {"n": 1})
    assert ended.output == {"x": 1, "y": 2, "z": "z"}
    assert ended.states["t"] == "COMPLETED"
    assert ended.nodes["t"] == ("COMPLETED", 0)


def test_a_merge_right_behind_a_trigger_takes_the_start_payload(stage: Stage) -> None:
    nodes = {"t": MANUAL, "m": {"type": "merge", "parameters": {}}}
    assert stage.run(graph("t > m, t > b > m", nodes), {"n": 1}).output == [{"n": 1}, "b"]


def test_a_workflow_that_is_nothing_but_its_trigger_completes_at_once(stage: Stage) -> None:
    ended = stage.run({"name": "scenario", "nodes": [{"id": "t", **MANUAL}], "edges": []}, {"n": 1})
    assert ended.state == "COMPLETED"
    assert ended.context == {"$trigger": {"n": 1}}


def test_the_later_of_two_branches_wins_where_contexts_disagree(stage: Stage) -> None:
    """Later by the position of its edge, not by the clock."""
    seen = {"type": "edit", "parameters": {"assignments": [{"name": "v", "value": "{{ $json }}"}]}}
    handle = stage.start(graph("a > b > e, a > c > e", {"b": hold("b"), "e": seen}, output="$e.v"))
    stage.until_event(handle, "NodeCompleted", "e")
    stage.door("b").open()
    assert stage.end_of(handle).output == "c"
