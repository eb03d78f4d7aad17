"""Numbers of executions: the day of the start in front, then a count. History is partitioned by them."""

from __future__ import annotations

DAY = 86_400
DAY_BITS = 40
"""Of an execution's number below its day."""
BLOCK = 1000
"""Numbers that are taken at once: the increment of their sequence."""


def day_of(number: int) -> int:
    return number >> DAY_BITS


def day_at(time: float) -> int:
    return int(time // DAY)


def numbers_of(day: int) -> tuple[int, int]:
    """From the first number of a day to the first of the next."""
    return day << DAY_BITS, (day + 1) << DAY_BITS


class Numbers:
    """Those that this process has at hand."""

    def __init__(self) -> None:
        self._left: list[int] = []
        self._largest = 0

    def __len__(self) -> int:
        return len(self._left)

    def add(self, first: int) -> None:
        """A block. Popped from the end: the smaller ones first, and those that were left over before all others."""
        self._left = [*range(first + BLOCK - 1, first - 1, -1), *self._left]

    def take(self) -> int:
        return self._left.pop()

    def forget_before(self, day: int) -> None:
        """An execution with a number of a day before would keep that day's history from being dropped. Numbers of the
        next day stay: the database's clock may be ahead of what is known of it here."""
        if self._left and day_of(self._left[-1]) < day:
            self._left = [number for number in self._left if day_of(number) >= day]

    def wanted_after(self, tries: int) -> int:
        """How many to have at hand after so many were missing: always more than the time before."""
        self._largest = max(self._largest * 2, tries, BLOCK)
        return self._largest
