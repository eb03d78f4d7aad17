"""Mutable rows of an execution in flight. A workspace hands them out; the rules change them in place."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from dalsegno.model.barrier import BarrierMode, BarrierState, BarrierView
from dalsegno.model.execution import ExecutionKind, ExecutionState
from dalsegno.model.machine import CancelReason, Completion, MachineView, Ranges, SignalView, Wake
from dalsegno.model.token import Lease, TokenKind, TokenState, TokenView, WakeReason
from dalsegno.model.transition import ReadyToken


class ExecutionRow(Struct, gc=False):
    id: str
    state: ExecutionState
    definition: str
    epoch: int = 0
    seq: int = 0
    live: int = 0
    """Live tokens of the root scope."""
    priority: int = 0
    paused_at: float | None = None
    touched_at: float = 0.0
    ended_at: float | None = None
    kind: ExecutionKind = "graph"
    notify: bytes | None = None
    """The outbox entry that its ending writes."""
    output: bytes | None = None
    context: bytes | None = None
    error: bytes | None = None


class TokenRow(Struct, gc=False):
    execution: str
    id: str
    scope: str
    kind: TokenKind
    node: str
    data: bytes
    queue: str
    priority: int
    limit_key: str | None
    live: bool
    state: TokenState
    due: float | None = None
    fence: int = 0
    owner: str | None = None
    attempt: int = 1
    losses: int = 0
    reason: WakeReason = ""
    barrier: str | None = None
    """For a join token: the barrier it is parked at."""
    ready_at: float = 0.0
    digest: bytes | None = None
    """Digest of the last transition applied to it."""
    awaits: str | None = None
    """For a parked token: what wakes it besides its time."""
    allowance: str | None = None
    """For a token with a limit key: its definition's allowance, as JSON."""


STARTED = b"started/"


def started_mark(fence: int) -> bytes:
    """Return the mark of a leased token whose run is recorded as started. It replaces a digest, which is shorter."""
    return STARTED + b"%d" % fence


def is_marked(token: TokenRow) -> bool:
    return token.digest is not None and token.digest.startswith(STARTED)


class ScopeRow(Struct, gc=False):
    execution: str
    scope: str
    barrier: str
    slot: int
    live: int = 0
    ended: bool = False


class BarrierRow(Struct, gc=False):
    execution: str
    id: str
    scope: str
    node: str
    mode: BarrierMode
    expected: int
    join: str
    state: BarrierState = "waiting"
    resolved: int = 0
    live: int = 0
    deadline: float | None = None
    milestone_at: int | None = None
    milestone_token: str | None = None


class GateRow(Struct, gc=False):
    execution: str
    id: str
    count: int
    used: frozenset[int] = frozenset()


class MachineRow(Struct, gc=False):
    """A script's machine, as the rules see it. Completions and signals are rows of their own."""

    execution: str
    version: int = 0
    snapshot: bytes | None = b""
    """None if a store did not read it: the rules only ever replace it."""
    reachable: Ranges = ()
    wake: Wake = Wake()
    inbox: int = 0
    read: int = 0
    line: int = 0
    cancel: CancelReason = ""
    interrupted: bool = False
    resuming: bool = False
    """There is a resume token for this version."""
    unread: int = 0
    """Completions after ``read`` that the wake condition counts."""
    last_success: int = 0
    last_failure: int = 0
    """Numbers of the newest completions of each kind, if they are unread."""
    kept: int = 0
    """Number of stored completions."""


class SignalRow(Struct, gc=False):
    """A signal in the mailbox; once taken, a tombstone without data, by which a duplicate is recognised."""

    execution: str
    id: str
    name: str
    data: bytes
    number: int
    place: int = 0
    """Its number in the machine's inbox."""
    taken: bool = False


# -- views, as the ports show rows -----------------------------------------------------------------------------


def token_view(row: TokenRow) -> TokenView:
    return TokenView(
        row.id,
        row.scope,
        row.kind,
        row.node,
        row.state,
        row.queue,
        row.priority,
        row.limit_key,
        bool(row.live),
        row.attempt,
        row.losses,
        row.reason,
        row.due,
        row.owner,
        row.fence,
        row.data,
        row.awaits,
        row.allowance,
        row.ready_at if row.state in ("ready", "held") else None,
    )


def barrier_view(row: BarrierRow) -> BarrierView:
    return BarrierView(
        row.id,
        row.scope,
        row.node,
        row.state,
        row.mode,
        row.expected,
        row.resolved,
        row.live,
        row.deadline,
    )


def ready_token(row: TokenRow) -> ReadyToken:
    return ReadyToken(row.id, row.execution, row.queue, row.priority, row.node)


def lease_of(token: TokenRow, execution: ExecutionRow) -> Lease:
    return Lease(
        token.id,
        token.execution,
        token.fence,
        token.scope,
        token.kind,
        token.node,
        token.data,
        token.queue,
        token.priority,
        token.attempt,
        token.losses,
        token.reason,
        token.ready_at,
        execution.definition,
        execution.epoch,
        bool(token.live),
        execution.kind,
    )


def machine_view(
    row: MachineRow, completions: Iterable[Completion], signals: Iterable[SignalRow]
) -> MachineView:
    """Return the machine's view; ``completions`` and ``signals`` are in the order of their numbers."""
    waiting = (
        SignalView(signal.id, signal.name, signal.data, signal.number, signal.place) for signal in signals
    )
    return MachineView(
        row.version,
        row.snapshot or b"",
        row.reachable,
        row.wake,
        row.inbox,
        row.read,
        row.line,
        row.cancel,
        bool(row.interrupted),
        tuple(completions),
        tuple(waiting),
    )
