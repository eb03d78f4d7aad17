"""Retention: whole executions go in chunks, and history by the day where nothing of a day is kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from itertools import accumulate

from dalsegno.adapters.postgres.freeing import open_lines, tell_opened
from dalsegno.adapters.postgres.partitions import Days
from dalsegno.adapters.postgres.store import PostgresStore, Row, Transaction
from dalsegno.model.execution import ENDED, ExecutionState
from dalsegno.model.search import error_words

REMOVED_ROWS = 5000
"""About how many rows are removed in one transaction."""
PAUSES = (0.02, 0.05, 0.1, 0.2, 0.5)
"""Seconds, one after the other, in which others may get done with what is to be removed."""
SMALL = 200
"""Events of an execution that is removed together with others."""
HISTORY = ("output", "event")
IN_FLIGHT = (
    "token",
    "scope",
    "barrier",
    "slot",
    "gate",
    "left_context",
    "inbox",
    "mailbox",
    "machine",
    "slot_holder",
)


class Removal:
    """Several processes may remove at once: each takes what no other is at work with."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self.days = Days(store)

    async def remove_ended(self, before: float, limit: int, states: Sequence[ExecutionState]) -> int:
        wanted: Sequence[str] = list(states) or sorted(ENDED)
        await self.days.judge(before, wanted)
        removed = 0
        more = True
        while more and removed < limit:
            went, more = await self._remove_some("removal.outdated", wanted, before, limit - removed)
            removed += len(went)
        await self.days.drop()
        return removed

    async def remove_named(self, executions: Sequence[str]) -> list[str]:
        """What the sweep or a commit is at work with just now is not passed over: they are done with it soon."""
        removed, left = await self._remove_free(executions)
        for pause in PAUSES:
            if not left or not await self.store.fetch("removal.removable", left):
                break
            await asyncio.sleep(pause)
            went, left = await self._remove_free(left)
            removed += went
        return removed

    async def _remove_free(self, executions: Sequence[str]) -> tuple[list[str], list[str]]:
        """Removes those that nobody is at work with, and tells the others. What is gone is not asked for again: its id
        is free, and somebody may have started a new execution under it."""
        removed: list[str] = []
        left, more = list(executions), True
        while more:
            went, more = await self._remove_some("removal.removable", left)
            removed += went
            left = [execution for execution in left if execution not in went]
        return removed, left

    async def _remove_some(self, statement: str, *parameters: object) -> tuple[list[str], bool]:
        """In one transaction. Which ones went, and whether some are left because the rows sufficed."""
        freed: set[str] = set()
        async with self.store.transaction() as rows:
            numbers = [number for (number,) in await rows.fetch(statement, *parameters)]
            went, more = await self._remove(rows, numbers, freed)
            opened = await open_lines(rows, freed)
        if opened:
            await tell_opened(self.store)
        return went, more

    async def _remove(self, rows: Transaction, numbers: list[int], freed: set[str]) -> tuple[list[str], bool]:
        """Small ones that were swept go together; the others one by one, each as far as the rows suffice. ``freed``:
        takes in the limit keys of tokens that were leased."""
        found = await rows.fetch("removal.lock", numbers)
        small = [row for row in found if row["swept"] and row["seq"] <= SMALL]
        sizes = accumulate(max(row["seq"], 1) for row in small)
        together = [row for row, so_far in zip(small, sizes, strict=True) if so_far <= REMOVED_ROWS]
        if together:
            await self._remove_together(rows, together)
            return [row["id"] for row in together], len(together) < len(found)
        return await self._remove_each(rows, found, freed)

    async def _remove_together(self, rows: Transaction, found: Sequence[Row]) -> None:
        await _remove_words_and_tags(rows, found)
        numbers = [row["number"] for row in found]
        history = [number for number in numbers if not self.days.go_whole(number)]
        for table in ("left", "blob", "stored_bytes"):
            await rows.fetch(f"removal.delete_{table}_of_all", numbers)
        for table in HISTORY if history else ():
            await rows.fetch(f"removal.delete_{table}_of_all", history)
        await rows.fetch("removal.delete_execution_of_all", numbers)

    async def _remove_each(
        self, rows: Transaction, found: Iterable[Row], freed: set[str]
    ) -> tuple[list[str], bool]:
        removed: list[str] = []
        spent = 0
        for row in found:
            number = row["number"]
            history = () if self.days.go_whole(number) else HISTORY
            for table in (*IN_FLIGHT, "blob", "stored_bytes", *history):
                gone = await rows.fetch(f"removal.delete_{table}", number, REMOVED_ROWS - spent)
                spent += len(gone)
                if table == "token":
                    freed.update(key for (key,) in gone if key is not None)
                if spent >= REMOVED_ROWS:
                    return removed, True
            await _remove_words_and_tags(rows, [row])
            await rows.fetch("removal.delete_flight", [number])
            await rows.fetch("removal.delete_execution_of_all", [number])
            removed.append(row["id"])
        return removed, False


async def _remove_words_and_tags(rows: Transaction, found: Sequence[Row]) -> None:
    words = [
        (word, row["created_at"], row["id"])
        for row in found
        if row["state"] == "FAILED"
        for word in error_words(row["error"])
    ]
    tags = [
        (name, value, row["created_at"], row["id"])
        for row in found
        for name, value in json.loads(row["tags"])
    ]
    if words:
        await rows.fetch("removal.delete_words", *zip(*words, strict=True))
    if tags:
        await rows.fetch("removal.delete_tags", *zip(*tags, strict=True))
