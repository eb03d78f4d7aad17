"""Source text of a deployed script or Python workflow: excerpts around a line, and stacks of errors.

The text is that of the deployed version. Nothing is compiled or imported. A stack shows the user's own lines, the
innermost first.
"""

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

from dalsegno.cli.output import Signs
from dalsegno.cli.target.target import WorkflowApi
from dalsegno.core.scripts.source_text import SourceText, source_text
from dalsegno.model.execution import SCRIPTED, ExecutionView


async def stored_source(client: WorkflowApi, view: ExecutionView) -> SourceText | None:
    """Return the source text; None for a graph, or for a task that runs on its own."""
    if view.kind not in SCRIPTED:
        return None
    definition = await client.stack.archive.definition_by_hash(view.definition)
    return source_text(definition) if definition is not None else None


def excerpt(
    source: SourceText, line: int, signs: Signs, *, around: int = 2, style: str = "bold"
) -> list[Text]:
    """Return numbered lines with the given one marked; empty if the text does not have it."""
    rows = _dedented(source.around(line, around, around))
    digits = max((len(str(number)) for number, _ in rows), default=0)
    return [_row(number, text, number == line, digits, signs, style) for number, text in rows]


def _row(number: int, text: str, here: bool, digits: int, signs: Signs, style: str) -> Text:
    mark = signs.here if here else " " * len(signs.here)
    return Text.assemble(
        (f"  {mark} ", "bold cyan" if style == "bold" else style),
        (f"{number:>{digits}} {signs.gutter} ", "" if here else "dim"),
        (text, style if here else "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )


def _dedented(rows: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Remove the indentation that all lines share."""
    indents = [len(text) - len(text.lstrip()) for _, text in rows if text.strip()]
    shared = min(indents, default=0)
    return [(number, text[shared:]) for number, text in rows]


SHOWN = 12
"""Places shown of a stack; repeated places, as in a recursion, are shown once."""

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
    """Return the number of callers that the error does not name: of a deep recursion it keeps the inner ones."""
    found = _LEFT_OUT.fullmatch(str((error.get("stack") or ("",))[-1]))
    return int(found["count"]) if found else 0


def print_stack(console: Console, error: Mapping[str, Any], source: SourceText | None) -> None:
    frames = frames_of(error)
    runs = [(frame, len(list(same))) for frame, same in groupby(frames)]
    for frame, times in runs[:SHOWN]:
        place = f"{_short(frame.file)}:{frame.line}"
        console.print(Text.assemble(("  at ", "dim"), frame.name, ("  " + place, "dim")), soft_wrap=True)
        text = _stack_text(frame, source).strip()
        if text:
            console.print(Text(f"       {text}"), soft_wrap=not console.is_terminal, no_wrap=True)
        if times > 1:
            console.print(Text(f"       … {times} times", "dim"))
    more = sum(times for _, times in runs[SHOWN:]) + left_out(error)
    if more:
        console.print(Text(f"  and {more} more caller{'s' if more > 1 else ''}", "dim"))


def _stack_text(frame: StackFrame, source: SourceText | None) -> str:
    """Return the line as it was deployed, if that is known: the file may have changed since."""
    if source is not None and source.file in ("", frame.file):
        found = source.line(frame.line)
        if found or not source.file:
            return found
    return linecache.getline(frame.file, frame.line)


def _short(file: str) -> str:
    """Return the path relative to the current directory, if that is shorter."""
    if not os.path.isabs(file):  # noqa: PTH117 - a path is only one of the things it may be
        return file
    relative = os.path.relpath(file)
    return min(relative, file, key=len)
