"""Tokens: the live points of control of an execution."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from dalsegno.model.execution import ExecutionKind
from dalsegno.model.ids import task_execution_id
from dalsegno.model.limits import Allowance

TokenKind = Literal[
    "node", "join", "advance", "closed", "finish", "deadline", "resume", "task", "timer", "schedule", "start"
]
"""node: run a node · join: a barrier's parked token · advance: open a split's next items · closed: a gate has had
its last visit · finish: merge what a scope's branches left · deadline: the execution's own timeout · resume:
continue a script · task: run a task of a script · timer: a script's timer, or the end of its wait for a signal ·
schedule: the next start of a schedule · start: begin a PENDING execution.
"""

TokenState = Literal["ready", "leased", "parked", "held", "consumed", "cancelled"]
UNFINISHED: frozenset[str] = frozenset(("ready", "leased", "parked", "held"))
"""States of tokens that are neither consumed nor cancelled."""
"""held: ready, but its execution is paused. consumed and cancelled are tombstones until the execution is swept."""

WakeReason = Literal["", "timer", "open", "dead", "timeout", "tripped", "arrival"]
"""Why a parked token became ready. open/dead/timeout/tripped are a barrier's: all slots resolved, all skipped, its
deadline passed, an item ended it early. arrival: the signal or child it awaited has arrived.
"""

DEFAULT_QUEUE = "default"
SYSTEM_QUEUE = "system"
"""Bookkeeping steps (join, advance, closed, finish, deadline); every worker serves it."""
_PYTHON = "python:"


def python_queue(module: str) -> str:
    """Return the queue of workers that have the code of this module. A worker without it sends a turn there."""
    return _PYTHON + module


def module_of(queue: str) -> str | None:
    return queue.removeprefix(_PYTHON) if queue.startswith(_PYTHON) else None


RESUME_NODE = "builtin.resume_workflow"
RESUME_PRIORITY = 1_000_000
"""Resumes are claimed first: they are short, and everything else of their execution waits for them."""


class NewToken(Struct, frozen=True, gc=False):
    """A token as a transition spawns it. ``data`` is opaque to every store."""

    id: str
    scope: str
    kind: TokenKind
    node: str
    data: bytes
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    limit_key: str | None = None
    live: bool = True
    """It holds its scope open. Deadline and advance tokens do not."""
    due: float | None = None
    """Parked until then. None: ready at once."""
    allowance: Allowance | None = None
    """Its definition's allowance for its limit key; the operators' rule for the key takes precedence."""
    edge: str = ""
    sender: str = ""
    """The edge over which it came, and the node at its other end; for announcements only, stores do not keep them."""


class Lease(Struct, frozen=True, gc=False):
    """A token given to a worker. Only a commit that shows this ``fence`` is accepted (L4)."""

    token: str
    execution: str
    fence: int
    scope: str
    kind: TokenKind
    node: str
    data: bytes
    queue: str
    priority: int
    attempt: int
    """Failed runs of this token's work, plus one."""
    losses: int
    """How often a worker died while holding it."""
    reason: WakeReason
    ready_at: float
    definition: str
    """Content hash of the execution's definition."""
    epoch: int
    live: bool = True
    execution_kind: ExecutionKind = "graph"


LONG_KINDS: frozenset[TokenKind] = frozenset(("node", "task"))
"""Kinds of tokens whose steps may wait for something other than the store, whatever the execution."""


def may_run_long(kind: TokenKind, execution_kind: ExecutionKind) -> bool:
    """Return True if a step may wait for something other than the store: all others are bookkeeping, or metered."""
    return kind in LONG_KINDS or (kind == "resume" and execution_kind == "python")


def with_handed_over(leases: Sequence[Lease]) -> list[Lease]:
    """Return the leases, and those that their tasks have after the script has ended.

    Each such task is then an execution of its own, with the same token and the same fence.
    """
    handed_over = [
        replace(lease, execution=task_execution_id(lease.token))
        for lease in leases
        if lease.kind == "task" and lease.execution_kind != "task"
    ]
    return [*leases, *handed_over]


def not_among(
    leases: Sequence[Lease], valid: Collection[tuple[str, str, int]], *, handed_over: bool = True
) -> list[Lease]:
    """Return the leases that are not ``valid``, neither themselves nor, if that counts, handed over.

    They are compared by execution, token and fence.
    """
    if not handed_over:
        return [lease for lease in leases if (lease.execution, lease.token, lease.fence) not in valid]
    return [
        lease
        for lease in leases
        if not any((each.execution, each.token, each.fence) in valid for each in with_handed_over([lease]))
    ]


class TokenView(Struct, frozen=True):
    """A token as ``inspect`` shows it."""

    id: str
    scope: str
    kind: TokenKind
    node: str
    state: TokenState
    queue: str
    priority: int
    limit_key: str | None
    live: bool
    attempt: int
    losses: int
    reason: WakeReason
    due: float | None
    owner: str | None
    fence: int
    data: bytes
    awaits: str | None = None
    """For a parked token: what wakes it besides its time."""
    allowance: str | None = None
    """For a token with a limit key: its definition's allowance, as JSON."""
    ready_at: float | None = None
    """For a ready or held token: since when."""
