"""The ledger port: the authority on everything in flight.

`Ledger` states the contract that every adapter's tests check.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from dalsegno.model.barrier import BarrierView, LeftView, SlotView
from dalsegno.model.inspection import Inspection, Untouched
from dalsegno.model.machine import MachineView, PostedView
from dalsegno.model.token import Lease
from dalsegno.model.transition import Outcome, ReadyToken, Transition
from dalsegno.ports.records import Record

__all__ = [
    "Examination",
    "Examined",
    "Inspection",
    "Ledger",
    "OutboxEntry",
    "QueueView",
    "RecordsAsked",
    "Untouched",
    "Woken",
    "WorkerView",
]

SLOTS_PAGE = 2000
LAST = "\U0010ffff"
"""Added to a prefix, the end of the ids that continue it."""
MOST_BARRIERS = 50
"""Barriers of an execution whose open slots an examination lists. Each item of a split may wait at one of its own."""
MOST_OPEN_SLOTS = 20
"""Open slots listed per barrier."""


class Woken(Struct, frozen=True):
    ready: tuple[ReadyToken, ...]
    next_due: float | None
    """When the next parked token comes due; None if none is parked."""
    handed: int = 0
    """How many more went directly to a worker of this process that waits for work."""


class WorkerView(Struct, frozen=True):
    id: str
    expires_at: float
    leases: int
    info: bytes


COUNTED = 100_000
"""Ready tokens counted per queue, with and without a limit key: it bounds the cost of a count."""


class QueueView(Struct, frozen=True):
    """The length of one queue.

    ``oldest``: since when the first of its ready tokens waits; None if there is none. ``ready`` may be too low if
    it is more than ``COUNTED``.
    """

    queue: str
    ready: int
    running: int
    oldest: float | None


class RecordsAsked(Struct, frozen=True):
    """The records that an examination reads in addition to an execution's rows."""

    of_tokens: str = ""
    """A kind of records about tokens."""
    token_prefix: str = ""
    """Prefix of the token id in the ids of those records."""
    of_queues: str = ""
    """A kind whose ids are queues: read for the queues in which a token of the execution is ready."""
    where_ready: str = ""
    """A kind whose records are all read if any token of the execution is ready."""


NO_RECORDS = RecordsAsked()


class Examination(Struct, frozen=True):
    """Everything in the store that explains why an execution has not ended."""

    inspection: Inspection
    machine: MachineView | None
    open_slots: Mapping[str, tuple[int, ...]]
    """The first unresolved slots (at most ``MOST_OPEN_SLOTS``) of each waiting barrier (at most
    ``MOST_BARRIERS``), by its id.
    """
    records: tuple[Record, ...]


class Examined(Struct, frozen=True):
    executions: tuple[Examination, ...]
    workers: tuple[WorkerView, ...]


class OutboxEntry(Struct, frozen=True):
    id: str
    execution: str
    topic: str
    data: bytes


