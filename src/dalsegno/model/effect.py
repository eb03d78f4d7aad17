"""Effects: the closed vocabulary of changes that a step may make to its execution.

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
    """Create an execution; only in a start. Applying it to an id that exists is ``AlreadyApplied``.

    ``pending``: it is PENDING until it is begun. A script still has its machine from now on, so that signals may
    arrive before it runs.
    """

    execution: NewExecution
    pending: bool = False


class BeginExecution(Struct, frozen=True, gc=False, tag=True):
    """Move a PENDING execution to RUNNING, once.

    The tokens that its transition spawns after this effect are its first ones; a token that was to begin it at a
    time is dropped. A command that starts with this effect is ``AlreadyApplied`` if the execution has begun.
    ``input`` replaces the submitted one.

    With ``in_line``, the id of a token of kind ``start`` that the same transition spawns, it stays PENDING: that
    token will begin it, with the new input, when its limit allows, and every other one that was to begin it is
    dropped. If that token exists the command is ``AlreadyApplied``, whatever its input.
    """

    input: bytes | None = None
    in_line: str = ""


class SpawnToken(Struct, frozen=True, gc=False, tag=True):
    """Spawn a token: ready, or parked until its ``due``.

    An id that exists already is left alone. A task or timer of a script without a priority of its own has its
    execution's.
    """

    token: NewToken


class ResolveSlot(Struct, frozen=True, gc=False, tag=True):
    """Resolve a slot of a barrier, which is created if it does not exist.

    An edge delivers its first token (``live``) or closes unused.

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
    """Open a split's barrier: the aggregator's join token is parked and counts as live at once."""

    barrier: BarrierSpec
    milestone: Milestone | None = None


class SetMilestone(Struct, frozen=True, gc=False, tag=True):
    """Replace the barrier's milestone. One that is already reached makes its token ready in this commit."""

    barrier: str
    milestone: Milestone


class OpenScope(Struct, frozen=True, gc=False, tag=True):
    """Open an item's scope; when it ends, slot ``slot`` of ``barrier`` is resolved with its result."""

    scope: str
    barrier: str
    slot: int


class EndScope(Struct, frozen=True, gc=False, tag=True):
    """End an item's scope now, even if tokens are still live in it. ``trip`` also opens the barrier at once."""

    scope: str
    data: bytes
    trip: bool = False
    event: NewEvent | None = None


class LeaveContext(Struct, frozen=True, gc=False, tag=True):
    """Keep the context of a branch that ends in its scope."""

    scope: str
    key: str
    data: bytes


class FinishExecution(Struct, frozen=True, gc=False, tag=True):
    """End the execution in O(1); the rest is swept later.

    An execution that was started with ``notify`` leaves an outbox entry ``ended`` with it, in the same commit.

    ``hand_over``: each unfinished task of the script becomes an execution of its own (kind ``task``), with its
    token, its lease and its fence unchanged. Its id is derived from the token's. That includes tasks that effects
    before this one spawn; those are not kept leased to the worker.
    """

    state: EndState
    event: NewEvent
    output: bytes | None = None
    context: bytes | None = None
    error: bytes | None = None
    hand_over: bool = False


class EndIfLast(Struct, frozen=True, gc=False, tag=True):
    """End the scope if nothing in it is live any more, judged after all other effects of its transition.

    * If no other branch left anything and the step knows the ending, apply it (``finish`` for the root,
      ``slot_data`` for an item), so that a chain needs no extra step.
    * Otherwise store ``left`` and make ``finisher`` ready, whose step merges what was left.

    While something is live, only ``left`` is stored.
    """

    scope: str
    finisher: NewToken
    key: str = ""
    left: bytes | None = None
    finish: FinishExecution | None = None
    slot_data: bytes | None = None
    event: NewEvent | None = None
    """Recorded if an item's scope ended this way."""


class AdjustGate(Struct, frozen=True, gc=False, tag=True):
    """Add ``delta`` to a gate's open in-edges plus live visits and record which out-edges were used.

    At zero the gate's ``closed`` token becomes ready.
    """

    gate: GateSpec
    delta: int
    used: tuple[int, ...] = ()


class StoreOutput(Struct, frozen=True, gc=False, tag=True):
    """Store an output (or a page of a context) that tokens refer to by id."""

    id: str
    data: bytes


