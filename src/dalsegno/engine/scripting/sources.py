"""Scripts on their way into the store: compiled, and refused with all their errors at once."""

from __future__ import annotations

from collections.abc import Sequence

from dalsegno import lang
from dalsegno.errors import InvalidInput, UsageError
from dalsegno.lang import Finding, FlowProgram
from dalsegno.lang.errors import caret_excerpt
from dalsegno.model.definition import script_name_problems

LONGEST_SHOWN = 100


class InvalidScript(UsageError):
    """A script that is a program, but cannot mean what it says; carries every finding."""

    code = "DS-183"

    def __init__(self, name: str, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        noun = "error" if len(self.findings) == 1 else "errors"
        told = [
            f"line {one.line}, column {one.column}: {one.message}\n{one.excerpt}" for one in self.findings
        ]
        super().__init__(f"script '{name}' has {len(self.findings)} {noun}:\n" + "\n".join(told))


def compile_checked(source: str, name: str | None = None) -> FlowProgram:
    """Raises FlowSyntaxError, InvalidScript, or InvalidInput for a ``name`` that cannot be one; nothing is stored of a
    script that has errors."""
    program = lang.compile(source, name)
    if problems := script_name_problems(program.name):
        raise InvalidInput(
            f"{program.name[:LONGEST_SHOWN]!r} cannot be a script's name: {' '.join(problems)}"
        )
    errors = [finding for finding in lang.validate(source) if finding.severity == "error"]
    errors += _schema_errors(program, source)
    if errors:
        raise InvalidScript(program.name, errors)
    return program


def _schema_errors(program: FlowProgram, source: str) -> list[Finding]:
    """The front matter's ``input_schema`` is checked where it is deployed, not at each start."""
    schema = program.front_matter.get("input_schema")
    if not schema:
        return []
    from dalsegno.graph.input_schema import schema_problems  # noqa: PLC0415 - only scripts with one need it

    lines = source.split("\n")
    line = next((number for number, text in enumerate(lines, 1) if "input_schema" in text), 1)
    excerpt = caret_excerpt(source, line, 1)
    return [
        Finding("input-schema", "error", f"input_schema{pointer}: {message}", line, 1, excerpt)
        for pointer, message in schema_problems(schema)
    ]
