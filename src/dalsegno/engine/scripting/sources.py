"""Scripts on their way into the store: compiled, and refused with all their errors at once."""

from __future__ import annotations

from collections.abc import Sequence

from dalsegno import lang
from dalsegno.errors import UsageError
from dalsegno.lang import Finding, FlowProgram


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
    """Raises FlowSyntaxError or InvalidScript; nothing is stored of a script that has errors."""
    program = lang.compile(source, name)
    errors = [finding for finding in lang.validate(source) if finding.severity == "error"]
    if errors:
        raise InvalidScript(program.name, errors)
    return program
