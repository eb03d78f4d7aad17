"""Source text of a deployed script or Python workflow, for people. Nothing is compiled or imported."""

from __future__ import annotations

from dataclasses import dataclass

from dalsegno.lang import FlowProgram
from dalsegno.lang.python.program import stored_program
from dalsegno.model.definition import Definition


@dataclass(frozen=True, slots=True)
class SourceText:
    file: str
    """Path of the file when it was deployed; empty for a script."""
    first_line: int
    lines: tuple[str, ...]

    def line(self, number: int) -> str:
        """Return a line; empty if it is out of range."""
        index = number - self.first_line
        return self.lines[index] if 0 <= index < len(self.lines) else ""

    def around(self, number: int, before: int = 2, after: int = 2) -> list[tuple[int, str]]:
        """Return lines with their numbers around ``number``; near an end of the text, more from the other side."""
        last = self.first_line + len(self.lines) - 1
        if not self.first_line <= number <= last:
            return []
        room = before + after + 1
        start = max(min(number - before, last - room + 1), self.first_line)
        return [(each, self.line(each)) for each in range(start, min(start + room, last + 1))]


def source_text(definition: Definition) -> SourceText | None:
    """Return the source text; None for a graph."""
    if definition.kind == "script":
        return _text("", 1, FlowProgram.load(definition.source).source)
    if definition.kind == "python":
        stored = stored_program(definition.source)
        return _text(stored.file, stored.first_line, stored.text)
    return None


def _text(file: str, first_line: int, text: str) -> SourceText:
    lines = text.rstrip().split("\n")
    return SourceText(file, first_line, tuple(line.rstrip().expandtabs(4) for line in lines))
