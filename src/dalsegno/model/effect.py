"""Effects: the closed vocabulary of what a step may do to its execution.

Stores interpret effects by ids, counters, slots and times; none of them needs to know a graph. Each effect names
everything it touches, so that a store can fetch all rows of a batch before it decides.
"""

from __future__ import annotations

from msgspec import Struct

from dalsegno.model.barrier import BarrierSpec, GateSpec, Milestone
from dalsegno.model.event import NewEvent
from dalsegno.model.execution import EndState, NewExecution
from dalsegno.model.token import NewToken


class CreateExecution(Struct, frozen=True, gc=False):
    """Only in a start. Applying it to an id that exists is ``AlreadyApplied``."""

    execution: NewExecution


class SpawnToken(Struct, frozen=True, gc=False):
    """A new token: ready, or parked until its ``due``. An id that exists already is left alone."""

    token: NewToken


class ResolveSlot(Struct, frozen=True, gc=False):
    """An edge delivers its first token (``live``) or closes unused at a barrier, which is created if need be.

    A slot resolves once; a second arrival, or one at a tombstone, records ``dropped``. An accepted live arrival
    that leaves the barrier waiting records ``waiting`` with the barrier's counters.
    """

    barrier: BarrierSpec
    slot: int
    live: bool
    data: bytes | None = None
    waiting: NewEvent | None = None
    dropped: NewEvent | None = None


class OpenBarrier(Struct, frozen=True, gc=False):
    """A split parks its aggregator's join token, which counts as live at once."""

    barrier: BarrierSpec
    milestone: Milestone | None = None


class SetMilestone(Struct, frozen=True, gc=False):
    """Replaces the barrier's milestone. One that is already reached makes its token ready in this commit."""

    barrier: str
    milestone: Milestone


class OpenScope(Struct, frozen=True, gc=False):
    """An item's scope; when it ends, slot ``slot`` of ``barrier`` is resolved with what it ended with."""

    scope: str
    barrier: str
    slot: int


class EndScope(Struct, frozen=True, gc=False):
    """Ends an item's scope now, whatever is still live in it. ``trip`` also opens the barrier at once."""

    scope: str
    data: bytes
    trip: bool = False
    event: NewEvent | None = None


class LeaveContext(Struct, frozen=True, gc=False):
    """What a branch leaves behind in its scope when it ends."""

    scope: str
    key: str
    data: bytes


class FinishExecution(Struct, frozen=True, gc=False):
    """Ends the execution: O(1), the rest is swept later."""

    state: EndState
    event: NewEvent
    output: bytes | None = None
    context: bytes | None = None
    error: bytes | None = None


class EndIfLast(Struct, frozen=True, gc=False):
    """Judged after all other effects of its transition, when nothing in the scope is live any more:

    * nothing was left by any other branch and the step knows the ending: apply it (``finish`` for the root,
      ``slot_data`` for an item), so that a chain pays no extra hop;
    * otherwise store ``left`` and make ``finisher`` ready, whose step unites what was left.

    While something is live, only ``left`` is stored.
    """

    scope: str
    finisher: NewToken
    key: str = ""
    left: bytes | None = None
    finish: FinishExecution | None = None
    slot_data: bytes | None = None
    event: NewEvent | None = None
    """Recorded when an item's scope ended this way."""


class AdjustGate(Struct, frozen=True, gc=False):
    """Adds ``delta`` to a gate's open in-edges plus live visits and notes which out-edges were used. At zero the
    gate's ``closed`` token becomes ready."""

    gate: GateSpec
    delta: int
    used: tuple[int, ...] = ()


class StoreOutput(Struct, frozen=True, gc=False):
    """An output (or a page of a context) that tokens refer to by id."""

    id: str
    data: bytes


class CancelTokens(Struct, frozen=True, gc=False):
    """Drops the live tokens of a scope that stand at these nodes, and what they hold open below them; never what its
    own transition spawns."""

    scope: str
    nodes: tuple[str, ...]


class PauseExecution(Struct, frozen=True, gc=False):
    event: NewEvent


class ResumeExecution(Struct, frozen=True, gc=False):
    """Held tokens become ready in due order; deadline tokens are moved by the time spent paused."""

    event: NewEvent


class WriteOutbox(Struct, frozen=True, gc=False):
    """What this execution owes another one or the outside. Delivered at least once, idempotent by ``id``."""

    id: str
    topic: str
    data: bytes


Effect = (
    SpawnToken
    | ResolveSlot
    | OpenBarrier
    | SetMilestone
    | OpenScope
    | EndScope
    | LeaveContext
    | EndIfLast
    | FinishExecution
    | AdjustGate
    | StoreOutput
    | CancelTokens
    | CreateExecution
    | PauseExecution
    | ResumeExecution
    | WriteOutbox
)
