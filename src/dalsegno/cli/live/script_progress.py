"""Progress of a script or Python workflow: its line, tasks, timers, signals and children.

Everything is read from the store's rows, so it can be shown without the workflow's code. Only the variables and the
await of a suspended machine need the code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec
from msgspec import Struct

from dalsegno.cli.live.graph_progress import (
    TASKS,
    Activity,
    NewEvents,
    Quiet,
    activities,
    ended_at,
    gone_tokens,
    signal_in,
)
from dalsegno.cli.live.published_view import shown_values
from dalsegno.cli.next_command import short_path
from dalsegno.cli.target.target import WorkflowApi
from dalsegno.core.scripts.source_text import SourceText
from dalsegno.core.states import NodeSummary, TaskTally
from dalsegno.engine.operations.why import ScriptSnapshotView, cleaning_up
from dalsegno.errors import BadConfiguration, UsageError
from dalsegno.lang import SnapshotError
from dalsegno.model.event import Event
from dalsegno.model.execution import ENDED, UNDER_WAY, ExecutionView
from dalsegno.model.machine import MachineView, request_in
from dalsegno.model.suggestion import listed
from dalsegno.model.token import TokenView
from dalsegno.ports.archive import ExecutionFilter


async def look_inside(
    client: WorkflowApi, execution: str, source: SourceText | None
) -> tuple[ScriptSnapshotView | None, str]:
    """Return the picture of the machine, or why there is none: a Python workflow's objects need its own classes."""
    try:
        return await client.picture(execution), ""
    except (UsageError, SnapshotError, BadConfiguration) as error:
        if source is None or not source.file:
            return None, str(error)
        return None, f"they need the workflow's own code; give it with --app {short_path(source.file)}"


CHILDREN = 20
REMEMBERED = 200
"""New events that are kept to be reported; of more, only the latest are reported."""


BLOCK = "block"
"""Name of a time limit on a part of the program: ``with timeout(…)``."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A timer, signal, request or child that has not arrived yet, or was not consumed yet. Equal ones are counted."""

    kind: Literal["timer", "signal", "request", "child", "limit"]
    """``limit``: the execution's own timeout, the end of its ``cancel_grace``, or a time limit around its await."""
    name: str = ""
    due: float | None = None
    execution: str = ""
    count: int = 1
    received: bool = False
    """True for a signal or request that has arrived and waits to be consumed by the program."""


Turning = Literal["", "queued", "put off", "running", "gone"]
"""``queued``: waits for a worker. ``put off``: the worker that claimed it lacks the code. ``running``: a worker runs
it. ``gone``: it ran in a process of this machine that has died."""


@dataclass(frozen=True, slots=True)
class ScriptMoment:
    """A script at one moment."""

    execution: ExecutionView
    tasks: Mapping[str, NodeSummary]
    line: int = 0
    """The line where it is suspended; 0 before its first suspension and after its end."""
    turning: Turning = ""
    """State of the step that the program itself has to run; empty if there is none."""
    cleanup: str = ""
    """Its activity since cancellation was requested."""
    activities: Mapping[str, Activity] = field(default_factory=dict)
    pending: tuple[Pending, ...] = ()
    began: Mapping[str, float] = field(default_factory=dict)
    ended: Mapping[str, float] = field(default_factory=dict)
    now: float = 0.0
    published: Mapping[str, Any] = field(default_factory=dict)


class ScriptProgress:
    """Follows one execution of a script, a Python workflow, or a single task."""

    def __init__(self, client: WorkflowApi, execution: str, since: int = 0) -> None:
        """Events up to the number ``since`` are not reported as new."""
        self.client = client
        self.execution = execution
        self._since = since
        self._events = NewEvents(client, execution)
        self._quiet = Quiet(client)
        self._tally = TaskTally()
        self._has_children = False
        self._limits: tuple[float, ...] = ()
        self._began: dict[str, float] = {}
        self._ended: dict[str, float] = {}
        self._due: dict[str, float] = {}
        self._news: list[Event] = []
        self._last: ScriptMoment | None = None

    async def poll(self) -> ScriptMoment:
        """Return the current moment, or the last one: while nothing is committed here, the store is read rarely."""
        if self._last is None or self._quiet.over():
            self._last = await self.look()
        return replace(self._last, now=self.client.stack.clock.now())

    async def look(self, *, complete: bool = False) -> ScriptMoment:
        """Return the current moment. ``complete``: first read all of a long history."""
        async for page in self._events.pages(complete=complete):
            self._note(page)
        values = await shown_values(self.client, self.execution)
        return replace(await self._look(), published=values)

    async def _look(self) -> ScriptMoment:
        inspection = await self.client.stack.ledger.inspect(self.execution)
        machine = await self.client.stack.ledger.machine(self.execution) if inspection is not None else None
        if inspection is None:
            return self._moment(await self.client.status(self.execution), (), None)
        pending = (*_pending(inspection.tokens, machine, self._limits), *await self._children())
        return self._moment(inspection.execution, inspection.tokens, machine, pending)

    def take_events(self) -> list[Event]:
        """Return the new events since the last call."""
        news, self._news = self._news, []
        return news

    def _note(self, events: Sequence[Event]) -> None:
        for event in events:
            self._note_limits(event)
            if event.kind == "ChildStarted":
                self._has_children = True
            elif event.kind != "ChildEnded":
                self._tally.add((event,))
                self._note_times(event)
        self._news = [*self._news, *(event for event in events if event.seq > self._since)][-REMEMBERED:]

    def _note_limits(self, event: Event) -> None:
        """Take the time limits from every event that says that the program waits again."""
        data = event_data(event)
        suspended = data if event.kind == "Suspended" else data.get("then")
        if isinstance(suspended, dict):
            self._limits = tuple(suspended.get("limits", ()))

    def _note_times(self, event: Event) -> None:
        """Record, for the latest runs of each task, when the first of them began and when the last of them ended."""
        name = event.node
        over = name not in self._began or self._ended.get(name, -1.0) >= self._began[name]
        if event.kind == "TaskStarted" and over:
            self._began[name] = event_data(event).get("started_at", event.at)
        elif event.kind == "NodeWaiting" and over:  # a question to people: it began when it was asked
            self._began[name] = event.at
            self._note_due(event)
        elif event.kind in ("TaskCompleted", "TaskFailed", "TaskRetrying"):
            started = event_data(event).get("started_at")
            if over and isinstance(started, float | int):
                self._began[name] = started
            self._ended[name] = ended_at(event, self._due.pop(name, None))

    def _note_due(self, event: Event) -> None:
        due = event_data(event).get("due")
        if isinstance(due, float | int):
            self._due[event.node] = due

    def _moment(
        self,
        execution: ExecutionView,
        tokens: tuple[TokenView, ...],
        machine: MachineView | None,
        pending: tuple[Pending, ...] = (),
    ) -> ScriptMoment:
        over = execution.state in ENDED
        return ScriptMoment(
            execution,
            self._tally.summaries(execution, tokens),
            machine.line if machine is not None and not over else 0,
            _turning(_resume(tokens)) if not over else "",
            cleaning_up(machine, tokens) if machine is not None and machine.cancel and not over else "",
            activities(tokens, TASKS),
            () if over else pending,
            dict(self._began),
            dict(self._ended),
            self.client.stack.clock.now(),
        )

    async def _children(self) -> list[Pending]:
        """Return the children that it waits for, not those that it started without waiting."""
        if not self._has_children:
            return []
        where = ExecutionFilter(None, UNDER_WAY, parent=self.execution, relations=("child",))
        children = await self.client.executions(where, limit=CHILDREN)
        return [Pending("child", child.workflow, execution=child.id) for child in reversed(children)]


