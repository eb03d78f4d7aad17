"""Findings of validation, each with its position; and the table that turns offsets into positions."""

from __future__ import annotations

import difflib
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

from dalsegno.lang.errors import caret_excerpt

Severity = Literal["error", "warning"]

MAX_FINDINGS = 1_000
"""Maximum number of findings; the first ones are kept."""

ERRORS = frozenset(
    {
        "syntax",
        "undefined-variable",
        "const-assignment",
        "redeclaration",
        "stray-break",
        "argument-count",
        "unknown-option",
        "uncalled-main",
    }
)
WARNINGS = frozenset(
    {
        "unreachable-code",
        "unused-variable",
        "implicit-global",
        "hides-builtin",
        "sequential-async",
        "unknown-task",
        "forgotten-await",
        "leading-zero",
    }
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem of a script. Line and column count from 1; ``excerpt`` is the line with a caret under the column."""

    rule: str
    severity: Severity
    message: str
    line: int
    column: int
    excerpt: str = field(default="", compare=False, repr=False)

    def as_dict(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "severity": self.severity,
            "message": self.message,
            "line": self.line,
            "column": self.column,
            "excerpt": self.excerpt,
        }


class Report:
    """Collects findings by offset, and returns them in source order."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.lines = source.split("\n")
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line) + 1)
        self.noted: list[tuple[int, str, str]] = []
        self.suggestions_left = 20

    def note(self, rule: str, message: str, offset: int) -> None:
        self.noted.append((offset, rule, message))

    def suggest(self, name: str, candidates: Iterable[str]) -> str:
        """Return ``; did you mean …?`` if a name is similar.

        The number of searches is limited, because they are costly.
        """
        if self.suggestions_left == 0:
            return ""
        self.suggestions_left -= 1
        close = difflib.get_close_matches(name, list(islice(candidates, 2_000)), 1)
        return f"; did you mean '{close[0]}'?" if close else ""

    def line_of(self, offset: int) -> int:
        return bisect_right(self.starts, offset, hi=len(self.lines))

    def findings(self) -> list[Finding]:
        return [self._finding(*noted) for noted in sorted(set(self.noted))[:MAX_FINDINGS]]

    def _finding(self, offset: int, rule: str, message: str) -> Finding:
        line = self.line_of(offset)
        column = offset - self.starts[line - 1] + 1
        excerpt = caret_excerpt(self.lines[line - 1], 1, column)
        return Finding(rule, "error" if rule in ERRORS else "warning", message, line, column, excerpt)
