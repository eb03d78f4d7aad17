"""``replaceMatches()``: every match of an RE2 pattern replaced by a text that may refer to its groups."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeAlias

from dalsegno.lang.errors import ScriptThrow, wrong_argument
from dalsegno.lang.limits import BYTES_PER_OBJECT, Meter
from dalsegno.lang.patterns import charge_search, compile_pattern, encoded
from dalsegno.lang.values import Host

MAX_REFERENCES = 1_000
"""Groups that one replacement may refer to."""
_SHOWN = 100
_PER_MATCH = 24
"""Units of work of one match, beyond its search."""
_RESCANNED = 512
"""Bytes that are one unit of work where each match may have to read the rest of the text."""

_REFERENCE = re.compile(r"(\\[0-7]{3})|\\([1-9][0-9]?)|\\g<(\w+)>|(\\.?)", re.DOTALL)
_STOPS = re.compile(r"(?:\\.|\[\^?(?:\\.|[^\]\\])+\]|[^\\\[\](){}*+?|^$])[*+]|[^*+{]*", re.DOTALL)
"""Patterns whose search never reads on behind the match: one character repeated, or nothing without a bound."""

_Part: TypeAlias = bytes | int
"""Text, or the number of a group."""


def replace_matches(host: Host, text: str, pattern: str, replacement: str) -> str:
    """``\\1`` in the replacement is the first group, ``\\g<name>`` the one of that name."""
    meter = host.meter
    compiled = compile_pattern(pattern, meter)
    data = encoded(text, meter)
    parts = _parts(compiled, replacement, meter)
    pieces: list[bytes] = []
    end = size = 0
    for found in _matches(compiled, data, meter, reads_on=_STOPS.fullmatch(pattern) is None):
        filled = [part if type(part) is bytes else found.group(part) or b"" for part in parts]
        size += found.start() - end + sum(map(len, filled))
        _check_size(meter, size, len(parts))
        pieces.append(data[end : found.start()])
        pieces.extend(filled)
        end = found.end()
    meter.allocate(size + len(data) - end, "replaceMatches()")
    pieces.append(data[end:])
    return meter.made(b"".join(pieces).decode("utf-8"), "replaceMatches()")


def _check_size(meter: Meter, size: int, parts: int) -> None:
    if size > meter.limits.result_bytes:
        meter.allocate(size, "replaceMatches()")
    meter.keep((parts + 1) * BYTES_PER_OBJECT, "replaceMatches()")


def _matches(compiled: Any, data: bytes, meter: Meter, *, reads_on: bool) -> Iterator[Any]:
    """One after the other; behind an empty one the search goes on at the next character."""
    charge_search(compiled, len(data), meter)
    position = 0
    while (found := compiled.search(data, position)) is not None:
        rest = len(data) - position
        meter.work(_PER_MATCH + (rest // _RESCANNED if reads_on else 0))
        yield found
        if position == len(data):
            return
        if found.end() == position:
            position += 1
            while position < len(data) and data[position] & 0xC0 == 0x80:
                position += 1
        else:
            position = found.end()


def _parts(compiled: Any, replacement: str, meter: Meter) -> list[_Part]:
    """The replacement, taken apart."""
    meter.search(len(replacement))
    if "\\" not in replacement:
        return [encoded(replacement, meter)]
    if replacement.count("\\") > MAX_REFERENCES:
        raise wrong_argument(
            f"replaceMatches(): the replacement holds more than {MAX_REFERENCES:,} backslashes"
        )
    parts: list[_Part] = []
    end = 0
    for found in _REFERENCE.finditer(replacement):
        if found.group(2) is None and found.group(3) is None:
            continue  # an escape, which stays in the text around it
        written = _unescaped(replacement[end : found.start()], replacement)
        parts += [encoded(written, meter), _group(compiled, found, replacement)]
        end = found.end()
    parts.append(encoded(_unescaped(replacement[end:], replacement), meter))
    return parts


def _unescaped(text: str, replacement: str) -> str:
    if "\\" not in text:
        return text
    try:
        return text.encode("latin-1", "backslashreplace").decode("unicode_escape")
    except UnicodeError:
        raise _bad(replacement) from None


def _group(compiled: Any, found: re.Match[str], replacement: str) -> int:
    name = found.group(2) or found.group(3)
    number = int(name) if name.isdecimal() and len(name) < 5 else compiled.groupindex.get(name, -1)
    if not 0 <= number <= compiled.groups:
        raise _bad(replacement)
    return int(number)


def _bad(replacement: str) -> ScriptThrow:
    shown = replacement if len(replacement) <= _SHOWN else f"{replacement[:_SHOWN]}…"
    return wrong_argument(f"replaceMatches(): bad replacement '{shown}'")