def _pending(
    tokens: Iterable[TokenView], machine: MachineView | None, around: Sequence[float]
) -> list[Pending]:
    """Return what is pending, timers in the order in which they fire.

    A signal's time limit belongs to the signal. ``around``: when the time limits around the await expire; their timers
    are no waits of their own.
    """
    timers = [token for token in tokens if token.kind == "timer" and token.state == "parked"]
    limits = {token.node: token.due for token in timers if token.node}
    awaited = machine.wake.signals if machine is not None else ()
    received = {signal.name for signal in machine.signals} if machine is not None else set[str]()
    signals = [
        _awaited(name, received=True)
        if name in received
        else _awaited(name, _first(limits.get(name), around if name in awaited else ()))
        for name in dict.fromkeys((*awaited, *limits))
    ]
    blocks = [Pending("limit", BLOCK, around[0])] if around and not awaited else []
    sleeping = sorted(
        token.due for token in timers if not token.node and token.due is not None and token.due not in around
    )
    found = [Pending("timer", due=sleeping[0], count=len(sleeping))] if sleeping else []
    ends = [token for token in tokens if token.kind == "deadline" and token.state == "parked"]
    return [*signals, *found, *blocks, *(Pending("limit", token.node, token.due) for token in ends)]


def _awaited(name: str, due: float | None = None, *, received: bool = False) -> Pending:
    """Return the wait for a signal or request, by its name in the mailbox."""
    request = request_in(name)
    if request is not None:
        return Pending("request", request, due, received=received)
    return Pending("signal", name, due, received=received)


def _first(due: float | None, others: Sequence[float]) -> float | None:
    return min(others if due is None else (due, *others), default=None)


def _resume(tokens: Iterable[TokenView]) -> TokenView | None:
    return next((token for token in tokens if token.kind == "resume"), None)


def _turning(resume: TokenView | None) -> Turning:
    match resume.state if resume is not None else "":
        case "leased":
            return "gone" if resume is not None and gone_tokens((resume,)) else "running"
        case "parked":  # it sleeps only after a worker could not run it
            return "put off"
        case "ready" | "held":
            return "queued"
        case _:
            return ""


def event_data(event: Event) -> dict[str, Any]:
    found = msgspec.json.decode(event.data) if event.data is not None else {}
    return found if isinstance(found, dict) else {}


PAGE = 1000


class _EventData(Struct, frozen=True):
    """The part of a signal's event that names its sender."""

    id: str | None = None


_decode = msgspec.json.Decoder(_EventData).decode


async def waited_signals(client: WorkflowApi, execution: str) -> list[str]:
    """Return the names of the signals that the execution waits for now."""
    inspection = await client.stack.ledger.inspect(execution)
    if inspection is None:
        return []
    if inspection.execution.kind == "graph":
        names = [signal_in(token.awaits) for token in inspection.tokens]
        return [name for name in dict.fromkeys(names) if name]
    machine = await client.stack.ledger.machine(execution)
    waited = machine.wake.signals if machine is not None else ()
    return [name for name in waited if request_in(name) is None]


async def earlier_event(client: WorkflowApi, execution: str, id: str) -> int | None:
    """Return the number of the event of a signal that was sent before with this id."""
    after = 0
    while page := await client.events(execution, after, PAGE):
        for event in page:
            if event.kind == "SignalReceived" and event.data and _decode(event.data).id == id:
                return event.seq
        after = page[-1].seq
    return None


def kept_for_later(name: str, waited: Sequence[str]) -> str:
    """Describe that a signal is kept until the workflow takes it; empty if the workflow waits for it now."""
    if name in waited:
        return ""
    instead = f" (it waits for {listed(waited)})" if waited else ""
    return f"; it is kept: nothing waits for '{name}' now{instead}"
