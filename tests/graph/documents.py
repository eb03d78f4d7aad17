"""Writing small graphs in one line: ``graph("a > b, b > m", m="merge")``."""

from __future__ import annotations

import re
from typing import Any

from dalsegno.errors import Finding, InvalidDefinition
from dalsegno.graph.build import load_graph
from dalsegno.graph.plan import Plan
from tests.graph.catalog import CATALOG

_ARROW = re.compile(r"\s*(!?>)\s*")


def document(paths: str, **nodes: Any) -> dict[str, Any]:
    """Paths such as ``a > b !> c`` (``!>`` is an error edge); a node is a type, or its fields.

    Edge ids are ``a-b``, and ``a-b-2`` for a second one.

    Conditionals get their first edge as true and their second as false edge, switches all edges as routes, unless
    their parameters say otherwise.
    """
    ids: dict[str, None] = {}
    edges: list[dict[str, Any]] = []
    for path in filter(None, (part.strip() for part in paths.split(","))):
        first, *rest = _ARROW.split(path)
        ids[first] = None
        for arrow, target in zip(rest[::2], rest[1::2], strict=True):
            ids[target] = None
            identifier = f"{first}-{target}"
            taken = any(edge["src"] == first and edge["dst"] == target for edge in edges[-50:])
            edge = {"id": f"{identifier}-2" if taken else identifier, "src": first, "dst": target}
            edges.append({**edge, "is_error": True} if arrow == "!>" else edge)
            first = target
    listed = [_node(identifier, nodes.get(identifier, "log"), edges) for identifier in {**ids, **nodes}]
    return {"name": "test", "nodes": listed, "edges": edges}


def _node(identifier: str, given: Any, edges: list[dict[str, Any]]) -> dict[str, Any]:
    fields = {"type": given} if isinstance(given, str) else given
    node = {"id": identifier, "type": "log", **fields}
    defaults: dict[str, Any] = {}
    if node["type"] == "conditional":
        own = _own(identifier, edges)
        defaults = {"expression": "true", **dict(zip(("true_edge_id", "false_edge_id"), own, strict=False))}
    elif node["type"] == "switch":
        own = _own(identifier, edges)
        defaults = {"rules": [{"value": 1, "operator": "eq", "compare": 1}] * len(own), "routes": own}
    elif node["type"] == "http":
        defaults = {"url": "https://example.com"}
    if defaults:
        node["parameters"] = {**defaults, **node.get("parameters", {})}
    return node


def _own(identifier: str, edges: list[dict[str, Any]]) -> list[str]:
    return [edge["id"] for edge in edges if edge["src"] == identifier and not edge.get("is_error")]


def plan_of(paths: str, **nodes: Any) -> Plan:
    return load_graph(document(paths, **nodes), CATALOG).plan


def findings_of(source: Any) -> list[Finding]:
    """Everything that is said about a document, whether it is accepted or not."""
    try:
        return list(load_graph(source, CATALOG).warnings)
    except InvalidDefinition as refused:
        return list(refused.findings)
