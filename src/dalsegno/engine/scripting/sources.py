"""Scripts on their way into the store: compiled, and refused with all their errors at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dalsegno import lang
from dalsegno.errors import InvalidInput, UsageError
from dalsegno.graph.workflow_limit import front_matter_limit
from dalsegno.lang import Finding, FlowProgram, FlowSyntaxError
from dalsegno.lang.errors import caret_excerpt
from dalsegno.lang.python import PythonProgram
from dalsegno.lang.script.front_matter import split_front_matter
from dalsegno.lang.script.parsing import Parsed, parse_program
from dalsegno.model.definition import part_hash, script_name_problems

LONGEST_SHOWN = 100


class InvalidScript(UsageError):
    """A script that is a program, but cannot mean what it says; carries every finding."""

    code = "DS-183"

    def __init__(self, name: str, findings: Sequence[Finding]) -> None:
        self.name = name
        self.findings = tuple(findings)
        noun = "error" if len(self.findings) == 1 else "errors"
        told = [
            f"line {one.line}, column {one.column}: {one.message}\n{one.excerpt}" for one in self.findings
        ]
        super().__init__(f"script '{name}' has {len(self.findings)} {noun}:\n" + "\n".join(told))


def compile_checked(source: str, name: str | None = None) -> FlowProgram:
    """Raises FlowSyntaxError, InvalidScript, or InvalidInput for a ``name`` that cannot be one; nothing is stored of a
    script that has errors."""
    findings, program = examine(source, name)
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        raise InvalidScript(program.name, errors)
    return program


def definition_hash(code: FlowProgram | PythonProgram) -> str:
    """What names a program in a store: its content, and of a script its name, which its source need not say. The same
    source deployed under two names is two definitions; each runs under its own, with what it is allowed."""
    return code.hash if isinstance(code, PythonProgram) else part_hash(code.name, code.source)


def examine(source: str, name: str | None = None) -> tuple[list[Finding], FlowProgram]:
    """What `check_script` finds and what `compile` makes, of one parse. Raises FlowSyntaxError, and InvalidInput for a
    name that cannot be one."""
    parsed = parse_program(source, name)
    program = lang.compile(source, name, parsed)
    if problems := script_name_problems(program.name):
        raise InvalidInput(
            f"{program.name[:LONGEST_SHOWN]!r} cannot be a script's name: {' '.join(problems)}"
        )
    return check_script(source, parsed=parsed), program


def check_script(
    source: str, tasks: Iterable[str] | None = None, parsed: Parsed | None = None
) -> list[Finding]:
    """Everything that can be said about a script, in the order of the source: the language's findings, and those about
    what its front matter asks of the engine."""
    findings = lang.validate(source, tasks, parsed)
    try:
        front_matter, _ = split_front_matter(source)
    except FlowSyntaxError:
        return findings  # which say so
    findings += _schema_errors(front_matter, source)
    findings += _limit_errors(front_matter, source)
    return sorted(findings, key=lambda finding: (finding.line, finding.column))


def _schema_errors(front_matter: Mapping[str, Any], source: str) -> list[Finding]:
    """The ``input_schema`` is checked where it is deployed, not at each start."""
    schema = front_matter.get("input_schema")
    if not schema:
        return []
    from dalsegno.graph.input_schema import schema_problems  # noqa: PLC0415 - only scripts with one need it

    line = _line_of("input_schema", source)
    excerpt = caret_excerpt(source, line, 1)
    return [
        Finding("input-schema", "error", f"input_schema{pointer}: {message}", line, 1, excerpt)
        for pointer, message in schema_problems(schema)
    ]


def _limit_errors(front_matter: Mapping[str, Any], source: str) -> list[Finding]:
    """So is the ``concurrency``."""
    try:
        front_matter_limit(front_matter, str(front_matter.get("name", "")))
    except InvalidInput as error:
        line = _line_of("concurrency", source)
        return [Finding("bad-concurrency", "error", str(error), line, 1, caret_excerpt(source, line, 1))]
    return []


def _line_of(key: str, source: str) -> int:
    return next((number for number, text in enumerate(source.split("\n"), 1) if key in text), 1)
