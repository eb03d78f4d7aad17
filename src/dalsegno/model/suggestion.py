"""Error messages for unknown names: a suggestion and the known names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

LISTED = 10


def did_you_mean(word: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """Return ``; did you mean 'x'?`` or nothing. ``likeness``: how alike two words must be, up to 1."""
    close = get_close_matches(word[:100], list(known), n=1, cutoff=likeness)
    return f"; did you mean '{close[0]}'?" if close else ""


def listed(names: Sequence[str], most: int = LISTED) -> str:
    """Return ``'a', 'b'``, and how many more there are."""
    shown = ", ".join(f"'{name}'" for name in names[:most])
    return f"{shown} … and {len(names) - most:,} more" if len(names) > most else shown


def no_such_workflow(name: str, known: Sequence[str]) -> str:
    """Return the error message; ``known`` are the deployed workflows."""
    meant = did_you_mean(name, known) or f"; deployed here: {listed(known) or 'none yet'}"
    return f"no workflow is named '{name}'{meant}"


def no_such_schedule(name: str, known: Sequence[str]) -> str:
    meant = did_you_mean(name, known) or f"; there are: {listed(known) or 'none yet'}"
    return f"there is no schedule '{name}'{meant}"
