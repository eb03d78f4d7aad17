"""What is shown on stderr while an execution runs: a live picture on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.live import Live
from rich.markup import escape

from dalsegno.cli.output import STYLES, signs_for, span, stderr
from dalsegno.model.execution import ENDED, ExecutionView

if TYPE_CHECKING:
    from dalsegno.cli.following import Following

NODE_LOG = "dalsegno.log"
"""Where the engine writes what nodes and tasks log: execution, node, message."""
PROGRAM = "script"
"""What stands for the node where the program itself logs."""


class Screen(Protocol):
    live: bool
    """Whether it wants to be shown what happens on the way."""

    def begin(self, view: ExecutionView, following: Following) -> None: ...

    def show(self, following: Following) -> None: ...

    def end(self, view: ExecutionView) -> None: ...

    def say(self, message: str) -> None:
        """A line that stays."""


class Silence:
    live = False

    def begin(self, view: ExecutionView, following: Following) -> None: ...

    def show(self, following: Following) -> None: ...

    def end(self, view: ExecutionView) -> None: ...

    def say(self, message: str) -> None: ...


class PlainLines:
    """For logs and pipes."""

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
            self.live = following.narrates

    def show(self, following: Following) -> None:
        for line in following.told():
            self.say(f"  {line}")

    def end(self, view: ExecutionView) -> None:
        if view.state in ENDED and view.ended_at is not None:
            took = span(view.ended_at - view.created_at)
            self.say(f"finished {view.id} {view.state} after {took}")

    def say(self, message: str) -> None:
        self._console.print(message, markup=False, soft_wrap=True)


class LivePicture:
    """Redrawn in place until the execution ends; its last picture stays."""

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
    """Beside JSON there is a live view only if the JSON goes elsewhere than to the same terminal."""
    console = stderr()
    if quiet or (as_json and (sys.stdout.isatty() or not console.is_terminal)):
        return Silence()
    if console.is_terminal and not console.is_dumb_terminal:
        return LivePicture(console)
    return PlainLines(console, verb)


class ScreenLog(logging.Handler):
    """Log lines of nodes and warnings of the engine, above the live view."""

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
    """The package's own log goes to the screen; nothing of it reaches stdout."""
    logger = logging.getLogger("dalsegno")
    logger.handlers[:] = [ScreenLog(screen)]
    logger.propagate = False
    logger.setLevel(logging.WARNING)
    logging.getLogger(NODE_LOG).setLevel(logging.INFO)


def state_text(console: Console, state: str) -> str:
    return f"[{STYLES[state]}]{escape(signs_for(console).states[state])} {state}[/]"
