"""The graph while it is being checked: both spellings in one mutable form, filled in stage by stage.

Every part has the pointer to its place in the original document. The checked draft becomes a `Plan` and is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from dalsegno.graph.catalog import ControlKind, NodeSpec
from dalsegno.graph.plan import ErrorStrategy, JoinMode, Parameters
from dalsegno.model.failure import NO_RETRY, RetryPolicy
from dalsegno.model.limits import Concurrency


class DraftEdge(Struct, eq=False, gc=False):
    id: str
    src: str
    dst: str
    is_error: bool
    pointer: str
    listed: bool = True
    """True for an edge of its own, False for an entry of ``dependencies``."""
    position: int = 0
    slot: int = 0

    @property
    def src_pointer(self) -> str:
        return f"{self.pointer}/src" if self.listed else self.pointer

    @property
    def dst_pointer(self) -> str:
        return f"{self.pointer}/dst" if self.listed else self.pointer


class DraftNode(Struct, eq=False, gc=False):
    id: str
    name: str
    type: str
    pointer: str
    fields: Mapping[str, Any]
    """The node as written in the document."""
    written: dict[str, Any]
    """The parameters as written in the document."""
    parameters: dict[str, Any]
    """The same parameters, with edge names replaced by edge ids."""
    parameters_pointer: str
    attached: bool = True
    """False for a node without a usable id: it is checked separately and left out of the graph."""

    spec: NodeSpec | None = None
    control: ControlKind = "plain"
    join: JoinMode = "each"
    ins: list[DraftEdge] = []
    outs: list[DraftEdge] = []
    success: Sequence[DraftEdge] = ()
    errors: Sequence[DraftEdge] = ()

    strategy: ErrorStrategy = "halt"
    retry: RetryPolicy = NO_RETRY
    timeout: float | None = None
    queue: str = "default"
    concurrency: Concurrency | None = None
    credential: str | None = None
    merge_timeout: float | None = None
    cancels_losers: bool = False
    compiled: Parameters | None = None

    split: str | None = None
    depth: int = 0
    scoped: bool = True
    """False where contradictory scopes were reported, here or above. Scopes below are not reported again."""
    aggregator: str | None = None
    collects: str | None = None
    multiple: bool = False
    gate: bool = False
    forks: bool = False
    solitary: bool = False
    losers: tuple[str, ...] = ()

    @property
    def trigger(self) -> bool:
        return self.control == "trigger"

    @property
    def barrier(self) -> bool:
        return self.join != "each" and bool(self.ins) and self.control != "aggregator"


@dataclass(slots=True, eq=False)
class Draft:
    name: str
    fields: Mapping[str, Any]
    """The document's top level."""
    container: str
    """Pointer to the object that holds ``nodes``: the document itself, or ``/dag``."""
    joins_all: bool
    """Written with dependencies: a node with several of them waits for all."""
    nodes: list[DraftNode] = field(default_factory=list)
    edges: list[DraftEdge] = field(default_factory=list)
    by_id: dict[str, DraftNode] = field(default_factory=dict)
    order: list[DraftNode] = field(default_factory=list)
    """Topological order, without the nodes on a cycle and behind one."""
    orphaned: set[str] = field(default_factory=set)
    """Nodes that lost an in-edge to a reported problem. Their reachability is not checked."""

    def attached(self) -> list[DraftNode]:
        return list(self.by_id.values())
