"""What a misspelt word was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` or nothing."""
    close = get_close_matches(word[:100], list(known), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""
