"""Runs that take long are recorded as started while they go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

from dalsegno.core.body import Body
from dalsegno.core.situation import RunRecord, Situation, encode_record, run_event
from dalsegno.engine.committer import Committer
from dalsegno.engine.definitions import Definitions
from dalsegno.model.event import NewEvent
from dalsegno.model.token import Lease
from dalsegno.model.transition import Transition

AFTER = 0.1
"""A run longer than this is shown as started while it goes on."""


class RunWatch:
    """``running`` and ``started`` are the worker's: what it runs, and since when."""

    def __init__(self, running: Mapping[str, Lease], started: Mapping[str, float]) -> None:
        self.running = running
        self.started = started
        self.busy = asyncio.Event()
        """Whether anything may be running."""

    async def rounds(self, seconds: float) -> AsyncIterator[float]:
        """The time of the event loop, again and again while anything may be running."""
        clock = asyncio.get_running_loop().time
        while True:
            await self.busy.wait()
            await asyncio.sleep(seconds)
            if not self.running:
                self.busy.clear()
            yield clock()


class LongRuns(RunWatch):
    """Records runs that take long as started, once each, so that a watcher sees what is going on."""

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
        self._shown: set[str] = set()

    async def show(self) -> None:
        async for now in self.rounds(AFTER):
            self._show(now)

    def _show(self, now: float) -> None:
        self._shown &= self.started.keys()
        late = [token for token, since in self.started.items() if since < now - AFTER]
        for token in late:
            lease = self.running.get(token)
            if token in self._shown or lease is None or lease.kind not in ("node", "task"):
                continue
            self._shown.add(token)
            at, ago = self.committer.ledger.now(), now - self.started[token]
            if started := started_transition(lease, self.definitions, at, ago):
                self.committer.commit(started)


def started_transition(lease: Lease, definitions: Definitions, now: float, ago: float) -> Transition | None:
    """A run that began ``ago`` seconds before ``now``: it is told late, and told when it really was. None if the
    definition is not at hand: then nobody is told."""
    if lease.kind == "task":
        data = encode_record({"attempt": lease.attempt, "started_at": now - ago})
        started = NewEvent("TaskStarted", lease.node, "", now, data, lease.token)
        return Transition(lease.execution, (), (started,))
    program = definitions.cached(lease.definition)
    if program is None:
        return None
    situation = Situation(program.plan, lease, Body(), now, now)
    event = run_event("NodeStarted", situation, RunRecord(lease.ready_at, now - ago, lease.attempt))
    return Transition(lease.execution, (), (event,))
