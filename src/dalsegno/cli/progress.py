"""What one execution of a graph is doing, gathered cheaply: new events once, and the rows of what is in flight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import msgspec

from dalsegno.cli.activity import Activity, activities
from dalsegno.cli.desk import Desk
from dalsegno.cli.glancing import NewEvents, Quiet
from dalsegno.core.summary import NodeSummary, Tally
from dalsegno.graph.plan import Plan
from dalsegno.model.barrier import BarrierView
from dalsegno.model.event import Event
from dalsegno.model.execution import ExecutionView
from dalsegno.model.token import TokenView


class _Times(msgspec.Struct):
    started_at: float | None = None


_times = msgspec.json.Decoder(_Times).decode


@dataclass(slots=True)
class Snapshot:
    """An execution at one moment."""

    execution: ExecutionView
    summaries: dict[str, NodeSummary]
    activities: dict[str, Activity] = field(default_factory=dict)
    counts: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Arrived and expected, by the node where branches or items meet."""
    began: dict[str, float] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    now: float = 0.0


class Progress:
    """Follows one execution of a graph. Every event is read once, whatever the number of looks."""

    def __init__(self, client: Desk, plan: Plan, execution: str) -> None:
        self.client = client
        self.plan = plan
        self.execution = execution
        self._tally = Tally(plan)
        self._events = NewEvents(client, execution)
        self._began: dict[str, float] = {}
        self._ended: dict[str, float] = {}
        self._counts: dict[str, tuple[int, int]] = {}
        self._last: Snapshot | None = None
        self._quiet = Quiet(client)

    async def glance(self) -> Snapshot:
        """The present moment, or what was seen last: while nothing is committed here, the store is asked rarely."""
        if self._last is None or self._quiet.over():
            self._last = await self.look()
        return replace(self._last, now=self.client.stack.clock.now())

    async def look(self, *, complete: bool = False) -> Snapshot:
        """The present moment; ``complete`` reads all of a long history first."""
        async for page in self._events.pages(complete=complete):
            self._tally.add(page)
            self._note_times(page)
        inspection = await self.client.stack.ledger.inspect(self.execution)
        if inspection is None:
            execution = await self.client.status(self.execution)
            tokens: tuple[TokenView, ...] = ()
        else:
            execution, tokens = inspection.execution, inspection.tokens
            self._counts.update(_counts(self.plan, inspection.barriers))
        return Snapshot(
            execution,
            self._tally.summaries(execution, tokens),
            activities(tokens),
            self._counts,
            self._began,
            self._ended,
            self.client.stack.clock.now(),
        )

    def _note_times(self, events: Iterable[Event]) -> None:
        for event in events:
            if not event.node or event.data is None or event.kind == "NodeSkipped":
                continue
            started = _times(event.data).started_at
            if started is not None:
                self._began[event.node] = min(started, self._began.get(event.node, started))
            if event.kind in ("NodeCompleted", "NodeFailed"):
                self._ended[event.node] = event.at


def _counts(plan: Plan, barriers: Iterable[BarrierView]) -> dict[str, tuple[int, int]]:
    """Summed over all scopes; a split shows the count of its aggregator as its own."""
    arrived: Counter[str] = Counter()
    expected: Counter[str] = Counter()
    for barrier in barriers:
        arrived[barrier.node] += barrier.resolved
        expected[barrier.node] += barrier.expected
    counts = {name: (arrived[name], expected[name]) for name in expected}
    for name in list(counts):
        split = plan.nodes[name].collects if name in plan.nodes else None
        if split is not None:
            counts[split] = counts[name]
    return counts
