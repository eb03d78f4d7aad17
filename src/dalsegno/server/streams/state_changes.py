"""State changes of all executions, for overviews: best effort, unlike the history of one execution.

Commits of this process are sent at once. Starts and ends by other processes are found by a query every few seconds;
their pauses and resumptions are not. A slow listener receives the number of changes that were dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from msgspec import Struct

from dalsegno.errors import OperatorError
from dalsegno.model.effect import BeginExecution, CreateExecution, PauseExecution, ResumeExecution
from dalsegno.model.event import EventKind
from dalsegno.model.execution import ExecutionState, ExecutionView
from dalsegno.model.failure import Failure
from dalsegno.model.token import Lease
from dalsegno.model.transition import Applied, Transition
from dalsegno.ports.archive import Archive, ExecutionFilter
from dalsegno.ports.clock import Clock
from dalsegno.server.streams.execution_feed import ENDINGS, is_set_within

if TYPE_CHECKING:
    from dalsegno.engine.tracing import RemoteRun

logger = logging.getLogger("dalsegno.server")

WAITING = 1000
"""Changes that wait for one listener."""
REMEMBERED = 20_000
LOOK_EVERY = 2.0
LOOKED_AT = 500
"""Executions that one query returns at most."""
OVERLAP = 2.0
"""Seconds by which queries overlap: a commit becomes visible a little later than its timestamp."""

KINDS: dict[ExecutionState, EventKind] = {
    "PENDING": "ExecutionSubmitted",
    "RUNNING": "ExecutionStarted",
    "PAUSED": "ExecutionPaused",
    "COMPLETED": "ExecutionCompleted",
    "FAILED": "ExecutionFailed",
    "CANCELLED": "ExecutionCancelled",
}


class Change(Struct, frozen=True, gc=False):
    kind: EventKind
    execution: str
    workflow: str
    state: ExecutionState
    at: float


class Listener:
    """One open stream and its waiting changes."""

    def __init__(self, workflow: str | None) -> None:
        self.workflow = workflow
        self.waiting: deque[Change] = deque(maxlen=WAITING)
        self.lost = 0
        self.changed = asyncio.Event()

    def publish(self, change: Change) -> None:
        if self.workflow is None or self.workflow == change.workflow:
            self.lost += len(self.waiting) == WAITING
            self.waiting.append(change)
            self.changed.set()

    def take(self) -> tuple[list[Change], int]:
        batch, lost = list(self.waiting), self.lost
        self.waiting.clear()
        self.lost = 0
        self.changed.clear()
        return batch, lost


class Changes:
    """The listeners and the source of their changes, as an observer of the engine: see `engine.tracing.Observer`."""

    def __init__(self, archive: Archive, clock: Clock, closing: asyncio.Event) -> None:
        self.archive = archive
        self.clock = clock
        self.closing = closing
        self._listeners: list[Listener] = []
        self._unnamed: deque[tuple[str, EventKind, ExecutionState, float]] = deque(maxlen=REMEMBERED)
        self._names: OrderedDict[str, str] = OrderedDict()
        self._published: OrderedDict[tuple[str, EventKind], None] = OrderedDict()
        self._naming: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._since = 0.0
        """The time from which the next query searches."""

    async def open(self, workflow: str | None) -> Listener:
        """Return a listener that receives changes from now on, until it is closed."""
        await self._catch_up()
        listener = Listener(workflow)
        self._listeners.append(listener)
        if self._looking is None:
            self._since = self.clock.now()
            self._looking = asyncio.create_task(self._look_once())
        return listener

    def close(self, listener: Listener) -> None:
        self._listeners.remove(listener)

    async def listen(self, listener: Listener, patience: float) -> AsyncGenerator[tuple[list[Change], int]]:
        """Yield changes, with the number of dropped ones; nothing after ``patience`` seconds without a change. Ends
        when the server stops."""
        while not self.closing.is_set():
            await is_set_within(listener.changed, patience)
            yield listener.take()

    # -- this process -----------------------------------------------------------------------------------------

    def applied(self, transition: Transition, applied: Applied) -> None:
        if not self._listeners:
            return
        now = self.clock.now()
        for effect in transition.effects:
            match effect:
                case CreateExecution(execution, pending) if execution.kind != "schedule":
                    self._name(execution.id, execution.workflow)
                    state: ExecutionState = "PENDING" if pending else "RUNNING"
                    self._tell(Change(KINDS[state], execution.id, execution.workflow, state, now))
                case BeginExecution(in_line=""):
                    self._later(transition.execution, "ExecutionStarted", "RUNNING", now)
                case PauseExecution():
                    self._later(transition.execution, "ExecutionPaused", "PAUSED", now)
                case ResumeExecution():
                    self._later(transition.execution, "ExecutionResumed", "RUNNING", now)
                case _:
                    pass
        if applied.ended is not None:
            self._later(transition.execution, KINDS[applied.ended], applied.ended, now)

    def _name(self, execution: str, workflow: str) -> None:
        self._names[execution] = workflow
        if len(self._names) > REMEMBERED:
            self._names.popitem(last=False)

    def _later(self, execution: str, kind: EventKind, state: ExecutionState, at: float) -> None:
        """Send a change at once if the workflow's name is cached, otherwise after a lookup."""
        name = self._names.get(execution)
        if name is not None:
            self._tell(Change(kind, execution, name, state, at))
            return
        self._unnamed.append((execution, kind, state, at))
        if self._naming is None:
            self._naming = asyncio.create_task(self._look_up())

    async def _look_up(self) -> None:
        try:
            while self._unnamed:
                execution, kind, state, at = self._unnamed.popleft()
                view = await self.archive.outline(execution)
                if view is not None and view.kind != "schedule":
                    self._name(execution, view.workflow)
                    if kind in ENDINGS and view.created_at >= self._since - OVERLAP:
                        # The next query would report its start too late.
                        self._tell(_change(view, "RUNNING", view.created_at))
                    self._tell(Change(kind, execution, view.workflow, state, at))
        except OperatorError as error:
            logger.warning("state changes were not sent (%s)", error)
        finally:
            self._naming = None

    def _tell(self, change: Change) -> None:
        key = (change.execution, change.kind)
        repeatable = change.kind in ("ExecutionPaused", "ExecutionResumed")
        if not repeatable and key in self._published:
            return
        self._published[key] = None
        if len(self._published) > REMEMBERED:
            self._published.popitem(last=False)
        for listener in self._listeners:
            listener.publish(change)

    # -- other processes --------------------------------------------------------------------------------------

    async def _catch_up(self) -> None:
        """Bring the current listeners up to date before a new one is added: queries reach back a little and must
        not send earlier changes to the new listener."""
        try:
            await self._look(self.clock.now() - LOOK_EVERY - OVERLAP)
        except OperatorError as error:
            logger.warning("a stream may contain state changes from before it was opened (%s)", error)

    async def _look_once(self) -> None:
        try:
            while self._listeners and not await is_set_within(self.closing, LOOK_EVERY):
                now = self.clock.now()
                try:
                    await self._look(self._since - OVERLAP)
                except OperatorError as error:
                    logger.warning("cannot read state changes (%s); trying again", error)
                else:
                    self._since = now
        finally:
            self._looking = None
            for listener in self._listeners:
                listener.changed.set()

    async def _look(self, since: float) -> None:
        started = await self.archive.executions(ExecutionFilter(created_since=since), limit=LOOKED_AT)
        ended = await self.archive.executions(ExecutionFilter(ended_since=since), limit=LOOKED_AT)
        found = [_change(view, "RUNNING", view.created_at) for view in started if view.state != "PENDING"]
        found += [_change(view, view.state, view.ended_at or 0) for view in ended]
        for change in sorted(found, key=lambda change: (change.at, change.state != "RUNNING")):
            self._tell(change)

    # -- ignored notifications --------------------------------------------------------------------------------

    def began(self, lease: Lease) -> None:
        """Ignored: steps are in the history of their execution."""

    def stepped(self, lease: Lease, seconds: float) -> None:
        """Ignored: steps are in the history of their execution."""

    def committed(self, transitions: int, seconds: float) -> None:
        """Ignored: steps are in the history of their execution."""

    def remote(self, held: RemoteRun, failure: Failure | None, now: float) -> None:
        """Ignored: steps are in the history of their execution."""


def _change(view: ExecutionView, state: ExecutionState, at: float) -> Change:
    return Change(KINDS[state], view.id, view.workflow, state, at)
