"""The compiled plan of a graph, with everything the core asks of it computed ahead of time.

* A plan is immutable and independent of executions.
* Costly closures (dead runs of edges) are computed on first use and cached, so that a 10,000-node graph compiles
  quickly.
* For the same reason the objects per node are Structs that the garbage collector does not track. They contain no
  reference cycles.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec import Struct

from dalsegno.graph.catalog import ControlKind
from dalsegno.graph.templates import Template
from dalsegno.lang import Expression
from dalsegno.model.failure import NO_RETRY, RetryPolicy
from dalsegno.model.limits import Allowance

JoinMode = Literal["each", "all", "any"]
ErrorStrategy = Literal["halt", "ignore", "branch"]


class Edge(Struct, frozen=True, gc=False):
    id: str
    src: str
    dst: str
    is_error: bool = False
    position: int = 0
    """Position among the out-edges of its source, in document order."""
    slot: int = 0
    """Position among the in-edges of its target, in document order: its slot in the target's barrier."""


class Parameters(Struct, frozen=True, eq=False, gc=False):
    """Compiled parameters.

    ``template`` renders all templated ones to an object, ``expressions`` are evaluated by the node itself, ``roots``
    is every root that either of them mentions.
    """

    template: Template
    expressions: Mapping[str, Expression] = {}
    raw: Mapping[str, Any] = {}
    roots: frozenset[str] = frozenset()


class Node(Struct, frozen=True, eq=False, gc=False):
    id: str
    name: str
    type: str
    control: ControlKind
    parameters: Parameters
    join: JoinMode = "each"
    in_edges: tuple[Edge, ...] = ()
    success_edges: tuple[Edge, ...] = ()
    error_edges: tuple[Edge, ...] = ()
    strategy: ErrorStrategy = "halt"
    despite: tuple[Edge, ...] = ()
    """Edges taken when the node fails and its strategy is ``ignore``: a conditional's false edge, a switch's
    fallback, all success edges of any other type.
    """
    retry: RetryPolicy = NO_RETRY
    timeout: float | None = None
    queue: str = "default"
    limit_key: str | None = None
    allows: Allowance | None = None
    """The key whose limit applies to its tokens, and the limit that the document sets."""
    credential: str | None = None
    """The name of a credential. Its values are known only to the worker that runs the node."""
    split: str | None = None
    """The split whose items this node runs in; None at the root."""
    depth: int = 0
    gate: bool = False
    """True if the node may run several times in its scope and has a barrier downstream.

    Its edges close only with its gate.
    """
    multiple: bool = False
    """True if the node may run several times in its scope, with or without a barrier downstream."""
    forks: bool = False
    """True if the node may send several tokens at once. The paths of its tokens are extended by an edge position."""
    solitary: bool = False
    """True if at most one token is live in the scope whenever the node runs, so that it may finish the scope itself."""
    aggregator: str | None = None
    """Split: the aggregator that collects its items, if any."""
    collects: str | None = None
    """Aggregator: its split."""
    merge_timeout: float | None = None
    """Merge or aggregator: seconds until its barrier times out."""
    losers: tuple[str, ...] = ()
    """``any`` merge with ``losers: cancel``: the nodes whose tokens are dropped when the first token arrives."""

    @property
    def barrier(self) -> bool:
        """Return True if tokens wait for each other here, with one slot per in-edge."""
        return self.join != "each" and len(self.in_edges) > 0 and self.control != "aggregator"


@dataclass(frozen=True, slots=True)
class DeadRun:
    """The effect of an edge that carries no token.

    * ``skipped``: nodes that are skipped.
    * ``stops``: edges at which propagation stops, because their target is a barrier (the slot becomes ``skipped``) or
      a gate (one open in-edge less).
    """

    skipped: tuple[str, ...]
    stops: tuple[Edge, ...]


@dataclass(frozen=True, slots=True, eq=False)
class WorkflowLimit:
    """The limit of concurrent executions. ``key`` is an expression over the start payload, ``name`` a fixed key."""

    allows: Allowance
    name: str
    key: Expression | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    name: str
    hash: str
    nodes: Mapping[str, Node]
    edges: Mapping[str, Edge]
    entries: tuple[str, ...]
    """Nodes at which the execution starts, in document order: the successors of all triggers, or all nodes without
    inputs. A barrier node among a trigger's successors is entered through ``entry_edges``.
    """
    entry_edges: tuple[Edge, ...] = ()
    """The triggers' out-edges (empty without a trigger)."""
    triggers: tuple[str, ...] = ()
    topological: tuple[str, ...] = ()
    descendants_cache: dict[str, frozenset[str]] = field(default_factory=dict)
    dead_runs: dict[str, DeadRun] = field(default_factory=dict)
    output: Expression | None = None
    output_nodes: tuple[str, ...] = ()
    """Nodes of type ``output``, in document order."""
    leaves: tuple[str, ...] = ()
    """Root-scope nodes without success edges, in document order."""
    timeout: float | None = None
    input_schema: Mapping[str, Any] | None = None
    limit: WorkflowLimit | None = None
    description: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    """Node name → id, for names that are unique and are not ids."""
    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Split → the nodes of its items' scope (not of nested scopes), in topological order."""
    ancestors_cache: dict[str, frozenset[str]] = field(default_factory=dict)
    children: frozenset[str] = frozenset()
    """Nodes that may wait for child executions."""

    def dead_run(self, edge: Edge) -> DeadRun:
        """Return the dead run of ``edge``: what closes when it has carried no token and will carry none.

        The success edges of a split close together. The dead run of the first one contains the whole region.
        """
        known = self.dead_runs.get(edge.id)
        if known is None:
            known = self.dead_runs[edge.id] = DeadRun(*dead_run(self, edge))
        return known

    def region(self, node: str) -> tuple[str, ...]:
        """Return all nodes inside a split's items, at any depth, and its aggregator; nothing for another node."""
        return region(self, node)

    def descendants(self, node: str) -> frozenset[str]:
        """Return every node reachable from ``node``, without itself."""
        known = self.descendants_cache.get(node)
        if known is None:
            known = self.descendants_cache[node] = reach(self, node, forward=True)
        return known

    def ancestors(self, node: str) -> frozenset[str]:
        """Return every node that reaches ``node``, without itself."""
        known = self.ancestors_cache.get(node)
        if known is None:
            known = self.ancestors_cache[node] = reach(self, node, forward=False)
        return known


def dead_run(plan: Plan, edge: Edge) -> tuple[tuple[str, ...], tuple[Edge, ...]]:
    """Return the skipped nodes, and the edges at which a barrier or gate must be notified.

    * A node with one input is skipped with it, unless it is a barrier.
    * A split is skipped with its region and aggregator.
    * An ``each`` node with several inputs and no barrier downstream is left alone: it runs if a token arrives.
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
    """Skip every scope below ``split`` and its aggregator; return the aggregator's out-edges."""
    skipped.extend(region(plan, split.id))
    if split.aggregator is None:
        return ()
    aggregator = plan.nodes[split.aggregator]
    return (*aggregator.success_edges, *aggregator.error_edges)


def region(plan: Plan, split: str) -> tuple[str, ...]:
    """Return the nodes of all scopes below a split, and its aggregator."""
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
