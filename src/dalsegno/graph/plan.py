"""The compiled plan: everything the core asks of a graph, answered ahead of time.

A plan is immutable and knows nothing of executions. Costly closures (what dies with an edge) are computed on first
use and remembered, so that a 10,000-node graph compiles quickly; for the same reason what exists per node is a Struct
that the garbage collector need not look at: nothing in it leads back to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec import Struct

from dalsegno.graph.catalog import ControlKind
from dalsegno.graph.closure import dead_run, reach, region
from dalsegno.graph.templates import Template
from dalsegno.lang import Expression
from dalsegno.model.limits import Allowance
from dalsegno.model.retry import NO_RETRY, RetryPolicy

JoinMode = Literal["each", "all", "any"]
ErrorStrategy = Literal["halt", "ignore", "branch"]


class Edge(Struct, frozen=True, gc=False):
    id: str
    src: str
    dst: str
    is_error: bool = False
    position: int = 0
    """Among the out-edges of its source, in document order."""
    slot: int = 0
    """Among the in-edges of its target, in document order: its slot in the target's barrier."""


class Parameters(Struct, frozen=True, eq=False, gc=False):
    """Compiled parameters: ``template`` renders all templated ones to an object, ``expressions`` are evaluated by
    the node itself, ``roots`` is every root either of them mentions."""

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
    """Edges taken when it fails and its strategy is ``ignore``: a conditional's false edge, a switch's fallback,
    all success edges of anything else."""
    retry: RetryPolicy = NO_RETRY
    timeout: float | None = None
    queue: str = "default"
    limit_key: str | None = None
    allows: Allowance | None = None
    """The key whose limit its tokens are subject to, and what the document allows."""
    credential: str | None = None
    """The name of a credential; its values are known only where the node runs."""
    split: str | None = None
    """The split whose items this node runs in; None at the root."""
    depth: int = 0
    gate: bool = False
    """May run several times in its scope and has a barrier downstream: its edges close only with its gate."""
    multiple: bool = False
    """May run several times in its scope (with or without a barrier downstream)."""
    forks: bool = False
    """May send more than one token at once; its tokens' paths grow by an edge position."""
    solitary: bool = False
    """At most one token can be live in its scope whenever it runs, so it may finish the scope itself."""
    aggregator: str | None = None
    """Of a split: the aggregator that collects its items, if any."""
    collects: str | None = None
    """Of an aggregator: its split."""
    merge_timeout: float | None = None
    """Of a merge or aggregator: seconds until its barrier gives up."""
    losers: tuple[str, ...] = ()
    """Of an ``any`` merge with ``losers: cancel``: the nodes whose tokens are dropped when it is won."""

    @property
    def barrier(self) -> bool:
        """Whether tokens meet here, one slot per in-edge."""
        return self.join != "each" and len(self.in_edges) > 0 and self.control != "aggregator"


@dataclass(frozen=True, slots=True)
class DeadRun:
    """What closes with an edge that carries nothing: nodes that are skipped, and the edges at which propagation
    stops because their target is a barrier (slot resolves ``skipped``) or a gate (one open in-edge less)."""

    skipped: tuple[str, ...]
    stops: tuple[Edge, ...]


@dataclass(frozen=True, slots=True, eq=False)
class WorkflowLimit:
    """How many executions run at once. ``key`` is an expression over the start payload, ``name`` a fixed key."""

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
    """Nodes the execution starts at, in document order: the successors of all triggers, or all nodes without
    inputs. A barrier node among a trigger's successors is entered through ``entry_edges``."""
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
    """Node name → id, for names that are unique and no id."""
    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Split → the nodes of its items' scope (not of scopes nested in it), in topological order."""
    ancestors_cache: dict[str, frozenset[str]] = field(default_factory=dict)
    children: frozenset[str] = frozenset()
    """Nodes that may wait for executions of their own."""

    def dead_run(self, edge: Edge) -> DeadRun:
        """What closes with ``edge`` when it will carry nothing more and has carried nothing.

        The success edges of a split close together: the whole region belongs to the run of the first of them.
        """
        known = self.dead_runs.get(edge.id)
        if known is None:
            known = self.dead_runs[edge.id] = DeadRun(*dead_run(self, edge))
        return known

    def region(self, node: str) -> tuple[str, ...]:
        """Of a split: all nodes inside its items, however deep, and its aggregator. Of any other node: nothing."""
        return region(self, node)

    def descendants(self, node: str) -> frozenset[str]:
        """Every node that some path leads to from ``node``, without itself."""
        known = self.descendants_cache.get(node)
        if known is None:
            known = self.descendants_cache[node] = reach(self, node, forward=True)
        return known

    def ancestors(self, node: str) -> frozenset[str]:
        """Every node from which some path leads to ``node``, without itself."""
        known = self.ancestors_cache.get(node)
        if known is None:
            known = self.ancestors_cache[node] = reach(self, node, forward=False)
        return known
