"""A complete engine in a test: a memory store, a settable clock, a client for the test, a worker that dies.

The clock stands still while a step runs, and skips to the next timer while the test waits.
"""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import datetime as dt
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from heapq import heappop
from pathlib import Path
from typing import Any, cast

from dalsegno.adapters.memory import (
    MemoryArchive,
    MemoryBlobs,
    MemoryBroker,
    MemoryLedger,
    MemoryLimits,
    MemoryPublished,
    MemoryRecords,
    MemoryStore,
)
from dalsegno.admin.triggers import settle_when_deployed
from dalsegno.engine.batches import Then
from dalsegno.engine.committer import Committer
from dalsegno.engine.engine import Engine
from dalsegno.engine.operations.endings import Endings
from dalsegno.engine.scripts.python_workflows import Workflows
from dalsegno.engine.settings import EngineSettings
from dalsegno.engine.worker.heartbeat import Heartbeat
from dalsegno.lang.durations import parse_duration
from dalsegno.model.execution import ENDED, Ending
from dalsegno.model.token import Lease
from dalsegno.model.transition import Applied, Outcome, ReadyToken, Transition
from dalsegno.ports.ledger import Ledger
from dalsegno.ports.node import NodeTypes
from dalsegno.ports.stack import Stack
from dalsegno.testing.clock import FakeClock
from dalsegno.testing.kit.crashes import (
    CrashingLedger,
    CrashPlan,
    TaskTracker,
    WorkerRun,
    outside,
    port_of_worker,
)
from dalsegno.testing.kit.diagnosis import Complaints, Explainer, Stuck
from dalsegno.testing.kit.mocking import KitTasks

LEASE_SECONDS = 3e10
"""No jump of the clock expires a lease: only a crash does."""
GRACE = 0.05
"""Seconds that running tasks have to end when the test is over."""

Duration = float | str | dt.timedelta

POLLS_WITHOUT_PAUSE = 50
"""Polls without a pause: most steps end within microseconds."""
LONGEST_PAUSE = 0.002
MOST_SKIPS = 1000
"""Limit for a test with something that repeats forever."""


@dataclasses.dataclass(frozen=True, slots=True)
class SystemParts:
    """The parts from which a system is built."""

    types: NodeTypes
    services: dict[str, Any]
    """Includes ``tasks``."""
    settings: EngineSettings
    workflows: Workflows


