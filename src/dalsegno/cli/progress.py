"""What one execution is doing, gathered cheaply: new events once, and the rows of what is in flight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import msgspec

from dalsegno.core.summary import NodeSummary, Tally
from dalsegno.engine.client import Client
from dalsegno.engine.processes import dead_among
from dalsegno.graph.plan import Plan
from dalsegno.model.barrier import BarrierView
from dalsegno.model.event import Event
from dalsegno.model.execution import ExecutionView
from dalsegno.model.token import TokenView

PAGE = 1000
PAGES = 20
"""Read by one look; what a very wide split adds beyond that is read by the next."""
QUIET = 0.5
"""Other processes may move the execution, too: it is looked at this often even if nothing happens here."""


class _Times(msgspec.Struct):
    started_at: float | None = None


_times = msgspec.json.Decoder(_Times).decode


@dataclass(slots=True)
class Activity:
    """What the live tokens of one node are doing."""

    running: int = 0
    gone: int = 0
    """Was running in a process of this machine that has died."""
    queued: int = 0
    sleeping: int = 0
    due: float | None = None
    retrying: int = 0
    """The attempt that is due next, if a failed run is to be tried again."""
    queue: str = ""


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
    """Follows one execution. Every event is read once, whatever the number of looks."""

    def __init__(self, client: Client, plan: Plan, execution: str) -> None:
        self.client = client
        self.plan = plan
        self.execution = execution
        self._tally = Tally(plan)
        self._seq = 0
        self._began: dict[str, float] = {}
        self._ended: dict[str, float] = {}
        self._counts: dict[str, tuple[int, int]] = {}
        self._last: Snapshot | None = None
        self._commits = -1

    async def glance(self) -> Snapshot:
        """The present moment, or what was seen last: while nothing is committed here, the store is asked rarely."""
        now, commits = self.client.stack.clock.now(), self.client.committer.transitions
        if self._last is not None and commits == self._commits and now - self._last.now < QUIET:
            return replace(self._last, now=now)
        self._commits, self._last = commits, await self.look()
        return self._last

    async def look(self, *, complete: bool = False) -> Snapshot:
        """The present moment; ``complete`` reads all of a long history first."""
        await self._read_events(complete)
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

    async def _read_events(self, complete: bool) -> None:
        pages = 0
        while complete or pages < PAGES:
            page = await self.client.events(self.execution, self._seq, PAGE)
            if page:
                self._seq = page[-1].seq
                self._tally.add(page)
                self._note_times(page)
            if len(page) < PAGE:
                return
            pages += 1

    def _note_times(self, events: Iterable[Event]) -> None:
        for event in events:
            if not event.node or event.data is None or event.kind == "NodeSkipped":
                continue
            started = _times(event.data).started_at
            if started is not None:
                self._began[event.node] = min(started, self._began.get(event.node, started))
            if event.kind in ("NodeCompleted", "NodeFailed"):
                self._ended[event.node] = event.at


def activities(tokens: Iterable[TokenView]) -> dict[str, Activity]:
    found: dict[str, Activity] = {}
    tokens = tuple(tokens)
    gone = gone_tokens(tokens)
    for token in tokens:
        if token.kind not in ("node", "join"):
            continue
        activity = found.setdefault(token.node, Activity(queue=token.queue))
        if token.id in gone:
            activity.gone += 1
        elif token.state == "leased":
            activity.running += 1
        elif token.state in ("ready", "held"):
            activity.queued += 1
        elif token.state == "parked":
            _add_parked(activity, token)
    return found


def gone_tokens(tokens: Iterable[TokenView]) -> set[str]:
    """Tokens that were running in a process of this machine that has died."""
    owners = {token.id: token.owner for token in tokens if token.state == "leased" and token.owner}
    dead = set(dead_among(sorted(set(owners.values())))) if owners else set()
    return {token for token, owner in owners.items() if owner in dead}


def _add_parked(activity: Activity, token: TokenView) -> None:
    activity.sleeping += 1
    if token.due is not None:
        activity.due = min(token.due, activity.due or token.due)
    if token.attempt > 1:
        activity.retrying = max(token.attempt, activity.retrying)


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
