"""Rows as arrays for statements that unnest them.

The driver looks at every element of a list by itself to see whether it is a list, too, which takes longer than writing
it. On the hot path arrays of names and numbers therefore travel as text, in PostgreSQL's own notation (``{1,2}``), and
the statement casts them; payloads stay lists of bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Rows = Iterable[tuple[Any, ...]]


def columns(rows: Rows, width: int) -> list[Sequence[Any]]:
    """Rows as parallel arrays for the driver: for statements of rare kinds."""
    return list(zip(*rows, strict=True)) or [()] * width


def names(column: Sequence[str | None]) -> str:
    """``{"a","b"}``; None becomes NULL."""
    if not column:
        return "{}"
    try:
        joined = '","'.join(column)  # type: ignore[arg-type]
    except TypeError:
        return "{" + ",".join([_quoted(name) for name in column]) + "}"
    if "\\" in joined or joined.count('"') != 2 * len(column) - 2:
        return "{" + ",".join([_quoted(name) for name in column]) + "}"
    return '{"' + joined + '"}'


def _quoted(name: str | None) -> str:
    if name is None:
        return "NULL"
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def numbers(column: Sequence[int | float]) -> str:
    """``{1,2}``."""
    return "{" + ",".join(map(str, column)) + "}"


class Shapes:
    """Rows that many share: each stands once in an array of its own, and is named by its place."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: dict[tuple[Any, ...], int] = {}

    def place(self, shape: tuple[Any, ...]) -> int:
        return self._places.setdefault(shape, len(self._places) + 1)

    def columns(self, width: int) -> list[Sequence[Any]]:
        return columns(self._places, width)