class System:
    def __init__(self, parts: SystemParts, clock: FakeClock, *, skips: bool, patience: float) -> None:
        self.parts = parts
        self.clock = clock
        self.store = MemoryStore()
        self.truth = MemoryLedger(clock, self.store)
        self.broker = _EveryQueueBroker(self.truth)
        self.limits = MemoryLimits(self.store, clock)
        self.plan = CrashPlan()
        self.engine_errors = Complaints()
        self.files: dict[str, Path] = {}
        self.verdict: BaseException | None = None
        """A test outcome raised in a mock and not yet reported to the test."""
        tasks = parts.services["tasks"]
        if isinstance(tasks, KitTasks):
            tasks.verdicts.callback = self.pass_verdict
        self.time = SkippingClock(self, skips=skips, patience=patience)
        self.runs = 0
        self.restarting = False
        self.ignores_verdicts = False
        """True to ignore the deaths of workers in the count of losses. Otherwise suspected tasks run one by one."""
        self.client_engine: ClientEngine
        self.worker: WorkerEngine | None = None
        self._task_tracker: TaskTracker | None = None
        self._succession: asyncio.Task[None] | None = None
        self._outside: contextvars.Context

    # -- coming and going -----------------------------------------------------------------------------------------

    async def open(self) -> Engine:
        self.engine_errors.listen()
        self._outside = outside()
        self._task_tracker = TaskTracker(asyncio.get_running_loop())
        self.client_engine = ClientEngine(self)
        self.explainer = Explainer(self.client_engine.client, self.engine_errors, self.files)
        parts = self.parts
        parts.workflows.forget_deployed()
        await parts.workflows.ensure_all(self.client_engine.client)
        await self._begin_life()
        return self.client_engine

    async def close(self) -> None:
        self.time.close()
        if self._succession is not None:
            await self._succession
        if self.worker is not None:
            await self.worker.stop()
        await self.client_engine.endings.close()
        await self.client_engine.committer.drain()
        if self._task_tracker is not None:
            self._task_tracker.leave()
        self.parts.workflows.forget_deployed()
        self.engine_errors.leave()

    # -- runs of the worker --------------------------------------------------------------------------------------

    async def _begin_life(self) -> None:
        self.runs += 1
        run = WorkerRun(f"worker-{self.runs}")
        ledger = cast(Ledger, CrashingLedger(self.truth, run, self.plan, self.crash))
        stack = Stack(
            url="memory:",
            ledger=port_of_worker(ledger, run),
            broker=port_of_worker(self.broker, run),
            archive=port_of_worker(MemoryArchive(self.store, self.clock), run),
            blobs=port_of_worker(MemoryBlobs(self.store), run),
            records=port_of_worker(MemoryRecords(self.store, self.clock), run),
            published=port_of_worker(MemoryPublished(self.store, self.clock), run),
            clock=self.clock,
            close=self.truth.close,
            limits=port_of_worker(self.limits, run),
        )
        self.worker = WorkerEngine(self, stack, run)
        await run.spawn(self.worker.start())

    def crash(self, run: WorkerRun | None = None) -> None:
        """Drop everything that the worker has in memory; another one continues with the stored state."""
        run = run or (self.worker.worker_run if self.worker is not None else None)
        if run is None or run.dead:
            return
        run.end()
        self.restarting = True
        loop = asyncio.get_running_loop()
        self._succession = loop.create_task(self._succeed(run), context=self._outside.copy())

    async def _succeed(self, dead: WorkerRun) -> None:
        self.worker = None
        await asyncio.sleep(0)  # cancelled tasks end first
        names = [worker.id for worker in await self.truth.workers() if worker.id.startswith(dead.name)]
        lost = await self.truth.expire(names)
        if self.ignores_verdicts:
            self._forgive(lost)
        await self._begin_life()
        self.restarting = False

    def _forgive(self, lost: Iterable[ReadyToken]) -> None:
        for ready in lost:
            token = self.store.token(ready.execution, ready.token)
            if token is not None:
                token.losses = 0

    # -- verdicts ------------------------------------------------------------------------------------------------

    def pass_verdict(self, verdict: BaseException) -> None:
        """Raise the outcome in all waits now, else at the next call of the kit or at its end."""
        self.verdict = self.verdict or verdict
        self.client_engine.waiters.give_up_all(verdict)

    def raise_verdict(self) -> None:
        __tracebackhide__ = True
        verdict, self.verdict = self.verdict, None
        if verdict is not None:
            raise verdict

    def heard(self, error: BaseException) -> None:
        if error is self.verdict:
            self.verdict = None

    # -- looking --------------------------------------------------------------------------------------------------

    def is_busy(self) -> bool:
        """Return True if a step runs, or something is ready for one."""
        return (
            self.restarting
            or (self.worker is not None and self.worker.is_working())
            or bool(self.store.outbox)
            or self.truth.may_claim()
            or self._is_something_due()
        )

    def _is_something_due(self) -> bool:
        due = self.next_due()
        return due is not None and due <= self.clock.now()

    def next_due(self) -> float | None:
        """Return when the next timer, retry or deadline comes due, or a rate lets the next task start."""
        dues = (self._next_timer(), self.truth.next_opening())
        return min((due for due in dues if due is not None), default=None)

    def _next_timer(self) -> float | None:
        parked = self.store.parked
        while parked:
            due, _, execution, name = parked[0]
            token = self.store.token(execution, name)
            row = self.store.execution(execution)
            asleep = token is not None and token.state == "parked" and token.due == due
            if asleep and row is not None and row.state not in ENDED:
                return due
            heappop(parked)
        return None

    async def fire_timers(self) -> None:
        """Fire everything that is due by the clock."""
        while (woken := await self.truth.wake()).ready:
            await self.broker.announce(woken.ready)

    def committed_elsewhere(self, applied: Applied) -> None:
        """Notify the worker's roles of a commit by the test."""
        if self.worker is None:
            return
        if applied.next_due is not None:
            self.worker.timers.notice(applied.next_due)
        if applied.owes:
            self.worker.outbox.notice()


# -- time ------------------------------------------------------------------------------------------------------


def seconds_of(duration: Duration) -> float:
    return duration.total_seconds() if isinstance(duration, dt.timedelta) else parse_duration(duration)


