"""What is shown on stderr while an execution runs: a live tree on a terminal, two plain lines elsewhere, or nothing."""

from __future__ import annotations

import logging
import sys
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.markup import escape

from dalsegno.cli.output import STYLES, signs_for, span, stderr
from dalsegno.cli.progress import Snapshot
from dalsegno.cli.tree import TreeView
from dalsegno.graph.plan import Plan
from dalsegno.model.execution import ENDED, ExecutionView

NODE_LOG = "dalsegno.log"
"""Where the engine writes what nodes log: execution, node, message."""


class Screen(Protocol):
    live: bool
    """Whether it wants to be shown snapshots."""

    def begin(self, view: ExecutionView, plan: Plan) -> None: ...

    def show(self, snapshot: Snapshot) -> None: ...

    def end(self, view: ExecutionView) -> None: ...

    def say(self, message: str) -> None:
        """A line that stays."""


class Silence:
    live = False

    def begin(self, view: ExecutionView, plan: Plan) -> None: ...

    def show(self, snapshot: Snapshot) -> None: ...

    def end(self, view: ExecutionView) -> None: ...

    def say(self, message: str) -> None: ...


class PlainLines:
    """For logs and pipes."""

    live = False

    def __init__(self, console: Console) -> None:
        self._console = console

    def begin(self, view: ExecutionView, plan: Plan) -> None:
        if view.state not in ENDED:
            verb = "started " if view.seq <= 1 else "resumed "
            self.say(f"{verb} {view.id} ({view.workflow} v{view.version})")

    def show(self, snapshot: Snapshot) -> None: ...

    def end(self, view: ExecutionView) -> None:
        if view.state in ENDED and view.ended_at is not None:
            took = span(view.ended_at - view.created_at)
            self.say(f"finished {view.id} {view.state} after {took}")

    def say(self, message: str) -> None:
        self._console.print(message, markup=False, soft_wrap=True)


class LiveTree:
    """Redrawn in place until the execution ends; its last picture stays."""

    live = True

    def __init__(self, console: Console) -> None:
        self._console = console
        self._view: TreeView | None = None
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop")

    def begin(self, view: ExecutionView, plan: Plan) -> None:
        self._view = TreeView(plan, self._console)
        self._live.start()

    def show(self, snapshot: Snapshot) -> None:
        if self._view is not None and self._live.is_started:
            self._live.update(self._view.draw(snapshot), refresh=True)

    def end(self, view: ExecutionView) -> None:
        if self._live.is_started:
            self._live.stop()

    def say(self, message: str) -> None:
        self._console.print(message, markup=False, soft_wrap=True)


def choose_screen(*, quiet: bool, as_json: bool = False) -> Screen:
    """Beside JSON there is a live view only if the JSON goes elsewhere than to the same terminal."""
    console = stderr()
    if quiet or (as_json and (sys.stdout.isatty() or not console.is_terminal)):
        return Silence()
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveTree(console)
    return PlainLines(console)


class ScreenLog(logging.Handler):
    """Log lines of nodes and warnings of the engine, above the live view."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == NODE_LOG and isinstance(record.args, tuple):
            _, node, message = record.args
            self._screen.say(f"{node}: {message}")
        else:
            serious = "error: " if record.levelno >= logging.ERROR else ""
            self._screen.say(serious + record.getMessage())


def log_to(screen: Screen) -> None:
    """The package's own log goes to the screen; nothing of it reaches stdout."""
    logger = logging.getLogger("dalsegno")
    logger.handlers[:] = [ScreenLog(screen)]
    logger.propagate = False
    logger.setLevel(logging.WARNING)
    logging.getLogger(NODE_LOG).setLevel(logging.INFO)


def state_text(console: Console, state: str) -> str:
    return f"[{STYLES[state]}]{escape(signs_for(console).states[state])} {state}[/]"
