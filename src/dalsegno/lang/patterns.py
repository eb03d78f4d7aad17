"""Regular expressions of users: always RE2, whose time is linear in the text."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import re2

from dalsegno.lang.errors import wrong_argument
from dalsegno.lang.values import Host

MAX_PATTERN = 1_000
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    return re2.compile(pattern, _OPTIONS)


def compile_pattern(pattern: str) -> Any:
    """The compiled pattern; a script error if it is too long or RE2 refuses it."""
    if len(pattern) > MAX_PATTERN:
        raise wrong_argument(f"the pattern is longer than {MAX_PATTERN} characters")
    try:
        return _compiled(pattern)
    except re2.error as problem:
        reason = problem.args[0] if problem.args else "unknown"
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise wrong_argument(f"bad regular expression '{pattern}': {text}") from None


def pattern_found(pattern: str, text: str, host: Host) -> bool:
    """Whether the pattern occurs anywhere in the text."""
    return first_match(pattern, text, host) is not None


def first_match(pattern: str, text: str, host: Host) -> Any:
    """RE2's match object, or None."""
    host.meter.work(len(text) // 8)
    try:
        return compile_pattern(pattern).search(text)
    except UnicodeEncodeError:
        raise wrong_argument(
            "the text or the pattern holds half a surrogate pair, which is no character"
        ) from None
