"""Progress of one execution of a graph, read at little cost.

Every event is read once. While nothing is committed here, the store is read rarely. Live tokens are counted by the node
or task they belong to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from dalsegno.cli.live.published_view import shown_values
from dalsegno.cli.target.target import WorkflowApi
from dalsegno.core.graph.external_waits import CHILD, awaiting_in
from dalsegno.core.settlement.signals import SIGNAL
from dalsegno.core.states import NodeSummary, NodeTally
from dalsegno.engine.worker.directory import dead_among
from dalsegno.graph.plan import Plan
from dalsegno.model.barrier import BarrierView
from dalsegno.model.event import Event
from dalsegno.model.execution import ExecutionView
from dalsegno.model.token import TokenKind, TokenView

NODES: tuple[TokenKind, ...] = ("node", "join")
TASKS: tuple[TokenKind, ...] = ("task",)


@dataclass(slots=True)
class Activity:
    """State of the live tokens of one node or task."""

    running: int = 0
    gone: int = 0
    """Tokens that ran in a process of this machine that has died."""
    queued: int = 0
    sleeping: int = 0
    due: float | None = None
    retrying: int = 0
    """The attempt that is due next, if a failed run will be retried."""
    awaits: str = ""
    """The external event that it waits for, in a few words."""
    signal: str = ""
    """Name of the signal that it waits for."""
    asks: bool = False
    """True if it waits for a person's decision."""
    attempt: int = 1
    """The highest attempt that is running."""


def activities(tokens: Iterable[TokenView], kinds: Collection[TokenKind] = NODES) -> dict[str, Activity]:
    found: dict[str, Activity] = {}
    tokens = tuple(tokens)
    gone = gone_tokens(tokens)
    for token in tokens:
        if token.kind not in kinds:
            continue
        activity = found.setdefault(token.node, Activity())
        if token.id in gone:
            activity.gone += 1
        elif token.state == "leased":
            activity.running += 1
            activity.attempt = max(token.attempt, activity.attempt)
        elif token.state in ("ready", "held"):
            activity.queued += 1
        elif token.state == "parked":
            _add_parked(activity, token)
    return found


def gone_tokens(tokens: Iterable[TokenView]) -> set[str]:
    """Return the tokens that ran in a process of this machine that has died."""
    owners = {token.id: token.owner for token in tokens if token.state == "leased" and token.owner}
    dead = set(dead_among(sorted(set(owners.values())))) if owners else set()
    return {token for token, owner in owners.items() if owner in dead}


def _add_parked(activity: Activity, token: TokenView) -> None:
    activity.sleeping += 1
    if token.due is not None:
        activity.due = min(token.due, activity.due or token.due)
    if token.awaits is not None:
        activity.signal = signal_in(token.awaits)
        activity.asks = bool(activity.signal) and asks_people(token)
        activity.awaits = _awaits(activity, token.awaits)
    elif token.attempt > 1:
        activity.retrying = max(token.attempt, activity.retrying)


def _awaits(activity: Activity, awaits: str) -> str:
    if activity.asks:
        return "a decision"
    return f"signal {activity.signal}" if activity.signal else f"execution {awaits.removeprefix(CHILD)}"


def asks_people(token: TokenView) -> bool:
    """Return whether a parked token waits for a decision."""
    awaiting = awaiting_in(token) if token.data else None
    return awaiting is not None and awaiting.question is not None


def signal_in(awaits: str | None) -> str:
    """Return the name of the signal that a parked token waits for, if there is one."""
    return awaits.removeprefix(SIGNAL) if awaits is not None and awaits.startswith(SIGNAL) else ""


def activity_texts(activity: Activity, *, paused: bool) -> list[str]:
    """Describe what runs and what waits for a worker, without repetition."""
    words = []
    if activity.running:
        words.append(f"{activity.running:,} running" if activity.running > 1 else "running")
    if activity.gone:
        words.append(f"{activity.gone:,} lost" if activity.gone > 1 else "lost its process")
    if activity.queued:
        verb = "held" if paused else "queued"
        words.append(f"{activity.queued:,} {verb}" if activity.queued > 1 else verb)
    return words


