"""One execution being followed, whatever its kind: how it is looked at, drawn, and told in plain lines."""

from __future__ import annotations

from typing import Protocol

from rich.console import Console, RenderableType

from dalsegno.cli.asking import program_ways_on, ways_on
from dalsegno.cli.desk import Desk
from dalsegno.cli.narration import narrate
from dalsegno.cli.progress import Progress, Snapshot
from dalsegno.cli.result import Command
from dalsegno.cli.script_progress import ScriptMoment, ScriptProgress
from dalsegno.cli.script_view import ScriptView
from dalsegno.cli.source_text import SourceText, stored_source
from dalsegno.cli.tree import TreeView
from dalsegno.graph.plan import Plan
from dalsegno.model.execution import ExecutionView


class Following(Protocol):
    client: Desk
    execution: str
    narrates: bool
    """Whether it has something to tell in plain lines on its way."""

    async def glance(self) -> None:
        """A look that costs little."""

    async def look(self, *, complete: bool = False) -> None: ...

    def draw(self, console: Console) -> RenderableType:
        """What was seen last."""

    def told(self) -> list[str]:
        """What happened since it was last asked."""


WAITING_TYPES = ("approval", "wait")
"""Nodes that wait for people and systems: a pipe is told how they go on, and of graphs nothing else."""


class GraphFollowing:
    def __init__(self, client: Desk, plan: Plan, execution: str, command: Command) -> None:
        self.client = client
        self.execution = execution
        self.plan = plan
        self.command = command
        self.narrates = any(node.type in WAITING_TYPES for node in plan.nodes.values())
        self._told: set[str] = set()
        self._progress = Progress(client, plan, execution)
        self._seen: Snapshot | None = None
        self._view: TreeView | None = None

    async def glance(self) -> None:
        self._seen = await self._progress.glance()

    async def look(self, *, complete: bool = False) -> None:
        self._seen = await self._progress.look(complete=complete)

    def draw(self, console: Console) -> RenderableType:
        self._view = self._view or TreeView(self.plan, console, self.command)
        return self._view.draw(self._seen) if self._seen is not None else ""

    def told(self) -> list[str]:
        ways = ways_on(self._seen.activities, self.command, self.execution) if self._seen is not None else []
        lines = [f"{intro} {line}" for intro, line in ways]
        news = [line for line in lines if line not in self._told]
        self._told = set(lines)
        return news


class ScriptFollowing:
    narrates = True

    def __init__(
        self, client: Desk, source: SourceText | None, view: ExecutionView, command: Command
    ) -> None:
        self.client = client
        self.execution = view.id
        self.source = source
        self.command = command
        self._progress = ScriptProgress(client, view.id, view.seq)
        self._seen: ScriptMoment | None = None
        self._view: ScriptView | None = None
        self._told: set[str] = set()

    async def glance(self) -> None:
        self._seen = await self._progress.glance()

    async def look(self, *, complete: bool = False) -> None:
        self._seen = await self._progress.look(complete=complete)

    def draw(self, console: Console) -> RenderableType:
        self._view = self._view or ScriptView(self.source, console, self.command)
        return self._view.draw(self._seen) if self._seen is not None else ""

    def told(self) -> list[str]:
        pending = self._seen.pending if self._seen is not None else ()
        signals = [each.name for each in pending if each.kind == "signal" and not each.came]
        sending = [f"send it: {self.command.signal(self.execution, name)}" for name in signals]
        activities = self._seen.activities if self._seen is not None else {}
        ways = program_ways_on(activities, self.command, self.execution)
        sending += [f"{intro} {line}" for intro, line in ways]
        news = [line for line in sending if line not in self._told]
        self._told = set(sending)
        return [*narrate(self._progress.take_news()), *news]


async def following(client: Desk, view: ExecutionView, command: Command) -> Following:
    if view.kind == "graph":
        program = await client.definitions.by_hash(view.definition)
        return GraphFollowing(client, program.plan, view.id, command)
    return ScriptFollowing(client, await stored_source(client, view), view, command)
