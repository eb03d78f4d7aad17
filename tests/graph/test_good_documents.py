"""Documents as people and other systems write them, and what they become."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dalsegno.graph.build import load_graph
from dalsegno.graph.plan import Plan
from tests.graph.catalog import CATALOG
from tests.graph.documents import document, findings_of, plan_of

RFC_DOCUMENT = {
    "workflow_id": "wf_1",
    "execution_id": "exec_1",
    "nodes": [
        {"id": "start", "type": "ManualTrigger", "trigger": True, "position": {"x": 1, "y": 2}, "output": {}},
        {
            "id": "fetch",
            "name": "Fetch user",
            "type": "http",
            "parameters": {"url": "https://example.com/{{ $trigger.id }}", "retry": 2, "retry_delay": 5},
            "output": {},
            "error": {"type": "branch", "error_edge": "e_err"},
        },
        {
            "id": "gate",
            "type": "conditional",
            "parameters": {
                "expression": "$fetch.body.plan == 'pro'",
                "true_edge_id": "e2",
                "false_edge_id": "e3",
            },
            "error": None,
        },
        {
            "id": "pro",
            "type": "log",
            "parameters": {"message": '{{ $node["Fetch user"].body }}'},
            "error": {},
        },
        {"id": "free", "type": "log"},
        {"id": "failed", "type": "log"},
    ],
    "edges": [
        {"id": "e0", "src": "start", "dst": "fetch"},
        {"id": "e1", "src": "fetch", "dst": "gate"},
        {"id": "e2", "src": "gate", "dst": "pro"},
        {"id": "e3", "src": "gate", "dst": "free"},
        {"id": "e_err", "src": "fetch", "dst": "failed"},
    ],
}

DAG = """
name: report
dag:
  nodes:
    - {id: input, handler: input}
    - {id: left, handler: call_external_service, config: {url: "https://example.com"}, dependencies: [input]}
    - {id: right, handler: log, dependencies: [input], error: {type: branch, error_edge: rescue}}
    - {id: rescue, handler: log, dependencies: [right]}
    - {id: sum, handler: task, config: {input: "{{ $left.body }}"}, dependencies: [left, right], timeout: 1m}
    - {id: output, handler: output, dependencies: [sum]}
