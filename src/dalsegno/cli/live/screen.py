"""The display on stderr while an execution runs: a live view on a terminal, plain lines elsewhere, or nothing.

``Following`` is one execution that is being followed, of any kind: how it is read, drawn, and reported in plain
lines. Logs and pipes get the history of a script one sentence a line.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any, Protocol

from rich.console import Console, RenderableType
from rich.live import Live

from dalsegno.cli.live.graph_progress import Progress, Snapshot
from dalsegno.cli.live.graph_view import TreeView
from dalsegno.cli.live.published_view import PublishedLines
from dalsegno.cli.live.script_progress import ScriptMoment, ScriptProgress, event_data
from dalsegno.cli.live.script_view import ScriptView
from dalsegno.cli.next_command import Command, countdown
from dalsegno.cli.output import error_text, span, stderr
from dalsegno.cli.target.target import WorkflowApi
from dalsegno.cli.views.approvals import next_program_steps, next_steps
from dalsegno.cli.views.executions import by_hand, changed_tags
from dalsegno.cli.views.source import stored_source
from dalsegno.core.scripts.source_text import SourceText
from dalsegno.graph.plan import Plan
from dalsegno.lang.runtime.effects import display_name
from dalsegno.model.event import Event
from dalsegno.model.execution import ENDED, ExecutionView

FEW = 3
"""Events of one kind about one task that are reported singly; more of them in a row are counted."""

Sentence = Callable[[Event, Mapping[str, Any]], str]


def describe_events(events: Iterable[Event]) -> list[str]:
    lines: list[str] = []
    for (kind, name), group in groupby(events, key=lambda event: (event.kind, event.node)):
        sentence = _SENTENCES.get(kind)
        if sentence is None:
            continue
        same = list(group)
        if len(same) > FEW and kind in _COUNTED:
            lines.append(f"{display_name(name)} {_COUNTED[kind]} ({len(same):,} times)")
        else:
            lines += [_described(sentence, event) for event in same]
        lines += _next_wait(event_data(same[-1]))
    return lines


def _described(sentence: Sentence, event: Event) -> str:
    data = event_data(event)
    hand = by_hand(data)
    return f"{sentence(event, data)}, {hand}" if hand else sentence(event, data)


def _next_wait(data: Mapping[str, Any]) -> list[str]:
    """Describe where the program continued, if it did so in the same commit."""
    then = data.get("then")
    return (
        [f"line {then.get('line', '?')}: waits for {then.get('awaits')}"] if isinstance(then, Mapping) else []
    )


def _suspended(event: Event, data: Mapping[str, Any]) -> str:
    return f"line {data.get('line', '?')}: waits for {event.node or 'something'}"


def _completed(event: Event, data: Mapping[str, Any]) -> str:
    attempt = data.get("attempt", 1)
    again = f" (attempt {attempt})" if attempt != 1 else ""
    started = data.get("started_at")
    took = f" in {span(event.at - started)}" if isinstance(started, float | int) else ""
    return f"{display_name(event.node)} completed{took}{again}"


def _failed(event: Event, data: Mapping[str, Any]) -> str:
    return f"{display_name(event.node)} failed: {error_text(data.get('error'))}"


def _retrying(event: Event, data: Mapping[str, Any]) -> str:
    due = data.get("retry_at")
    left = f" in {countdown(due - event.at)}" if isinstance(due, float | int) else ""
    said = f"{display_name(event.node)} failed: {error_text(data.get('error'))}"
    return f"{said}; attempt {data.get('attempt', 1) + 1} follows{left}"


def _timer(event: Event, data: Mapping[str, Any]) -> str:
    awaited = "request" if data.get("request") else "signal"
    return f"{awaited} {event.node} did not arrive in time" if event.node else "a timer fired"


def _answered(event: Event, data: Mapping[str, Any]) -> str:
    refusal = data.get("error")
    return (
        f"request {event.node} refused: {error_text(refusal)}"
        if refusal
        else f"request {event.node} answered"
    )


def _child_ended(event: Event, data: Mapping[str, Any]) -> str:
    message = error_text(data.get("error"))
    return f"workflow {event.node} failed: {message}" if message else f"workflow {event.node} completed"


def _tags(_event: Event, data: Mapping[str, Any]) -> str:
    return f"tags: {changed_tags(data)}"


def _version(_event: Event, data: Mapping[str, Any]) -> str:
    return f"goes on with version {data.get('to')} (was {data.get('from')})"


def _cancel(_event: Event, data: Mapping[str, Any]) -> str:
    reason = data.get("reason")
    return f"asked to end: {reason}" if reason else "asked to end"


_SENTENCES: dict[str, Sentence] = {
    "Suspended": _suspended,
    "TaskStarted": lambda event, data: f"{display_name(event.node)} is running",
    "TaskCompleted": _completed,
    "TaskFailed": _failed,
    "TaskRetrying": _retrying,
    "TaskRequeued": lambda event, data: f"{display_name(event.node)} is offered again",
    "TaskCancelled": lambda event, data: f"{display_name(event.node)} was cancelled",
    "TaskHandedOver": lambda event, data: (
        f"{display_name(event.node)} continues as execution {data.get('execution', '')}"
    ),
    "TimerFired": _timer,
    "SignalReceived": lambda event, data: f"signal {event.node} received",
    "RequestReceived": lambda event, data: f"request {event.node} received",
    "RequestAnswered": _answered,
    "ChildStarted": lambda event, data: (
        f"workflow {event.node} started: execution {data.get('execution', '')}"
    ),
    "ChildEnded": _child_ended,
    "TagsChanged": _tags,
    "VersionChanged": _version,
    "CancelRequested": _cancel,
}

_COUNTED = {
    "TaskStarted": "is running",
    "TaskCompleted": "completed",
    "TaskFailed": "failed",
    "TaskRetrying": "failed and is tried again",
    "TaskCancelled": "was cancelled",
}


class Following(Protocol):
    client: WorkflowApi
    execution: str
    reports_events: bool
    """True if it reports events in plain lines while it runs."""

    async def poll(self) -> None:
        """Read the execution at little cost."""

    async def look(self, *, complete: bool = False) -> None: ...

    def draw(self, console: Console) -> RenderableType:
        """Draw the latest state."""

    def new_lines(self) -> list[str]:
        """Return what happened since the last call."""


REPORTED_TYPES = ("approval", "wait", "publish")
"""Nodes that wait for people or other systems, or publish. For a graph, plain lines report only these."""


class GraphFollowing:
    def __init__(self, client: WorkflowApi, plan: Plan, execution: str, command: Command) -> None:
        self.client = client
        self.execution = execution
        self.plan = plan
        self.command = command
        self.reports_events = any(node.type in REPORTED_TYPES for node in plan.nodes.values())
        self._described: set[str] = set()
        self._published = PublishedLines()
        self._progress = Progress(client, plan, execution)
        self._seen: Snapshot | None = None
        self._view: TreeView | None = None

    async def poll(self) -> None:
        self._seen = await self._progress.poll()

    async def look(self, *, complete: bool = False) -> None:
        self._seen = await self._progress.look(complete=complete)

    def draw(self, console: Console) -> RenderableType:
        self._view = self._view or TreeView(self.plan, console, self.command)
        return self._view.draw(self._seen) if self._seen is not None else ""

    def new_lines(self) -> list[str]:
        steps = (
            next_steps(self._seen.activities, self.command, self.execution) if self._seen is not None else []
        )
        lines = [f"{intro} {line}" for intro, line in steps]
        unseen = [line for line in lines if line not in self._described]
        self._described = set(lines)
        published = self._published.new(self._seen.published) if self._seen is not None else []
        return [*published, *unseen]


class ScriptFollowing:
    reports_events = True

    def __init__(
        self, client: WorkflowApi, source: SourceText | None, view: ExecutionView, command: Command
    ) -> None:
        self.client = client
        self.execution = view.id
        self.source = source
        self.command = command
        self._progress = ScriptProgress(client, view.id, view.seq)
        self._seen: ScriptMoment | None = None
        self._view: ScriptView | None = None
        self._described: set[str] = set()
        self._published = PublishedLines()

    async def poll(self) -> None:
        self._seen = await self._progress.poll()

    async def look(self, *, complete: bool = False) -> None:
        self._seen = await self._progress.look(complete=complete)

    def draw(self, console: Console) -> RenderableType:
        self._view = self._view or ScriptView(self.source, console, self.command)
        return self._view.draw(self._seen) if self._seen is not None else ""

    def new_lines(self) -> list[str]:
        pending = self._seen.pending if self._seen is not None else ()
        signals = [each.name for each in pending if each.kind == "signal" and not each.received]
        sending = [f"send it: {self.command.signal(self.execution, name)}" for name in signals]
        requests = [each.name for each in pending if each.kind == "request" and not each.received]
        sending += [f"ask it: {self.command.short('ask', self.execution, name)}" for name in requests]
        activities = self._seen.activities if self._seen is not None else {}
        steps = next_program_steps(activities, self.command, self.execution)
        sending += [f"{intro} {line}" for intro, line in steps]
        unseen = [line for line in sending if line not in self._described]
        self._described = set(sending)
        published = self._published.new(self._seen.published) if self._seen is not None else []
        return [*describe_events(self._progress.take_events()), *published, *unseen]


async def following(client: WorkflowApi, view: ExecutionView, command: Command) -> Following:
    if view.kind == "graph":
        program = await client.definitions.by_hash(view.definition)
        return GraphFollowing(client, program.plan, view.id, command)
    return ScriptFollowing(client, await stored_source(client, view), view, command)


NODE_LOG = "dalsegno.log"
"""The logger to which the engine writes the log lines of nodes and tasks: execution, node, message."""
PROGRAM = "script"
"""Stands for the node in log lines of the program itself."""


class Screen(Protocol):
    live: bool
    """True if it shows progress while the execution runs."""

    def begin(self, view: ExecutionView, following: Following) -> None: ...

    def show(self, following: Following) -> None: ...

    def end(self, view: ExecutionView) -> None: ...

    def say(self, message: str) -> None:
        """Print a line that stays."""


class Silence:
    live = False

    def begin(self, view: ExecutionView, following: Following) -> None: ...

    def show(self, following: Following) -> None: ...

    def end(self, view: ExecutionView) -> None: ...

    def say(self, message: str) -> None: ...


class PlainLines:
    """The screen for logs and pipes."""

    def __init__(self, console: Console, verb: str | None = None) -> None:
        """``verb``: what is done with the execution, if it is neither started nor resumed."""
        self._console = console
        self._verb = verb
        self.live = False

    def begin(self, view: ExecutionView, following: Following) -> None:
        if view.state not in ENDED:
            verb = self._verb or ("started " if view.seq <= 1 else "resumed ")
            version = f" v{view.version}" if view.version else ""
            self.say(f"{verb} {view.id} ({view.workflow}{version})")
            self.live = following.reports_events

    def show(self, following: Following) -> None:
        for line in following.new_lines():
            self.say(f"  {line}")

    def end(self, view: ExecutionView) -> None:
        if view.state in ENDED and view.ended_at is not None:
            took = span(view.ended_at - view.created_at)
            self.say(f"finished {view.id} {view.state} after {took}")

    def say(self, message: str) -> None:
        self._console.print(message, markup=False, soft_wrap=True)


class LivePicture:
    """The screen for terminals: redrawn in place until the execution ends. The last picture stays."""

    live = True

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop")

    def begin(self, view: ExecutionView, following: Following) -> None:
        self._live.start()

    def show(self, following: Following) -> None:
        if self._live.is_started:
            self._live.update(following.draw(self._console), refresh=True)

    def end(self, view: ExecutionView) -> None:
        if self._live.is_started:
            self._live.stop()

    def say(self, message: str) -> None:
        self._console.print(message, markup=False, soft_wrap=True)


def choose_screen(*, quiet: bool, as_json: bool = False, verb: str | None = None) -> Screen:
    """Return the screen. With JSON output there is a live view only if stdout is not the same terminal."""
    console = stderr()
    if quiet or (as_json and (sys.stdout.isatty() or not console.is_terminal)):
        return Silence()
    if console.is_terminal and not console.is_dumb_terminal:
        return LivePicture(console)
    return PlainLines(console, verb)


class ScreenLog(logging.Handler):
    """Shows log lines of nodes and warnings of the engine above the live view."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == NODE_LOG and isinstance(record.args, tuple):
            _, node, message = record.args
            self._screen.say(str(message) if node == PROGRAM else f"{node}: {message}")
        else:
            serious = "error: " if record.levelno >= logging.ERROR else ""
            self._screen.say(serious + record.getMessage())


def log_to(screen: Screen) -> None:
    """Send the package's log to the screen; nothing of it goes to stdout."""
    logger = logging.getLogger("dalsegno")
    logger.handlers[:] = [ScreenLog(screen)]
    logger.propagate = False
    logger.setLevel(logging.WARNING)
    logging.getLogger(NODE_LOG).setLevel(logging.INFO)
