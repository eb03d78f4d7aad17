"""The distribution of tasks to workers of other programs over brokers.

- One orchestrator of a store leads: it hands out, looks at what became of the copies, and takes results in. Another
  one takes over when it stops or is silent. Only the ledger decides: a leader that was believed dead can do nothing
  that counts twice.
- At its start a leader takes in the results that wait before it hands anything out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec
from msgspec import Struct

from dalsegno.core.foreign_tasks import queues_of_others
from dalsegno.engine.remote.carrier import Carrier, DistributionSettings
from dalsegno.engine.remote.task_proxy import RemoteSteps
from dalsegno.engine.settings import remote_queues
from dalsegno.engine.steps.tasks import Tasks
from dalsegno.engine.worker.directory import carrier_of, dead_workers, may_be_remote, read_info
from dalsegno.errors import OperatorError
from dalsegno.ports.ledger import WorkerView
from dalsegno.ports.task_transport import TaskTransport

if TYPE_CHECKING:
    from dalsegno.engine.engine import Engine

logger = logging.getLogger("dalsegno.remote")

KIND, RECORD = "orchestrator", "tasks"


class _Holder(Struct, frozen=True):
    name: str
    until: float


class Leadership:
    """Which orchestrator of the store leads: a record that the leader renews."""

    def __init__(self, engine: Engine, seconds: float) -> None:
        self.name = uuid4().hex
        self._records = engine.stack.records
        self._now = engine.stack.ledger.now
        self._seconds = seconds
        self._version = 0

    async def take(self) -> bool:
        """Begin or continue to lead; return False if another orchestrator leads."""
        record = await self._records.get(KIND, RECORD)
        if record is not None:
            holder = _holder(record.data)
            if holder is not None and holder.name != self.name and holder.until > self._now():
                return False
        data = msgspec.json.encode(_Holder(self.name, self._now() + self._seconds))
        written = await self._records.put(KIND, RECORD, data, record.version if record is not None else 0)
        self._version = written.version if written is not None else 0
        return written is not None

    async def leave(self) -> None:
        if self._version:
            with contextlib.suppress(OperatorError):
                await self._records.remove(KIND, RECORD, self._version)
            self._version = 0


def _holder(data: bytes) -> _Holder | None:
    try:
        return msgspec.json.decode(data, type=_Holder)
    except msgspec.MsgspecError:
        return None


class TaskDistribution:
    """The role of a process that may hand tasks out."""

    def __init__(
        self,
        engine: Engine,
        transports: Sequence[TaskTransport],
        settings: DistributionSettings | None = None,
    ) -> None:
        self.engine = engine
        self.ledger = engine.stack.ledger
        self.settings = settings or DistributionSettings()
        self.named = remote_queues()
        tasks = engine.services.get("tasks")
        remotely = RemoteSteps(
            engine.steps, engine.scripts, tasks if isinstance(tasks, Tasks) else None, engine.heavy
        )
        self.carriers = [Carrier(engine, each, remotely, self.settings) for each in transports]
        self.leads = False
        self.leadership = Leadership(engine, self.settings.leads_for)
        self._refused: set[str] = set()

    async def renew_leases(self) -> None:
        """Keep what was handed out before: nothing of it is lost only because no orchestrator ran for a while."""
        marks = {carrier.mark for carrier in self.carriers}
        for view in await self.ledger.workers():
            if carrier_of(view.id) in marks:
                await asyncio.to_thread(self.ledger.heartbeat, view.id, self.settings.lease, view.info)

    def lost(self) -> int:
        """Return how many tasks this process has handed out again because their worker was dead."""
        return sum(sum(carrier.lost.values()) for carrier in self.carriers)

    def results(self) -> Counter[tuple[str, str]]:
        """Return the number of results that this process has taken in, by broker and verdict."""
        return Counter(
            {
                (carrier.transport.name, verdict): number
                for carrier in self.carriers
                for verdict, number in carrier.results.counts.items()
            }
        )

    async def run(self) -> None:
        try:
            while True:
                if await self.leadership.take():
                    await self._lead()
                await asyncio.sleep(self.settings.renew_every)
        finally:
            await self.leadership.leave()

    async def _lead(self) -> None:
        """Lead until another orchestrator does."""
        renewed, looked, reported = _clock(), 0.0, 0.0
        try:
            for carrier in self.carriers:
                carrier.transport.start(carrier.results.settle)
            self.leads = True
            while True:
                now = _clock()
                if now - renewed >= self.settings.renew_every:
                    if not await self.leadership.take():
                        return
                    renewed = now
                if now - looked >= self.settings.workers_every:
                    await self._look_for_workers()
                    looked = now
                if now - reported >= self.settings.report_every:
                    await self._look()
                    reported = now
                for carrier in self.carriers:
                    await carrier.time_out()
                _expect_not_cancelled()
                await asyncio.sleep(self.settings.tick)
        finally:
            self.leads = False
            for carrier in self.carriers:
                await carrier.stop()

    async def _look_for_workers(self) -> None:
        """Find the queues that are handed out now. One that workers of several brokers name goes over the first."""
        views = await self.ledger.workers()
        taken = self._served_by_us(views)
        known = set(self.named)
        for carrier in reversed(self.carriers):
            await carrier.look_for_workers(sorted(filter(may_be_remote, known)))
            known |= carrier.named()
        self._warn_of_ours(known & taken)
        unnamed = set(self.named).difference(*(carrier.named() for carrier in self.carriers))
        for carrier in self.carriers:
            carrier.always = tuple(sorted(unnamed))
            unnamed = set()
            wanted = queues_of_others(filter(may_be_remote, carrier.named() | set(carrier.always)), taken)
            taken |= set(wanted)
            await self._serve(carrier, wanted, views)
            await carrier.show_workers()

    async def _serve(self, carrier: Carrier, wanted: Sequence[str], views: Sequence[WorkerView]) -> None:
        """Hand out these queues, and look after what is handed out of others."""
        rows = [read_info(view.info) for view in views if carrier_of(view.id) == carrier.mark and view.leases]
        handed_before = {row.carries: row.tasks for row in rows if row.carries}
        for name in sorted({*wanted, *handed_before}):
            await carrier.open(name, handed_before.get(name, ()))
        for queue in list(carrier.queues.values()):
            queue.served = queue.name in wanted
            if queue.served:
                carrier.feed(queue)
                continue
            await carrier.stop_feeding(queue)
            if not queue.session.held and not queue.known and not queue.had_copies:
                await carrier.close(queue)

    def _served_by_us(self, views: Sequence[WorkerView]) -> set[str]:
        dead = dead_workers(views, self.ledger.now())
        infos = [read_info(view.info) for view in views if view.id not in dead]
        served = {queue for info in infos if info.remote is None for queue in info.queues}
        worker = self.engine.worker
        return served | set(worker.queues if worker is not None else ())

    def _warn_of_ours(self, queues: Iterable[str]) -> None:
        for queue in set(queues) - self._refused:
            self._refused.add(queue)
            logger.warning(
                "queue '%s' is named by a worker of another program, and workers of this application serve it: it is "
                "not handed out; take it out of one of them",
                queue,
            )

    async def _look(self) -> None:
        for carrier in self.carriers:
            for queue in list(carrier.queues.values()):
                if _clock() - queue.renewed >= self.settings.lease / 4:
                    await carrier.renew(queue)
                await carrier.look(queue)


def _expect_not_cancelled() -> None:
    """Raise a cancellation that a driver has lost."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _clock() -> float:
    return asyncio.get_running_loop().time()
