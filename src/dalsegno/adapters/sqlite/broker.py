"""SqliteBroker: announcements inside this process, and an eye on the file for those of others."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence

from dalsegno.adapters.sqlite.ledger import SqliteLedger
from dalsegno.model.token import Lease
from dalsegno.model.transition import ReadyToken

WATCH_SECONDS = 0.25
"""How often the write-ahead log is looked at while there is nothing to do: one ``stat``, no query."""


TICK_NANOSECONDS = 20_000_000
"""File times move in ticks: within one, a second commit may leave the same mark as the first."""


class SqliteBroker:
    """An announcement only wakes whoever waits; claims find everything that is ready. Another process's commit shows
    as a change of the write-ahead log, after which a claim is tried."""

    def __init__(self, ledger: SqliteLedger) -> None:
        self.ledger = ledger
        self._log = ledger.store.path.with_name(ledger.store.path.name + "-wal")
        self._news = asyncio.Event()

    async def announce(self, tokens: Sequence[ReadyToken]) -> None:
        if tokens:
            self._tell()

    async def offer(self, tokens: Sequence[ReadyToken]) -> None:
        """The others look at the log anyway."""

    async def take(self, worker: str, queues: Sequence[str], limit: int) -> list[Lease]:
        while True:
            news = self._news  # that of before the claim: whatever becomes ready during it is news
            seen = self._mark()
            leases = await self.ledger.claim(worker, queues, limit)
            if leases:
                return leases
            await self._wait(news, seen)

    async def close(self) -> None:
        self._tell()

    def _tell(self) -> None:
        """Everybody who waits, however many they are: the next news are another event."""
        self._news.set()
        self._news = asyncio.Event()

    async def _wait(self, news: asyncio.Event, seen: tuple[int, int]) -> None:
        while not news.is_set() and self._mark() == seen:
            ambiguous = time.time_ns() - seen[0] < TICK_NANOSECONDS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WATCH_SECONDS):
                    await news.wait()
            if ambiguous:
                return

    def _mark(self) -> tuple[int, int]:
        """Changes whenever somebody commits. A log that is not there yet is empty."""
        try:
            status = self._log.stat()
        except FileNotFoundError:
            return 0, 0
        return status.st_mtime_ns, status.st_size
