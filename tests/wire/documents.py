"""Definitions as masters send them."""

from __future__ import annotations

from typing import Any

TRIGGER = {"id": "start", "type": "ManualTrigger", "trigger": True}


def graph(nodes: list[dict[str, Any]], *edges: str) -> dict[str, Any]:
    """A document with edges such as ``a->b``."""
    ends = [edge.split("->") for edge in edges]
    return {
        "nodes": nodes,
        "edges": [{"id": f"{src}->{dst}", "src": src, "dst": dst} for src, dst in ends],
    }


def edit(name: str, value: Any = 1) -> dict[str, Any]:
    return {
        "id": name,
        "name": name.upper(),
        "type": "edit",
        "parameters": {"mode": "keep_only", "assignments": [{"name": name, "value": value}]},
    }


LINEAR = graph([TRIGGER, edit("a", "{{ $trigger.n }}"), edit("b", "{{ $a.a }}")], "start->a", "a->b")
MERGE = graph(
    [edit("x"), edit("y"), {"id": "m", "type": "merge", "parameters": {"timeout": 60}}, edit("z")],
    "x->m",
    "y->m",
    "m->z",
)
ANY = graph(
    [
        edit("x"),
        edit("y"),
        {"id": "m", "type": "merge", "parameters": {"wait_mode": "wait_for_any"}},
        edit("z"),
    ],
    "x->m",
    "y->m",
    "m->z",
)
SPLIT = graph(
    [
        TRIGGER,
        {"id": "s", "type": "split", "parameters": {"input_array": "{{ $trigger.items }}"}},
        edit("w", "{{ $item }}"),
        {"id": "g", "type": "aggregator", "parameters": {}},
        edit("z"),
    ],
    "start->s",
    "s->w",
    "w->g",
    "g->z",
)
JOIN = {
    "name": "joined",
    "dag": {
        "nodes": [
            {"id": "x", "handler": "log", "config": {"message": "x"}},
            {"id": "y", "handler": "log", "config": {"message": "y"}},
            {"id": "z", "handler": "log", "dependencies": ["x", "y"], "config": {"message": "z"}},
        ]
    },
}
WAIT = graph(
    [
        TRIGGER,
        {"id": "pause", "type": "wait", "parameters": {"amount": 1, "unit": "hours"}},
        edit("z"),
    ],
    "start->pause",
    "pause->z",
)