class Ledger(Protocol):
    """Applies transitions atomically.

    * **L1 once**: a token is consumed by at most one applied transition, however often it is redelivered or
      retried.
    * **L2 whole**: all effects of a transition become visible, or none; its outbox entries are part of the same
      commit. An output stored again under its id replaces the earlier one; outputs stay until the execution is
      removed, also after its ending.
    * **L3 stable ids**: applying the same transition again reports ``AlreadyApplied`` and changes nothing;
      spawning an id that exists changes nothing.
    * **L4 fenced**: a commit that shows an old fence is ``Stale("fence")``.
    * **L5 one ending**: an execution, and every scope in it, ends exactly once; every later commit, timer, arrival
      or claim that names it or a scope below it changes nothing.
    * **L6 nothing stuck**: expired leases, due timers and unannounced tokens are found again by ``expire``,
      ``wake`` and ``untouched``; none of them needs the process that created them.
    * **L7 barriers open once**: never before every slot is resolved, the deadline has passed or an item has
      tripped it; a resolved slot does not change.
    * **L8 ordered history**: the events of one execution are numbered 1, 2, 3 … without a gap, and their times do
      not decrease: an event is dated between the previous commit and its own.
    * **L9 isolation**: a transition touches only its own execution; ready tokens of equal priority are claimed in
      the order in which they became ready.
    * **L10 answered once**: of several answers to what was posted under one id the first is kept, with the commit that
      gives it; every process reads it by that id until the execution is swept, and in the history from then on.

    A transition with ``hand`` is a person's: it settles a token that need not be leased, at the fence and the
    attempt that the person has seen. Of it and the step of the token's holder one is applied (L1), and the other
    is stale (L4).

    Commit protocol: no transition of a batch depends on another's effect. A transition the store cannot hold is
    ``Refused`` alone; the others of its batch are applied. A commit cascades one level: a last resolved slot, an
    emptied scope or a closed gate makes one token ready. Batches that name different executions may be sent
    concurrently; none delays another.

    The journal of a machine consists of outputs whose ids begin with ``turns/``. Which of them a step writes depends on
    the process, so they do not count when a step is recognised as a repetition.

    Scripts: an execution of kind script or python has a machine from its start. A completion takes the next number
    of the machine's inbox. A version of the machine has at most one resume token, made ready by the very commit
    that fulfils the wake condition, which the commit of each run evaluates again. Nothing that arrives during a
    run is lost (L6), and nothing is delivered to a machine twice (L1).

    Executions that have not begun are PENDING: they have no token but one of kind ``start``, if they have a time.
    One ``BeginExecution`` is applied, however often it is requested (L1).
    """

    def now(self) -> float:
        """Return the ledger's time as last seen; it is the core's ``now``."""

    async def commit(self, batch: Sequence[Transition]) -> list[Outcome]: ...

    async def claim(self, worker: str, queues: Sequence[str], limit: int) -> list[Lease]:
        """Lease ready tokens by priority, then age. Tokens that killed workers before come one at a time."""

    async def claim_others(
        self,
        worker: str,
        queues: Sequence[str],
        limit: int,
        pass_over: Collection[str],
        *,
        only_long: bool = True,
    ) -> list[Lease]:
        """Lease ready tokens as ``claim`` does, but pass over some executions of the workflows ``pass_over``.

        With ``only_long`` those steps that may run long are passed over (nodes, tasks, and turns of Python
        workflows that were not asked to end), else all. Tokens that killed workers before are passed over, too.
        """

    async def lease(self, worker: str, tokens: Sequence[ReadyToken]) -> list[Lease]:
        """Lease the named tokens that are ready; pass over the others."""

    async def release(self, worker: str, leases: Sequence[Lease], *, lost: bool = False) -> None:
        """Hand leases back: the tokens are ready again. A loss is counted only with ``lost``: the process that had them
        for this worker has died.
        """

    async def held_by(self, worker: str) -> list[Lease]:
        """Return the leases that a worker holds, of executions that have not ended. Reads only, in one query."""

    async def obsolete(self, leases: Sequence[Lease]) -> list[Lease]:
        """Return the leases whose run is useless because L4 or L5 would refuse its commit.

        That is so if the execution has ended, the scope is closed, or the token is no longer leased under this
        fence. The runs of a paused execution continue. A task that was handed over counts as leased in the
        execution it has become. Reads only, in one query.
        """

    def heartbeat(self, worker: str, lease_seconds: float, info: bytes = b"") -> None:
        """Extend a worker's leases.

        Blocking and thread-safe: called from a thread of its own, first before the first claim.
        """

    async def expire(self, dead: Sequence[str] = ()) -> tuple[ReadyToken, ...]:
        """Take back the leases of lost workers.

        Lost are workers that missed their heartbeat or never sent one, and those in ``dead``.
        """

    async def wake(self, limit: int = 500) -> Woken:
        """Make due tokens ready."""

    async def slots(
        self, execution: str, barrier: str, after: int = -1, limit: int = SLOTS_PAGE
    ) -> list[SlotView]:
        """Return resolved slots of a barrier with numbers greater than ``after``, in order, at most ``limit``."""

    async def left(self, execution: str, scope: str) -> list[LeftView]:
        """Return what branches left in a scope, in key order."""

    async def gate_used(self, execution: str, gate: str) -> tuple[int, ...]:
        """Return the positions of the out-edges that visits of a gate used."""

    async def outputs(self, execution: str, ids: Sequence[str]) -> dict[str, bytes]:
        """Return stored outputs by id; only ids of this execution resolve."""

    async def machine(self, execution: str) -> MachineView | None:
        """Return a script's machine with its inbox and mailbox, as of one moment.

        None for executions of other kinds, and after the sweep.
        """

    async def waiting_signals(self, execution: str, most: int) -> int:
        """Return how many signals wait to be taken, counted up to ``most``."""

    async def posted(self, asked: Sequence[tuple[str, str]]) -> dict[tuple[str, str], PostedView]:
        """Return what was posted, taken or not, for those of these pairs of execution and id under which anything
        was. One read, in one round trip if there is a network.
        """

    async def unanswered(self, execution: str, prefix: str, limit: int) -> list[PostedView]:
        """Return what was posted under ids with this prefix and has no answer, at most ``limit``, oldest first."""

    async def inspect(self, execution: str) -> Inspection | None: ...

    async def visit(self, execution: str, prefix: str) -> BarrierView | None:
        """Return the first barrier whose id continues this prefix; one that still waits comes before the others."""

    async def examine(self, executions: Sequence[str], records: RecordsAsked = NO_RECORDS) -> Examined:
        """Return the executions that exist, in the order given, and all workers if there are any such.

        All is read at one moment, in one round trip if there is a network. Each contains what ``inspect`` and
        ``machine`` return, except that input, output and context are given by their size only.
        """

    async def untouched(self, before: float, after: str, limit: int) -> Untouched:
        """Return one bounded page of a walk through all unswept executions, in the order of their ids.

        Of the next ``limit`` after ``after`` it contains those that have not ended and that no commit has touched
        since ``before``.
        """

    async def ready(self, execution: str) -> tuple[ReadyToken, ...]:
        """Return the ready tokens of one execution, which a reconciler announces again."""

    async def sweep(self, limit: int = 500) -> int:
        """Remove rows of ended executions, at most ``limit`` of them; return how many were removed.

        Nodes that were live when their execution ended are recorded as ``NodeCancelled`` first, tasks as
        ``TaskCancelled``. What branches left at the root of an execution that did not complete stays: it is part
        of the final context.
        """

    async def workers(self) -> list[WorkerView]:
        """Return the workers with what they hold. For people, not for the engine's loops."""

    async def known_workers(self) -> list[str]:
        """Return the workers' names only, in order."""

    async def queues(self) -> list[QueueView]:
        """Return the queues in which something is ready or leased, by name. For people, not for the engine's loops."""

    async def outbox(self, limit: int = 100) -> list[OutboxEntry]:
        """Return the outbox entries not yet reported as delivered, in the order in which they were written."""

    async def delivered(self, ids: Sequence[str]) -> None: ...

    async def close(self) -> None: ...


class ConnectedProcess(Struct, frozen=True):
    """A connected process, as described by its connections."""

    name: str
    """Empty if the connections do not give it."""
    version: str | None
    address: str | None
    """None if it is unknown, or the reader may not see it."""
