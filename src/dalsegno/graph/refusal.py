"""How the readers of text say no; it never leaves this package."""

from __future__ import annotations

from collections.abc import Sequence

from dalsegno.errors import Finding


class Refused(Exception):
    """The text cannot become data; ``rule`` is that of the first finding."""

    def __init__(self, rule: str, message: str, pointer: str = "") -> None:
        super().__init__(message)
        self.rule = rule
        self.findings: tuple[Finding, ...] = (Finding(pointer, rule, message),)

    @classmethod
    def because(cls, findings: Sequence[Finding]) -> Refused:
        refusal = cls(findings[0].rule, findings[0].message, findings[0].pointer)
        refusal.findings = tuple(findings)
        return refusal
