"""``debug``: reads the turns of an execution, and commands from a terminal or a pipe."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Iterator
from contextlib import AsyncExitStack, contextmanager

from msgspec.structs import replace

from dalsegno.cli.debugger.display import TurnDisplay, as_object
from dalsegno.cli.debugger.live_turn import run_again
from dalsegno.cli.debugger.session import COMMANDS, Session, WrongCommand
from dalsegno.cli.errors import Refusal
from dalsegno.cli.next_command import short_path
from dalsegno.cli.output import emit, several, stdout
from dalsegno.cli.target.target import Target, WorkflowApi, find_execution, reached
from dalsegno.cli.views.source import stored_source
from dalsegno.core.scripts.turn_view import TurnSummary, TurnView
from dalsegno.engine.client import Client
from dalsegno.engine.journal.turn_again import TurnMaterial, prepare
from dalsegno.errors import DalSegnoError
from dalsegno.handle import all_turns
from dalsegno.model.execution import SCRIPTED, ExecutionView

PROMPT = "(debug) "
NOT_KEPT = "It ended before its first await, or its workflow keeps no turns: see the setting `journal` of the workflow."


class TurnReader:
    """One execution's turns, read on demand. The connection stays open between two commands."""

    def __init__(self, where: Target, named: str) -> None:
        self._where = where
        self._named = named
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()

    @contextmanager
    def opened(self) -> Iterator[TurnReader]:
        with self._runner:
            try:
                self._runner.run(self._open())
                yield self
            finally:
                self._runner.run(self._stack.aclose())

    async def _open(self) -> None:
        self.client: WorkflowApi = await self._stack.enter_async_context(reached(self._where))
        self.view: ExecutionView = await self.client.status(await find_execution(self.client, self._named))
        if self.view.kind not in SCRIPTED:
            raise Refusal(
                f"execution {self.view.id} is of a {self.view.kind}, which has no turns",
                f"See its nodes: {self._where.command.line('show', self.view.id)}",
            )
        self.turns: list[TurnSummary] = await all_turns(self.client, self.view.id)
        self.source = await stored_source(self.client, self.view)

    def turn(self, number: int) -> TurnView:
        view = self._runner.run(self.client.turn_view(self.view.id, number))
        file = self.source.file if self.source is not None else ""
        if view.missing and not view.functions and file:
            return replace(view, missing=f"{view.missing}; give the code with --app {short_path(file)}")
        return view

    def material(self, number: int | None) -> TurnMaterial:
        """Return what runs a turn again; None: the last one."""
        if not isinstance(self.client, Client):
            raise Refusal(
                "--live runs a turn in this process, from the store itself",
                "Give --store instead of --server.",
            )
        work = prepare(self.client.recorded, self.client.seals, self.view.id, number)
        return self._runner.run(work)

    def blob(self, material: TurnMaterial, name: str) -> bytes:
        return self._runner.run(_awaited(material.read_blob(name)))


def debug_execution(where: Target, named: str, turn: int | None, *, live: bool, json: bool) -> int:
    """Debug an execution, and return the exit code. Commands are read unless a turn or JSON is asked for."""
    with TurnReader(where, named).opened() as recording:
        if json and turn is None:
            emit({"execution": recording.view.id, "turns": [as_object(one) for one in recording.turns]})
            return 0
        if not recording.turns:
            raise Refusal(f"no turns of execution {recording.view.id} are kept", NOT_KEPT)
        display = TurnDisplay(stdout(), recording.source, recording.turns)
        if live:
            return _run_again(recording, display, turn)
        if turn is not None:
            view = recording.turn(turn)
            emit(as_object(view)) if json else display.turn(view)
            return 0
        return _converse(recording, display)


def _run_again(recording: TurnReader, display: TurnDisplay, turn: int | None) -> int:
    material = recording.material(turn)
    run_again(material, display, read_line, lambda name: recording.blob(material, name))
    return 0


def _converse(recording: TurnReader, display: TurnDisplay) -> int:
    """Read commands until the user leaves, or the input ends."""
    session = Session(recording.turns, recording.turn, display)
    view = recording.view
    count = several(len(recording.turns), "turn")
    display.note(f"{view.workflow}@{view.version}  {view.id}  {view.state}, {count}", "")
    display.note("help lists the commands")
    session.show()
    if sys.stdin.isatty():
        prepare_terminal()
    while not session.is_over:
        line = read_line()
        if line is None:
            break
        try:
            session.execute(line)
        except WrongCommand as error:
            display.note(str(error), "yellow")
        except DalSegnoError as error:
            display.note(str(error), "red")
    return 0


def read_line() -> str | None:
    """Return the next command; None at the end of the input. Only a terminal gets a prompt."""
    if not sys.stdin.isatty():
        line = sys.stdin.readline()
        return line or None
    try:
        return input(PROMPT)
    except EOFError:
        print()
        return None
    except KeyboardInterrupt:
        print()
        return ""


def prepare_terminal() -> None:
    """Give the prompt a history and the names of commands, where the platform has them."""
    try:
        import readline  # noqa: PLC0415 - not everywhere, and only for a terminal
    except ImportError:
        return
    names = sorted(name for command in COMMANDS for name in command.names if len(name) > 1)

    def complete(text: str, state: int) -> str | None:
        found = [name for name in names if name.startswith(text)]
        return found[state] if state < len(found) else None

    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")


async def _awaited(work: Awaitable[bytes]) -> bytes:
    return await work
