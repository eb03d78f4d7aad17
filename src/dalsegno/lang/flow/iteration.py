"""The state of a ``for … of`` or ``for … in`` loop: what it goes through, and how far it is."""

from __future__ import annotations

from collections.abc import Sequence

from dalsegno.lang.errors import ScriptThrow
from dalsegno.lang.limits import BYTES_PER_OBJECT
from dalsegno.lang.values import Host, Value, kind_of, unawaited

OVER_ITEMS, OVER_KEYS = 0, 1


class Iteration:
    """``items`` is a list, or a range for the indexes of a list. It is the value as it was when the loop began."""

    __slots__ = ("index", "items")

    def __init__(self, items: Sequence[Value], index: int = 0) -> None:
        self.items = items
        self.index = index


def iterate(host: Host, value: Value, over: int) -> Iteration:
    """An object yields ``[key, value]`` pairs, or its keys; a list its items, or its indexes."""
    if type(value) is list:
        return Iteration(range(len(value)) if over == OVER_KEYS else value)
    if type(value) is dict:
        host.meter.items(len(value), "a loop")
        if over != OVER_KEYS:
            host.meter.keep(len(value) * 2 * BYTES_PER_OBJECT, "a loop")
        return Iteration(list(value) if over == OVER_KEYS else [[key, item] for key, item in value.items()])
    hint = '; split("") makes a list of its characters' if type(value) is str else unawaited(value)
    raise ScriptThrow("TYPE_ERROR", f"cannot iterate over {_one(kind_of(value))}{hint}")


def _one(kind: str) -> str:
    return kind if kind == "null" else f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