class CancelTokens(Struct, frozen=True, gc=False, tag=True):
    """Drop the live tokens of a scope that are at these nodes, and what they hold open below them.

    Tokens that its own transition spawns are never dropped.
    """

    scope: str
    nodes: tuple[str, ...]


class PauseExecution(Struct, frozen=True, gc=False, tag=True):
    event: NewEvent


class ResumeExecution(Struct, frozen=True, gc=False, tag=True):
    """End a pause: held tokens become ready in due order; deadline tokens are moved by the length of the pause."""

    event: NewEvent


class WriteOutbox(Struct, frozen=True, gc=False, tag=True):
    """Write an order for another execution or the outside. Delivered at least once, idempotent by ``id``."""

    id: str
    topic: str
    data: bytes


class TakeOrder(Struct, frozen=True, gc=False, tag=True):
    """Carry out an entry of the outbox, which another execution wrote.

    The command that begins with this removes the entry; if it is gone, the command is ``AlreadyApplied``. So it
    happens once, however often it is delivered.
    """

    entry: str


class MarkStarted(Struct, frozen=True, gc=False, tag=True):
    """Record that a long run has begun.

    A command that begins with this is ``AlreadyApplied`` if that is on record, and if the lease with this
    ``fence`` is over: so a run is shown as started at most once, and never after its end.
    """

    token: str
    fence: int


