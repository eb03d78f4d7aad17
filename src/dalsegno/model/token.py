"""Tokens: the live points of control of an execution."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

TokenKind = Literal["node", "join", "advance", "closed", "finish", "deadline"]
"""node: run a node · join: a barrier's parked token · advance: open a split's next items · closed: a gate has seen
its last visit · finish: unite what a scope's branches left · deadline: the execution's own timeout."""

TokenState = Literal["ready", "leased", "parked", "held", "consumed", "cancelled"]
"""held: ready, but its execution is paused. consumed and cancelled are tombstones until the execution is swept."""

WakeReason = Literal["", "timer", "open", "dead", "timeout", "tripped"]
"""Why a parked token became ready. open/dead/timeout/tripped are a barrier's: all slots resolved, all skipped, its
deadline passed, an item ended it early."""

DEFAULT_QUEUE = "default"
SYSTEM_QUEUE = "system"
"""Bookkeeping steps (join, advance, closed, finish, deadline); every worker serves it."""


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
    """Whether it holds its scope open. Deadline and advance tokens do not."""
    due: float | None = None
    """Parked until then. None: ready at once."""


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
    """Runs of this token's work that have failed, plus one."""
    losses: int
    """How often a worker died while holding it."""
    reason: WakeReason
    ready_at: float
    definition: str
    """Content hash of the definition the execution runs."""
    epoch: int
    live: bool = True


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
