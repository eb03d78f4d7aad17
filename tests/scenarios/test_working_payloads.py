"""``$json`` through chains of edit and list nodes, and where it begins."""

from __future__ import annotations

from typing import Any

from tests.scenarios.documents import aggregator, echo, graph, log, merge, split
from tests.scenarios.stage import Stage


def edit(**fields: Any) -> dict[str, Any]:
    assignments = [{"name": name, "value": value} for name, value in fields.items()]
    return {"type": "edit", "parameters": {"assignments": assignments}}


def test_edits_build_on_each_other(stage: Stage) -> None:
    nodes = {"e1": edit(x=1), "e2": edit(y="{{ $json.x + 1 }}"), "e3": edit(z="{{ $json.x + $json.y }}")}
    ended = stage.run(graph("e1 > e2 > e3", nodes), {"start": True})
    assert ended.output == {"start": True, "x": 1, "y": 2, "z": 3}
    assert ended.context["$e1"] == {"start": True, "x": 1}
    assert ended.context["$json"] == ended.output


def test_before_the_first_edit_json_is_the_incoming_payload(stage: Stage) -> None:
    nodes = {"a": echo({"n": 1}), "b": echo("{{ $json.n }}"), "e": edit(m="{{ $json }}")}
    ended = stage.run(graph("a > b > e", nodes))
    assert ended.context["$b"] == 1
    assert ended.output == {"m": 1}


def test_nodes_between_edits_do_not_touch_the_working_payload(stage: Stage) -> None:
    nodes = {"e1": edit(x=1), "a": echo("other"), "l": log(), "e2": edit(y=2)}
    assert stage.run(graph("e1 > a > l > e2", nodes)).output == {"x": 1, "y": 2}


def test_list_nodes_hand_their_items_on(stage: Stage) -> None:
    nodes = {
        "a": echo([{"n": 3}, {"n": 1}, {"n": 2}]),
        "f": {"type": "filter", "parameters": {"input_array": "$a", "expression": "$item.n > 1"}},
        "s": {"type": "sort", "parameters": {"input_array": "$json", "expression": "$item.n"}},
        "l": {"type": "limit", "parameters": {"input_array": "$json", "count": 1}},
    }
    ended = stage.run(graph("a > f > s > l", nodes))
    assert ended.output["items"] == [{"n": 2}]
    assert ended.context["$f"]["count"] == 2
    assert ended.context["$f"]["original_count"] == 3


def test_inside_an_item_the_working_payload_starts_with_the_item(stage: Stage) -> None:
    nodes = {
        "e0": edit(outside=True),
        "s": split([{"n": 1}, {"n": 2}]),
        "e": edit(m="{{ $json.n * 10 }}"),
        "g": aggregator(),
    }
    ended = stage.run(graph("e0 > s > e > g > z", {**nodes, "z": echo("{{ $json }}")}))
    assert ended.context["$g"] == [{"n": 1, "m": 10}, {"n": 2, "m": 20}]


def test_branches_edit_independently(stage: Stage) -> None:
    nodes = {"e": edit(base=1), "x": edit(x=1), "y": edit(y=1), "m": merge()}
    ended = stage.run(graph("e > x > m, e > y > m", nodes))
    assert ended.output == [{"base": 1, "x": 1}, {"base": 1, "y": 1}]


def test_names_serve_as_roots_beside_ids(stage: Stage) -> None:
    nodes = {
        "http-1": {**echo({"body": {"id": 7}}), "name": "Fetch user"},
        "b": echo("{{ $http-1.body.id }}"),
        "c": echo('{{ $node["Fetch user"].body.id + 1 }}'),
        "d": echo("user $http-1.body.id. costs $5 at $HOME"),
    }
    ended = stage.run(graph("http-1 > b > c > d", nodes))
    assert ended.context["$b"] == 7
    assert ended.context["$c"] == 8
    assert ended.output == "user 7. costs $5 at $HOME"


def test_execution_facts_are_a_root(stage: Stage) -> None:
    ended = stage.run(
        graph("a", {"a": echo("{{ [$execution.id, $execution.workflow, $execution.version] }}")})
    )
    assert ended.output == [ended.id, "scenario", 1]