class SkippingClock:
    """The time of a system: it stands still while a step runs, and skips to the next timer while the test waits.

    ``skips``: waiting for a result moves the clock. ``patience``: real seconds until a wait fails.
    """

    def __init__(self, system: System, *, skips: bool, patience: float) -> None:
        self.patience = patience
        self._system = system
        self._skips = skips
        self._waited_for: Counter[str] = Counter()
        self._timekeeper: asyncio.Task[None] | None = None

    @contextmanager
    def waiting_for(self, execution: str) -> Iterator[None]:
        self._waited_for[execution] += 1
        if self._timekeeper is None:
            loop = asyncio.get_running_loop()
            self._timekeeper = loop.create_task(self._keep_time(), context=outside())
        try:
            yield
        finally:
            self._waited_for[execution] -= 1
            if not self._waited_for[execution]:
                del self._waited_for[execution]

    def close(self) -> None:
        if self._timekeeper is not None:
            self._timekeeper.cancel()

    async def _keep_time(self) -> None:
        try:
            while self._waited_for:
                await self._until_quiet()
                if self._waited_for:
                    await self._skip()
        finally:
            self._timekeeper = None

    async def _until_quiet(self) -> None:
        looks = 0
        while self._system.is_busy() and self._waited_for:
            looks += 1
            await asyncio.sleep(_pause(looks))
        # A waiter that was just notified of an ending runs before the clock moves.
        await asyncio.sleep(0)

    async def _skip(self) -> None:
        system = self._system
        if system.is_busy():
            return
        due = system.next_due()
        if due is not None and self._skips:
            system.clock.set(max(due, system.clock.now()))
            await system.fire_timers()
        elif not await self._give_up(due):
            await asyncio.sleep(LONGEST_PAUSE)

    async def _give_up(self, due: float | None) -> bool:
        """Fail the waiters of executions that cannot continue, with the reason.

        Return False if an event happened meanwhile.
        """
        waiters = self._system.client_engine.waiters
        for execution in list(self._waited_for):
            row = self._system.store.execution(execution)
            if row is not None and row.state in ENDED:
                waiters.notice(execution, None)  # the worker that ended it died before it could notify
                continue
            reason = await self._why_stuck(execution, due)
            if self._system.is_busy():
                return False
            waiters.give_up(execution, Stuck(reason))
        await asyncio.sleep(0)
        return True

    async def _why_stuck(self, execution: str, due: float | None) -> str:
        explanation = await self._system.explainer.explain(execution)
        if due is None:
            cause = "nothing is running and no timer is left, so only a signal or the test itself can move it"
        else:
            ahead = due - self._system.clock.now()
            cause = f"time is moved by hand in this test, and the next timer is {ahead:g} s ahead: advance({ahead:g})"
        return f"{explanation}\n  it cannot continue: {cause}"

    async def timed_out(self, execution: str) -> Stuck:
        explanation = await self._system.explainer.explain(execution)
        return Stuck(
            f"{explanation}\n  it did not end within {self.patience:g} real seconds; a task that waits for something "
            "else should be mocked, or give the test more patience: TestKit(app, patience=60)"
        )

    # -- by hand --------------------------------------------------------------------------------------------------

    async def until_idle(self) -> None:
        """Wait until everything that needs no time has happened."""
        end = time.monotonic() + self.patience
        looks = 0
        while self._system.is_busy():
            if time.monotonic() > end:
                raise Stuck(await self._still_busy())
            looks += 1
            await asyncio.sleep(_pause(looks))

    async def _still_busy(self) -> str:
        worker = self._system.worker
        running = sorted({lease.execution for lease in worker.tokens()}) if worker is not None else []
        explanations = [await self._system.explainer.explain(execution) for execution in running[:3]]
        return "\n".join(
            [f"the system did not become idle within {self.patience:g} real seconds", *explanations]
        )

    async def run_out(self) -> None:
        """Run until nothing is left to happen, with a limit. Tasks that outlive an ending run to their own end."""
        await self.until_idle()
        for _ in range(MOST_SKIPS):
            due = self._system.next_due()
            if due is None:
                return
            self._system.clock.set(max(due, self._system.clock.now()))
            await self._system.fire_timers()
            await self.until_idle()

    async def advance(self, duration: Duration) -> float:
        """Move the clock; everything that becomes due on the way runs at its own time."""
        system = self._system
        await self.until_idle()
        target = system.clock.now() + seconds_of(duration)
        while (due := system.next_due()) is not None and due <= target:
            system.clock.set(max(due, system.clock.now()))
            await system.fire_timers()
            await self.until_idle()
        system.clock.set(max(target, system.clock.now()))
        return system.clock.now()


def _pause(looks: int) -> float:
    return (
        0.0 if looks < POLLS_WITHOUT_PAUSE else min(0.0002 * (looks - POLLS_WITHOUT_PAUSE + 1), LONGEST_PAUSE)
    )


# -- engines ---------------------------------------------------------------------------------------------------


class _EveryQueueBroker(MemoryBroker):
    """The only worker of a test serves all queues."""

    def __init__(self, ledger: MemoryLedger) -> None:
        super().__init__(ledger)
        self._ready_queues = ledger.ready_queues

    async def claim(self, worker: str, queues: Sequence[str], limit: int) -> list[Lease]:
        return await super().claim(worker, self._ready_queues(), limit)


