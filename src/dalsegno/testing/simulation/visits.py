"""What the reference reading moves about: visits, scopes, and the ways in which they end."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from dalsegno.graph.plan import Edge, Node


class OrderMattersError(Exception):
    """Two right runs of this graph may end differently."""


class UnforeseeableError(Exception):
    """The outcome is certain, but this reading cannot tell it (equal keys are ordered by hash)."""


class HaltError(Exception):
    """A scope ends with this error."""

    def __init__(self, error: dict[str, Any], node: Node) -> None:
        super().__init__(error["message"])
        self.error = error
        self.node = node


class FailedError(Exception):
    """A node failed with this error object."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.error = error


class Visit(Struct, frozen=True):
    """A token, in this reading: what it knows and where it came along."""

    context: dict[str, Any]
    payload: Any
    path: str
    loops: tuple[tuple[str, int, int, Any], ...] = ()
    """split, index, total, item"""


class Scope(Struct):
    """One scope being read: what travels over its edges, what is left, what reaches its aggregator."""

    over: dict[str, list[Visit]]
    left: list[Visit]
    collected: list[tuple[int, Visit]]


def error_object(
    message: str, code: str, node: str, details: Any = None, kind: str | None = None
) -> dict[str, Any]:
    return {"message": message, "code": code, "type": kind or code, "details": details, "node": node}


def moved(visit: Visit, *, path: str | None = None, context: dict[str, Any] | None = None) -> Visit:
    return Visit(
        visit.context if context is None else context,
        visit.payload,
        visit.path if path is None else path,
        visit.loops,
    )


def edges_named(node: Node, names: list[Any]) -> tuple[Edge, ...]:
    return tuple(edge for edge in node.success_edges if edge.id in names)


def forks(node: Node) -> bool:
    chooses = node.control in ("conditional", "switch")
    return len(node.error_edges) > 1 or (len(node.success_edges) > 1 and not chooses)


def is_leaf(node: Node) -> bool:
    return node.depth == 0 and not node.success_edges and node.control != "trigger"
