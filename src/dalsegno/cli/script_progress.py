"""What a script or Python workflow is doing: its line, its tasks, and the timers, signals and children it has out.

Everything is read off the store's rows, so that it can be shown where the workflow's own code is not at hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from dalsegno.cli.activity import TASKS, Activity, activities, gone_tokens
from dalsegno.cli.desk import Desk
from dalsegno.cli.glancing import NewEvents, Quiet
from dalsegno.core.script_summary import TaskTally
from dalsegno.core.summary import NodeSummary
from dalsegno.engine.scripting.looking import cleaning_up
from dalsegno.model.event import Event
from dalsegno.model.execution import ENDED, ExecutionView
from dalsegno.model.machine import MachineView
from dalsegno.model.token import TokenView
from dalsegno.ports.archive import ExecutionFilter

CHILDREN = 20
REMEMBERED = 200
"""New events that are kept for whoever tells them one by one; of more, only the last ones are told."""


BLOCK = "block"
"""The name of a time limit that holds for a part of the program: ``with timeout(…)``."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A timer, a signal or a child that has not come yet, or was not taken yet. Equal ones are counted."""

    kind: Literal["timer", "signal", "child", "limit"]
    """limit: the execution's own timeout, the end of its time to clean up, or a time limit around its await."""
    name: str = ""
    due: float | None = None
    execution: str = ""
    count: int = 1
    came: bool = False
    """Of a signal: whether it has come, and only the program has not taken it yet."""


Turning = Literal["", "queued", "put off", "running", "gone"]
"""queued: it waits for a worker · put off: the worker that took it does not have its code · running: a worker runs it ·
gone: it was running in a process of this machine that has died."""


@dataclass(frozen=True, slots=True)
class ScriptMoment:
    """A script at one moment."""

    execution: ExecutionView
    tasks: Mapping[str, NodeSummary]
    line: int = 0
    """Where it is suspended; 0 before its first stop and after its end."""
    turning: Turning = ""
    """Whether the program itself has something to do."""
    cleanup: str = ""
    """What it does since it was asked to end."""
    activities: Mapping[str, Activity] = field(default_factory=dict)
    pending: tuple[Pending, ...] = ()
    began: Mapping[str, float] = field(default_factory=dict)
    ended: Mapping[str, float] = field(default_factory=dict)
    now: float = 0.0
    limits: tuple[float, ...] = ()
    """When the time limits around its await are over."""
    resume: TokenView | None = None
    """With which a worker goes on with the program, while that has something to do."""


class ScriptProgress:
    """Follows one execution of a script, a Python workflow, or a single task."""

    def __init__(self, client: Desk, execution: str, since: int = 0) -> None:
        """Events up to the number ``since`` are no news."""
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
        self._news: list[Event] = []
        self._last: ScriptMoment | None = None

    async def glance(self) -> ScriptMoment:
        """The present moment, or what was seen last: while nothing is committed here, the store is asked rarely."""
        if self._last is None or self._quiet.over():
            self._last = await self.look()
        return replace(self._last, now=self.client.stack.clock.now())

    async def look(self, *, complete: bool = False) -> ScriptMoment:
        """The present moment; ``complete`` reads all of a long history first."""
        async for page in self._events.pages(complete=complete):
            self._note(page)
        inspection = await self.client.stack.ledger.inspect(self.execution)
        machine = await self.client.stack.ledger.machine(self.execution) if inspection is not None else None
        if inspection is None:
            return self._moment(await self.client.status(self.execution), (), None)
        pending = (*_pending(inspection.tokens, machine, self._limits), *await self._children())
        return self._moment(inspection.execution, inspection.tokens, machine, pending)

    def take_news(self) -> list[Event]:
        """Events since they were last taken."""
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
        """Whatever tells that the program waits again tells its time limits, too."""
        data = event_data(event)
        suspended = data if event.kind == "Suspended" else data.get("then")
        if isinstance(suspended, dict):
            self._limits = tuple(suspended.get("limits", ()))

    def _note_times(self, event: Event) -> None:
        """Of the latest runs of each task: when the first of them began, and when the last of them ended."""
        name = event.node
        over = name not in self._began or self._ended.get(name, -1.0) >= self._began[name]
        if event.kind == "TaskStarted" and over:
            self._began[name] = event_data(event).get("started_at", event.at)
        elif event.kind in ("TaskCompleted", "TaskFailed", "TaskRetrying"):
            started = event_data(event).get("started_at")
            if over and isinstance(started, float | int):
                self._began[name] = started
            self._ended[name] = event.at

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
            () if over else self._limits,
            _resume(tokens),
        )

    async def _children(self) -> list[Pending]:
        """Those it waits for; what it merely started goes its own way."""
        if not self._has_children:
            return []
        where = ExecutionFilter(None, ("RUNNING", "PAUSED"), parent=self.execution, relations=("child",))
        children = await self.client.executions(where, limit=CHILDREN)
        return [Pending("child", child.workflow, execution=child.id) for child in reversed(children)]


def _pending(
    tokens: Iterable[TokenView], machine: MachineView | None, around: Sequence[float]
) -> list[Pending]:
    """Timers in the order in which they fire; a signal's time limit belongs to the signal. ``around``: when the time
    limits around the await are over, whose timers are no waits of their own."""
    timers = [token for token in tokens if token.kind == "timer" and token.state == "parked"]
    limits = {token.node: token.due for token in timers if token.node}
    awaited = machine.wake.signals if machine is not None else ()
    came = {signal.name for signal in machine.signals} if machine is not None else set[str]()
    signals = [
        Pending("signal", name, came=True)
        if name in came
        else Pending("signal", name, _first(limits.get(name), around if name in awaited else ()))
        for name in dict.fromkeys((*awaited, *limits))
    ]
    blocks = [Pending("limit", BLOCK, around[0])] if around and not awaited else []
    sleeping = sorted(
        token.due for token in timers if not token.node and token.due is not None and token.due not in around
    )
    found = [Pending("timer", due=sleeping[0], count=len(sleeping))] if sleeping else []
    ends = [token for token in tokens if token.kind == "deadline" and token.state == "parked"]
    return [*signals, *found, *blocks, *(Pending("limit", token.node, token.due) for token in ends)]


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
