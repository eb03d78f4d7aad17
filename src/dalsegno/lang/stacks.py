"""Stacks as errors tell them: frames as text, innermost first, and of a deep recursion only the inner ones."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

MOST_PLACES = 30
"""Frames that an error names."""


def shortened(places: Iterable[str], depth: int) -> tuple[str, ...]:
    """The first of these, and how many of the ``depth`` there are it leaves out; no more are asked for."""
    shown = tuple(islice(places, MOST_PLACES))
    return shown if depth <= MOST_PLACES else (*shown, f"… and {depth - MOST_PLACES} more")
