"""Opening a store: what is made, what is refused, and in which words."""

from __future__ import annotations

import gc
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from dalsegno import App
from dalsegno.adapters.sqlite import SqliteLedger, SqliteStore, migration
from dalsegno.errors import BadConfiguration, SchemaMismatch, StoreCorrupt, StoreReadOnly
from dalsegno.testing.clock import FakeClock
from dalsegno.testing.contract import ContractStack
from dalsegno.testing.contract.builders import start, token


def pragma(path: Path, name: str) -> int:
    with sqlite3.connect(path) as connection:
        (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    connection.close()
    return int(value)


def test_new_file_is_marked_as_ours(path: Path, store: SqliteStore) -> None:
    assert pragma(path, "application_id") == migration.APPLICATION_ID
    assert pragma(path, "user_version") == len(migration.migrations())


def test_opening_twice_keeps_what_is_there(path: Path, clock: FakeClock) -> None:
    for _ in range(2):
        SqliteStore.open(path, clock).close()

    assert pragma(path, "user_version") == len(migration.migrations())


def test_newer_schema_is_refused(path: Path, clock: FakeClock) -> None:
    SqliteStore.open(path, clock).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()

    with pytest.raises(SchemaMismatch, match=r"schema version 99.*newer Dal Segno"):
        SqliteStore.open(path, clock)


def test_failed_migration_leaves_nothing(
    path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [*migration.migrations(), "CREATE TABLE more (id TEXT);\nCREATE TABLE flight (id TEXT);\n"]
    monkeypatch.setattr(migration, "migrations", lambda: steps)
    with pytest.raises(Exception, match="already exists"):
        SqliteStore.open(path, clock)

    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT * FROM sqlite_schema").fetchall() == []
    connection.close()


def test_file_that_is_no_database_is_refused_and_left_alone(path: Path, clock: FakeClock) -> None:
    path.write_bytes(b"Dear diary, " * 100)

    with pytest.raises(StoreCorrupt, match="not a SQLite database"):
        SqliteStore.open(path, clock)
    assert path.read_bytes() == b"Dear diary, " * 100


def test_database_of_another_application_is_refused_and_left_alone(path: Path, clock: FakeClock) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE customer (id INTEGER)")
    connection.close()
    before = path.read_bytes()

    with pytest.raises(StoreCorrupt, match=f"another application.*dalsegno migrate --store sqlite:///{path}"):
        SqliteStore.open(path, clock)
    assert path.read_bytes() == before


def test_tables_of_others_may_lie_in_a_file_that_the_store_has_made(path: Path, clock: FakeClock) -> None:
    SqliteStore.open(path, clock).close()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE customer (id INTEGER)")
    connection.close()

    SqliteStore.open(path, clock).close()


@pytest.mark.parametrize(
    "ask",
    [lambda app: app.handle("1").result(), lambda app: app.schedules.list()],
    ids=["handle", "schedules"],
)
def test_call_that_cannot_open_the_store_leaves_no_coroutine_behind(
    tmp_path: Path, ask: Callable[[App], object], recwarn: pytest.WarningsRecorder
) -> None:
    with pytest.raises(BadConfiguration):
        ask(App(f"sqlite:///{tmp_path}/nowhere/office.db"))
    gc.collect()
    assert [str(warning.message) for warning in recwarn] == []


def test_missing_directory_is_named(tmp_path: Path, clock: FakeClock) -> None:
    with pytest.raises(BadConfiguration, match=r"directory .*nowhere does not exist"):
        SqliteStore.open(tmp_path / "nowhere" / "store.db", clock)


def test_directory_instead_of_a_file_is_named(tmp_path: Path, clock: FakeClock) -> None:
    with pytest.raises(BadConfiguration, match="is a directory"):
        SqliteStore.open(tmp_path, clock)


def test_missing_file_is_not_created_unasked(path: Path, clock: FakeClock) -> None:
    with pytest.raises(BadConfiguration, match="no store at"):
        SqliteStore.open(path, clock, create=False)
    assert not path.exists()


def test_name_with_special_characters_is_taken_literally(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "100% odd?name#1.db"

    SqliteStore.open(path, clock).close()

    assert path.exists()


async def test_read_only_store_shows_but_does_not_change(
    path: Path, stack: ContractStack, clock: FakeClock
) -> None:
    await stack.apply(start("run", token("a")))
    store = SqliteStore.open(path, clock, read_only=True)
    reading = SqliteLedger(store)

    assert await reading.inspect("run") is not None
    with pytest.raises(StoreReadOnly, match="for reading only"):
        await reading.commit([start("other", token("a"))])
    store.close()


async def test_file_that_became_read_only_is_told(store: SqliteStore, stack: ContractStack) -> None:
    assert store._writer is not None
    connection = store._writer._connection
    connection.execute("PRAGMA query_only = ON")

    with pytest.raises(StoreReadOnly, match="permissions"):
        await stack.commit(start("run", token("a")))

    connection.execute("PRAGMA query_only = OFF")
    await stack.apply(start("run", token("a")))
