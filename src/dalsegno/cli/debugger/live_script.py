"""One turn of a script, line by line: the machine runs one instruction at a time and pauses at each new line."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dalsegno.cli.debugger.display import TurnDisplay, value_text
from dalsegno.cli.debugger.session import WrongCommand
from dalsegno.core.scripts.turn_view import FrameView, TurnView, bounded, frame_views
from dalsegno.engine.scripts.advance import Job, follow
from dalsegno.lang import Machine
from dalsegno.lang.runtime.machine_state import MachineState

BUDGET = 1
"""Instructions between two looks at the line."""
ANY_DEPTH = 1_000_000

_PART = re.compile(r"\.?(?P<name>[A-Za-z_$][\w$]*)|\[(?P<index>\d+)\]")

HELP = (
    ("s, step", "to the next line, also into functions"),
    ("n, next", "to the next line of this function"),
    ("r, return", "to the function that called this one"),
    ("c, continue", "to a breakpoint, or to the end of the turn"),
    ("b, break [LINE]", "set a breakpoint, or list them"),
    ("p NAME", "a variable, or a part of it: order.items[0]"),
    ("v, vars", "the variables"),
    ("w, where", "the running functions"),
    ("l, list", "source around the line"),
    ("q, quit", "leave"),
)


@dataclass(slots=True)
class Goal:
    """Where to stop next."""

    depth: int = ANY_DEPTH
    only_breakpoints: bool = False


class ScriptStepper:
    """Runs a turn and asks for commands where it stops."""

    def __init__(
        self,
        machine: Machine,
        job: Job,
        display: TurnDisplay,
        read_command: Callable[[], str | None],
        read_blob: Callable[[str], bytes],
    ) -> None:
        self.machine = machine
        self.job = job
        self.display = display
        self.was_left = False
        self._read_command = read_command
        self._read_blob = read_blob
        self._breakpoints: set[int] = set()
        self._goal = Goal()
        self._shown: MachineState | None = machine.state() if machine.status == "suspended" else None
        self._last = "step"

    def run_turn(self) -> None:
        """Run to the end of the turn, or until the user leaves."""
        place: tuple[int, int] | None = None
        while not self.was_left and self._advance():
            if self.machine.status != "paused" or self.machine.missing:
                continue
            here = self._place()
            if here != place and self._is_goal(here):
                self._stop()
            place = here

    def _advance(self) -> bool:
        """Run one instruction. Return False at the end of the turn."""
        machine = self.machine
        if machine.missing:
            machine.provide({name: self._read_blob(name) for name in machine.missing})
        if machine.status == "paused":
            machine.resume({}, now=self.job.now, budget=BUDGET)
            return True
        if machine.status != "suspended":
            return False
        stops = self.job.stops
        follow(machine, self.job, BUDGET)
        return self.job.stops > stops or machine.status != "suspended"

    def _place(self) -> tuple[int, int]:
        """Return the number of calls in progress, and the line."""
        return len(self.machine.frames), self.machine.line

    def _functions(self) -> tuple[FrameView, ...]:
        return frame_views(self._shown, self.machine.state(), self._source)

    def _is_goal(self, here: tuple[int, int]) -> bool:
        depth, line = here
        if line in self._breakpoints:
            return True
        return not self._goal.only_breakpoints and depth <= self._goal.depth

    # -- commands ---------------------------------------------------------------------------------------------

    def _stop(self) -> None:
        view = self._view()
        self.display.changes(view)
        self.display.excerpt(self.machine.line, 0)
        self._shown = self.machine.state()
        while True:
            line = self._read_command()
            if line is None:
                self.was_left = True
                return
            try:
                if self._execute(line.strip() or self._last):
                    return
            except WrongCommand as error:
                self.display.note(str(error), "yellow")

    def _execute(self, line: str) -> bool:
        """Carry out a command. Return whether the machine is to run on."""
        name, _, argument = line.partition(" ")
        depth = self._place()[0]
        goals = {
            "step": Goal(),
            "next": Goal(depth),
            "return": Goal(depth - 1),
            "continue": Goal(only_breakpoints=True),
        }
        goal = next((goals[full] for full in goals if name in (full, full[0])), None)
        if goal is not None:
            self._goal, self._last = goal, line
            return True
        self._look(name, argument.strip())
        return self.was_left

    def _look(self, name: str, argument: str) -> None:
        match name:
            case "b" | "break":
                self._set_breakpoint(argument)
            case "p" | "print":
                self._print(argument)
            case "v" | "vars":
                self.display.variables(self._view())
            case "w" | "where":
                self.display.where(self._view())
            case "l" | "list":
                self.display.excerpt(self.machine.line, 5)
            case "h" | "help" | "?":
                for usage, text in HELP:
                    self.display.note(f"  {usage:<16}  {text}", "")
            case "q" | "quit" | "exit":
                self.was_left = True
            case _:
                raise WrongCommand(f"there is no command '{name}'; help lists them")

    def _set_breakpoint(self, argument: str) -> None:
        if not argument:
            lines = ", ".join(map(str, sorted(self._breakpoints)))
            self.display.note(f"breakpoints at {lines}" if lines else "there are no breakpoints")
        elif not argument.isdecimal() or not self._source(int(argument)).strip():
            raise WrongCommand("give the number of a line that has code")
        else:
            self._breakpoints.add(int(argument))

    def _print(self, path: str) -> None:
        variables = self.machine.variables()
        self.display.note(value_at(variables, path), "")

    # -- what is shown ----------------------------------------------------------------------------------------

    def _view(self) -> TurnView:
        line = self.machine.line
        return TurnView(
            self.job.version + 1,
            self.job.now,
            "suspended",
            line,
            self._source(line),
            functions=self._functions(),
        )

    def _source(self, line: int) -> str:
        return self.display.source.line(line) if self.display.source is not None else ""


def value_at(variables: dict[str, Any], path: str) -> str:
    """Return the text of a variable, or of a part of it such as ``order.items[0]``."""
    parts = list(_PART.finditer(path))
    if not parts or "".join(part.group() for part in parts) != path or parts[0]["name"] not in variables:
        raise WrongCommand(f"there is no variable '{path}'; vars lists them")
    value = variables[parts[0]["name"]]
    for part in parts[1:]:
        key = part["name"] if part["name"] is not None else int(part["index"])
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            raise WrongCommand(f"'{path[: part.start()]}' has no {part.group()}") from None
    return value_text(bounded(value))
