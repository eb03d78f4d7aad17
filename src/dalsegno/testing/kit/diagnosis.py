"""Descriptions of workflows that do not progress: position, awaited events, and errors of the engine."""

from __future__ import annotations

import logging
from pathlib import Path

from dalsegno.core.diagnosis import Wait
from dalsegno.engine.client import Client
from dalsegno.engine.scripts.programs import ScriptProgram
from dalsegno.errors import DalSegnoError
from dalsegno.lang.python import PythonProgram

logger = logging.getLogger("dalsegno")

MOST_COMPLAINTS = 5


class Stuck(AssertionError):
    """A workflow that the test waits for cannot continue, or takes too long."""


class Complaints(logging.Handler):
    """Errors that the engine logs during a test. Workflows may fail, the engine may not."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []
        self.setFormatter(logging.Formatter("%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != "dalsegno.log" and len(self.lines) < MOST_COMPLAINTS:
            self.lines.append(self.format(record))

    def listen(self) -> None:
        logger.addHandler(self)

    def leave(self) -> None:
        logger.removeHandler(self)


class Explainer:
    def __init__(self, client: Client, engine_errors: Complaints, files: dict[str, Path]) -> None:
        self.client = client
        self.engine_errors = engine_errors
        self.files = files
        """The files of definitions, by content hash."""

    async def program(self, definition: str) -> ScriptProgram | None:
        try:
            return await self.client.definitions.script(definition)
        except DalSegnoError:
            return None

    async def place(self, definition: str, line: int) -> str:
        """Return ``file:line``, which editors can open."""
        program = await self.program(definition)
        if program is None or not line:
            return ""
        return f"{self._file(program)}:{line}"

    def _file(self, program: ScriptProgram) -> str:
        known = self.files.get(program.definition.hash)
        if known is None and isinstance(program.code, PythonProgram):
            known = Path(program.code.source.file)
        if known is None:
            return f"{program.definition.name}.flow"
        here = Path.cwd()
        return str(known.relative_to(here) if known.is_relative_to(here) else known)

    async def explain(self, execution: str) -> str:
        """Describe in a few lines the position of an execution and what it waits for."""
        view = await self.client.status(execution)
        lines = [f"execution {execution} of '{view.workflow}' is {view.state}"]
        lines += await self._standing(execution, view.definition)
        if self.engine_errors.lines:
            lines.append("  the engine complained:")
            lines += [f"    {line}" for text in self.engine_errors.lines for line in text.splitlines()[-12:]]
        return "\n".join(lines)

    async def _standing(self, execution: str, definition: str) -> list[str]:
        try:
            picture = await self.client.picture(execution)
        except DalSegnoError as error:
            return [f"  its state cannot be shown: {error}"]
        if picture is None:
            return [f"  {wait.sentence}" for wait in await self.client.why(execution)]
        place = await self.place(definition, picture.line)
        lines = [f"  at {place}: {picture.source}"]
        return lines + [f"    {_sentence(thing)}" for thing in picture.things]


def _sentence(thing: Wait) -> str:
    sentence = thing.sentence
    if thing.kind == "signal" and thing.subject == "signal":
        sentence = f"{sentence}; send it with handle.signal({thing.node!r}, …)"
    if thing.kind == "signal" and thing.subject == "request":
        sentence = f"{sentence}; send it with handle.ask({thing.node!r}, …)"
    return f"{sentence} (× {thing.count})" if thing.count > 1 else sentence
