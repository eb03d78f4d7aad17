"""Batches: which of the waiting transitions are committed together, and whose turn it is."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, takewhile, zip_longest
from operator import attrgetter
from typing import Any

from dalsegno.model.effect import (
    BeginExecution,
    CreateExecution,
    DeliverToToken,
    Effect,
    EndIfLast,
    EndScope,
    FinishExecution,
    LeaveContext,
    MoveMachine,
    PostSignal,
    ResolveSlot,
    SaveMachine,
    SettlePromise,
    SpawnToken,
    StoreOutput,
    WriteOutbox,
)
from dalsegno.model.transition import Outcome, Transition

SMALL_BATCH = 25
"""Least weight of a batch that is sent while another is in flight. A batch costs a round trip and a sync, about as
much as this many transitions. A single transition of this weight is a large one: it goes alone.
"""
EFFECTS_PER_WEIGHT, BYTES_PER_WEIGHT = 3, 14
"""Powers of two: eight effects, and 16 KiB, take the store about as long as one more transition."""
SMALL_WEIGHT = 5
"""Largest weight of a workflow's waiting transitions with which they may overtake the batches in flight."""
LARGE_WEIGHT = 4
"""Weight in flight per workflow from which on other workflows no longer wait for the batches in flight."""

Then = Callable[[Outcome | None], None]
"""Callback for the outcome, called even if the caller no longer waits. None: the outcome is unknown."""
Entry = tuple[Transition, asyncio.Future[Outcome], bool, Then | None, str, int]
"""A transition, the future of its outcome, whether it waits for the store during an outage, its callback, the
workflow it counts for, and its weight. Every step makes one and reads it several times, so it is a plain tuple
that is read by position.
"""


def weight_of(effects: Sequence[Effect], size: int) -> int:
    """Return the weight of a transition: one, and more for many effects and for many bytes in them."""
    return 1 + (len(effects) >> EFFECTS_PER_WEIGHT) + (size >> BYTES_PER_WEIGHT)


def bytes_of(effects: Sequence[Effect]) -> int:
    """Return the bytes that effects bring to the store."""
    size = 0
    for effect in effects:
        if type(effect) is SpawnToken:  # nearly every effect of nearly every step
            size += len(effect.token.data)
        elif type(effect) is SaveMachine:  # every turn of a script
            size += len(effect.snapshot)
        elif (data_of := _DATA.get(type(effect))) is not None:
            size += len(data_of(effect) or b"")
        elif type(effect) is EndIfLast:
            size += _bytes_at_end(effect)
        elif type(effect) is FinishExecution:
            size += _bytes_of_ending(effect)
    return size


def _bytes_at_end(effect: EndIfLast) -> int:
    """Return the bytes of what a branch leaves at its end, or ends."""
    size = len(effect.finisher.data)
    if effect.left is not None:
        size += len(effect.left)
    if effect.slot_data is not None:
        size += len(effect.slot_data)
    return size if effect.finish is None else size + _bytes_of_ending(effect.finish)


def _bytes_of_ending(effect: FinishExecution) -> int:
    return len(effect.output or b"") + len(effect.context or b"") + len(effect.error or b"")


_DATA: dict[type[Effect], Callable[[Any], bytes | None]] = {
    BeginExecution: attrgetter("input"),
    CreateExecution: attrgetter("execution.input"),
    DeliverToToken: attrgetter("data"),
    EndScope: attrgetter("data"),
    LeaveContext: attrgetter("data"),
    PostSignal: attrgetter("data"),
    ResolveSlot: attrgetter("data"),
    MoveMachine: attrgetter("snapshot"),
    SettlePromise: attrgetter("completion.data"),
    StoreOutput: attrgetter("data"),
    WriteOutbox: attrgetter("data"),
}
"""The data of effects with one value."""