class SaveMachine(Struct, frozen=True, gc=False, tag=True):
    """Save a script's machine after a run that ended at an await.

    Refused as ``Stale("version")`` unless the stored machine has ``version``, which it leaves as ``version + 1``.

    ``read`` is the number of the newest completion or signal the run has seen. Completions of promises that are no
    longer ``reachable`` are removed, and ``taken`` signals become completions of their promises, numbered by their
    arrival. Then the new wake condition is evaluated against what arrived after ``read``. A cancellation not yet
    delivered (``interrupted``) wakes in any case. A resume token is made ready in this very commit.

    ``settled`` is the completion that this transition's own token brings, when the worker that ran it continued
    with the machine at once (a fused commit). It takes the next number and counts as read; it is kept only if it
    stays reachable. Such a commit is also refused as ``Stale("version")`` if any completion arrived after
    ``read``, if a resume is pending (that one will read it), and while the execution is paused.

    A run that ends the script has this effect before its ``FinishExecution``: an ending must not come from a
    machine that has moved on either. (What it would save is not written then.) A transition that consumes the
    resume token of the stored version without this effect leaves the machine unchanged under ``version + 1``, and
    its wake condition is evaluated again.
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
    exact: bool = False
    """Also refused if anything has completed or arrived since ``read``."""


class MoveMachine(Struct, frozen=True, gc=False, tag=True):
    """Let a script that has not ended go on with another version of its program.

    Refused as ``Stale("version")`` unless the stored machine has ``version`` and the execution runs the definition
    ``before``; a command that begins with this is ``AlreadyApplied`` if it runs ``definition`` already.

    ``snapshot`` replaces the stored one; it is empty for a machine that has not run. Inbox, mailbox and wake condition
    stay. The machine gets the next version, so a turn that is under way is refused. Its resume token is replaced by one
    that carries nothing.
    """

    version: int
    before: str
    definition: str
    number: int
    """The version of the workflow."""
    snapshot: bytes
    line: int = 0


class SettlePromise(Struct, frozen=True, gc=False, tag=True):
    """Complete a task, timer, child or signal wait of a script.

    Takes the next inbox number, and makes the resume token ready if the wake condition holds and there is none
    yet. A promise that the machine cannot reach any more, or that has its completion already, is left alone; the
    rest of the transition applies. ``repeatable``: it may come twice, or in addition to another for the same
    promise; the first one counts, and a command that begins with another one for a settled promise is
    ``AlreadyApplied`` as a whole.
    """

    completion: Completion
    repeatable: bool = False


class PostSignal(Struct, frozen=True, gc=False, tag=True):
    """Post a signal to an execution of any kind, kept until it is taken.

    A command that begins with the same ``id`` again is ``AlreadyApplied``, also after it was taken. Signals are
    numbered by their events; a signal to a machine also takes the next number of its inbox. The token that was
    parked for this name first takes it at once; a machine that waits for it is resumed, whatever else it needs.
    """

    id: str
    name: str
    data: bytes
    event: NewEvent


class AnswerRequest(Struct, frozen=True, gc=False, tag=True):
    """Answer what was posted under this ``id``: ``data`` is kept with it, and ``event`` is recorded.

    It counts as taken from then on. The first answer counts: another one, or one to an id under which nothing was
    posted to this execution, changes nothing.
    """

    id: str
    data: bytes
    event: NewEvent


class DeliverToToken(Struct, frozen=True, gc=False, tag=True):
    """Wake a token parked with ``awaits``: it becomes ready with the reason ``arrival``.

    ``data`` is stored as the output ``arrival_id(token)``. If the token is gone, nothing happens, and a command
    that begins with this is ``AlreadyApplied``.
    """

    token: str
    awaits: str
    data: bytes


class TakeMessage(Struct, frozen=True, gc=False, tag=True):
    """Take a message of another program into the execution, once.

    A command that begins with one of these whose ``id`` is known is ``AlreadyApplied``. Otherwise the id is known from
    now on, as those of signals are. ``scope``: where the message arrives, ``barriers``: those of the splits around it,
    outermost first. The command is ``Stale("scope")`` if any of them has ended; those that do not exist yet are about
    to be opened by the command.
    """

    id: str
    scope: str = ""
    barriers: tuple[str, ...] = ()


class HurryToken(Struct, frozen=True, gc=False, tag=True):
    """Make a token ready at once that was postponed and is parked only until its time, because its task is available.

    ``attempt``: a token that was tried since waits for its next try, and is left alone. If the token is gone,
    nothing happens, and a command that begins with this is ``AlreadyApplied``.
    """

    token: str
    attempt: int


class RequestCancel(Struct, frozen=True, gc=False, tag=True):
    """Ask a script to end: record the reason and ``event`` and make the resume token ready.

    A paused execution is resumed, so that it can clean up. One that was asked before is left to clean up: a
    command that begins with this effect is then ``AlreadyApplied``. An execution that has no machine, or has not
    begun, ends at once with ``finish`` (and without ``event``); ``owed`` goes into the outbox with ``finish``, and
    only with it.
    """

    reason: CancelReason
    event: NewEvent
    finish: FinishExecution
    owed: tuple[WriteOutbox, ...] = ()


class DropTokens(Struct, frozen=True, gc=False, tag=True):
    """Drop these tokens, regardless of their state.

    Those that do not exist or are done are passed over, and so is the machine's resume token. The history records
    ``TaskCancelled`` for each task.
    """

    tokens: tuple[str, ...]


class ReplaceTags(Struct, frozen=True, gc=False, tag=True):
    """Replace the execution's tags. ``tags`` are all of them, sorted.

    ``gone`` are the removed ones and ``new`` the added ones: the index of tags changes by these.
    """

    tags: tuple[tuple[str, str], ...]
    gone: tuple[tuple[str, str], ...]
    new: tuple[tuple[str, str], ...]


class PublishValues(Struct, frozen=True, gc=False, tag=True):
    """Publish values: of each key the newest one is kept, and shown while the execution runs and after its end."""

    values: tuple[tuple[str, bytes], ...]


class AppendChunks(Struct, frozen=True, gc=False, tag=True):
    """Append chunks, which are JSON values, to a stream of the execution. ``closes``: nothing follows.

    A stream that is full takes no more; what would pass its limit is dropped whole.
    """

    stream: str
    chunks: tuple[bytes, ...]
    closes: bool = False
    task: str = ""
    """The task that wrote them; empty: the workflow itself."""
    attempt: int = 1
    token: str = ""
    fence: int = 0


class WakeMachine(Struct, frozen=True, gc=False, tag=True):
    """Make the resume token of a suspended script ready, regardless of its wake condition; used by the reconciler.

    A command that begins with it is ``AlreadyApplied`` if there is such a token already, or no machine.
    """


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
    | TakeMessage
    | MarkStarted
    | SaveMachine
    | MoveMachine
    | SettlePromise
    | PostSignal
    | AnswerRequest
    | DeliverToToken
    | HurryToken
    | RequestCancel
    | DropTokens
    | WakeMachine
    | ReplaceTags
    | PublishValues
    | AppendChunks
)