"""


def shape(plan: Plan) -> Any:
    """A plan as comparable data."""
    nodes = [
        [getattr(node, name) for name in node.__struct_fields__ if name != "parameters"]
        + [sorted(node.parameters.roots), sorted(node.parameters.expressions), node.parameters.raw]
        for node in plan.nodes.values()
    ]
    ends = (plan.entries, plan.entry_edges, plan.triggers, plan.leaves, plan.topological, plan.members)
    return nodes, ends, plan.name, plan.timeout, plan.input_schema


def test_document_as_the_first_system_writes_it() -> None:
    compiled = load_graph(RFC_DOCUMENT, CATALOG, default_name="checkout")
    plan = compiled.plan
    assert compiled.warnings == ()
    assert plan.name == "checkout"
    assert plan.triggers == ("start",)
    assert plan.entries == ("fetch",)
    assert [edge.id for edge in plan.entry_edges] == ["e0"]
    fetch = plan.nodes["fetch"]
    assert [edge.id for edge in fetch.success_edges] == ["e1"]
    assert [edge.id for edge in fetch.error_edges] == ["e_err"]
    assert fetch.strategy == "branch"
    assert (fetch.retry.max_attempts, fetch.retry.initial_delay) == (3, 5.0)
    assert plan.nodes["pro"].parameters.roots == {"fetch"}
    assert plan.leaves == ("pro", "free", "failed")


def test_dependencies_join_all_and_name_edges_by_their_ends() -> None:
    plan = load_graph(DAG, CATALOG).plan
    total = plan.nodes["sum"]
    assert total.join == "all"
    assert total.barrier
    assert [edge.id for edge in total.in_edges] == ["left->sum", "right->sum"]
    assert [edge.slot for edge in total.in_edges] == [0, 1]
    assert total.timeout == 60
    assert plan.nodes["left"].type == "http"
    assert plan.nodes["output"].join == "each", "one dependency needs no barrier"
    assert [edge.id for edge in plan.nodes["right"].error_edges] == ["right->rescue"]
    assert plan.entries == ("input",)
    assert plan.output_nodes == ("output",)


def test_dependencies_may_stand_at_the_top_level() -> None:
    nodes = [{"id": "a", "type": "log"}, {"id": "b", "type": "log", "dependencies": ["a"]}]
    plan = load_graph({"nodes": nodes}, CATALOG).plan
    assert [edge.id for edge in plan.nodes["b"].in_edges] == ["a->b"]
    assert plan.name == "workflow"


def test_with_dependencies_a_targets_id_stands_for_the_edge() -> None:
    edges = {"true_edge_id": "a", "false_edge_id": "c->b"}
    nodes = [
        {"id": "c", "handler": "conditional", "config": {"expression": "true", **edges}},
        {"id": "s", "handler": "switch", "config": {"rules": [], "routes": ["b"]}},
        {"id": "a", "handler": "log", "dependencies": ["c"]},
        {"id": "b", "handler": "log", "dependencies": ["c", "s"]},
    ]
    plan = load_graph({"dag": {"nodes": nodes}}, CATALOG).plan
    assert plan.nodes["c"].parameters.raw == {"true_edge_id": "c->a", "false_edge_id": "c->b"}
    assert plan.nodes["s"].parameters.raw == {"routes": ["s->b"]}
    assert [edge.id for edge in plan.nodes["c"].despite] == ["c->b"]


@pytest.mark.parametrize(
    "source", [RFC_DOCUMENT, DAG, document("t > a, t > b > m, a > m", t="manual", m="merge")]
)
def test_canonical_form_loads_to_the_same_plan(source: Any) -> None:
    first = load_graph(source, CATALOG, default_name="x")
    second = load_graph(first.definition_source, CATALOG)
    assert second.definition_source == first.definition_source
    assert second.hash == first.hash == first.plan.hash
    assert shape(second.plan) == shape(first.plan)


def test_hash_ignores_display_fields_and_field_order_but_nothing_else() -> None:
    plain = document("a > b")
    shown = json.loads(json.dumps(plain))
    shown["nodes"][0]["position"] = {"x": 1}
    shown["nodes"][0] = dict(reversed(shown["nodes"][0].items()))
    shown["workflow_id"] = "w"
    shown["nodes"][1]["error"] = None
    assert load_graph(shown, CATALOG).hash == load_graph(plain, CATALOG).hash
    assert b'"position":{"x":1}' in load_graph(shown, CATALOG).definition_source
    hashes = {
        load_graph({**plain, **change}, CATALOG).hash
        for change in ({}, {"name": "other"}, {"timeout": 3}, {"description": "better"}, {"tags": ["x"]})
    }
    assert len(hashes) == 5


def test_parameters_keep_their_key_order_and_large_numbers() -> None:
    written = '{"z": 1, "a": 123456789012345678901234567890}'
    source = f'{{"nodes": [{{"id": "a", "type": "task", "parameters": {{"input": {written}}}}}]}}'
    kept = load_graph(source, CATALOG).definition_source
    assert b'{"z":1,"a":123456789012345678901234567890}' in kept
    assert load_graph(kept, CATALOG).definition_source == kept


def test_later_changes_to_a_given_mapping_do_not_reach_the_plan() -> None:
    given = document("a", a={"type": "task", "parameters": {"input": {"x": 1}}})
    plan = load_graph(given, CATALOG).plan
    given["nodes"][0]["parameters"]["input"]["x"] = 2
    assert plan.nodes["a"].parameters.template.render(lambda root: None, now=0.0) == {"input": {"x": 1}}


@pytest.mark.parametrize("mark", [True, "error", "true"])
def test_marked_error_edge_means_branch(mark: Any) -> None:
    source = document("a > b, a > c")
    source["edges"][1]["is_error"] = mark
    node = load_graph(source, CATALOG).plan.nodes["a"]
    assert node.strategy == "branch"
    assert [edge.dst for edge in node.error_edges] == ["c"]
    assert not node.forks


@pytest.mark.parametrize(
    ("error", "strategy"),
    [(None, "halt"), ({}, "halt"), ("ignore", "ignore"), ({"type": "ignore"}, "ignore")],
)
def test_error_strategies(error: Any, strategy: str) -> None:
    assert plan_of("a > b", a={"error": error}).nodes["a"].strategy == strategy


def test_ids_that_mean_the_start_payload_anyway_are_no_conflict() -> None:
    plan = plan_of("trigger > a", trigger="manual", a={"parameters": {"message": "$trigger.x"}})
    assert plan.nodes["a"].parameters.roots == {"$trigger"}
    other = plan_of("begin > a", begin="schedule", a={"parameters": {"message": "$begin.x"}})
    assert other.nodes["a"].parameters.roots == {"$trigger"}


def test_trigger_mark_makes_any_node_a_trigger() -> None:
    plan = plan_of("hook > a", hook={"type": "SomethingElse", "trigger": True})
    assert plan.triggers == ("hook",)
    assert plan.nodes["hook"].control == "trigger"


def test_names_resolve_unless_shared_or_taken_by_an_id() -> None:
    plan = plan_of("a > b > c > d", a={"name": "One"}, b={"name": "Two"}, c={"name": "Two"}, d={"name": "a"})
    assert plan.names == {"One": "a"}


def test_settings_of_nodes_and_workflow() -> None:
    retry = {
        "max_attempts": 4,
        "initial_delay": "500ms",
        "factor": 3,
        "max_delay": "1m",
        "jitter": 0.1,
        "on": "HTTP_500",
    }
    source = document("a", a={"retry": retry, "timeout": "1h30m", "queue": "io"})
    plan = load_graph({**source, "timeout": "7d", "output": "{{ $a.x }}", "description": "d"}, CATALOG).plan
    node = plan.nodes["a"]
    assert node.retry.max_attempts == 4
    assert node.retry.initial_delay == 0.5
    assert node.retry.max_delay == 60
    assert node.retry.on == ("HTTP_500",)
    assert (node.timeout, node.queue, plan.timeout, plan.description) == (5400, "io", 604_800, "d")
    assert plan.output is not None
    assert plan.output.roots == {"a"}


def test_retry_without_a_number_tries_three_times() -> None:
    assert plan_of("a", a={"retry": {"factor": 2}}).nodes["a"].retry.max_attempts == 3


def test_merge_deadlines() -> None:
    def deadline(**parameters: Any) -> float | None:
        return plan_of("a > m", m={"type": "merge", "parameters": parameters}).nodes["m"].merge_timeout

    assert deadline() == 300
    assert deadline(timeout="2m") == 120
    assert deadline(wait_mode="wait_for_any") is None
    split = plan_of("s > a > g", s="split", g="aggregator")
    assert split.nodes["g"].merge_timeout is None


def test_aggregator_expressions_see_the_items_they_collect() -> None:
    source = document(
        "s > a > g", s="split", g={"type": "aggregator", "parameters": {"output": "$a.x + $item.y"}}
    )
    assert findings_of(source) == []


def test_list_nodes_may_use_their_own_item() -> None:
    source = document("a > b", b={"type": "map", "parameters": {"expression": "item.x + $a.y"}})
    assert findings_of(source) == []


def test_inside_a_split_outer_nodes_and_the_split_itself_are_visible() -> None:
    inner = {"parameters": {"message": "$x.y $s.index $item $b.z"}}
    assert findings_of(document("x > s > b > a > g", s="split", a=inner, g="aggregator")) == []


def test_conditions_whose_branches_end_are_fine() -> None:
    source = document("c > a, d, s", c="conditional", d="conditional", s="switch")
    assert findings_of(source) == []
