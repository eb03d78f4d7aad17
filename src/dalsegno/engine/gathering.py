"""What waits to be committed, and what goes next.

Several batches may be under way at a time, but never two that touch one execution: its transitions are committed in the
order in which they were handed over, and no batch waits for the locks of another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, zip_longest

from dalsegno.model.transition import Outcome, Transition

SMALL_BATCH = 25
"""Least weight of a batch that goes while another is under way: each costs a round trip and a sync, as much as about so
many transitions."""

Then = Callable[[Outcome | None], None]
"""Told the outcome whether or not somebody still waits for it; None: it is not known."""
Entry = tuple[Transition, asyncio.Future[Outcome], bool, Then | None, str]
"""A transition, who waits for its outcome, whether it is patient while the store is out of order, what follows, and the
workflow that it counts for."""


class Gathering:
    def __init__(self, largest: int, at_once: int) -> None:
        self.largest = largest
        """Weight of a batch."""
        self._at_once = at_once
        self._waiting: list[Entry] = []
        self._weight = 0
        """Of all that waits."""
        self._sent = 0
        """The weight of what is under way."""
        self._touched: set[str] = set()
        """Executions of which something is under way."""

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def add(self, entry: Entry) -> bool:
        """Whether it may go now; else a batch that is under way takes it along when it has landed."""
        self._waiting.append(entry)
        self._weight += weight_of(entry)
        if not self._sent:
            return True
        return self._weight >= SMALL_BATCH and entry[0].execution not in self._touched

    def put_back(self, entries: Sequence[Entry]) -> None:
        """They go with the next batch, before whatever came later."""
        self._waiting[:0] = entries
        self._weight += weight_of_all(entries)

    def take(self, *, however_small: bool = False) -> list[Entry]:
        """The next batch, which is under way from now on; empty if nothing may go."""
        least = SMALL_BATCH if self._sent and not however_small else 1
        if self._weight < least:
            return []
        batch, rest = self._choose(self._share())
        weight = weight_of_all(batch)
        if weight < least:
            return []
        self._waiting = rest
        self._weight -= weight
        self._sent += weight
        self._touched.update([entry[0].execution for entry in batch])
        return batch

    def landed(self, batch: Sequence[Entry]) -> None:
        """It is no longer under way, whatever became of it."""
        self._sent -= weight_of_all(batch)
        self._touched.difference_update([entry[0].execution for entry in batch])

    def _share(self) -> int:
        """An equal part of all there is: while the store works on one batch, this process works on the other."""
        in_hand = self._weight + self._sent
        parts = min(self._at_once, max(in_hand // SMALL_BATCH, 1))
        return min(self.largest, -(-in_hand // parts))

    def _choose(self, share: int) -> tuple[list[Entry], list[Entry]]:
        """Workflows take turns, each with one execution: the one that has waited longest, then those with the fewest
        transitions. The first ones get an equal part of the batch at most, so that one with very many does not hold up
        others. Siblings of what was chosen go along, as far as the batch has room: nothing else could take them
        meanwhile."""
        if not self._touched and self._weight <= share:
            return self._waiting, []
        lines = [_line(executions) for executions in self._by_workflow().values()]
        if len(lines) > 1 or (lines and len(lines[0]) > 1):
            for line in lines:
                line[0] = line[0][: max(share // max(len(lines), 2), 1)]
        batch = self._fill(chain.from_iterable(zip_longest(*lines, fillvalue=[])), share)
        chosen = set(map(id, batch))
        return batch, [entry for entry in self._waiting if id(entry) not in chosen]

    def _fill(self, executions: Iterable[list[Entry]], share: int) -> list[Entry]:
        """One large transition at most, and beside it as much as fits."""
        batch, filled, has_large = list[Entry](), 0, False
        for entries in executions:
            for entry in entries:
                weight = weight_of(entry)
                if weight >= SMALL_BATCH:
                    if has_large:
                        break
                    has_large = True
                elif filled + weight > self.largest:
                    break
                else:
                    filled += weight
                batch.append(entry)
            if filled >= share:
                break
        return batch

    def _by_workflow(self) -> dict[str, dict[str, list[Entry]]]:
        """What may go: the transitions of each execution, by the workflow that they count for."""
        found: dict[str, dict[str, list[Entry]]] = {}
        executions: dict[str, list[Entry]] = {}
        for entry in self._waiting:
            execution = entry[0].execution
            if (known := executions.get(execution)) is not None:
                known.append(entry)  # whatever it counts for itself: they go in their order
            elif execution not in self._touched:
                executions[execution] = found.setdefault(entry[4], {})[execution] = [entry]
        return found


def weight_of(entry: Entry) -> int:
    """A transition counts as one, and as one more for every few effects."""
    return 1 + (len(entry[0].effects) >> 3)


def weight_of_all(entries: Iterable[Entry]) -> int:
    return sum([1 + (len(entry[0].effects) >> 3) for entry in entries])


def _line(executions: dict[str, list[Entry]]) -> list[list[Entry]]:
    """The executions of a workflow in the order in which they go."""
    oldest, *others = executions.values()
    return [oldest, *sorted(others, key=len)]
