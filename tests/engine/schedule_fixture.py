"""The schedules of one store, with a clock that stands still and steps that are taken by hand."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from dalsegno.core.outbox_orders import StartOrder, decode_start
from dalsegno.engine.committer import Committer
from dalsegno.engine.definitions import Definitions
from dalsegno.engine.schedules import NewSchedule, ScheduleRecords, ScheduleView, schedule_step
from dalsegno.graph.build import load_graph
from dalsegno.model.effect import CreateExecution
from dalsegno.model.event import NewEvent
from dalsegno.model.execution import NewExecution
from dalsegno.model.token import SYSTEM_QUEUE, Lease
from dalsegno.model.transition import Applied, Outcome, Transition
from dalsegno.nodes.registry import builtin_registry
from dalsegno.ports.stack import Stack
from dalsegno.testing.clock import FakeClock
from dalsegno.wiring import open_stack

REPORT = {
    "name": "report",
    "nodes": [{"id": "say", "type": "log", "parameters": {"message": "hello"}}],
    "input_schema": {"type": "object", "properties": {"day": {"type": "integer"}}},
}
HOUR, DAY = 3600.0, 86_400.0


class ScheduleFixture:
    def __init__(self, stack: Stack, clock: FakeClock) -> None:
        self.stack = stack
        self.clock = clock
        self.committer = Committer(stack.ledger, stack.broker, lambda *_: None)
        self.definitions = Definitions(stack.archive, builtin_registry(), clock)
        self.book = ScheduleRecords(stack, self.committer, self.definitions)

    @classmethod
    async def open(cls, url: str, clock: FakeClock) -> ScheduleFixture:
        return cls(await open_stack(url, clock), clock)

    async def deploy(self, document: dict[str, Any] = REPORT) -> int:
        compiled = load_graph(document, builtin_registry())
        stored = await self.stack.archive.put_definition(
            compiled.plan.name, compiled.hash, "graph", compiled.definition_source
        )
        return stored.version

    async def add(
        self,
        name: str = "nightly",
        timing: str = "0 2 * * *",
        *,
        replace: bool = False,
        allow_unknown: bool = False,
        workflow: str = "report",
        **fields: Any,
    ) -> ScheduleView:
        new = NewSchedule(name, timing, workflow, **fields)
        return await self.book.add(new, replace=replace, allow_unknown=allow_unknown)

    async def leases(self, worker: str = "w1") -> list[Lease]:
        """What is due, handed to a worker."""
        await self.stack.ledger.wake()
        return await self.stack.ledger.claim(worker, (SYSTEM_QUEUE,), 100)

    async def commit(self, lease: Lease) -> Outcome:
        """One step of a schedule."""
        return await self.committer.commit(
            await schedule_step(self.stack.archive, lease, self.stack.ledger.now())
        )

    async def fire(self) -> None:
        """Until nothing is due."""
        while leases := await self.leases():
            for lease in leases:
                assert isinstance(await self.commit(lease), Applied)

    async def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.fire()

    async def orders(self) -> list[StartOrder]:
        """What was ordered since the last look, oldest first."""
        entries = await self.stack.ledger.outbox(10_000)
        await self.stack.ledger.delivered([entry.id for entry in entries])
        return [decode_start(entry.data) for entry in entries if entry.topic == "start"]

    async def times(self) -> list[float]:
        return [
            datetime.fromisoformat(order.tags["scheduled_at"]).timestamp() for order in await self.orders()
        ]

    async def run(self, order: StartOrder) -> None:
        """The ordered execution, which runs until ``end``."""
        now = self.clock.now()
        new = NewExecution(order.execution, order.workflow, 1, "", b"{}", now, parent=order.parent)
        started = NewEvent("ExecutionStarted", "", "", now)
        await self.committer.commit(Transition(new.id, (CreateExecution(new),), (started,)))
