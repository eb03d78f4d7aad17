"""Claim order: tokens without a limit key form one line per queue, tokens with one a line per key.

- Priorities come first.
- Between tokens with a key and tokens without, age decides.
- Among keys of the same priority the least recently served is next, so that a key with thousands of tokens
  alternates with one that has a few.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Place = tuple[int, float, int]
"""A token's place in its line: its negated priority, when it became ready, and the order among equals."""


class Suspicion:
    """Allows a worker at most one token at a time that killed workers before."""

    __slots__ = ("allowed",)

    def __init__(self, *, allowed: bool) -> None:
        self.allowed = allowed


class Line(Protocol[T_co]):
    """The ready tokens of one key in one queue."""

    @property
    def turn(self) -> tuple[float, int, str, str]:
        """Return when it was last served; no two lines have the same value."""

    def place(self) -> Place | None:
        """Return the place of the next token; None if there is none, or its limit leaves no room."""

    def take(self) -> T_co:
        """Return the next token, which counts as leased from now on."""


Waiting = tuple[int, int, tuple[float, int, str, str], tuple[float, int], Line[T]]
"""Rank of its first token, how often it was served here, its turn, when its first token became ready, and the line."""


class Choice(Generic[T]):
    """Chooses among plain tokens, in their order, and lines."""

    def __init__(self, plain: Sequence[tuple[Place, T]], lines: Iterable[Line[T]]) -> None:
        self._plain = list(reversed(plain))
        self._lines: list[Waiting[T]] = []
        for line in lines:
            self._enter(line, 0, line.turn)

    def take(self, wanted: int) -> list[T]:
        chosen: list[T] = []
        while len(chosen) < wanted:
            self._pass_over_full()
            if not self._plain and not self._lines:
                break
            chosen.append(self._plain.pop()[1] if self._plain_is_next() else self._take_from_line())
        return chosen

    def _enter(self, line: Line[T], served: int, turn: tuple[float, int, str, str]) -> None:
        place = line.place()
        if place is not None:
            heappush(self._lines, (place[0], served, turn, place[1:], line))

    def _pass_over_full(self) -> None:
        """Drop lines without room: another line of the same key may have taken the last slot."""
        while self._lines and self._lines[0][4].place() is None:
            heappop(self._lines)

    def _plain_is_next(self) -> bool:
        if not self._plain or not self._lines:
            return bool(self._plain)
        priority, *since = self._plain[-1][0]
        highest = self._lines[0][0]
        if priority != highest:
            return priority < highest
        return tuple(since) <= min(first for rank, _, _, first, _ in self._lines if rank == highest)

    def _take_from_line(self) -> T:
        _, served, turn, _, line = heappop(self._lines)
        token = line.take()
        self._enter(line, served + 1, turn)
        return token
