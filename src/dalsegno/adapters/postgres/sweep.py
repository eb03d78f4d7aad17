"""Removing rows of ended executions in chunks."""

from __future__ import annotations

from collections.abc import Sequence

from dalsegno.adapters.postgres.arrays import columns
from dalsegno.adapters.postgres.freeing import open_lines, tell_opened
from dalsegno.adapters.postgres.store import PostgresStore, Row, Transaction
from dalsegno.adapters.postgres.workspace import UNFINISHED
from dalsegno.core.settlement import cancelled_event
from dalsegno.model.search import error_words

IN_FLIGHT = ("scope", "barrier", "slot", "gate", "left_context", "inbox", "mailbox", "machine")
ROWS_EACH = 8
"""Rows that an execution has at least, as a guess: how many executions are locked for so many rows."""


async def sweep(store: PostgresStore, limit: int) -> int:
    """Removes at most ``limit`` rows of ended executions; returns how many went. The flight rows go last, so that a
    crash leaves nothing behind."""
    if limit <= 0 or not await store.fetch("sweep.any"):
        return 0
    freed: set[str] = set()
    async with store.transaction() as tx:
        gone = await _sweep(tx, store.now(), limit, freed)
        opened = await open_lines(tx, freed)
    if opened:
        await tell_opened(store)
    return gone


async def _sweep(tx: Transaction, now: float, limit: int, freed: set[str]) -> int:
    """``freed``: takes in the limit keys of tokens that were leased."""
    ended = await tx.fetch("sweep.ended", limit // ROWS_EACH + 1)
    if not ended:
        return 0
    numbers = [row[0] for row in ended]
    gone = await _sweep_tokens(tx, ended, now, limit, freed)
    [present] = await tx.fetch("sweep.present", numbers)
    for table in (table for table in IN_FLIGHT if present[table]):
        if gone >= limit:
            return gone
        gone += len(await tx.fetch(f"sweep.{table}", numbers, limit - gone))
    empty = ended[: limit - gone]
    await _land(tx, empty)
    return gone + len(empty)


async def _sweep_tokens(
    tx: Transaction, ended: Sequence[Row], now: float, limit: int, freed: set[str]
) -> int:
    removed = await tx.fetch("sweep.tokens", [row[0] for row in ended], limit)
    seqs = {row[0]: row[3] for row in ended}
    events = []
    for execution, token, state, kind, node, scope, live, limit_key in removed:
        if state == "leased" and limit_key is not None:
            freed.add(limit_key)
        event = cancelled_event(kind, live, node, scope, token, now) if state in UNFINISHED else None
        if event is not None:
            seqs[execution] += 1
            events.append((execution, seqs[execution], event.kind, event.node, event.scope, now, event.token))
    if events:
        await tx.fetch("sweep.events", *columns(events, 7))
    return len(removed)


async def _land(tx: Transaction, ended: Sequence[Row]) -> None:
    """Nothing else is left of these."""
    if not ended:
        return
    failed = [row[0] for row in ended if row[2] == "FAILED"]
    if failed:
        found = await tx.fetch("sweep.failures", failed)
        words = [(word, created_at, name) for created_at, name, error in found for word in error_words(error)]
        await tx.fetch("sweep.words", *columns(words, 3))
    await tx.fetch("sweep.land", [row[0] for row in ended])
