"""Effects: the closed vocabulary of what a step may do to its execution.

Stores interpret effects by ids, counters, slots and times; none of them needs to know a graph. Each effect names
everything it touches, so that a store can fetch all rows of a batch before it decides.
"""

from __future__ import annotations

from msgspec import Struct

from dalsegno.model.barrier import BarrierSpec, GateSpec, Milestone
from dalsegno.model.event import NewEvent
from dalsegno.model.execution import EndState, NewExecution
from dalsegno.model.machine import CancelReason, Completion, Ranges, TakenSignal, Wake
from dalsegno.model.token import NewToken


class CreateExecution(Struct, frozen=True, gc=False, tag=True):
    """Only in a start. Applying it to an id that exists is ``AlreadyApplied``.

    ``pending``: it is PENDING until it is begun. A script has its machine from now on nevertheless, so that signals may
    come before it runs.
    """

    execution: NewExecution
    pending: bool = False


class BeginExecution(Struct, frozen=True, gc=False, tag=True):
    """Takes a PENDING execution to RUNNING, once. The tokens that its transition spawns after this are its first ones;
    a token that was to begin it at a time is dropped. A command that starts with this effect is ``AlreadyApplied``
    where the execution has begun. ``input`` replaces the one that was submitted.

    With ``in_line``, the id of a token of kind ``start`` that the same transition spawns, it stays PENDING: that token
    will begin it, with the new input, when its limit lets it, and every other one that was to begin it is dropped.
    Where that token exists the command is ``AlreadyApplied``, whatever its input."""

    input: bytes | None = None
    in_line: str = ""


class SpawnToken(Struct, frozen=True, gc=False, tag=True):
    """A new token: ready, or parked until its ``due``. An id that exists already is left alone. A task or
    timer of a script without a priority of its own has its execution's."""

    token: NewToken


class ResolveSlot(Struct, frozen=True, gc=False, tag=True):
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


class OpenBarrier(Struct, frozen=True, gc=False, tag=True):
    """A split parks its aggregator's join token, which counts as live at once."""

    barrier: BarrierSpec
    milestone: Milestone | None = None


class SetMilestone(Struct, frozen=True, gc=False, tag=True):
    """Replaces the barrier's milestone. One that is already reached makes its token ready in this commit."""

    barrier: str
    milestone: Milestone


class OpenScope(Struct, frozen=True, gc=False, tag=True):
    """An item's scope; when it ends, slot ``slot`` of ``barrier`` is resolved with what it ended with."""

    scope: str
    barrier: str
    slot: int


class EndScope(Struct, frozen=True, gc=False, tag=True):
    """Ends an item's scope now, whatever is still live in it. ``trip`` also opens the barrier at once."""

    scope: str
    data: bytes
    trip: bool = False
    event: NewEvent | None = None


class LeaveContext(Struct, frozen=True, gc=False, tag=True):
    """What a branch leaves behind in its scope when it ends."""

    scope: str
    key: str
    data: bytes


class FinishExecution(Struct, frozen=True, gc=False, tag=True):
    """Ends the execution: O(1), the rest is swept later. An execution that was started with ``notify`` leaves an outbox
    entry ``ended`` with it, in the same commit.

    ``hand_over``: each task of the script that is not done yet becomes an execution of its own (kind ``task``), with
    its token, its lease and its fence as they are. Its id is derived from the token's. That holds for tasks that
    effects before this one spawn, too; those are not kept leased to the worker.
    """

    state: EndState
    event: NewEvent
    output: bytes | None = None
    context: bytes | None = None
    error: bytes | None = None
    hand_over: bool = False


class EndIfLast(Struct, frozen=True, gc=False, tag=True):
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


class AdjustGate(Struct, frozen=True, gc=False, tag=True):
    """Adds ``delta`` to a gate's open in-edges plus live visits and notes which out-edges were used. At zero the
    gate's ``closed`` token becomes ready."""

    gate: GateSpec
    delta: int
    used: tuple[int, ...] = ()


class StoreOutput(Struct, frozen=True, gc=False, tag=True):
    """An output (or a page of a context) that tokens refer to by id."""

    id: str
    data: bytes


class CancelTokens(Struct, frozen=True, gc=False, tag=True):
    """Drops the live tokens of a scope that stand at these nodes, and what they hold open below them; never what its
    own transition spawns."""

    scope: str
    nodes: tuple[str, ...]


class PauseExecution(Struct, frozen=True, gc=False, tag=True):
    event: NewEvent


class ResumeExecution(Struct, frozen=True, gc=False, tag=True):
    """Held tokens become ready in due order; deadline tokens are moved by the time spent paused."""

    event: NewEvent


class WriteOutbox(Struct, frozen=True, gc=False, tag=True):
    """What this execution owes another one or the outside. Delivered at least once, idempotent by ``id``."""

    id: str
    topic: str
    data: bytes


