"""The reconciler (L6) finds and repairs the effects of crashes, and reports executions that cannot continue; ended
executions are removed in chunks once their retention by end state has passed.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from dalsegno.core.diagnosis import diagnose
from dalsegno.engine.committer import Outage
from dalsegno.engine.worker.directory import dead_among
from dalsegno.errors import BadConfiguration, OperatorError
from dalsegno.model.effect import WakeMachine
from dalsegno.model.execution import ENDED, NOT_ENDED, SCRIPTED, EndState
from dalsegno.model.inspection import Inspection
from dalsegno.model.transition import Applied, Transition
from dalsegno.ports.archive import Archive, ExecutionFilter
from dalsegno.ports.broker import Broker
from dalsegno.ports.ledger import Ledger

logger = logging.getLogger("dalsegno.reconciler")

UNTOUCHED_AFTER = 300.0
LOOKED_AT = 1_000
"""Executions read at a time; a chunk takes about a millisecond."""
CHECKED = 100
"""Untouched executions that one round checks."""
BETWEEN_CHUNKS = 0.1
"""Seconds between two chunks of executions that are checked or removed."""
OUTBOX_LOOK = 1000
"""Outbox entries that are searched for one that concerns a waiting script."""


class Reconciler:
    """Periodic repair of executions after crashes. ``repairs`` counts every repair by kind; ``stuck`` names
    executions that cannot move.
    """

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
        self.on_round: Callable[[], None] = lambda: None
        """Called after each round."""
        self._elsewhere: float | None = None
        self._cursor = ""
        self._ended = asyncio.Event()

    def notice_ending(self) -> None:
        """Note that an execution ended: its rows can be swept soon."""
        self._ended.set()

    def notice_round(self) -> None:
        """Note that another process has just finished a round, so that the next one here can wait."""
        self._elsewhere = asyncio.get_running_loop().time()

    async def run(self) -> None:
        sweepers = [asyncio.create_task(self._sweep_after_endings())]
        if self.kept_for:
            sweepers.append(asyncio.create_task(self._remove_outdated()))
        try:
            while True:
                try:
                    await self.round()
                except OperatorError as error:
                    self._warn("the reconciler waits for the store", error)
                await self._sleep()
        finally:
            for task in sweepers:
                task.cancel()

    def _warn(self, what: str, error: OperatorError) -> None:
        """Log an error, at debug level during a known outage. The reconciler does not report to the outage itself:
        its rounds are so far apart that the end of the outage would wait for the next one.
        """
        level = logging.DEBUG if self.outage.is_known else logging.WARNING
        logger.log(level, "%s: %s", what, error)

    async def _sleep(self) -> None:
        """Sleep for the interval, counted from the last round of any process. Which of several processes makes the
        next round is random: each detects faults that the others do not, such as dead workers of its own machine.
        """
        clock = asyncio.get_running_loop().time
        last = clock()
        until = last + self.interval if self._elsewhere is None else last + self._random_interval()
        while (pause := until - clock()) > 0:
            await asyncio.sleep(pause)
            if self._elsewhere is not None and self._elsewhere > last:
                last = self._elsewhere
                until = last + self._random_interval()

    def _random_interval(self) -> float:
        return self.interval * random.uniform(1.0, 1.3)  # noqa: S311 - no secret

    async def round(self) -> None:
        """Make one round: dead workers, untouched executions, rows of ended executions."""
        await self.take_back_leases()
        await self._walk()
        self._ended.set()  # other processes end executions too, and a crash leaves some of them unswept
        self.on_round()

    async def take_back_leases(self) -> None:
        await self.take_back(dead_among(await self.ledger.known_workers()), "of dead workers")

    async def take_back(self, names: Sequence[str], cause: str) -> None:
        """Take back the leases held under these names, and under all names that missed their heartbeat."""
        lost = await self.ledger.expire(names)
        if lost:
            self.repairs["expired-lease"] += len(lost)
            leases = "1 lease" if len(lost) == 1 else f"{len(lost):,} leases"
            logger.warning("took back %s %s", leases, cause)
            await self.broker.announce(lost)

    async def _walk(self) -> None:
        """Walk through all executions and check a bounded number of untouched ones; the next round continues
        there.
        """
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
        """Announce an execution's ready tokens again, and report the execution if nothing can move it."""
        ready = await self.ledger.ready(execution)
        if ready:
            self.repairs["announced-again"] += len(ready)
            await self.broker.announce(ready)
            return
        inspection = await self.ledger.inspect(execution)
        if inspection is not None and await self._wake_overdue(inspection):
            return
        reason = diagnose(inspection) if inspection is not None else None
        if reason is None:
            self.stuck.pop(execution, None)
        elif execution not in self.stuck and not await self._has_moved(inspection):
            self.stuck[execution] = reason
            self.repairs["reported-stuck"] += 1
            logger.error("execution %s is stuck: %s", execution, reason)

    async def why_stuck(self, inspection: Inspection) -> str | None:
        """Return what is missing if nothing can move the execution any more, else None. Changes nothing."""
        reason = diagnose(inspection)
        return None if reason is None or await self._waits_for_others(inspection) else reason

    async def _waits_for_others(self, inspection: Inspection) -> bool:
        """Return True for a script that waits for a signal or a child, which need no token."""
        view = inspection.execution
        machine = await self.ledger.machine(view.id) if view.kind in SCRIPTED else None
        return machine is not None and (bool(machine.wake.signals) or await self.has_children(view.id))

    async def _has_moved(self, before: Inspection | None) -> bool:
        """Return True if the execution has changed since it was read. What could move it is read by several queries,
        and an ending that is committed between two of them is seen by neither.
        """
        if before is None:
            return True
        now = await self.ledger.inspect(before.execution.id)
        return now is None or now.execution.seq != before.execution.seq or now.tokens != before.tokens

    async def _wake_overdue(self, inspection: Inspection) -> bool:
        """Resume a script whose timer is long overdue: its timer token was deleted, and a timer whose time has passed
        counts as fired. Return False if nothing can move the script; other scripts wait for external events.
        """
        execution = inspection.execution
        if execution.kind not in SCRIPTED or execution.state != "RUNNING":
            return False
        machine = await self.ledger.machine(execution.id)
        if machine is None:
            return True  # the execution has ended and was swept since it was read
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
        """Return True if a child runs, or if its start or its result is still in the outbox."""
        where = ExecutionFilter(parent=execution, relations=("child",), states=NOT_ENDED)
        if await self.archive.executions(where, limit=1):
            return True
        children = {child.id for child in await self.archive.executions(ExecutionFilter(parent=execution))}
        undelivered = await self.ledger.outbox(OUTBOX_LOOK)
        return any(entry.execution == execution or entry.execution in children for entry in undelivered)

    async def _sweep_after_endings(self) -> None:
        while True:
            await self._ended.wait()
            await asyncio.sleep(1.0)
            self._ended.clear()
            try:
                while await self.ledger.sweep():
                    pass
            except OperatorError as error:
                self._warn("the removal of finished rows waits for the store", error)

    async def _remove_outdated(self) -> None:
        """Remove outdated executions in chunks with a pause after each, so that a million of them do not delay other
        work.
        """
        while True:
            more = False
            try:
                more = await remove_outdated(self.archive, self.kept_for, self.ledger.now())
            except OperatorError as error:
                self._warn("the removal of old executions waits for the store", error)
            await asyncio.sleep(min(BETWEEN_CHUNKS, self.interval) if more else self.interval)


