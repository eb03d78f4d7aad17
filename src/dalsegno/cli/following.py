"""One execution being followed, whatever its kind: how it is looked at, drawn, and told in plain lines."""

from __future__ import annotations

from typing import Protocol

from rich.console import Console, RenderableType

from dalsegno.cli.narration import narrate
from dalsegno.cli.progress import Progress, Snapshot
from dalsegno.cli.result import Command
from dalsegno.cli.script_progress import ScriptMoment, ScriptProgress
from dalsegno.cli.script_view import ScriptView
from dalsegno.cli.source_text import SourceText, stored_source
from dalsegno.cli.tree import TreeView
from dalsegno.engine.client import Client
from dalsegno.graph.plan import Plan
from dalsegno.model.execution import ExecutionView


class Following(Protocol):
    client: Client
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


class GraphFollowing:
    narrates = False

    def __init__(self, client: Client, plan: Plan, execution: str) -> None:
        self.client = client
        self.execution = execution
        self.plan = plan
        self._progress = Progress(client, plan, execution)
        self._seen: Snapshot | None = None
        self._view: TreeView | None = None

    async def glance(self) -> None:
        self._seen = await self._progress.glance()

    async def look(self, *, complete: bool = False) -> None:
        self._seen = await self._progress.look(complete=complete)

    def draw(self, console: Console) -> RenderableType:
        self._view = self._view or TreeView(self.plan, console)
        return self._view.draw(self._seen) if self._seen is not None else ""

    def told(self) -> list[str]:
        return []


class ScriptFollowing:
    narrates = True

    def __init__(
        self, client: Client, source: SourceText | None, view: ExecutionView, command: Command
    ) -> None:
        self.client = client
        self.execution = view.id
        self.source = source
        self.command = command
        self._progress = ScriptProgress(client, view.id, view.seq)
        self._seen: ScriptMoment | None = None
        self._view: ScriptView | None = None

    async def glance(self) -> None:
        self._seen = await self._progress.glance()

    async def look(self, *, complete: bool = False) -> None:
        self._seen = await self._progress.look(complete=complete)

    def draw(self, console: Console) -> RenderableType:
        self._view = self._view or ScriptView(self.source, console, self.command)
        return self._view.draw(self._seen) if self._seen is not None else ""

    def told(self) -> list[str]:
        return narrate(self._progress.take_news())


async def following(client: Client, view: ExecutionView, command: Command) -> Following:
    if view.kind == "graph":
        program = await client.definitions.by_hash(view.definition)
        return GraphFollowing(client, program.plan, view.id)
    return ScriptFollowing(client, await stored_source(client, view), view, command)