class TakeOrder(Struct, frozen=True, gc=False, tag=True):
    """The command that begins with this carries out an entry of the outbox, which another execution wrote. It takes the
    entry away; where that is gone it is ``AlreadyApplied``. So it happens once, however often it is delivered."""

    entry: str


class SaveMachine(Struct, frozen=True, gc=False, tag=True):
    """A run of a script's machine ended at an await. Refused as ``Stale("version")`` unless the stored machine has
    ``version``, which it leaves as ``version + 1``.

    ``read`` is the number of the newest completion or signal the run has seen. Completions of promises that are no
    longer ``reachable`` go, and ``taken`` signals become completions of their promises, as of when they came. Then the
    new wake condition is judged against what arrived after ``read``, and a cancellation not yet told (``interrupted``)
    wakes in any case: a resume token is made ready in this very commit.

    ``settled`` is the completion that this transition's own token brings, when the worker that ran it went on with the
    machine at once (a fused commit). It takes the next number and counts as read; it is kept only if it stays
    reachable. Such a commit is also refused as ``Stale("version")`` if any completion arrived after ``read``, if a
    resume is pending (that one will read it), and while the execution is paused.

    A run that ends the script carries this effect before its ``FinishExecution``: an ending must not come from a
    machine that has moved on either. (What it would save is not written then.) A transition that uses up the resume
    token of the stored version without this effect leaves the machine as it was under ``version + 1``, and its wake
    condition is judged again.
    """

    version: int
    snapshot: bytes
    read: int
    wake: Wake
    reachable: Ranges
    line: int = 0
    settled: Completion | None = None
    taken: tuple[TakenSignal, ...] = ()
    interrupted: bool = False


class SettlePromise(Struct, frozen=True, gc=False, tag=True):
    """A task, timer, child or signal wait of a script is done. Takes the next inbox number, and makes the resume token
    ready if the wake condition holds and there is none yet. A promise that the machine cannot reach any more, or that
    has its completion already, is left alone; the rest of the transition applies. ``repeatable``: it may come twice, or
    beside another for the same promise; the first one counts, and a command that begins with another one for a settled
    promise is ``AlreadyApplied`` as a whole.
    """

    completion: Completion
    repeatable: bool = False


class PostSignal(Struct, frozen=True, gc=False, tag=True):
    """A signal for an execution of any kind, kept until it is taken; a command that begins with the same ``id``
    again is ``AlreadyApplied``, also after it was taken. Signals are numbered by their events; to a machine one takes
    the next number of its inbox, too. The token that was parked for this name first takes it at once; a machine that
    waits for it is resumed, whatever else it needs."""

    id: str
    name: str
    data: bytes
    event: NewEvent


class DeliverToToken(Struct, frozen=True, gc=False, tag=True):
    """What a token parked with ``awaits`` was waiting for has come: it becomes ready with the reason ``arrival``, and
    ``data`` is stored as the output ``arrival_id(token)``. No such token any more: nothing happens, and a command that
    begins with it is ``AlreadyApplied``."""

    token: str
    awaits: str
    data: bytes


class RequestCancel(Struct, frozen=True, gc=False, tag=True):
    """Asks a script to end: notes the reason, records ``event`` and makes the resume token ready. A paused execution
    is resumed, so that it can clean up. One that was asked before is left to clean up: a command that begins with this
    effect is then ``AlreadyApplied``. An execution that has no machine, or has not begun, ends at once with ``finish``
    (and without ``event``); ``owed`` goes into the outbox with ``finish``, and only with it.
    """

    reason: CancelReason
    event: NewEvent
    finish: FinishExecution
    owed: tuple[WriteOutbox, ...] = ()


class DropTokens(Struct, frozen=True, gc=False, tag=True):
    """Drops these tokens, whatever they are doing; those that do not exist or are done are passed over, and so is the
    machine's resume token. History says ``TaskCancelled`` of each task."""

    tokens: tuple[str, ...]


class ReplaceTags(Struct, frozen=True, gc=False, tag=True):
    """The execution has other tags from now on: ``tags`` are all of them, sorted. ``gone`` are those that it had and
    has no more, ``new`` those that it had not: what finds executions by their tags changes by these."""

    tags: tuple[tuple[str, str], ...]
    gone: tuple[tuple[str, str], ...]
    new: tuple[tuple[str, str], ...]


class WakeMachine(Struct, frozen=True, gc=False, tag=True):
    """Makes the resume token of a suspended script ready, whatever it waits for: a reconciler's nudge. A command that
    begins with it is ``AlreadyApplied`` where there is such a token already, or no machine."""


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
    | BeginExecution
    | PauseExecution
    | ResumeExecution
    | WriteOutbox
    | TakeOrder
    | SaveMachine
    | SettlePromise
    | PostSignal
    | DeliverToToken
    | RequestCancel
    | DropTokens
    | WakeMachine
    | ReplaceTags
)
