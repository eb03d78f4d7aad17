"""Writing scenario documents: paths such as ``a > b > m, a > c > m``, and nodes in few words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_ARROW = re.compile(r"\s*(!?>)\s*")

Fields = dict[str, Any]


def graph(paths: str, /, nodes: Mapping[str, Fields] | None = None, **header: Any) -> Fields:
    """A document with nodes and edges. ``!>`` is an error edge; edge ids are ``a-b``, ``a-b-2`` for a second one.

    Nodes that are not described echo their own id. Conditionals take their first edge when true and their second
    when false, switches route over all their edges in order, unless their parameters say otherwise.
    """
    described = dict(nodes or {})
    ids, edges = _read_paths(paths)
    listed = [_node(name, described.get(name), edges) for name in dict.fromkeys([*ids, *described])]
    return {"name": "scenario", "nodes": listed, "edges": edges, **header}


def _read_paths(paths: str) -> tuple[list[str], list[Fields]]:
    ids: list[str] = []
    edges: list[Fields] = []
    taken: set[str] = set()
    for path in filter(None, (part.strip() for part in paths.split(","))):
        source, *rest = _ARROW.split(path)
        ids.append(source)
        for arrow, target in zip(rest[::2], rest[1::2], strict=True):
            ids.append(target)
            name = f"{source}-{target}"
            name = f"{name}-2" if name in taken else name
            taken.add(name)
            edge = {"id": name, "src": source, "dst": target}
            edges.append({**edge, "is_error": True} if arrow == "!>" else edge)
            source = target
    return ids, edges


def _node(name: str, fields: Fields | None, edges: list[Fields]) -> Fields:
    node = {"id": name, **(fields if fields is not None else echo(name))}
    if node["type"] not in ("conditional", "switch"):
        return node
    own = [edge["id"] for edge in edges if edge["src"] == name and not edge.get("is_error")]
    if node["type"] == "switch":
        defaults: Fields = {"routes": own}
    else:
        defaults = dict(zip(("true_edge_id", "false_edge_id"), own, strict=False))
    return {**node, "parameters": {**defaults, **node["parameters"]}}


def dependencies(*nodes: Fields, **header: Any) -> Fields:
    """A document whose nodes name what they depend on: ``handler``, ``config``, ``dependencies``."""
    return {"name": "scenario", "dag": {"nodes": list(nodes)}, **header}


def chain(length: int, **fields: Any) -> Fields:
    """Nodes n0 … that echo their ids, one after the other."""
    nodes = {f"n{index}": {**echo(f"n{index}"), **fields} for index in range(length)}
    return graph(" > ".join(nodes), nodes)


# -- nodes ----------------------------------------------------------------------------------------------------


def task(name: str, input: Any = None, **fields: Any) -> Fields:
    """A task of the stage: echo, fail, flaky, hold …"""
    return {"type": "task", "parameters": {"task": name, "input": input}, **fields}


def echo(value: Any, **fields: Any) -> Fields:
    """Puts out a value (or what a template makes of it)."""
    return task("echo", value, **fields)


def fail(message: str = "broken", code: str = "BROKEN", **fields: Any) -> Fields:
    return task("fail", {"message": message, "code": code}, **fields)


def hold(door: str, **fields: Any) -> Fields:
    """Runs until the test opens the door."""
    return task("hold", door, **fields)


def conditional(expression: Any, **fields: Any) -> Fields:
    return {"type": "conditional", "parameters": {"expression": expression}, **fields}


def switch(value: Any, *cases: Any, **fields: Any) -> Fields:
    """A rule per case; a route more than there are cases is the fallback."""
    rules = [{"value": value, "operator": "==", "compare": case} for case in cases]
    return {"type": "switch", "parameters": {"rules": rules}, **fields}


def edit(values: Mapping[str, Any]) -> Fields:
    """Sets these fields."""
    assignments = [{"name": name, "value": value} for name, value in values.items()]
    return {"type": "edit", "parameters": {"assignments": assignments}}


def merge(**parameters: Any) -> Fields:
    return _control("merge", parameters)


def race(**parameters: Any) -> Fields:
    return merge(wait_mode="wait_for_any", **parameters)


def split(items: Any, **parameters: Any) -> Fields:
    return _control("split", {"input_array": items, **parameters})


def aggregator(**parameters: Any) -> Fields:
    return _control("aggregator", parameters)


def wait(seconds: float, **fields: Any) -> Fields:
    return {"type": "wait", "parameters": {"amount": seconds, "unit": "seconds"}, **fields}


def log(message: str = "passing") -> Fields:
    return {"type": "log", "parameters": {"message": message}}


def _control(type: str, parameters: Fields) -> Fields:
    """``error`` and other fields of the node may stand among the parameters."""
    own = {key: parameters.pop(key) for key in ("error", "retry", "queue") if key in parameters}
    return {"type": type, "parameters": parameters, **own}


def error_object(
    message: str, code: str, node: str, *, type: str | None = None, details: Any = None
) -> Fields:
    """The error object that contexts, slots and results show."""
    return {"message": message, "code": code, "type": type or code, "details": details, "node": node}
