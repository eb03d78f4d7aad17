"""What waits to be committed, and what goes next.

Several batches may be under way at a time, but never two that touch one execution: its transitions are committed in the
order in which they were handed over, and no batch waits for the locks of another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from dalsegno.model.transition import Outcome, Transition

SMALL_BATCH = 25
"""Transitions at least in a batch that goes while another is under way: each costs a round trip and a sync, as much as
about so many transitions."""

Then = Callable[[Outcome | None], None]
"""Told the outcome whether or not somebody still waits for it; None: it is not known."""
Entry = tuple[Transition, asyncio.Future[Outcome], bool, Then | None]
"""A transition, who waits for its outcome, whether it is patient while the store is out of order, and what follows."""


class Gathering:
    def __init__(self, largest: int, at_once: int) -> None:
        self.largest = largest
        """Transitions of a batch."""
        self._at_once = at_once
        self._waiting: list[Entry] = []
        self._sent = 0
        self._touched: set[str] = set()
        """Executions of which something is under way."""

    def add(self, entry: Entry) -> bool:
        """Whether it may go now; else a batch that is under way takes it along when it has landed."""
        self._waiting.append(entry)
        if not self._sent:
            return True
        return len(self._waiting) >= SMALL_BATCH and entry[0].execution not in self._touched

    def put_back(self, entries: Sequence[Entry]) -> None:
        """They go with the next batch, before whatever came later."""
        self._waiting[:0] = entries

    def take(self) -> list[Entry]:
        """The next batch, which is under way from now on; empty if nothing may go."""
        least = SMALL_BATCH if self._sent else 1
        if len(self._waiting) < least:
            return []
        batch, rest = self._choose(self._share())
        if len(batch) < least:
            return []
        self._waiting = rest
        self._sent += len(batch)
        self._touched.update([entry[0].execution for entry in batch])
        return batch

    def landed(self, batch: Sequence[Entry]) -> None:
        """It is no longer under way, whatever became of it."""
        self._sent -= len(batch)
        self._touched.difference_update([entry[0].execution for entry in batch])

    def _share(self) -> int:
        """An equal part of all there is: while the store works on one batch, this process works on the other."""
        in_hand = len(self._waiting) + self._sent
        parts = min(self._at_once, max(in_hand // SMALL_BATCH, 1))
        return min(self.largest, -(-in_hand // parts))

    def _choose(self, share: int) -> tuple[list[Entry], list[Entry]]:
        """The execution that has waited longest gets half of the batch at most; then come those with the fewest
        transitions: one with very many does not hold up the others. Siblings of what was chosen go along, as far as
        the batch has room: nothing else could take them meanwhile."""
        if not self._touched and len(self._waiting) <= share:
            return self._waiting, []
        if not self._touched and len({entry[0].execution for entry in self._waiting}) == len(self._waiting):
            return self._waiting[:share], self._waiting[share:]  # one of each, as is common
        waiting: dict[str, list[Entry]] = {}
        for entry in self._waiting:
            if entry[0].execution not in self._touched:
                waiting.setdefault(entry[0].execution, []).append(entry)
        oldest, *others = waiting or ("",)
        batch = waiting.get(oldest, [])[: max(share // 2, 1) if others else self.largest]
        for execution in sorted(others, key=lambda each: len(waiting[each])):
            if len(batch) >= share:
                break
            batch += waiting[execution][: self.largest - len(batch)]
        chosen = set(map(id, batch))
        return batch, [entry for entry in self._waiting if id(entry) not in chosen]
