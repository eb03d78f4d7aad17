"""One turn of a Python workflow under `pdb`.

The workflow's code between two awaits runs natively, as fragments that share the cells of the machine. So `pdb` stops
in them as in any function. What it does not know is added here: the async functions of the machine that are outside of
the native stack, and their variables that a fragment does not mention.

The debugger stops in user code only: in fragments, and in what they call, up to the first frame of this package.
"""

from __future__ import annotations

import linecache
import pdb  # noqa: T100 - it is the debugger that is offered here
import re
from collections.abc import Callable
from types import CodeType, FrameType, TracebackType
from typing import IO, Any

from dalsegno.lang.python import PythonMachine, PythonProgram
from dalsegno.lang.python.runtime.frames import Frame

PACKAGE = __name__.partition(".")[0]
ANY_DEPTH = 1_000_000
_FRAGMENT = re.compile(r"\)@\d+\(\)")


class TurnDebugger(pdb.Pdb):
    """`pdb` for one machine."""

    def __init__(
        self, machine: PythonMachine, stdin: IO[str] | None = None, stdout: IO[str] | None = None
    ) -> None:
        super().__init__(stdin=stdin, stdout=stdout)
        self.machine = machine
        self.was_left = False
        """True after `quit`: the turn did not come to its end."""
        self._codes = fragments_of(machine.program)
        self._most_depth = ANY_DEPTH
        """Calls of async functions in which it stops: ``next`` does not stop in those that the line calls."""
        self._least_line = 0
        self._enters_calls = True
        """Whether it stops in functions that a fragment calls: after ``step``, not after ``next``."""

    def run_turn(self, run: Callable[[], None]) -> None:
        """Run the turn, and stop at its first line of user code."""
        show_stored_text(self.machine.program)
        self.runcall(run)

    # -- where to stop ----------------------------------------------------------------------------------------

    def stop_here(self, frame: FrameType) -> bool:
        if not self._is_users(frame):
            return False
        if frame.f_code not in self._codes:
            return self._enters_calls and bool(super().stop_here(frame))
        if len(self.machine.frames) > self._most_depth or frame.f_lineno < self._least_line:
            return False
        return bool(super().stop_here(frame))

    def _is_users(self, frame: FrameType) -> bool:
        """Return whether the frame is a fragment, or was called by one without any of this package between."""
        found: FrameType | None = frame
        while found is not None:
            if found.f_code in self._codes:
                return True
            if str(found.f_globals.get("__name__", "")).partition(".")[0] == PACKAGE:
                return False
            found = found.f_back
        return False

    def user_call(self, frame: FrameType, argument_list: None) -> None:
        if frame.f_code not in self._codes:
            super().user_call(frame, argument_list)

    def user_return(self, frame: FrameType, return_value: Any) -> None:
        """Do not stop at the end of a fragment, which is none for the workflow's author."""
        if frame.f_code not in self._codes:
            super().user_return(frame, return_value)

    def set_step(self) -> None:
        self._go_on()
        super().set_step()

    def set_next(self, frame: FrameType) -> None:
        if frame.f_code in self._codes:
            self._go_on_in_fragments(len(self.machine.frames))
        else:
            self._go_on()
            super().set_next(frame)

    def set_until(self, frame: FrameType, lineno: int | None = None) -> None:
        if frame.f_code in self._codes:
            self._go_on_in_fragments(
                len(self.machine.frames), lineno if lineno is not None else frame.f_lineno + 1
            )
        else:
            self._go_on()
            super().set_until(frame, lineno)

    def set_return(self, frame: FrameType) -> None:
        if frame.f_code in self._codes:
            self._go_on_in_fragments(len(self.machine.frames) - 1)
        else:
            self._go_on()
            super().set_return(frame)

    def set_quit(self) -> None:
        """Leave the turn. The machine stops, so that the workflow's ``except`` and ``finally`` blocks do not run."""
        self.was_left = True
        if self.machine.status == "running":
            self.machine.status = "paused"
        super().set_quit()

    def _go_on_in_fragments(self, depth: int, line: int = 0) -> None:
        """Stop in the next fragment of an async function at most so deep: a statement may be several fragments."""
        super().set_step()
        self._most_depth, self._least_line, self._enters_calls = depth, line, False

    def _go_on(self) -> None:
        self._most_depth, self._least_line, self._enters_calls = ANY_DEPTH, 0, True

    # -- what is shown ----------------------------------------------------------------------------------------

    def setup(self, f: FrameType | None, tb: TracebackType | None) -> Any:
        done = super().setup(f, tb)
        if self.curframe is not None and self.curframe.f_code in self._codes:
            self.curframe_locals = self._variables(self.curframe)
        return done

    def _variables(self, frame: FrameType) -> dict[str, Any]:
        own = {name: value for name, value in frame.f_locals.items() if not name.startswith("@")}
        return self._top().variables() | own if self.machine.frames else own

    def default(self, line: str) -> None:
        """Execute a statement. What it assigns to a variable of the workflow is written to the variable's cell."""
        before = dict(self.curframe_locals)
        super().default(line)
        if self.curframe is None or self.curframe.f_code not in self._codes or not self.machine.frames:
            return
        frame = self._top()
        for name, cell in zip(frame.code.variables[: frame.code.own], frame.cells, strict=False):
            value = self.curframe_locals.get(name, cell)
            if value is not cell and (name not in before or before[name] is not value):
                cell.cell_contents = value

    def get_stack(
        self, f: FrameType | None, t: TracebackType | None
    ) -> tuple[list[tuple[FrameType, int]], int]:
        """Return the native stack from the fragment on, without the frames of this package."""
        stack, _ = super().get_stack(f, t)
        first = next((place for place, (frame, _) in enumerate(stack) if frame.f_code in self._codes), 0)
        own = [entry for entry in stack[first:] if self._is_users(entry[0])] or stack
        place = next((number for number, (frame, _) in enumerate(own) if frame is f), len(own) - 1)
        return own, place

    def print_stack_trace(self) -> None:
        """Print the async functions of the machine, which are not on the native stack, and then the native stack."""
        file = self.machine.program.stored.file
        for frame in self.machine.frames[:-1]:
            line = self.machine.line_of(frame)
            text = linecache.getline(file, line).strip()
            self.message(f"  {file}({line}){frame.code.name}()\n-> {text}")
        super().print_stack_trace()

    def format_stack_entry(self, frame_lineno: tuple[FrameType, int], lprefix: str = ": ") -> str:
        entry = super().format_stack_entry(frame_lineno, lprefix)
        if frame_lineno[0].f_code not in self._codes or not self.machine.frames:
            return entry
        return _FRAGMENT.sub(f"){self._top().code.name}()", entry, count=1)

    def _top(self) -> Frame:
        return self.machine.frames[-1]


def fragments_of(program: PythonProgram) -> frozenset[CodeType]:
    return frozenset(code for natives in program.natives for code in natives.fragments)


def show_stored_text(program: PythonProgram) -> None:
    """Let the debugger list the text of the version that runs, if the file does not have it any more."""
    source = program.source
    stored = [f"{line}\n" for line in source.text.splitlines()]
    first = source.first_line - 1
    current = linecache.getlines(source.file)
    if [line.rstrip() for line in current[first : first + len(stored)]] == [line.rstrip() for line in stored]:
        return
    lines = ["\n"] * first + stored
    linecache.cache[source.file] = (sum(map(len, lines)), None, lines, source.file)