class Batch(list[Entry]):
    """Entries that are committed together, their weight when they were taken, and the workflows they count for."""

    __slots__ = ("weight", "workflows")

    def __init__(self, entries: Iterable[Entry], weight: int) -> None:
        super().__init__(entries)
        self.weight = weight
        self.workflows: set[str] = set()

    @property
    def is_large(self) -> bool:
        """Whether it is one large transition."""
        return len(self) == 1 and self.weight >= SMALL_BATCH


class Gathering:
    def __init__(self, largest: int, at_once: int) -> None:
        self.largest = largest
        """Largest weight of a batch."""
        self._at_once = at_once
        self._waiting: list[Entry] = []
        self._weight = 0
        """Weight of the waiting entries."""
        self._large = 0
        """Number of the large ones among them."""
        self._was_large = False
        """Whether the latest batch that was chosen among many was a large transition."""
        self.sent = 0
        """Weight of the batches in flight."""
        self._touched: set[str] = set()
        """Executions with a transition in flight."""
        self._under_way = Counter[str]()
        """Number of batches in flight, by workflow."""
        self._workflow = ""
        self.is_mixed = False
        """Whether several workflows have submitted transitions since this was last set to False."""
        self.takes_turns = True
        """False while only one workflow commits: its transitions keep their order and need no grouping."""

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def add(self, entry: Entry) -> bool:
        """Add an entry. Return True if it may be sent now; otherwise a sender takes it with its next batch."""
        self._waiting.append(entry)
        _, _, _, _, workflow, weight = entry
        self._weight += weight
        if weight >= SMALL_BATCH:
            self._large += 1
        if workflow != self._workflow and workflow:
            self.is_mixed = self.is_mixed or bool(self._workflow)
            self._workflow = workflow
        return not self.sent or (self._weight >= SMALL_BATCH and entry[0].execution not in self._touched)

    def put_back(self, entries: Sequence[Entry]) -> None:
        """Put entries back at the front: they go with the next batch."""
        self._waiting[:0] = entries
        self._weight += weight_of_all(entries)
        self._large += _large_ones(entries)

    def take(self, *, even_if_small: bool = False) -> Batch | None:
        """Take the next batch and count it as in flight. Return None if nothing may be sent."""
        least = SMALL_BATCH if self.sent and not even_if_small else 1
        if self._weight < least:
            return None
        share = self._share()
        if not (self._touched or self._large) and self._weight <= share:
            batch, rest = Batch(self._waiting, self._weight), list[Entry]()
        elif not (self._touched or self.takes_turns or self.is_mixed):
            first = self._fill([self._waiting], share)
            batch, rest = Batch(first, weight_of_all(first)), self._waiting[len(first) :]
        else:
            chosen, rest = self._choose(share)
            batch = Batch(chosen, weight_of_all(chosen))
        if batch.weight < least:
            return None
        return self._send(batch, rest)

    def take_overtaking(self) -> Batch | None:
        """Take the transitions that need not wait while a few other workflows fill the batches in flight: all those
        of workflows that have nothing in flight and few transitions waiting.
        """
        if self.sent < LARGE_WEIGHT * len(self._under_way):
            return None
        chosen = list[Entry]()
        for workflow, executions in self._by_workflow().items():
            entries = list(chain.from_iterable(executions.values()))
            if (
                self.may_overtake(workflow)
                and weight_of_all(entries) <= SMALL_WEIGHT
                and len(chosen) < self.largest
            ):
                chosen += entries
        if not chosen:
            return None
        ids = set(map(id, chosen))
        rest = [entry for entry in self._waiting if id(entry) not in ids]
        return self._send(Batch(chosen, weight_of_all(chosen)), rest)

    def may_overtake(self, workflow: str) -> bool:
        """Return True if the workflow has nothing in flight."""
        return bool(workflow) and workflow not in self._under_way

    def _send(self, batch: Batch, rest: list[Entry]) -> Batch:
        self._waiting = rest
        self._weight -= batch.weight
        if self._large:
            self._large -= _large_ones(batch)
        self.sent += batch.weight
        if self._at_once > 1:
            self._touched.update([entry[0].execution for entry in batch])
            batch.workflows = {entry[4] for entry in batch}
            self._under_way.update(batch.workflows)
        return batch

    def finished(self, batch: Batch) -> None:
        """Count a batch as no longer in flight, regardless of its outcome."""
        self.sent -= batch.weight
        if self._at_once > 1:
            self._touched.difference_update([entry[0].execution for entry in batch])
            self._under_way -= Counter(batch.workflows)

    def _share(self) -> int:
        """Return an equal share of all work: while the store works on one batch, this process works on the other."""
        total = self._weight + self.sent
        parts = min(self._at_once, max(total // SMALL_BATCH, 1))
        return min(self.largest, -(-total // parts))

    def _choose(self, share: int) -> tuple[list[Entry], list[Entry]]:
        """Choose the entries of the next batch and return them with the rest.

        Workflows take turns, each with one execution: first the one that has waited longest, then those with the
        fewest transitions. The first executions get at most an equal part of the batch, so that an execution with
        very many transitions does not delay others. Further transitions of a chosen execution go along as long as the
        batch has room, because no other batch could take them meanwhile.
        """
        lines = [_line(executions) for executions in self._by_workflow().values()]
        if len(lines) > 1 or (lines and len(lines[0]) > 1):
            for line in lines:
                line[0] = line[0][: max(share // max(len(lines), 2), 1)]
        executions = chain.from_iterable(zip_longest(*lines, fillvalue=[]))
        batch = (
            self._fill(executions, share) if not self._large else self._fill_apart(list(executions), share)
        )
        chosen = set(map(id, batch))
        return batch, [entry for entry in self._waiting if id(entry) not in chosen]

    def _fill(self, executions: Iterable[list[Entry]], share: int) -> list[Entry]:
        """Fill a batch with as much as fits."""
        batch, filled = list[Entry](), 0
        for entries in executions:
            for entry in entries:
                if batch and filled + entry[5] > self.largest:
                    break
                filled += entry[5]
                batch.append(entry)
            if filled >= share:
                break
        return batch

    def _fill_apart(self, executions: list[list[Entry]], share: int) -> list[Entry]:
        """Fill a batch with one large transition alone, or without any: they take turns. Nothing else waits until a
        large one is written, and it does not wait for ever.
        """
        large = next((entries[0] for entries in executions if entries and _is_large(entries[0])), None)
        small = self._fill([list(takewhile(_is_small, entries)) for entries in executions], share)
        self._was_large = large is not None and not (small and self._was_large)
        return [large] if large is not None and self._was_large else small

    def _by_workflow(self) -> dict[str, dict[str, list[Entry]]]:
        """Return the transitions that may be sent, by workflow and execution."""
        found: dict[str, dict[str, list[Entry]]] = {}
        executions: dict[str, list[Entry]] = {}
        for entry in self._waiting:
            execution = entry[0].execution
            if (known := executions.get(execution)) is not None:
                known.append(
                    entry
                )  # whatever workflow it counts for: transitions of one execution keep their order
            elif execution not in self._touched:
                executions[execution] = found.setdefault(entry[4], {})[execution] = [entry]
        return found


def weight_of_all(entries: Iterable[Entry]) -> int:
    """Return the weight of entries together."""
    return sum([entry[5] for entry in entries])


def _is_large(entry: Entry) -> bool:
    return entry[5] >= SMALL_BATCH


def _is_small(entry: Entry) -> bool:
    return entry[5] < SMALL_BATCH


def _large_ones(entries: Iterable[Entry]) -> int:
    return sum(map(_is_large, entries))


def _line(executions: dict[str, list[Entry]]) -> list[list[Entry]]:
    """Return the executions of a workflow in the order in which they are sent."""
    oldest, *others = executions.values()
    return [oldest, *sorted(others, key=len)]
