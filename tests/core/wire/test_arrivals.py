"""Where a message arrives, as a table: the trigger rule first, then the sender's edge, then the only input."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dalsegno.core.wire.adoption import arrival_of, begin
from dalsegno.core.wire.execution_message import SCHEMAS, InvalidMessage, message_schema, read_message
from dalsegno.graph.build import content_of, load_graph
from dalsegno.graph.json_schema.shape import schema_problems
from dalsegno.graph.plan import Plan
from dalsegno.model.effect import (
    CreateExecution,
    OpenBarrier,
    OpenScope,
    ResolveSlot,
    SpawnToken,
    TakeMessage,
)
from dalsegno.model.execution import NewExecution
from dalsegno.nodes.registry import builtin_registry
from tests.rows import rows
from tests.wire.documents import JOIN, LINEAR, MERGE, SPLIT, WAIT, edit, graph
from tests.wire.master import message

TYPES = builtin_registry(plugins=False)
PARALLEL = {
    "nodes": [edit("a"), edit("b")],
    "edges": [{"id": "one", "src": "a", "dst": "b"}, {"id": "two", "src": "a", "dst": "b"}],
}
TWO = graph([edit("a"), edit("b"), edit("c")], "a->c", "b->c")
FRAME = {"split_node_id": "s", "item_index": 0, "total_items": 2}


def plan_of(definition: dict[str, Any]) -> Plan:
    return load_graph(definition, TYPES).plan


CASES: dict[str, tuple[dict[str, Any], str, dict[str, Any], tuple[str, str, str | None]]] = {
    "at a trigger": (LINEAR, "start", {}, ("trigger", "start", None)),
    "behind a trigger": (LINEAR, "a", {}, ("trigger", "start", None)),
    "only input": (LINEAR, "b", {}, ("edge", "b", "a->b")),
    "named sender": (LINEAR, "b", {"from_node": "a"}, ("edge", "b", "a->b")),
    "sender behind a trigger": (LINEAR, "a", {"from_node": "start"}, ("edge", "a", "start->a")),
    "no inputs": (TWO, "b", {}, ("entries", "", None)),
    "several inputs": (TWO, "c", {"from_node": "b"}, ("edge", "c", "b->c")),
    "several inputs by edge": (TWO, "c", {"edge_id": "b->c"}, ("edge", "c", "b->c")),
    "parallel edges": (PARALLEL, "b", {"from_node": "a", "edge_id": "two"}, ("edge", "b", "two")),
    "null sender": (LINEAR, "b", {"from_node": None, "edge_id": None}, ("edge", "b", "a->b")),
    "in an item": (SPLIT, "w", {"from_node": "s", "lineage_stack": [FRAME]}, ("edge", "w", "s->w")),
    "at an aggregator": (SPLIT, "g", {"lineage_stack": [FRAME]}, ("edge", "g", "w->g")),
    "behind an aggregator": (SPLIT, "z", {"lineage_stack": []}, ("edge", "z", "g->z")),
}


@rows("name", CASES)
def test_arrival(name: str) -> None:
    definition, node, fields, expected = CASES[name]
    parsed = read_message(json.dumps(message("e1", node, definition, **fields)).encode())
    found = arrival_of(plan_of(definition), parsed)
    assert (found.kind, found.node, found.edge.id if found.edge else None) == expected


@pytest.mark.parametrize(("node", "kind"), [("pause", "woken"), ("z", "edge"), ("start", "trigger")])
def test_a_timer_wakes_wait_nodes_only(node: str, kind: str) -> None:
    parsed = read_message(json.dumps(message("e1", node, WAIT)).encode())
    assert arrival_of(plan_of(WAIT), parsed, timer=True).kind == kind


def started(definition: dict[str, Any], node: str, **fields: Any) -> list[Any]:
    plan = plan_of(definition)
    parsed = read_message(json.dumps(message("e1", node, definition, **fields)).encode())
    new = NewExecution("e1", "wf", 1, "hash", parsed.trigger, 0.0)
    return list(begin(plan, new, parsed, arrival_of(plan, parsed), "m1", 0.0).effects)


def test_a_start_creates_the_execution_and_names_the_message() -> None:
    created, taken, *rest = started(LINEAR, "b", from_node="a")
    assert isinstance(created, CreateExecution)
    assert taken == TakeMessage("m1")
    assert [type(effect) for effect in rest] == [SpawnToken]


def test_all_successors_of_a_trigger_start_under_one_name() -> None:
    fork = graph([{"id": "t", "type": "manual", "trigger": True}, edit("a"), edit("b")], "t->a", "t->b")
    for node in ("t", "a", "b"):
        _, taken, *rest = started(fork, node)
        assert taken == TakeMessage("trigger:t")
        assert [effect.token.node for effect in rest] == ["a", "b"]


def test_joins_get_a_deadline_and_merges_keep_theirs() -> None:
    [arrival] = [each for each in started(JOIN, "z", from_node="x") if isinstance(each, ResolveSlot)]
    assert arrival.barrier.timeout == 300
    [arrival] = [each for each in started(MERGE, "m", from_node="x") if isinstance(each, ResolveSlot)]
    assert arrival.barrier.timeout == 60


def test_scopes_are_opened_outermost_first() -> None:
    nested = graph(
        [
            {"id": "s", "type": "split", "parameters": {"input_array": "{{ $trigger.a }}"}},
            {"id": "q", "type": "split", "parameters": {"input_array": "{{ $item }}"}},
            edit("w"),
            {"id": "h", "type": "aggregator", "parameters": {}},
            {"id": "g", "type": "aggregator", "parameters": {}},
        ],
        "s->q",
        "q->w",
        "w->h",
        "h->g",
    )
    stack = [FRAME, {"split_node_id": "q", "item_index": 2, "total_items": 3}]
    effects = started(nested, "w", from_node="q", lineage_stack=stack)
    opened = [effect for effect in effects if isinstance(effect, OpenBarrier | OpenScope)]
    assert [type(effect) for effect in opened] == [OpenBarrier, OpenScope, OpenBarrier, OpenScope]
    assert [each.barrier.expected for each in opened if isinstance(each, OpenBarrier)] == [2, 3]
    [token] = [effect.token for effect in effects if isinstance(effect, SpawnToken)]
    assert token.scope == opened[-1].scope  # type: ignore[union-attr]
    assert effects[1].scope == token.scope


def test_content_is_independent_of_order_and_display() -> None:
    turned = {"edges": LINEAR["edges"], "nodes": [dict(reversed(node.items())) for node in LINEAR["nodes"]]}
    shown = turned | {"workflow_id": "w", "execution_id": "e", "viewport": {"x": 1}}
    assert content_of(json.dumps(LINEAR)) == content_of(json.dumps(shown))
    assert content_of(json.dumps(LINEAR)) != content_of(json.dumps(MERGE))


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_are_schemas(name: Any) -> None:
    assert schema_problems(message_schema(name)) == []


@pytest.mark.parametrize(
    "body", [b"", b"{", b"null", b"1e999", b'{"a":"\xff"}', b'"\\ud800"', b"[" * 100_000]
)
def test_what_is_no_message_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidMessage):
        read_message(body)
