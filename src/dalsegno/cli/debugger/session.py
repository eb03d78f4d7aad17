"""A session over the recorded turns of one execution: commands that go from turn to turn and show them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dalsegno.cli.debugger.display import TurnDisplay
from dalsegno.core.scripts.turn_view import TurnSummary, TurnView

LISTED = 10
"""Lines and turns shown around the current one."""
KEPT_VIEWS = 500
"""Views that are kept in memory, so that going back shows them at once."""
FEW = 5
"""Lines around one that no turn stopped at."""

Read = Callable[[int], TurnView]
"""Returns a turn by its number."""


class WrongCommand(Exception):
    """A command that cannot be carried out; the message says why."""


@dataclass(frozen=True, slots=True)
class Command:
    names: tuple[str, ...]
    usage: str
    help: str
    run: Callable[[Session, str], None]
    repeats: bool = False
    """Whether an empty line repeats it."""


class Session:
    """Reads commands, and shows turns on the display. ``number`` is that of the current turn."""

    def __init__(
        self, turns: Sequence[TurnSummary], read: Read, display: TurnDisplay, number: int | None = None
    ) -> None:
        self.turns = list(turns)
        self.display = display
        self.breakpoints: list[int] = []
        self.is_over = False
        self.place = 0
        """The function whose variables are shown: 0 is the innermost."""
        self._read = read
        self._views: dict[int, TurnView] = {}
        self._numbers = [one.number for one in self.turns]
        self._index = self._numbers.index(number) if number is not None else 0
        self._last = ""

    @property
    def number(self) -> int:
        return self._numbers[self._index]

    @property
    def current(self) -> TurnView:
        return self.view(self.number)

    def view(self, number: int) -> TurnView:
        if number not in self._views:
            if len(self._views) >= KEPT_VIEWS:
                del self._views[next(iter(self._views))]
            self._views[number] = self._read(number)
        return self._views[number]

    def execute(self, line: str) -> None:
        """Carry out one line. An empty one repeats the last movement."""
        line = line.strip()
        if not line:
            line = self._last
        name, _, argument = line.partition(" ")
        if not name:
            return
        command = find(name)
        if command is None:
            raise WrongCommand(f"there is no command '{name}'; help lists them")
        self._last = line if command.repeats else ""
        command.run(self, argument.strip())

    # -- movement ---------------------------------------------------------------------------------------------

    def show(self) -> None:
        self.display.note("")
        self.display.turn(self.current)

    def move_to(self, index: int) -> None:
        self._index, self.place = index, 0
        self.show()

    def step(self, argument: str, direction: int) -> None:
        count = _number(argument, "a number of turns") if argument else 1
        index = min(max(self._index + direction * count, 0), len(self.turns) - 1)
        if index == self._index:
            raise WrongCommand(_at_end(direction))
        self.move_to(index)

    def go_to(self, argument: str) -> None:
        if argument in ("first", "last"):
            self.move_to(0 if argument == "first" else len(self.turns) - 1)
            return
        named = [
            place for place, one in enumerate(self.turns) if one.checkpoint and one.checkpoint == argument
        ]
        if named:
            self.move_to(named[-1])
            return
        if not argument.isdecimal():
            names = sorted({one.checkpoint for one in self.turns if one.checkpoint})
            known = f": {', '.join(names)}" if names else ""
            raise WrongCommand(f"give the number of a turn, first, last, or the name of a checkpoint{known}")
        number = int(argument)
        if number not in self._numbers:
            raise WrongCommand(f"turn {number} is not kept; kept: {self._numbers[0]} to {self._numbers[-1]}")
        self.move_to(self._numbers.index(number))

    def run_on(self, direction: int) -> None:
        """Go to the next turn that stopped at a breakpoint, or to the end."""
        for index in self._others(direction):
            if self._stop(self.turns[index]) in self.breakpoints:
                self.move_to(index)
                return
        end = len(self.turns) - 1 if direction > 0 else 0
        if end == self._index:
            raise WrongCommand(_at_end(direction))
        if self.breakpoints:
            self.display.note("no turn there stopped at a breakpoint")
        self.move_to(end)

    def _stop(self, turn: TurnSummary) -> int:
        """Return the line where a turn stopped, or failed."""
        return self.view(turn.number).line if turn.state == "failed" else turn.line

    def watch(self, name: str, direction: int) -> None:
        """Go to the next turn that changed a variable."""
        if not name:
            raise WrongCommand("give the name of a variable")
        for index in self._others(direction):
            if self.view(self._numbers[index]).changed(name):
                self.move_to(index)
                return
        where = "later" if direction > 0 else "earlier"
        raise WrongCommand(f"no {where} turn changed a variable '{name}'")

    def _others(self, direction: int) -> range:
        if direction > 0:
            return range(self._index + 1, len(self.turns))
        return range(self._index - 1, -1, -1)

    # -- breakpoints ------------------------------------------------------------------------------------------

    def set_breakpoint(self, argument: str) -> None:
        if not argument:
            lines = ", ".join(str(line) for line in sorted(self.breakpoints))
            self.display.note(f"breakpoints at {lines}" if lines else "there are no breakpoints")
            return
        line = _number(argument, "the number of a line")
        if line not in self.breakpoints:
            self.breakpoints.append(line)
        stops = sum(1 for one in self.turns if one.line == line)
        if stops:
            self.display.note(f"breakpoint at line {line}, where {stops} of {len(self.turns)} turns stopped")
            return
        near = sorted({one.line for one in self.turns if one.line}, key=lambda other: abs(other - line))[:FEW]
        known = ", ".join(map(str, sorted(near)))
        self.display.note(f"no turn stopped at line {line}; turns stop at awaits: {known}", "yellow")

    def delete_breakpoint(self, argument: str) -> None:
        if not argument:
            self.breakpoints.clear()
            return
        line = _number(argument, "the number of a line")
        if line not in self.breakpoints:
            raise WrongCommand(f"there is no breakpoint at line {line}")
        self.breakpoints.remove(line)

    # -- views ------------------------------------------------------------------------------------------------

    def list_source(self, argument: str) -> None:
        line = _number(argument, "the number of a line") if argument else self._line()
        if not line:
            raise WrongCommand("the line of this turn is not known; give one: list LINE")
        self.display.excerpt(line, LISTED // 2)

    def _line(self) -> int:
        functions = self.current.functions
        return functions[self.place].line if self.place < len(functions) and self.place else self.current.line

    def list_turns(self) -> None:
        start = max(min(self._index - LISTED // 2, len(self.turns) - LISTED), 0)
        self.display.list(self.number, self.turns[start : start + LISTED])

    def select(self, direction: int) -> None:
        """Select an outer (1) or inner (-1) function."""
        place = self.place + direction
        if not 0 <= place < len(self.current.functions):
            raise WrongCommand(
                "it is the outermost function" if direction > 0 else "it is the innermost function"
            )
        self.place = place
        self.display.where(self.current, place)

    def help(self) -> None:
        wide = max(len(command.usage) for command in COMMANDS)
        for command in COMMANDS:
            self.display.note(f"  {command.usage:<{wide}}  {command.help}", "")


def _number(argument: str, what: str) -> int:
    if not argument.isdecimal():
        raise WrongCommand(f"give {what}, not '{argument}'")
    return int(argument)


def _at_end(direction: int) -> str:
    return "this is the last turn" if direction > 0 else "this is the first turn that is kept"


def _quit(session: Session, _: str) -> None:
    session.is_over = True


COMMANDS = (
    Command(("n", "next"), "n, next [COUNT]", "one turn forwards", lambda s, a: s.step(a, 1), repeats=True),
    Command(("b", "back"), "b, back [COUNT]", "one turn backwards", lambda s, a: s.step(a, -1), repeats=True),
    Command(("g", "goto"), "g, goto TURN", "a turn: its number, a checkpoint, first or last", Session.go_to),
    Command(("break",), "break [LINE]", "set a breakpoint, or list them", Session.set_breakpoint),
    Command(("delete",), "delete [LINE]", "remove a breakpoint, or all", Session.delete_breakpoint),
    Command(
        ("c", "continue"),
        "c, continue",
        "forwards to a turn that stopped at a breakpoint",
        lambda s, _: s.run_on(1),
        repeats=True,
    ),
    Command(
        ("rc", "reverse-continue"),
        "rc, reverse-continue",
        "the same backwards",
        lambda s, _: s.run_on(-1),
        repeats=True,
    ),
    Command(
        ("watch",),
        "watch NAME",
        "forwards to a turn that changed a variable",
        lambda s, a: s.watch(a, 1),
        repeats=True,
    ),
    Command(("rwatch",), "rwatch NAME", "the same backwards", lambda s, a: s.watch(a, -1), repeats=True),
    Command(
        ("v", "vars", "p"),
        "v, vars [NAME]",
        "variables, or one at length",
        lambda s, a: s.display.variables(s.current, a, s.place),
    ),
    Command(
        ("w", "where"), "w, where", "the running functions", lambda s, _: s.display.where(s.current, s.place)
    ),
    Command(("up",), "up", "to the function that called this one", lambda s, _: s.select(1)),
    Command(("down",), "down", "back to the one that it called", lambda s, _: s.select(-1)),
    Command(("l", "list"), "l, list [LINE]", "source around the line", Session.list_source),
    Command(
        ("received",), "received", "the outcomes that it received", lambda s, _: s.display.received(s.current)
    ),
    Command(("asked",), "asked", "what it asked for", lambda s, _: s.display.asked(s.current)),
    Command(("t", "turns"), "t, turns", "turns around this one", lambda s, _: s.list_turns()),
    Command(("show",), "show", "this turn again", lambda s, _: s.show()),
    Command(("h", "help", "?"), "h, help", "these commands", lambda s, _: s.help()),
    Command(("q", "quit", "exit"), "q, quit", "leave", _quit),
)


def find(name: str) -> Command | None:
    """Return a command by its name."""
    return next((command for command in COMMANDS if name in command.names), None)
