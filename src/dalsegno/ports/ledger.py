"""The ledger: the truth about everything in flight. Its docstring is the contract that every adapter passes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from msgspec import Struct

from dalsegno.model.barrier import LeftView, SlotView
from dalsegno.model.inspection import Inspection, Untouched
from dalsegno.model.machine import MachineView
from dalsegno.model.token import Lease
from dalsegno.model.transition import Outcome, ReadyToken, Transition

__all__ = ["Inspection", "Ledger", "OutboxEntry", "QueueView", "Untouched", "Woken", "WorkerView"]


SLOTS_PAGE = 2000


class Woken(Struct, frozen=True):
    ready: tuple[ReadyToken, ...]
    next_due: float | None
    """When the next parked token comes due; None when none is parked."""
    handed: int = 0
    """How many more went straight to a worker of this process that waits for work."""


class WorkerView(Struct, frozen=True):
    id: str
    expires_at: float
    leases: int
    info: bytes


COUNTED = 100_000
"""Ready tokens of a queue that are counted, with and without a limit key: a look costs no more, however many wait."""


class QueueView(Struct, frozen=True):
    """How long one queue is. ``oldest``: since when the first of its ready tokens waits; None where none does.
    ``ready`` may be too low where it is more than ``COUNTED``."""

    queue: str
    ready: int
    running: int
    oldest: float | None


class OutboxEntry(Struct, frozen=True):
    id: str
    execution: str
    topic: str
    data: bytes


class Ledger(Protocol):
    """Applies transitions atomically.

    * **L1 once**: a token is consumed by at most one applied transition, whatever is redelivered or retried.
    * **L2 whole**: all effects of a transition become visible, or none; what it owes others is in the outbox of the
      same commit.
    * **L3 stable ids**: applying the same transition again reports ``AlreadyApplied`` and changes nothing; spawning
      an id that exists changes nothing.
    * **L4 fenced**: a commit that shows an old fence is ``Stale("fence")``.
    * **L5 one ending**: an execution, and every scope in it, ends exactly once; every later commit, timer, arrival
      or claim that names it or a scope below it changes nothing.
    * **L6 nothing stuck**: expired leases, due timers and unannounced tokens are found again by ``expire``, ``wake``
      and ``untouched``; none of them needs the process that was there before.
    * **L7 barriers open once**: never before every slot is resolved, the deadline passed or an item tripped it; a
      slot that is resolved stays as it is.
    * **L8 ordered history**: the events of one execution are numbered 1, 2, 3 … without a gap.
    * **L9 isolation**: a transition touches only its own execution; ready tokens of equal priority are claimed in
      the order in which they became ready.

    Commit protocol: no transition of a batch depends on another's effect; a transition the store cannot hold is
    ``Refused`` alone, the others of its batch are applied. A commit cascades one level: a last resolved slot, an
    emptied scope or a closed gate makes one token ready. Batches that name different executions may be sent at once;
    none puts another off.

    Scripts: an execution of kind script or python has a machine from its start. What completes takes the next number
    of its inbox; a version of the machine has at most one resume token, made ready by the very commit that fulfils the
    wake condition, which the commit of each run judges again. Nothing that arrives while a run is under way is lost
    (L6), and nothing is told to a machine twice (L1).

    Executions that wait to be begun are PENDING: they have no token but one of kind ``start``, if they have a time. One
    ``BeginExecution`` is applied, whoever asks how often (L1).
    """

    def now(self) -> float:
        """The ledger's clock as last seen; what the core is given as ``now``."""

    async def commit(self, batch: Sequence[Transition]) -> list[Outcome]: ...

    async def claim(self, worker: str, queues: Sequence[str], limit: int) -> list[Lease]:
        """Leases ready tokens by priority, then age. Tokens that killed workers before come one at a time."""

    async def claim_others(
        self,
        worker: str,
        queues: Sequence[str],
        limit: int,
        pass_over: Collection[str],
        *,
        only_long: bool = True,
    ) -> list[Lease]:
        """As ``claim``, but passes over executions of the workflows ``pass_over``: with ``only_long`` what may run long
        in them (nodes, tasks, and turns of Python workflows, unless such a one was asked to end), else everything.
        Also passes over tokens that killed workers before."""

    async def lease(self, worker: str, tokens: Sequence[ReadyToken]) -> list[Lease]:
        """Leases those of the named tokens that are ready; the others are passed over."""

    async def release(self, worker: str, leases: Sequence[Lease]) -> None:
        """Hands leases back unharmed: ready again, no loss counted."""

    async def obsolete(self, leases: Sequence[Lease]) -> list[Lease]:
        """Those whose run is of no use any more, since L4 or L5 would refuse its commit: the execution has ended, the
        scope is closed, or the token is no longer leased under this fence. A paused execution goes on. A task that was
        handed over counts as leased in the execution it has become. Reads only, in one query."""

    def heartbeat(self, worker: str, lease_seconds: float, info: bytes = b"") -> None:
        """Keeps a worker's leases alive. Blocking and thread-safe: called from a thread of its own, for the first time
        before the first claim."""

    async def expire(self, dead: Sequence[str] = ()) -> tuple[ReadyToken, ...]:
        """Takes back the leases of workers that missed their heartbeat or never sent one, and of those known to be
        ``dead``."""

    async def wake(self, limit: int = 500) -> Woken:
        """Makes due tokens ready."""

    async def slots(
        self, execution: str, barrier: str, after: int = -1, limit: int = SLOTS_PAGE
    ) -> list[SlotView]:
        """The resolved slots of a barrier with numbers greater than ``after``, in order, at most ``limit``."""

    async def left(self, execution: str, scope: str) -> list[LeftView]:
        """What branches left in a scope, in key order."""

    async def gate_used(self, execution: str, gate: str) -> tuple[int, ...]:
        """Positions of the out-edges that visits of a gate used."""

    async def outputs(self, execution: str, ids: Sequence[str]) -> dict[str, bytes]:
        """Stored outputs by id; resolves only within this execution."""

    async def machine(self, execution: str) -> MachineView | None:
        """A script's machine with its inbox and mailbox, as of one moment. None for executions of other kinds, and
        once the sweep has been there."""

    async def inspect(self, execution: str) -> Inspection | None: ...

    async def untouched(self, before: float, after: str, limit: int) -> Untouched:
        """One bounded look of a walk through all executions that are not swept yet, in the order of their ids: of the
        next ``limit`` after ``after``, those that have not ended and that no commit has touched since ``before``."""

    async def ready(self, execution: str) -> tuple[ReadyToken, ...]:
        """Ready tokens of one execution: what a reconciler announces again."""

    async def sweep(self, limit: int = 500) -> int:
        """Removes rows of ended executions, at most ``limit`` of them; returns how many went. Nodes that were live
        when their execution ended are recorded as ``NodeCancelled`` first, tasks as ``TaskCancelled``. What branches
        left at the root of an execution that did not complete stays: it is part of the final context."""

    async def workers(self) -> list[WorkerView]:
        """With what they hold. For whoever looks, not for the engine's loops."""

    async def known_workers(self) -> list[str]:
        """Their names alone, in order."""

    async def queues(self) -> list[QueueView]:
        """Those in which something is ready or leased, by name. For whoever looks, not for the engine's loops."""

    async def outbox(self, limit: int = 100) -> list[OutboxEntry]:
        """What was written and not yet reported as delivered, in the order in which it was written."""

    async def delivered(self, ids: Sequence[str]) -> None: ...

    async def close(self) -> None: ...
