"""Small graphs for the simulator, written tersely."""

from __future__ import annotations

from typing import Any

from dalsegno.testing.simulation import Scenario


def node(name: str, type: str = "work", error: Any = None, **parameters: Any) -> dict[str, Any]:
    """``retry`` goes where the document has it: beside the parameters."""
    fields = {key: parameters.pop(key) for key in ("retry",) if key in parameters}
    if error is not None:
        fields["error"] = error
    return {"id": name, "type": type, "parameters": parameters, **fields}


def graph(nodes: list[dict[str, Any]], *edges: str, **header: Any) -> dict[str, Any]:
    """Edges are written ``a>b``; the id of an edge is what was written."""
    listed = [dict(zip(("id", "src", "dst"), (edge, *edge.split(">")), strict=True)) for edge in edges]
    return {"name": "small", "nodes": nodes, "edges": listed, **header}


def scenario(document: dict[str, Any], **fields: Any) -> Scenario:
    return Scenario(document, {"k": 1, "list": [1, 2]}, **fields)


def diamond(**fields: Any) -> Scenario:
    """A fork, a slow branch, a split, a merge, outputs too large to travel: something of everything."""
    nodes = [
        node("a", pad=5000),
        node("b", seconds=3.0, note="$a.v"),
        node("s", "split", input_array=[1, 2, 3], max_concurrency=2),
        node("i", note="$item", fails=1, retry={"max_attempts": 2, "initial_delay": 1}),
        node("g", "aggregator"),
        node("m", "merge", timeout="30d"),
        node("z", note="$a.v"),
    ]
    return scenario(graph(nodes, "a>b", "a>s", "s>i", "i>g", "b>m", "g>m", "m>z"), **fields)
