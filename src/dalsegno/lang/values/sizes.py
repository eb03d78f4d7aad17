"""The size of a value as JSON, computed before it is written.

A part that is referenced many times counts each time, as it is written each time; it is measured once.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dalsegno.lang.errors import ScriptThrow, limit_exceeded
from dalsegno.lang.runtime.limits import COPIED, MAX_NESTING, Meter
from dalsegno.lang.values.kinds import Value

_MARK = 1
"""A comma, a colon, a bracket or the shortest number. The estimate never exceeds the number of characters written."""

_encode = msgspec.json.encode

_FEW, SHORT = 64, 1_000
_CHUNK = 65_536
"""Characters encoded at a time to count their escapes."""


def is_small(value: Value) -> bool:
    """Return whether a list or object is obviously small: few parts, and short texts."""
    room = _FEW - len(value)
    waiting = [value]
    for container in waiting:  # the list grows during the loop
        if room < 0:
            return False
        if type(container) is dict:
            for key in container:
                if len(key) > SHORT:
                    return False
            container = container.values()
        for item in container:
            kind = type(item)
            if kind is str:
                if len(item) > SHORT:
                    return False
            elif kind is list or kind is dict:
                room -= 1 + len(item)
                waiting.append(item)
    return room >= 0


class Measure:
    """Measures the values that leave one evaluation, and charges its meter for the work."""

    __slots__ = ("known", "meter", "most", "texts", "what")

    def __init__(self, meter: Meter, what: str, most: int | None = None) -> None:
        self.meter = meter
        self.what = what
        self.most = meter.limits.allocated_bytes if most is None else most
        self.known: dict[int, int] = {}
        """The size of each list or object that holds others, by its identity."""
        self.texts: dict[int, int] = {}
        """The number of characters that escapes add to a long text, by its identity."""

    def __call__(self, value: Value) -> int:
        """Return the approximate number of characters.

        Raise if they exceed ``most`` or the allocation limit of one evaluation.
        """
        size = self.of(value, 0)
        if size > self.most:
            raise self.too_large(size)
        return size

    def of(self, value: Value, depth: int) -> int:
        kind = type(value)
        if kind is str:
            size = len(value) + 2 * _MARK
            return size if size > self.most else size + self.escapes([value])
        return self.container(value, depth) if kind is list or kind is dict else _MARK

    def container(self, value: Value, depth: int) -> int:
        known = self.known.get(id(value))
        if known is not None:
            return known
        if depth >= MAX_NESTING:
            raise limit_exceeded(f"{self.what} is nested deeper than {MAX_NESTING} levels")
        self.meter.work(len(value))
        size = 2 * _MARK + len(value) * (_MARK if type(value) is list else 4 * _MARK)
        texts: list[str] = []
        if type(value) is dict:
            texts = list(value)
            size += sum(map(len, texts))
        nested = False
        for item in value if type(value) is list else value.values():
            kind = type(item)
            if kind is str:
                size += len(item) + 2 * _MARK
                texts.append(item)
            elif kind is list or kind is dict:
                nested = True
                size += self.container(item, depth + 1)
            else:
                size += _MARK
        if size <= self.most and texts:
            size += self.escapes_in("".join(texts)) if size <= _CHUNK else self.escapes(texts)
        if size > self.most:
            raise self.too_large(size)
        if nested:
            self.known[id(value)] = size
        return size

    def escapes(self, texts: Sequence[str]) -> int:
        """Return the number of characters that escapes add to the texts: a control character is written as six."""
        if max(map(len, texts)) > SHORT:
            found = sum(self.escapes_in_long(text) for text in texts if len(text) > SHORT)
            texts = [text for text in texts if len(text) <= SHORT]
        else:
            found = 0
        for start in range(0, len(texts), _FEW):
            found += self.escapes_in("".join(texts[start : start + _FEW]))
        return found

    def escapes_in_long(self, text: str) -> int:
        known = self.texts.get(id(text))
        if known is None:
            chunks = [text[start : start + _CHUNK] for start in range(0, len(text), _CHUNK)]
            known = self.texts[id(text)] = sum(map(self.escapes_in, chunks))
        return known

    def escapes_in(self, text: str) -> int:
        length = len(text)
        if length >= COPIED:
            self.meter.compare(length)
        if text.isascii():
            return len(_encode(text)) - 2 - length
        plain = text.encode("ascii", "ignore").decode()
        return len(_encode(plain)) - 2 - len(plain)

    def too_large(self, size: int) -> ScriptThrow:
        limit = "result_bytes"
        if size > self.meter.limits.allocated_bytes:
            self.meter.exceed()
            limit = "allocated_bytes"
        return limit_exceeded(
            f"{self.what} would be more than {self.most:,} characters of JSON: keep large data elsewhere and pass a "
            f"reference, or raise Limits({limit}=…)"
        )
