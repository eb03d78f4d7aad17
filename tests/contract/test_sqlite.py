"""The contract suite on one SQLite file."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import pytest

from dalsegno.adapters import excluding_claims
from dalsegno.adapters.sqlite import (
    SqliteArchive,
    SqliteBlobs,
    SqliteBroker,
    SqliteLedger,
    SqliteLimits,
    SqlitePublications,
    SqlitePublished,
    SqliteRecords,
    SqliteStore,
)
from dalsegno.testing.clock import FakeClock
from dalsegno.testing.contract import WHOLE_STACK, Capabilities, ContractStack, bind
from tests.servers.sqlite import empty_sqlite


class SqliteStacks:
    """Opens stacks in one folder, and closes them all in the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.stores: list[SqliteStore] = []
        self._crashes = count(1)

    def open(self, path: Path) -> ContractStack:
        store = SqliteStore.open(path, self.clock)
        self.stores.append(store)
        ledger = SqliteLedger(store)

        async def reopen() -> ContractStack:
            return self.open(self._as_a_crash_leaves_it(path))

        async def second() -> ContractStack:
            return self.open(path)

        archive, blobs, broker = SqliteArchive(store), SqliteBlobs(store), SqliteBroker(ledger)
        return ContractStack(
            ledger,
            self.clock,
            archive,
            blobs,
            broker,
            reopen,
            second,
            records=SqliteRecords(store),
            limits=SqliteLimits(store),
            publications=SqlitePublications(store),
            published=SqlitePublished(store),
        )

    def _as_a_crash_leaves_it(self, path: Path) -> Path:
        """What is in the files at this moment, without anything a closing connection would still write."""
        left = self.folder / f"crash-{next(self._crashes)}" / path.name
        left.parent.mkdir()
        for suffix in ("", "-wal"):
            file = path.with_name(path.name + suffix)
            if file.exists():
                shutil.copyfile(file, left.with_name(file.name))
        return left

    def close(self) -> None:
        for store in self.stores:
            store.close()


@pytest.fixture
async def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ContractStack]:
    monkeypatch.setattr(excluding_claims, "QUIET", float("inf"))  # only news makes it look again
    stacks = SqliteStacks(tmp_path)
    empty_sqlite(tmp_path / "store.db")
    yield stacks.open(tmp_path / "store.db")
    stacks.close()


globals().update(bind(Capabilities(WHOLE_STACK | {"durable", "shared"})))
