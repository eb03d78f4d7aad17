"""Escape sequences of strings and template literals."""

from __future__ import annotations

import re

from dalsegno.lang.errors import ExpressionError

_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": "", "\r": ""}
_ESCAPE = re.compile(r"\\(u\{[0-9a-fA-F]{1,6}\}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")


class _BadEscape(Exception):
    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


def _expand(match: re.Match[str]) -> str:
    body = match.group(1)
    if len(body) == 1:
        if body in "ux":
            message = f"'\\{body}' needs hexadecimal digits (\\u0041, \\u{{1F600}}, \\x41)"
            raise _BadEscape(message, match.start())
        return _SIMPLE.get(body, body)
    number = int(body[1:].strip("{}"), 16)
    if number > 0x10FFFF:
        message = f"'\\{body}' is beyond the last Unicode character (\\u{{10FFFF}})"
        raise _BadEscape(message, match.start())
    return chr(number)


def unescape(text: str, source: str, offset: int) -> str:
    """Return ``text``, which begins at ``offset`` of the source, with its escapes expanded.

    Pairs of ``\\u`` surrogates become one character.
    """
    if "\\" in text:
        try:
            text = _ESCAPE.sub(_expand, text)
        except _BadEscape as problem:
            raise ExpressionError.at(str(problem), source, offset + problem.position) from None
    if _SURROGATE.search(text):
        try:
            text = text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            message = "half a surrogate pair is not a character: write both halves, or \\u{…}"
            raise ExpressionError.at(message, source, offset) from None
    return text


def is_unicode(text: str) -> bool:
    """Return whether the text has no lone surrogates, so that every Unicode encoding can represent it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