Retention: TypeAlias = float | Mapping[EndState, float] | None
"""Seconds after the end of an execution, by end state or for all states. States without an entry are kept."""

CHUNK = 200
"""Executions that one call removes at most. The store splits large ones into several transactions."""

_EXAMPLE = "write seconds, or seconds by state such as {'COMPLETED': 86400, 'FAILED': 2592000}"


def read_retention(retention: Retention) -> dict[float, tuple[EndState, ...]]:
    """Return the end states by retention time. Raises BadConfiguration."""
    if retention is None:
        return {}
    by_state = retention if isinstance(retention, Mapping) else dict.fromkeys(sorted(ENDED), retention)
    found: dict[float, tuple[EndState, ...]] = {}
    for state, seconds in by_state.items():
        if state not in ENDED:
            known = ", ".join(sorted(ENDED))
            raise BadConfiguration(f"retention: executions do not end {state!r} but {known}; {_EXAMPLE}")
        if not _is_span(seconds):
            raise BadConfiguration(
                f"retention of {state}: {seconds!r} is not a number of seconds; {_EXAMPLE}"
            )
        found[float(seconds)] = (*found.get(float(seconds), ()), state)  # type: ignore[arg-type]  # checked above
    return found


def _is_span(seconds: object) -> bool:
    return isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds < math.inf


async def remove_outdated(
    archive: Archive, kept_for: Mapping[float, tuple[EndState, ...]], now: float
) -> bool:
    """Remove one chunk per retention time. Return True if there may be more."""
    more = False
    for seconds, states in kept_for.items():
        more |= await archive.remove_ended(now - seconds, CHUNK, states) == CHUNK
    return more
