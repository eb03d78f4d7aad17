"""Whole stacks on a PostgreSQL database, as many as a test wants, all closed in the end."""

from __future__ import annotations

from dalsegno.adapters.postgres import (
    Listener,
    PostgresArchive,
    PostgresBlobs,
    PostgresBroker,
    PostgresLedger,
    PostgresLimits,
    PostgresNeighbours,
    PostgresPublications,
    PostgresPublished,
    PostgresRecords,
    PostgresStore,
)
from dalsegno.testing.clock import FakeClock
from dalsegno.testing.contract import ContractStack
from tests.waiting import come_about


class SharingStore(PostgresStore):
    """With the connections of another one, which stay open."""

    @classmethod
    async def beside(cls, other: PostgresStore, clock: FakeClock) -> SharingStore:
        store = cls(other._pool, other.url, clock, other.mode)
        [(seen,)] = await store.fetch("look.now")
        store.saw(seen)
        return store

    async def close(self) -> None:
        """Wait until its transactions have ended."""
        await come_about(lambda: self._pool.get_idle_size() == self._pool.get_size(), "no connection in use")


class PostgresStacks:
    """Each is what one process would have. They share a clock, and the connections of ``shared`` if there is one."""

    def __init__(
        self, url: str, clock: FakeClock | None = None, *, shared: PostgresStore | None = None
    ) -> None:
        self.url = url
        self.shared = shared
        self.clock = clock or FakeClock()
        self.brokers: list[PostgresBroker] = []
        self.ledgers: list[PostgresLedger] = []

    async def open(self, listen_at: str | None = None) -> ContractStack:
        if self.shared is None:
            store = await PostgresStore.open(self.url, self.clock)
        else:
            store = await SharingStore.beside(self.shared, self.clock)
        ledger = PostgresLedger(store)
        listener = Listener(listen_at or self.url)
        broker = PostgresBroker(ledger, listener, ledger.waiting_workers)
        PostgresNeighbours(ledger, listener, broker)
        listener.start()
        self.brokers.append(broker)
        self.ledgers.append(ledger)
        return ContractStack(
            ledger,
            self.clock,
            PostgresArchive(store),
            PostgresBlobs(store),
            broker,
            self.open,  # everything is in the database: there is nothing that a crash could leave half done here
            self.open,
            records=PostgresRecords(store),
            limits=PostgresLimits(store),
            publications=PostgresPublications(store),
            published=PostgresPublished(store),
        )

    async def close(self) -> None:
        for broker in self.brokers:
            await broker.close()
        for ledger in self.ledgers:
            await ledger.close()
