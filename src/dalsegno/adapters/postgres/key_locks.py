"""The locks of limit keys, as claims take them: what somebody holds for long must not keep them from all the rest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import TypeVar

import asyncpg

from dalsegno.adapters.postgres.store import PostgresStore, Transaction

T = TypeVar("T")
TakeKeys = Callable[[Sequence[str]], Awaitable[set[str]]]
"""Locks keys until the transaction ends. Returns those that could be."""

STUCK_SECONDS = 5.0
"""For so long nobody waits again for a lock that was waited for in vain; it is taken if it happens to be free."""


class KeysStuck(Exception):
    """One of the locks was not to be had in time; which one is not known."""


class KeyLocks:
    """Mostly they are held for a moment, by a commit or another claim: those are waited for, since whoever looked past
    the line would leave tokens in it that nobody announces again."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._stuck: dict[str, float] = {}
        """Keys, and until when they are not waited for."""

    async def run(self, job: Callable[[Transaction, TakeKeys], Awaitable[T]]) -> T:
        """A job in a transaction, begun again without waiting if a lock is held for long."""
        try:
            async with self._store.transaction() as tx:
                return await job(tx, lambda keys: self._take(tx, keys, waits=True))
        except KeysStuck:
            async with self._store.transaction() as tx:
                return await job(tx, lambda keys: self._take(tx, keys, waits=False))

    async def _take(self, tx: Transaction, keys: Sequence[str], *, waits: bool) -> set[str]:
        now = monotonic()
        self._stuck = {key: until for key, until in self._stuck.items() if until > now}
        try:
            rows = await tx.fetch(
                "limits.lock_soon", keys, [waits and key not in self._stuck for key in keys]
            )
        except asyncpg.LockNotAvailableError:
            raise KeysStuck from None
        taken = {key for (key,) in rows}
        if not waits:
            self._stuck.update((key, now + STUCK_SECONDS) for key in keys if key not in taken)
        return taken
