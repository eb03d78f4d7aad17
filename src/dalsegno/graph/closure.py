"""What follows from an edge or a node over the whole graph: dead runs, descendants, ancestors. Never recursive."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the plan offers these as its own methods
    from dalsegno.graph.plan import Edge, Node, Plan


def dead_run(plan: Plan, edge: Edge) -> tuple[tuple[str, ...], tuple[Edge, ...]]:
    """Skipped nodes, and the edges at which somebody keeps count and must be told.

    A node with one input dies with it, unless it is a barrier; a split takes its region and aggregator along. An
    ``each`` node with several inputs and no barrier ahead is nobody's business: it runs if a token comes.
    """
    skipped: list[str] = []
    stops: list[Edge] = []
    closing = deque([edge])
    while closing:
        dead = closing.popleft()
        source, target = plan.nodes[dead.src], plan.nodes[dead.dst]
        if source.control == "split" and not dead.is_error:
            if dead.id == source.success_edges[0].id:
                closing.extend(_skip_region(plan, source, skipped))
        elif target.control == "aggregator":
            continue
        elif target.barrier or (target.gate and len(target.in_edges) > 1):
            stops.append(dead)
        elif len(target.in_edges) == 1:
            skipped.append(target.id)
            closing.extend(target.success_edges)
            closing.extend(target.error_edges)
    return tuple(skipped), tuple(stops)


def _skip_region(plan: Plan, split: Node, skipped: list[str]) -> tuple[Edge, ...]:
    """Skips every scope below ``split`` and its aggregator; returns what leaves the aggregator."""
    skipped.extend(region(plan, split.id))
    if split.aggregator is None:
        return ()
    aggregator = plan.nodes[split.aggregator]
    return (*aggregator.success_edges, *aggregator.error_edges)


def region(plan: Plan, split: str) -> tuple[str, ...]:
    """The nodes of all scopes below a split, and its aggregator."""
    inside: list[str] = []
    around = deque([split])
    while around:
        for member in plan.members.get(around.popleft(), ()):
            inside.append(member)
            if plan.nodes[member].control == "split":
                around.append(member)
    aggregator = plan.nodes[split].aggregator
    return (*inside, aggregator) if aggregator is not None else tuple(inside)


def reach(plan: Plan, start: str, *, forward: bool) -> frozenset[str]:
    found: set[str] = set()
    stack = [start]
    while stack:
        node = plan.nodes[stack.pop()]
        edges = (*node.success_edges, *node.error_edges) if forward else node.in_edges
        for edge in edges:
            following = edge.dst if forward else edge.src
            if following not in found:
                found.add(following)
                stack.append(following)
    return frozenset(found)
