"""Collection of findings: every check reports here and continues, so that all problems are returned together."""

from __future__ import annotations

import json
from collections.abc import Collection
from difflib import get_close_matches

from dalsegno.errors import Finding
from dalsegno.lang.runtime.limits import Meter

SCHEMA_RULES = frozenset(("bad-form", "bad-input-schema"))
MAX_COMPARISONS = 50_000
"""Words compared for suggestions, over the whole document: a fraction of a second."""


def pointer_to(base: str, *steps: str | int) -> str:
    """Extend ``base`` by steps, escaped according to RFC 6901."""
    return base + "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in steps)


def quoted(value: object, limit: int = 60) -> str:
    """Format a value of the document for a message: short, and on one line."""
    text = value if isinstance(value, str) else repr(value)
    text = " ".join(text[: limit + 1].split())
    return f"'{text[:limit]}…'" if len(text) > limit else f"'{text}'"


def kind_of(value: object) -> str:
    """Return the JSON name of a value's type."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "text"
    return "a list" if isinstance(value, list) else "an object"


def unquoted(value: object) -> str:
    """Return the end of a sentence on a value that must be text: without quotes, ``true`` is a boolean."""
    if value is not None and not isinstance(value, bool | int | float):
        return f", not {kind_of(value)}"
    text = json.dumps(value)
    return f'; without quotes, YAML and JSON read {text} as {kind_of(value)}: write "{text}"'


YES_AND_NO = ("yes", "no", "on", "off", "y", "n")


def no_boolean(value: object) -> str:
    """Return a hint for a text that is a boolean in YAML 1.1 only; else nothing."""
    if not isinstance(value, str) or value.lower() not in YES_AND_NO:
        return ""
    meant = "true" if value.lower() in ("yes", "on", "y") else "false"
    return f" Here {quoted(value)} is text, as in YAML 1.2: write {meant}."


class Report:
    """The findings so far. Suggestions are cached: a misspelt type in 10,000 nodes is looked up once."""

    def __init__(self, *, stored: bool = False, meter: Meter | None = None) -> None:
        """``stored``: a definition from the store still loads when the rules for schemas have become stricter since.

        ``meter``: a light one where expensive checks must run elsewhere.
        """
        self.is_stored = stored
        self.meter = meter
        self.provided: frozenset[str] = frozenset()
        """Names of values that the context brings, whichever nodes have run."""
        self.findings: list[Finding] = []
        self._places: set[tuple[str, str]] = set()
        self._closest: dict[tuple[str, float, int], str | None] = {}
        self._comparisons_left = MAX_COMPARISONS
        self.failed = False

    def error(self, pointer: str, rule: str, message: str) -> None:
        if self.is_stored and rule in SCHEMA_RULES:
            return
        self.failed = True
        self._add(Finding(pointer, rule, message))

    def warn(self, pointer: str, rule: str, message: str) -> None:
        self._add(Finding(pointer, rule, message, "warning"))

    def has_error_at(self, pointer: str) -> bool:
        return (pointer, "error") in self._places

    def warnings(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == "warning")

    def sorted(self) -> list[Finding]:
        """Return errors before warnings, each in the order of the checks."""
        return sorted(self.findings, key=lambda finding: finding.severity != "error")

    def closest(self, word: str, candidates: Collection[str], similarity: float = 0.6) -> str | None:
        """Return the candidate most similar to ``word``; None after a large document has used up its comparisons."""
        key = (word, similarity, len(candidates))
        if key not in self._closest:
            self._comparisons_left -= len(candidates)
            affordable = self._comparisons_left >= 0
            close = (
                get_close_matches(word[:100], list(candidates), n=1, cutoff=similarity) if affordable else []
            )
            self._closest[key] = close[0] if close else None
        return self._closest[key]

    def suggest(self, word: str, candidates: Collection[str]) -> str:
        """Return ``; did you mean 'x'?`` or an empty string."""
        close = self.closest(word, candidates)
        return f"; did you mean '{close}'?" if close else ""

    def _add(self, finding: Finding) -> None:
        self._places.add((finding.pointer, finding.severity))
        self.findings.append(finding)
