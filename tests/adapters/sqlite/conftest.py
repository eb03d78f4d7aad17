"""A store in a fresh file, and transitions in few words (from the contract suite)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dalsegno.adapters.sqlite import SqliteArchive, SqliteBlobs, SqliteBroker, SqliteLedger, SqliteStore
from dalsegno.testing.clock import FakeClock
from dalsegno.testing.contract import ContractStack


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path, clock: FakeClock) -> Iterator[SqliteStore]:
    opened = SqliteStore.open(path, clock)
    yield opened
    opened.close()


@pytest.fixture
def stack_of(clock: FakeClock) -> Callable[[SqliteStore], ContractStack]:
    def made(store: SqliteStore) -> ContractStack:
        ledger = SqliteLedger(store)
        return ContractStack(ledger, clock, SqliteArchive(store), SqliteBlobs(store), SqliteBroker(ledger))

    return made


@pytest.fixture
def stack(store: SqliteStore, stack_of: Callable[[SqliteStore], ContractStack]) -> ContractStack:
    return stack_of(store)