class _OutsideCommitter(Committer):
    """Commits of the test survive the death of a worker, even if a task of that worker made them."""

    def commit(
        self,
        transition: Transition,
        *,
        wait_for_store: bool = True,
        then: Then | None = None,
        workflow: str = "",
        size: int | None = None,
    ) -> asyncio.Future[Outcome]:
        return outside().run(
            super().commit,
            transition,
            wait_for_store=wait_for_store,
            then=then,
            workflow=workflow,
            size=size,
        )


class KitEndings(Endings):
    """Lets time pass while the test waits for an ending."""

    def __init__(self, archive: MemoryArchive, system: System) -> None:
        super().__init__(archive)
        self._system = system
        self._time = system.time

    async def ending(self, execution: str, timeout: float | None = None) -> Ending:  # noqa: ASYNC109 - as users know it
        self._system.raise_verdict()
        with self._time.waiting_for(execution):
            try:
                return await super().ending(execution, self._time.patience if timeout is None else timeout)
            except TimeoutError:
                if timeout is not None:
                    raise
                raise await self._time.timed_out(execution) from None
            except BaseException as error:
                self._system.heard(error)
                raise

    async def no_answer(self, execution: str) -> None:
        self._system.raise_verdict()
        with self._time.waiting_for(execution):
            try:
                async with asyncio.timeout(self._time.patience):
                    await super().no_answer(execution)
            except TimeoutError:
                raise await self._time.timed_out(execution) from None
            except BaseException as error:
                self._system.heard(error)
                raise

    def give_up_all(self, error: BaseException) -> None:
        for execution in list(self._waiters):
            self.give_up(execution, error)

    def give_up(self, execution: str, error: BaseException) -> None:
        for waiter in self._waiters.pop(execution, ()):
            if not waiter.future.done():
                waiter.future.set_exception(error)


class ClientEngine(Engine):
    """The engine that the test talks to: it starts, signals and inspects executions, and never dies."""

    def __init__(self, system: System) -> None:
        archive = MemoryArchive(system.store, system.clock)
        stack = Stack(
            url="memory:",
            ledger=system.truth,
            broker=system.broker,
            archive=archive,
            blobs=MemoryBlobs(system.store),
            records=MemoryRecords(system.store, system.clock),
            published=MemoryPublished(system.store, system.clock),
            clock=system.clock,
            close=system.broker.close,
            limits=system.limits,
        )
        parts = system.parts
        super().__init__(stack, parts.types, parts.services, parts.settings, parts.workflows)
        self.system = system
        self.committer = self.client.committer = _OutsideCommitter(stack.ledger, stack.broker, self._applied)
        self.waiters = KitEndings(archive, system)
        self.endings = self.client.endings = self.waiters
        settle_when_deployed(self)

    async def start(self, *, worker: bool = True, scheduler: bool = True, focus: str | None = None) -> None:
        """Do nothing: the kit's worker runs already.

        A ``with app.running()`` in the code under test changes nothing.
        """

    async def stop(self) -> None:
        await self.system.close()

    def _applied(self, transition: Transition, applied: Applied) -> None:
        super()._applied(transition, applied)
        self.system.committed_elsewhere(applied)


class _StillHeartbeat(Heartbeat):
    """Beats once per run: the clock stands still, and leases do not expire."""

    def start(self) -> None:
        self.beat()

    def soon(self) -> None:
        self.beat()

    def stop(self) -> None:
        """Do nothing: there is no thread."""


class _KnownWorkflows(Workflows):
    """The running code of an application's workflows, without storing them.

    The client engine stores them once for all runs. A new run must not override workflows that the test deployed in
    their place.
    """

    def __init__(self, offered: Workflows) -> None:
        super().__init__()
        self._offered = offered

    def resolve(self, module: str, qualname: str, name: str) -> Any:
        return self._offered.resolve(module, qualname, name)


class WorkerEngine(Engine):
    """One run of the worker, with all roles."""

    make_heartbeat = _StillHeartbeat

    def __init__(self, system: System, stack: Stack, run: WorkerRun) -> None:
        parts = system.parts
        settings = dataclasses.replace(
            parts.settings,
            lease_seconds=LEASE_SECONDS,
            grace=min(GRACE, parts.settings.grace),
            worker_name=run.name,
            retention=None,
        )
        workflows = _KnownWorkflows(parts.workflows)
        super().__init__(stack, parts.types, parts.services, settings, workflows)
        self.worker_run = run
        self.endings = self.client.endings = system.client_engine.endings
        self.answers = self.client.asking.answers = system.client_engine.answers

    def is_working(self) -> bool:
        return self.worker is None or bool(self.worker.running)

    def tokens(self) -> Iterable[Lease]:
        return self.worker.running.values() if self.worker is not None else ()
