"""One broker over which tasks are handed out: its workers, its queues, and the copies it holds.

Tasks are leased under one name per queue and broker, which every leader continues, so that a change of leaders costs
no run. What the broker holds can be lost: every look compares it with the leases and repairs the difference.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dalsegno.core.foreign_tasks import DEAD_AFTER, MISSING_AFTER, Capacity, Copy, Key, Repairs, repairs, room
from dalsegno.engine.remote.answers import Answers
from dalsegno.engine.remote.foreign_results import ForeignResults
from dalsegno.engine.remote.orchestrator import Claims
from dalsegno.engine.remote.sessions import (
    Held,
    RemoteLeases,
    RemoteSettings,
    Session,
    copy_of,
    id_of,
    timed_out,
)
from dalsegno.engine.remote.task_proxy import RemoteSteps
from dalsegno.engine.worker.directory import CARRIED, WorkerInfo, owner_of, running_of, write_info
from dalsegno.errors import LeaseLost, OperatorError
from dalsegno.model.token import Lease
from dalsegno.ports.task_transport import ForeignWorker, HandedOut, QueueReport, TaskTransport

if TYPE_CHECKING:
    from dalsegno.engine.engine import Engine

logger = logging.getLogger("dalsegno.remote")


@dataclass(frozen=True, slots=True)
class DistributionSettings:
    leads_for: float = 10.0
    """Seconds of silence after which another orchestrator takes over."""
    renew_every: float = 3.0
    tick: float = 0.5
    """Seconds between two looks at deadlines."""
    report_every: float = 2.0
    """Seconds between two looks at what the brokers hold."""
    workers_every: float = 5.0
    dead_after: float = DEAD_AFTER
    """Seconds after which a worker without a heartbeat is dead; a broker that was away must have answered as long."""
    away_after: float = 30.0
    """Seconds without an answer after which the workers of a broker count as unreachable: what only they have is handed
    out over another broker, if one serves the queue."""
    missing_after: float = MISSING_AFTER
    lease: float = 60.0
    """Seconds for which leases outlive the last leader."""


CANCEL_AGAIN = 0.2
UNANNOUNCED = 5.0
"""Seconds between two claims without an announcement."""


@dataclass(slots=True)
class HandedQueue:
    """One queue that is handed out over one broker."""

    name: str
    session: Session
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there may be room again."""
    served: bool = True
    feeding: asyncio.Task[None] | None = None
    renewed: float = 0.0
    had_copies: bool = True
    known: dict[Key, float] = field(default_factory=dict)
    """Since when each lease is known here."""
    acknowledged: dict[Key, float] = field(default_factory=dict)
    """Since when each copy is acknowledged without a result."""
    started: set[Key] = field(default_factory=set)
    """Copies whose start is recorded."""
    handed_before: frozenset[str] = frozenset()
    """Copies that earlier leaders noted as handed out, for a broker that cannot list its copies."""
    running: dict[str, list[Lease]] = field(default_factory=dict)
    """The leases that each worker runs, as of its last report."""


