"""Long runs of a worker: recorded as started while they continue, cancelled once their execution or scope has ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Container, Mapping

from dalsegno.core.graph.step_input import Body, RunRecord, StepInput, encode_record, run_event
from dalsegno.engine.committer import Committer
from dalsegno.engine.definitions import Definitions
from dalsegno.errors import OperatorError
from dalsegno.model.effect import MarkStarted
from dalsegno.model.event import NewEvent
from dalsegno.model.token import LONG_KINDS, Lease, may_run_long
from dalsegno.model.transition import Transition
from dalsegno.ports.ledger import Ledger

logger = logging.getLogger("dalsegno.worker")

AFTER = 0.1
"""Seconds after which a run is recorded as started."""
LOOK_EVERY = 0.5
"""Seconds between two checks, and the age from which on a run is checked. Without such a run there is no query."""


class RunWatch:
    """Base class of periodic checks of a worker's runs. ``running`` and ``started`` are the worker's: its leases, and
    their start times.
    """

    def __init__(self, running: Mapping[str, Lease], started: Mapping[str, float]) -> None:
        self.running = running
        self.started = started
        self.busy = asyncio.Event()
        """Set while anything may be running."""

    async def rounds(self, seconds: float) -> AsyncIterator[float]:
        """Yield the time of the event loop at intervals while anything may be running."""
        clock = asyncio.get_running_loop().time
        while True:
            await self.busy.wait()
            await asyncio.sleep(seconds)
            if not self.running:
                self.busy.clear()
            yield clock()


class LongRuns(RunWatch):
    """A periodic check that records each long run as started, once, so that observers see what is running."""

    def __init__(
        self,
        running: Mapping[str, Lease],
        started: Mapping[str, float],
        committer: Committer,
        definitions: Definitions,
    ) -> None:
        super().__init__(running, started)
        self.committer = committer
        self.definitions = definitions
        self._shown: set[tuple[str, int]] = set()
        """Runs, by token and fence, of which nothing is left to record: their start is, or their task has returned."""

    def returned(self, lease: Lease) -> None:
        """Note that a task has returned. Its step goes on with the script's turn, which may wait for a thread."""
        self._shown.add((lease.token, lease.fence))

    async def show(self) -> None:
        async for now in self.rounds(AFTER):
            self._show(now)

    def _show(self, now: float) -> None:
        self._shown = {each for each in self._shown if each[0] in self.started}
        late = [token for token, since in self.started.items() if since < now - AFTER]
        for token in late:
            lease = self.running.get(token)
            if lease is None or lease.kind not in LONG_KINDS or (token, lease.fence) in self._shown:
                continue
            self._shown.add((token, lease.fence))
            at, ago = self.committer.ledger.now(), now - self.started[token]
            if started := started_transition(lease, self.definitions, at, ago):
                self.committer.commit(started)


def started_transition(lease: Lease, definitions: Definitions, now: float, ago: float) -> Transition | None:
    """Return the record of a run that began ``ago`` seconds before ``now``; it is written late with the real start
    time. None if the definition is not loaded here.
    """
    if lease.kind == "task":
        data = encode_record({"attempt": lease.attempt, "started_at": now - ago})
        started = NewEvent("TaskStarted", lease.node, "", now, data, lease.token)
        return shown_as_started(lease, started)
    program = definitions.cached(lease.definition)
    if program is None:
        return None
    step_input = StepInput(program.plan, lease, Body(), now, now)
    event = run_event("NodeStarted", step_input, RunRecord(lease.ready_at, now - ago, lease.attempt))
    return shown_as_started(lease, event)


def shown_as_started(lease: Lease, event: NewEvent) -> Transition:
    """Return a transition that records the start once per lease, however often it is sent, and only while the lease
    lasts.
    """
    return Transition(lease.execution, (MarkStarted(lease.token, lease.fence),), (event,))


class ObsoleteRuns(RunWatch):
    """A periodic check that cancels runs whose execution or scope has ended meanwhile."""

    def __init__(
        self,
        running: Mapping[str, Lease],
        started: Mapping[str, float],
        ledger: Ledger,
        cancel: Callable[[Lease], None],
        long: Container[str] = (),
    ) -> None:
        """``long``: tokens of further runs that take long."""
        super().__init__(running, started)
        self.ledger = ledger
        self.cancel = cancel
        self.long = long

    async def watch(self) -> None:
        """Check at intervals, with one query for all long runs: another process may have ended an execution."""
        async for now in self.rounds(LOOK_EVERY):
            long = self._long_runs(now - LOOK_EVERY)
            if not long:
                continue
            try:
                obsolete = await self.ledger.obsolete(long)
            except OperatorError:
                continue  # others report the outage
            except Exception:
                logger.exception("cannot determine which runs have become obsolete")
                continue
            for lease in obsolete:
                self.cancel(lease)

    def _long_runs(self, before: float) -> list[Lease]:
        leases = [self.running.get(token) for token, since in self.started.items() if since <= before]
        return [
            lease
            for lease in leases
            if lease is not None
            and (may_run_long(lease.kind, lease.execution_kind) or lease.token in self.long)
        ]
