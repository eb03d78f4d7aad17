"""Retention: executions are removed whole, in chunks, and history by the day if nothing of a day is kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from itertools import accumulate

from dalsegno.adapters.postgres.archive.partitions import Days
from dalsegno.adapters.postgres.claim.limit_queues import announce_opened, open_lines
from dalsegno.adapters.postgres.commit.columns import columns
from dalsegno.adapters.postgres.store import PostgresStore, Row, Transaction
from dalsegno.core.settlement import cancelled_event
from dalsegno.model.execution import ENDED, ExecutionState
from dalsegno.model.search import error_words
from dalsegno.model.token import UNFINISHED

REMOVED_ROWS = 5000
"""Approximate number of rows removed in one transaction."""
PAUSES = (0.02, 0.05, 0.1, 0.2, 0.5)
"""Seconds of successive waits for transactions that use what is to be removed."""
SMALL = 200
"""Events up to which an execution is removed together with others."""
HISTORY = ("output", "event")
SHOWN = ("published_value", "stream_part", "stream")
IN_FLIGHT_TABLES = (
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
    """Several processes may remove at once: each takes what no other has locked."""

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
        """Remove the named executions. Those locked by the sweep or a commit are retried: these locks are short."""
        removed, left = await self._remove_free(executions)
        for pause in PAUSES:
            if not left or not await self.store.fetch("removal.removable", left):
                break
            await asyncio.sleep(pause)
            went, left = await self._remove_free(left)
            removed += went
        return removed

    async def _remove_free(self, executions: Sequence[str]) -> tuple[list[str], list[str]]:
        """Remove the executions that are not locked; return the removed ones and the others.

        A removed one is not tried again: its id is free, and a new execution may have been started under it.
        """
        removed: list[str] = []
        left, more = list(executions), True
        while more:
            went, more = await self._remove_some("removal.removable", left)
            removed += went
            left = [execution for execution in left if execution not in went]
        return removed, left

    async def _remove_some(self, statement: str, *parameters: object) -> tuple[list[str], bool]:
        """Remove in one transaction. Return the removed executions, and True if the row limit left some."""
        freed: set[str] = set()
        async with self.store.transaction() as rows:
            numbers = [number for (number,) in await rows.fetch(statement, *parameters)]
            went, more = await self._remove(rows, numbers, freed)
            opened = await open_lines(rows, freed)
        if opened:
            await announce_opened(self.store)
        return went, more

    async def _remove(self, rows: Transaction, numbers: list[int], freed: set[str]) -> tuple[list[str], bool]:
        """Remove small, swept executions together and the others one by one, up to the row limit.

        ``freed`` collects the limit keys of tokens that were leased.
        """
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
        history = [number for number in numbers if not self.days.is_removed_whole(number)]
        for table in ("left", "blob", *SHOWN, "stored_bytes"):
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
            history = () if self.days.is_removed_whole(number) else HISTORY
            for table in (*IN_FLIGHT_TABLES, "blob", *SHOWN, "stored_bytes", *history):
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


SWEPT_TABLES = ("scope", "barrier", "slot", "gate", "left_context", "inbox", "mailbox", "machine")
ROWS_EACH = 8
"""Estimated minimum of rows per execution: it determines how many executions are locked."""


async def sweep(store: PostgresStore, limit: int) -> int:
    """Remove at most ``limit`` rows of ended executions; return how many.

    The flight rows are removed last, so that a crash leaves nothing behind.
    """
    if limit <= 0 or not await store.fetch("sweep.any"):
        return 0
    freed: set[str] = set()
    async with store.transaction() as tx:
        gone = await _sweep(tx, limit, freed)
        opened = await open_lines(tx, freed)
    if opened:
        await announce_opened(store)
    return gone


async def _sweep(tx: Transaction, limit: int, freed: set[str]) -> int:
    """Sweep in a transaction. ``freed`` collects the limit keys of tokens that were leased."""
    ended = await tx.fetch("sweep.ended", limit // ROWS_EACH + 1)
    if not ended:
        return 0
    numbers = [row["number"] for row in ended]
    gone = await _sweep_tokens(tx, ended, limit, freed)
    [present] = await tx.fetch("sweep.present", numbers)
    for table in (table for table in SWEPT_TABLES if present[table]):
        if gone >= limit:
            return gone
        gone += len(await tx.fetch(f"sweep.delete_{table}", numbers, limit - gone))
    empty = ended[: limit - gone]
    await _land(tx, empty)
    return gone + len(empty)


async def _sweep_tokens(tx: Transaction, ended: Sequence[Row], limit: int, freed: set[str]) -> int:
    """Remove tokens; the unfinished ones are recorded as cancelled at the time of the ending."""
    removed = await tx.fetch("sweep.tokens", [row["number"] for row in ended], limit)
    seqs = {row["number"]: row["seq"] for row in ended}
    times = {row["number"]: row["touched_at"] for row in ended}
    events = []
    for execution, token, state, kind, node, scope, live, limit_key in removed:
        if state == "leased" and limit_key is not None:
            freed.add(limit_key)
        at = times[execution]
        event = cancelled_event(kind, live, node, scope, token, at) if state in UNFINISHED else None
        if event is not None:
            seqs[execution] += 1
            events.append((execution, seqs[execution], event.kind, event.node, event.scope, at, event.token))
    if events:
        await tx.fetch("sweep.events", *columns(events, 7))
    return len(removed)


async def _land(tx: Transaction, ended: Sequence[Row]) -> None:
    """Remove the flight rows of executions that have no other rows left."""
    if not ended:
        return
    failed = [row["number"] for row in ended if row["state"] == "FAILED"]
    if failed:
        found = await tx.fetch("sweep.failures", failed)
        words = [(word, created_at, name) for created_at, name, error in found for word in error_words(error)]
        await tx.fetch("sweep.insert_words", *columns(words, 3))
    await tx.fetch("sweep.land", [row["number"] for row in ended])
