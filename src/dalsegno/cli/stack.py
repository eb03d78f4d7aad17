"""Where in a script or Python workflow an error came from: the user's own lines, the innermost first."""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.text import Text

from dalsegno.cli.source_text import SourceText

SHOWN = 12
"""Places; one that repeats itself, as in a recursion, is told once."""

_FRAME = re.compile(r"(?P<name>.*) \((?P<file>.*):(?P<line>\d+)\)", re.DOTALL)
_LEFT_OUT = re.compile(r"… and (?P<count>\d+) more")


@dataclass(frozen=True, slots=True)
class StackFrame:
    name: str
    file: str
    """A path, or the name of a script."""
    line: int


def frames_of(error: Mapping[str, Any]) -> list[StackFrame]:
    matches = (_FRAME.fullmatch(str(each)) for each in error.get("stack") or ())
    return [StackFrame(found["name"], found["file"], int(found["line"])) for found in matches if found]


def left_out(error: Mapping[str, Any]) -> int:
    """Callers that the error itself does not name: of a deep recursion it keeps the inner ones."""
    found = _LEFT_OUT.fullmatch(str((error.get("stack") or ("",))[-1]))
    return int(found["count"]) if found else 0


def print_stack(console: Console, error: Mapping[str, Any], source: SourceText | None) -> None:
    frames = frames_of(error)
    runs = [(frame, len(list(same))) for frame, same in groupby(frames)]
    for frame, times in runs[:SHOWN]:
        place = f"{_short(frame.file)}:{frame.line}"
        console.print(Text.assemble(("  at ", "dim"), frame.name, ("  " + place, "dim")), soft_wrap=True)
        text = _text(frame, source).strip()
        if text:
            console.print(Text(f"       {text}"), soft_wrap=not console.is_terminal, no_wrap=True)
        if times > 1:
            console.print(Text(f"       … {times} times", "dim"))
    more = sum(times for _, times in runs[SHOWN:]) + left_out(error)
    if more:
        console.print(Text(f"  and {more} more caller{'s' if more > 1 else ''}", "dim"))


def _text(frame: StackFrame, source: SourceText | None) -> str:
    """As it was deployed, where that is known: the file may have changed since."""
    if source is not None and source.file in ("", frame.file):
        found = source.line(frame.line)
        if found or not source.file:
            return found
    return linecache.getline(frame.file, frame.line)


def _short(file: str) -> str:
    """Relative to the current directory, where that is shorter."""
    if not os.path.isabs(file):  # noqa: PTH117 - a path is only one of the things it may be
        return file
    relative = os.path.relpath(file)
    return min(relative, file, key=len)
