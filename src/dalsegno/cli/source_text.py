"""The text of a script or Python workflow as it was deployed, by line. Nothing is compiled or imported for it."""

from __future__ import annotations

from dataclasses import dataclass

from dalsegno.cli.desk import Desk
from dalsegno.lang import FlowProgram
from dalsegno.lang.python.program import stored_program
from dalsegno.model.definition import Definition
from dalsegno.model.execution import SCRIPTED, ExecutionView


@dataclass(frozen=True, slots=True)
class SourceText:
    file: str
    """Where it stood when it was deployed; a script does not tell."""
    first_line: int
    lines: tuple[str, ...]

    def line(self, number: int) -> str:
        """Empty outside of the text."""
        index = number - self.first_line
        return self.lines[index] if 0 <= index < len(self.lines) else ""

    def around(self, number: int, before: int = 2, after: int = 2) -> list[tuple[int, str]]:
        """Lines with their numbers; near an end of the text, more of the other side."""
        last = self.first_line + len(self.lines) - 1
        if not self.first_line <= number <= last:
            return []
        room = before + after + 1
        start = max(min(number - before, last - room + 1), self.first_line)
        return [(each, self.line(each)) for each in range(start, min(start + room, last + 1))]


def source_text(definition: Definition) -> SourceText | None:
    """None of a graph, whose text is no program."""
    if definition.kind == "script":
        return _text("", 1, FlowProgram.load(definition.source).source)
    if definition.kind == "python":
        stored = stored_program(definition.source)
        return _text(stored.file, stored.first_line, stored.text)
    return None


async def stored_source(client: Desk, view: ExecutionView) -> SourceText | None:
    """None where there is no program: a graph, or a task that runs on its own."""
    if view.kind not in SCRIPTED:
        return None
    definition = await client.stack.archive.definition_by_hash(view.definition)
    return source_text(definition) if definition is not None else None


def _text(file: str, first_line: int, text: str) -> SourceText:
    lines = text.rstrip().split("\n")
    return SourceText(file, first_line, tuple(line.rstrip().expandtabs(4) for line in lines))
