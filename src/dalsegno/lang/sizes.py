"""How large a value is as JSON, known before it is written.

A part that is referred to many times counts each time, as it will be written each time; it is measured once.
"""

from __future__ import annotations

from dalsegno.lang.errors import ScriptThrow, limit_exceeded
from dalsegno.lang.limits import MAX_NESTING, Meter
from dalsegno.lang.values import Value

_MARK = 1
"""A comma, a colon, a bracket or the shortest number: no value is written with fewer characters than are counted."""


_FEW, _SHORT = 64, 1_000


def is_small(value: Value) -> bool:
    """Whether a list or object is seen at a glance to be small: few parts, and short texts."""
    room = _FEW - len(value)
    waiting = [value]
    for container in waiting:  # grows on the way
        if room < 0:
            return False
        if type(container) is dict:
            for key in container:
                if len(key) > _SHORT:
                    return False
            container = container.values()
        for item in container:
            kind = type(item)
            if kind is str:
                if len(item) > _SHORT:
                    return False
            elif kind is list or kind is dict:
                room -= 1 + len(item)
                waiting.append(item)
    return room >= 0


class Measure:
    """Measures the values that leave one evaluation, and charges its meter for looking at them."""

    __slots__ = ("known", "meter", "most", "what")

    def __init__(self, meter: Meter, what: str, most: int | None = None) -> None:
        self.meter = meter
        self.what = what
        self.most = meter.limits.allocated_bytes if most is None else most
        self.known: dict[int, int] = {}
        """By the identity of a list or object that holds others: its size."""

    def __call__(self, value: Value) -> int:
        """About how many characters; raises if they are more than one evaluation may allocate, or than ``most``."""
        size = self.of(value, 0)
        if size > self.most:
            raise self.too_large(size)
        return size

    def of(self, value: Value, depth: int) -> int:
        kind = type(value)
        if kind is str:
            return len(value) + 2 * _MARK
        return self.container(value, depth) if kind is list or kind is dict else _MARK

    def container(self, value: Value, depth: int) -> int:
        known = self.known.get(id(value))
        if known is not None:
            return known
        if depth >= MAX_NESTING:
            raise limit_exceeded(f"{self.what} is nested deeper than {MAX_NESTING} levels")
        self.meter.work(len(value))
        size = 2 * _MARK + len(value) * (_MARK if type(value) is list else 4 * _MARK)
        if type(value) is dict:
            size += sum(map(len, value))
        nested = False
        for item in value if type(value) is list else value.values():
            kind = type(item)
            if kind is str:
                size += len(item) + 2 * _MARK
            elif kind is list or kind is dict:
                nested = True
                size += self.container(item, depth + 1)
            else:
                size += _MARK
        if size > self.most:
            raise self.too_large(size)
        if nested:
            self.known[id(value)] = size
        return size

    def too_large(self, size: int) -> ScriptThrow:
        limit = "result_bytes"
        if size > self.meter.limits.allocated_bytes:
            self.meter.exceeded = True
            limit = "allocated_bytes"
        return limit_exceeded(
            f"{self.what} would be more than {self.most:,} characters of JSON: keep large data elsewhere and pass a "
            f"reference, or raise Limits({limit}=…)"
        )
