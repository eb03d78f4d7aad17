"""Scripts on their way into the store: compiled, and refused with all their errors at once."""

from __future__ import annotations

from collections.abc import Sequence

from dalsegno import lang
from dalsegno.errors import InvalidInput, UsageError
from dalsegno.lang import Finding, FlowProgram
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
    if errors:
        raise InvalidScript(program.name, errors)
    return program