PAGE = 1000
PAGES = 20
"""Pages that one look reads; the next look reads the rest of a very wide split."""
QUIET = 0.5
"""Seconds after which the execution is read again even without a commit here: other processes may change it."""


class NewEvents:
    """The history of one execution, read incrementally."""

    def __init__(self, client: WorkflowApi, execution: str) -> None:
        self._client = client
        self._execution = execution
        self._seq = 0

    async def pages(self, *, complete: bool) -> AsyncIterator[list[Event]]:
        """Yield the pages of new events. ``complete``: all of them, without a limit."""
        read = 0
        while complete or read < PAGES:
            page = await self._client.events(self._execution, self._seq, PAGE)
            if page:
                self._seq = page[-1].seq
                yield page
            if len(page) < PAGE:
                return
            read += 1


class Quiet:
    """Decides whether the last reading may still be shown: no commit here since then, and it is not old."""

    def __init__(self, client: WorkflowApi) -> None:
        self._client = client
        self._commits = -1
        self._at = 0.0

    def over(self) -> bool:
        now, commits = self._client.stack.clock.now(), self._client.committer.transitions
        if commits == self._commits and now - self._at < QUIET:
            return False
        self._commits, self._at = commits, now
        return True


class _Times(msgspec.Struct):
    started_at: float | None = None
    due: float | None = None
    """Time at which a wait gives up."""


_times = msgspec.json.Decoder(_Times).decode


@dataclass(slots=True)
class Snapshot:
    """An execution at one moment."""

    execution: ExecutionView
    summaries: dict[str, NodeSummary]
    activities: dict[str, Activity] = field(default_factory=dict)
    counts: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Arrived and expected, by the node where branches or items join."""
    began: dict[str, float] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    now: float = 0.0
    published: Mapping[str, Any] = field(default_factory=dict)


class Progress:
    """Follows one execution of a graph. Every event is read once, however often it looks."""

    def __init__(self, client: WorkflowApi, plan: Plan, execution: str) -> None:
        self.client = client
        self.plan = plan
        self.execution = execution
        self._tally = NodeTally(plan)
        self._events = NewEvents(client, execution)
        self._began: dict[str, float] = {}
        self._ended: dict[str, float] = {}
        self._due: dict[str, float] = {}
        self._counts: dict[str, tuple[int, int]] = {}
        self._last: Snapshot | None = None
        self._quiet = Quiet(client)

    async def poll(self) -> Snapshot:
        """Return the current moment, or the last one: while nothing is committed here, the store is read rarely."""
        if self._last is None or self._quiet.over():
            self._last = await self.look()
        return replace(self._last, now=self.client.stack.clock.now())

    async def look(self, *, complete: bool = False) -> Snapshot:
        """Return the current moment. ``complete``: first read all of a long history."""
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
            await shown_values(self.client, self.execution),
        )

    def _note_times(self, events: Iterable[Event]) -> None:
        for event in events:
            if not event.node or event.data is None or event.kind == "NodeSkipped":
                continue
            times = _times(event.data)
            started = times.started_at
            if event.kind == "NodeWaiting" and times.due is not None:
                self._due[event.node] = times.due
            if started is not None:
                self._began[event.node] = min(started, self._began.get(event.node, started))
            if event.kind in ("NodeCompleted", "NodeFailed"):
                self._ended[event.node] = ended_at(event, self._due.pop(event.node, None))


def ended_at(event: Event, due: float | None) -> float:
    """Return when a run ended. A wait that failed ended when it was ``due``, even if no worker ran then."""
    return min(event.at, due) if due is not None and event.kind.endswith("Failed") else event.at


def _counts(plan: Plan, barriers: Iterable[BarrierView]) -> dict[str, tuple[int, int]]:
    """Return the counts summed over all scopes. A split shows the count of its aggregator."""
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
