"""The reconciler (L6): finds what a crash left behind, mends what can be mended, reports what cannot."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Sequence

from dalsegno.core.diagnosis import diagnose
from dalsegno.engine.outage import Outage
from dalsegno.engine.processes import dead_among
from dalsegno.engine.retention import Retention, read_retention, remove_outdated
from dalsegno.errors import OperatorError
from dalsegno.model.effect import WakeMachine
from dalsegno.model.execution import SCRIPTED, ExecutionState
from dalsegno.model.inspection import Inspection
from dalsegno.model.transition import Applied, Transition
from dalsegno.ports.archive import Archive, ExecutionFilter
from dalsegno.ports.broker import Broker
from dalsegno.ports.ledger import Ledger

logger = logging.getLogger("dalsegno.reconciler")

UNTOUCHED_AFTER = 300.0
LOOKED_AT = 1_000
"""Executions looked at in one go; so many take about a millisecond."""
CHECKED = 100
"""Untouched executions that one round looks into."""
BETWEEN_CHUNKS = 0.1
"""Seconds between two chunks of executions that are looked at, or of old ones that are removed."""
ALIVE: tuple[ExecutionState, ...] = ("PENDING", "RUNNING", "PAUSED")
OUTBOX_LOOK = 1000
"""Entries of the outbox among which something for a waiting script is looked for."""


class Reconciler:
    """``repairs`` counts every repair by kind; ``stuck`` names executions that nothing can move."""

    def __init__(
        self,
        ledger: Ledger,
        archive: Archive,
        broker: Broker,
        *,
        interval: float = 15.0,
        untouched_after: float = UNTOUCHED_AFTER,
        retention: Retention = None,
    ) -> None:
        self.ledger = ledger
        self.archive = archive
        self.broker = broker
        self.interval = interval
        self.untouched_after = untouched_after
        self.kept_for = read_retention(retention)
        self.outage = Outage()
        self.repairs: Counter[str] = Counter()
        self.stuck: dict[str, str] = {}
        self.tended: Callable[[], None] = lambda: None
        """Told after each round."""
        self._elsewhere: float | None = None
        self._cursor = ""
        self._ended = asyncio.Event()

    def notice_ending(self) -> None:
        """Something ended: its rows can be swept soon."""
        self._ended.set()

    def notice_tended(self) -> None:
        """Another process has just made its round: the next one here can wait."""
        self._elsewhere = asyncio.get_running_loop().time()

    async def run(self) -> None:
        beside = [asyncio.create_task(self._sweep_after_endings())]
        if self.kept_for:
            beside.append(asyncio.create_task(self._remove_outdated()))
        try:
            while True:
                try:
                    await self.round()
                except OperatorError as error:
                    self._warn("the reconciler waits for the store", error)
                await self._rest()
        finally:
            for task in beside:
                task.cancel()

    def _warn(self, what: str, error: OperatorError) -> None:
        """Rounds lie so far apart that the end of an outage does not wait for the next one of them."""
        level = logging.DEBUG if self.outage.is_known else logging.WARNING
        logger.log(level, "%s: %s", what, error)

    async def _rest(self) -> None:
        """For the interval, counted from the last round of anybody. Among several processes chance decides whose round
        is next: each sees things that the others do not, such as workers of its own machine that have died."""
        clock = asyncio.get_running_loop().time
        last = clock()
        until = last + self.interval if self._elsewhere is None else last + self._by_chance()
        while (pause := until - clock()) > 0:
            await asyncio.sleep(pause)
            if self._elsewhere is not None and self._elsewhere > last:
                last = self._elsewhere
                until = last + self._by_chance()

    def _by_chance(self) -> float:
        return self.interval * random.uniform(1.0, 1.3)  # noqa: S311 - no secret

    async def round(self) -> None:
        """One walk: dead workers, quiet executions, what is left of ended ones."""
        await self.take_back_leases()
        await self._walk()
        self._ended.set()  # other processes end executions, too, and a crash leaves some unswept
        self.tended()

    async def take_back_leases(self) -> None:
        await self.take_back(dead_among(await self.ledger.known_workers()), "of workers that are gone")

    async def take_back(self, names: Sequence[str], whose: str) -> None:
        """What is leased under these names, and under all that missed their heartbeat."""
        lost = await self.ledger.expire(names)
        if lost:
            self.repairs["expired-lease"] += len(lost)
            leases = "1 lease" if len(lost) == 1 else f"{len(lost):,} leases"
            logger.warning("took back %s %s", leases, whose)
            await self.broker.announce(lost)

    async def _walk(self) -> None:
        """Through all executions, but looks into only so many untouched ones; the next round goes on from there."""
        before = self.ledger.now() - self.untouched_after
        left = CHECKED
        while left:
            names, after = await self.ledger.untouched(before, self._cursor, LOOKED_AT)
            for name in names[:left]:
                await self.check(name)
            self._cursor = after if len(names) <= left else names[left - 1]
            left -= min(left, len(names))
            if not self._cursor:
                return
            await asyncio.sleep(BETWEEN_CHUNKS)

    async def check(self, execution: str) -> None:
        """Announces an execution's ready tokens again; reports it if nothing at all can move it."""
        ready = await self.ledger.ready(execution)
        if ready:
            self.repairs["announced-again"] += len(ready)
            await self.broker.announce(ready)
            return
        inspection = await self.ledger.inspect(execution)
        if inspection is not None and await self._nudge(inspection):
            return
        reason = diagnose(inspection) if inspection is not None else None
        if reason is None:
            self.stuck.pop(execution, None)
        elif execution not in self.stuck and not await self._has_moved(inspection):
            self.stuck[execution] = reason
            self.repairs["reported-stuck"] += 1
            logger.error("execution %s cannot move: %s", execution, reason)

    async def _has_moved(self, before: Inspection | None) -> bool:
        """Since it was looked at. What may bring it on is read one after the other, and an ending that is told between
        two of these looks is seen by neither."""
        if before is None:
            return True
        now = await self.ledger.inspect(before.execution.id)
        return now is None or now.execution.seq != before.execution.seq or now.tokens != before.tokens

    async def _nudge(self, inspection: Inspection) -> bool:
        """A script whose timer should have fired long ago is resumed: the timer's token was deleted by somebody, and a
        timer whose time has passed counts as fired. Other scripts wait for what only others can bring. False where
        nothing can bring it."""
        execution = inspection.execution
        if execution.kind not in SCRIPTED or execution.state != "RUNNING":
            return False
        machine = await self.ledger.machine(execution.id)
        if machine is None:
            return True  # it has ended and was swept since it was looked at
        if not machine.snapshot:
            return False
        if machine.wake.due is None or machine.wake.due > self.ledger.now():
            return bool(inspection.tokens or machine.wake.signals) or await self.has_children(execution.id)
        outcomes = await self.ledger.commit([Transition(execution.id, (WakeMachine(),))])
        self.repairs["woke-script"] += 1
        for outcome in outcomes:
            if isinstance(outcome, Applied):
                await self.broker.announce(outcome.ready)
        return True

    async def has_children(self, execution: str) -> bool:
        """Whether a child runs, or is still to be started or told about."""
        where = ExecutionFilter(parent=execution, relations=("child",), states=ALIVE)
        if await self.archive.executions(where, limit=1):
            return True
        children = {child.id for child in await self.archive.executions(ExecutionFilter(parent=execution))}
        owed = await self.ledger.outbox(OUTBOX_LOOK)
        return any(entry.execution == execution or entry.execution in children for entry in owed)

    async def _sweep_after_endings(self) -> None:
        while True:
            await self._ended.wait()
            await asyncio.sleep(1.0)
            self._ended.clear()
            try:
                while await self.ledger.sweep():
                    pass
            except OperatorError as error:
                self._warn("sweeping has to wait", error)

    async def _remove_outdated(self) -> None:
        """In chunks with a pause after each, so that a million old executions hold up nobody."""
        while True:
            more = False
            try:
                more = await remove_outdated(self.archive, self.kept_for, self.ledger.now())
            except OperatorError as error:
                self._warn("removing old executions has to wait", error)
            await asyncio.sleep(min(BETWEEN_CHUNKS, self.interval) if more else self.interval)
