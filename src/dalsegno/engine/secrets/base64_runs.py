"""Finds what may be base64 in a text, and decodes it: there may be an address inside that a server sent back."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable

import re2

_SIGNS = "[A-Za-z0-9+/_-]"
_BREAK = r"(?:\r?\n|\\+r?\\*n)"
"""Between lines, also as JSON writes it."""
_RUN = re2.compile(rf"{_SIGNS}{{12,}}(?:{_BREAK}{_SIGNS}{{4,}})*={{0,2}}")
_TWINS = str.maketrans("-_", "+/", "\r\n=")
_BREAKS = re.compile(r"\\+[rn]")
_NESTED = 2
"""Base64 inside of base64 is looked at, and not what is inside of that."""

Judge = Callable[[str], str | None]
"""What to write in place of a text that holds something; None where it holds nothing."""


def without_hidden(text: str, judge: Judge, depth: int = _NESTED) -> str:
    """The text with every run replaced that holds something: of such a run nothing can be kept."""
    replaced: str = _RUN.sub(lambda run: found_in(run.group(), judge, depth) or run.group(), text)
    return replaced


def first_hidden(text: str, judge: Judge, depth: int = _NESTED) -> str | None:
    for run in _RUN.finditer(text):
        found = found_in(run.group(), judge, depth)
        if found is not None:
            return found
    return None


def found_in(run: str, judge: Judge, depth: int = _NESTED) -> str | None:
    """A run may begin with signs that are not part of it: one of four places is the right one."""
    signs = (_BREAKS.sub("", run) if "\\" in run else run).translate(_TWINS)
    for skipped in range(4):
        part = signs[skipped:]
        left = len(part) % 4
        # A group of one sign holds nothing; those of two and three lack what was stripped.
        part = part[:-1] if left == 1 else part + "=" * (-len(part) % 4)
        decoded = base64.b64decode(part).decode(errors="replace")
        found = judge(decoded)
        if found is None and depth > 1:
            found = first_hidden(decoded, judge, depth - 1)
        if found is not None:
            return found
    return None