class Carrier:
    """One transport, and what is handed out over it."""

    def __init__(
        self, engine: Engine, transport: TaskTransport, remotely: RemoteSteps, settings: DistributionSettings
    ) -> None:
        self.engine = engine
        self.ledger = engine.stack.ledger
        self.transport = transport
        self.settings = settings
        self.mark = transport.name.lower()
        self.leases = RemoteLeases(
            engine.stack.ledger, engine.stack.broker, RemoteSettings(lease=settings.dead_after), self.mark
        )
        self.answers = Answers(engine, remotely, self.leases)
        self.claims = Claims(engine, remotely, self.leases, self.answers)
        self.results = ForeignResults(
            self.ledger,
            engine.stack.archive,
            self.answers,
            self.leases,
            self._answered,
            self._lost,
        )
        self.queues: dict[str, HandedQueue] = {}
        self.workers: Sequence[ForeignWorker] = ()
        self.since: dict[str, float] = {}
        """Since when each worker is known."""
        self.answers_since: float | None = None
        """Since when the broker answers without a break."""
        self.silent_since: float | None = None
        """Since when it does not answer."""
        self.lost: Counter[str] = Counter()
        """Tasks whose worker was lost, by queue."""
        self.always: tuple[str, ...] = ()
        """Queues that are handed out without a living worker."""

    def _answered(self, queue: str) -> None:
        if queue in self.queues:
            self.queues[queue].changed.set()

    def _lost(self, queue: str) -> None:
        self.lost[queue] += 1
        self._answered(queue)

    # -- workers ------------------------------------------------------------------------------------------------

    async def look_for_workers(self, queues: Sequence[str]) -> None:
        found = await self.transport.workers(queues)
        now = _clock()
        if found is None:
            self.answers_since = None
            if self.silent_since is None:
                self.silent_since = now
            if self.is_away:
                self.workers = ()
            return
        self.silent_since = None
        if self.answers_since is None:
            self.answers_since = now
        self.workers = found
        names = {worker.id for worker in found}
        self.since = {name: self.since.get(name, self.ledger.now()) for name in names}

    def named(self) -> set[str]:
        """Return the queues that living workers name."""
        return {queue for worker in self.workers for queue in worker.queues}

    @property
    def is_settled(self) -> bool:
        """Whether the broker has answered for so long that a worker without a heartbeat is dead."""
        return self.answers_since is not None and _clock() - self.answers_since >= self.settings.dead_after

    @property
    def is_away(self) -> bool:
        """Whether the broker has been silent for so long that others do its work, where there are any."""
        return self.silent_since is not None and _clock() - self.silent_since >= self.settings.away_after

    def capacities(self) -> list[Capacity]:
        living = [Capacity(worker.queues, worker.concurrency) for worker in self.workers]
        named = {queue for capacity in living for queue in capacity.queues}
        return living + [Capacity((queue,)) for queue in self.always if queue not in named]

    async def show_workers(self) -> None:
        """Write what is known about the workers where people look for workers."""
        rows = [
            (owner_of(worker.id, self.mark, ""), worker.lives_for + 1.0, self._info(worker))
            for worker in self.workers
        ]
        await asyncio.to_thread(self._beat, rows)
        for worker in self.workers:
            served = [queue for queue in worker.queues if queue in self.queues]
            await self.claims.note(worker.id, served, served)

    def _beat(self, rows: Iterable[tuple[str, float, bytes]]) -> None:
        for name, seconds, info in rows:
            self.ledger.heartbeat(name, seconds, info)

    def _info(self, worker: ForeignWorker) -> bytes:
        running = [lease for queue in self.queues.values() for lease in queue.running.get(worker.id, ())]
        return write_info(
            WorkerInfo(
                queues=worker.queues,
                concurrency=worker.concurrency,
                since=self.since[worker.id],
                heard=worker.at or self.ledger.now(),
                running=running_of(running),
                remote=worker.id,
                tasks=tuple(lease.token for lease in running),
                via=self.transport.name,
            )
        )

    # -- queues -------------------------------------------------------------------------------------------------

    async def open(self, name: str, handed_before: Iterable[str] = ()) -> None:
        """Open a queue: its name of leases is alive before anything is leased under it."""
        if name in self.queues:
            return
        session = self.leases.sessions.of(f"{CARRIED}{name}", self.ledger.now())
        queue = HandedQueue(name, session, handed_before=frozenset(handed_before))
        await self.renew(queue)
        self.queues[name] = queue

    async def renew(self, queue: HandedQueue) -> None:
        queue.renewed = _clock()
        info = write_info(
            WorkerInfo(
                since=queue.session.since,
                heard=self.ledger.now(),
                remote=queue.session.worker,
                tasks=() if self.transport.lists_copies else self._noted(queue),
                via=self.transport.name,
                carries=queue.name,
            )
        )
        await asyncio.to_thread(self.ledger.heartbeat, queue.session.name, self.settings.lease, info)

    def _noted(self, queue: HandedQueue) -> tuple[str, ...]:
        now = {note_of(held.lease) for held in queue.session.held.values()}
        return tuple(sorted(now | queue.handed_before))

    async def close(self, queue: HandedQueue) -> None:
        """Stop handing out a queue of which nothing is handed out any more."""
        await self.stop_feeding(queue)
        del self.queues[queue.name]
        await self.ledger.expire((queue.session.name,))

    async def stop_feeding(self, queue: HandedQueue) -> None:
        feeding, queue.feeding = queue.feeding, None
        while feeding is not None and not feeding.done():
            feeding.cancel()  # more than once: a driver may lose a cancellation that comes as a call of it returns
            await asyncio.wait({feeding}, timeout=CANCEL_AGAIN)

    def feed(self, queue: HandedQueue) -> None:
        if queue.feeding is None or queue.feeding.done():
            queue.feeding = asyncio.get_running_loop().create_task(
                self._feed(queue), name=f"hands out {queue.name}"
            )

    async def _feed(self, queue: HandedQueue) -> None:
        while True:
            try:
                await self._feed_once(queue)
            except OperatorError as error:
                logger.info("queue '%s' is not handed out now (%s); trying again", queue.name, error)
                await asyncio.sleep(1.0)
            except Exception:
                logger.exception("handing out queue '%s' failed; trying again", queue.name)
                await asyncio.sleep(1.0)

    async def _feed_once(self, queue: HandedQueue) -> None:
        free = self._room(queue) if self.transport.is_drained() else 0
        if free <= 0:
            queue.changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await queue.changed.wait()
            return
        leases = await self._take(queue, free)
        if leases:
            await self._hand_out(queue, leases)
        else:
            await asyncio.sleep(0.05)

    async def _take(self, queue: HandedQueue, most: int) -> list[Lease]:
        owner = queue.session.name
        if not self.transport.brings_announcements:
            return await self.leases.take(owner, (queue.name,), most)
        leases = await self.ledger.claim(owner, (queue.name,), most)
        if not leases:
            await self.transport.announced(queue.name, UNANNOUNCED)
        return leases

    def _room(self, queue: HandedQueue) -> int:
        handed_out = {name: len(each.session.held) for name, each in self.queues.items()}
        return room(queue.name, self.capacities(), handed_out)

    async def _hand_out(self, queue: HandedQueue, leases: Sequence[Lease]) -> None:
        found = [held for lease in leases if (held := await self._prepared(queue, lease)) is not None]
        for held in found:
            queue.session.held[held.lease.token] = held
        queue.had_copies = True
        copies = [copy_of(held, self.leases.settings) for held in found]
        taken = set(await self.transport.hand_out(copies)) if copies else set()
        refused = [held for held in found if id_of(held.lease) not in taken]
        if refused:
            await self.leases.give_back(refused)
        if taken and not self.transport.lists_copies:
            await self.renew(queue)
        if refused:
            await asyncio.sleep(1.0)

    async def _prepared(self, queue: HandedQueue, lease: Lease) -> Held | None:
        try:
            return await self.claims.prepare(queue.session.name, lease)
        except OperatorError:
            raise
        except Exception:
            logger.exception("the task of token %s of execution %s is put off", lease.token, lease.execution)
            await self.claims.put_off(lease)
            return None

    # -- looking at what was handed out -------------------------------------------------------------------------

    async def look(self, queue: HandedQueue) -> None:
        """Compare what is leased with what the broker reports, and repair the difference.

        The broker is read first: whatever it holds then was leased before, so that a copy without a lease is needless.
        """
        is_idle = not (queue.session.held or queue.known or queue.had_copies)
        report = await self.transport.report(queue.name) if not is_idle else None
        began = self.ledger.now()
        leases = await self.ledger.held_by(queue.session.name)
        gone = (
            {(lease.execution, lease.token) for lease in await self.ledger.obsolete(leases)} if leases else ()
        )
        leased = {key_of(lease): lease for lease in leases if (lease.execution, lease.token) not in gone}
        self._forget_settled(queue, leased, began)
        queue.known = {key: queue.known.get(key, _clock()) for key in leased}
        if report is not None:
            queue.had_copies = bool(report.copies) or bool(leased)
            await self._adopt(queue, leased, report)
            await self._repair(queue, leased, self._repairs(queue, leased, report))
        elif self.is_away and not queue.served:
            copies = () if self.transport.lists_copies else tuple(leased)
            await self._repair(queue, leased, Repairs((), tuple(leased), copies))

    def _forget_settled(self, queue: HandedQueue, leased: dict[Key, Lease], began: float) -> None:
        """Forget what was settled or taken back elsewhere. What was leased since the look began is not in it."""
        for token, held in list(queue.session.held.items()):
            if key_of(held.lease) not in leased and held.settling is None and held.since < began:
                del queue.session.held[token]
                queue.changed.set()

    def _repairs(self, queue: HandedQueue, leased: dict[Key, Lease], report: QueueReport) -> Repairs:
        now = _clock()
        if report.copies is None:
            return self._repairs_unlisted(queue, leased, report, now)
        copies = [self._seen(queue, copy, now) for copy in report.copies]
        queue.acknowledged = {copy.key: now - copy.seconds for copy in copies if copy.state == "acknowledged"}
        living = {worker.id for worker in self.workers}
        if not self.is_settled:
            living |= {copy.worker for copy in copies}
        known = {key: now - since for key, since in queue.known.items()}
        return repairs(
            known,
            copies,
            living,
            dead_after=self.settings.dead_after,
            missing_after=self.settings.missing_after,
            served=queue.served,
        )

    def _repairs_unlisted(
        self, queue: HandedQueue, leased: dict[Key, Lease], report: QueueReport, now: float
    ) -> Repairs:
        """Return the repairs for a broker that cannot list its copies: it says which came back."""
        lost = tuple(key for key in report.returned if key in leased)
        held = {key_of(held.lease) for held in queue.session.held.values()}
        missing = [
            key
            for key in leased
            if key not in held and key not in lost and now - queue.known[key] >= self.settings.missing_after
        ]
        emptied = [key for key in held if report.emptied and key in leased and key not in lost]
        return Repairs(lost, (*missing, *emptied), tuple(report.returned))

    def _seen(self, queue: HandedQueue, copy: HandedOut, now: float) -> Copy:
        key = (copy.id, copy.fence)
        if copy.state == "acknowledged":
            return Copy(key, copy.state, copy.worker, now - queue.acknowledged.get(key, now))
        return Copy(key, copy.state, copy.worker, copy.seconds)

    async def _adopt(self, queue: HandedQueue, leased: dict[Key, Lease], report: QueueReport) -> None:
        """Take over what another leader handed out, and record what workers have begun since the last look."""
        copies = {(copy.id, copy.fence): copy for copy in report.copies or ()}
        queue.running = {}
        for key, lease in leased.items():
            copy = copies.get(key)
            held = queue.session.held.get(lease.token)
            if held is None or held.lease.fence != lease.fence:
                if copy is None and (report.copies is not None or note_of(lease) not in queue.handed_before):
                    continue
                held = await self.answers.adopt(lease, queue.session.name)
                if copy is not None:
                    held.deadline = copy.deadline
                queue.session.held[lease.token] = held
            if copy is not None and copy.state == "running":
                queue.running.setdefault(copy.worker, []).append(lease)
                if key not in queue.started:
                    self.claims.record_started(held, copy.worker)
                    queue.started.add(key)
        queue.started &= leased.keys()
        queue.handed_before &= {note_of(lease) for lease in leased.values()}

    async def _repair(self, queue: HandedQueue, leased: dict[Key, Lease], found: Repairs) -> None:
        for keys, lost in ((found.lost, True), (found.again, False)):
            taken = [leased[key] for key in keys if key in leased]
            if not taken:
                continue
            for lease in taken:
                self.leases.sessions.forget(lease.token)
            await self.leases.hand_back(queue.session.name, taken, lost=lost)
            what = (
                "whose worker is dead"
                if lost
                else "that the broker no longer holds, that no worker serves, or whose broker is away"
            )
            logger.warning("took %d tasks of queue '%s' back %s", len(taken), queue.name, what)
            if lost:
                self.lost[queue.name] += len(taken)
                self.engine.reconciler.repairs["expired-lease"] += len(taken)
            queue.changed.set()
        if found.withdrawn:
            await self.transport.withdraw(queue.name, found.withdrawn)

    async def time_out(self) -> None:
        """Fail the tasks whose deadline has passed."""
        now = self.ledger.now()
        for queue in self.queues.values():
            for held in list(queue.session.held.values()):
                if held.deadline is not None and held.deadline <= now and held.settling is None:
                    with contextlib.suppress(LeaseLost):
                        await self.answers.settle_held(id_of(held.lease), held, timed_out(held), "timeout")
                    await self.transport.withdraw(queue.name, [key_of(held.lease)])
                    queue.changed.set()

    async def stop(self) -> None:
        for queue in self.queues.values():
            await self.stop_feeding(queue)
        await self.transport.stop()
        await self.results.close()
        self.queues.clear()
        self.leases.sessions.clear()
        self.answers_since = self.silent_since = None


def key_of(lease: Lease) -> Key:
    return id_of(lease), lease.fence


def note_of(lease: Lease) -> str:
    return f"{lease.token}/{lease.fence}"


def _clock() -> float:
    return asyncio.get_running_loop().time()
