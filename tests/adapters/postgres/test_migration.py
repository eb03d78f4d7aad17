"""Migrations: forward only, one at a time, and what they lead to is written down."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from dalsegno.adapters.postgres import PostgresLedger, PostgresStore
from dalsegno.adapters.postgres.migration import Migration, look, migrate, migrations
from dalsegno.errors import InternalError, SchemaMismatch
from dalsegno.testing.contract.builders import RUN, start, token
from tests.adapters.postgres.describe import describe
from tests.adapters.postgres.meanwhile import until_somebody_waits

SCHEMA = Path(__file__).parent / "schema.txt"
"""Written by ``python -m tests.adapters.postgres.describe postgresql://…`` from a fresh store."""


@pytest.fixture
async def connection(postgres_url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


async def test_the_schema_file_equals_the_migrated_schema(connection: Any) -> None:
    await migrate(connection)

    assert await describe(connection) == SCHEMA.read_text(encoding="utf-8")


async def test_twenty_migrators_at_once_come_to_one_schema(postgres_url: str, connection: Any) -> None:
    async def migrate_alone() -> int:
        own = await asyncpg.connect(postgres_url)
        try:
            return await migrate(own)
        finally:
            await own.close()

    versions = await asyncio.gather(*(migrate_alone() for _ in range(20)))

    assert set(versions) == {len(migrations())}
    assert (await look(connection)).version == len(migrations())
    assert await describe(connection) == SCHEMA.read_text(encoding="utf-8")


async def test_opening_again_changes_nothing_and_loses_nothing(postgres_url: str) -> None:
    ledger = PostgresLedger(await PostgresStore.open(postgres_url))
    await ledger.commit([start(RUN, token("a"))])
    await ledger.close()

    again = PostgresLedger(await PostgresStore.open(postgres_url, may_migrate=False))
    assert await again.inspect(RUN) is not None
    await again.close()


async def test_newer_schema_than_the_program_is_refused(postgres_url: str, connection: Any) -> None:
    await migrate(connection)
    await connection.execute("UPDATE dalsegno.installed SET schema = schema + 1, oldest = schema + 1")

    with pytest.raises(SchemaMismatch, match="written by a newer Dal Segno; upgrade this one"):
        await PostgresStore.open(postgres_url)


async def test_older_schema_is_refused_where_it_must_not_be_changed(postgres_url: str) -> None:
    with pytest.raises(SchemaMismatch, match="run `dalsegno migrate`"):
        await PostgresStore.open(postgres_url, may_migrate=False)


# -- stages ---------------------------------------------------------------------------------------------------

FIRST = Migration("0001_a.sql", "pre", "CREATE TABLE a (old integer)")
ADDS = Migration("0002_b.sql", "pre", "ALTER TABLE a ADD COLUMN new integer")
REMOVES = Migration("0003_c.sql", "post", "ALTER TABLE a DROP COLUMN old")
LATER = Migration("0004_d.sql", "pre", "CREATE TABLE d (id integer)")


async def columns_of(connection: Any) -> set[str]:
    rows = await connection.fetch(
        "SELECT attname FROM pg_attribute WHERE attrelid = 'dalsegno.a'::regclass AND attnum > 0 AND NOT attisdropped"
    )
    return {name for (name,) in rows}


async def test_what_older_processes_need_stays_until_the_upgrade_is_finished(connection: Any) -> None:
    await migrate(connection, steps=[FIRST])

    assert await migrate(connection, steps=[FIRST, ADDS, REMOVES]) == 2
    assert await columns_of(connection) == {"old", "new"}
    assert await migrate(connection, steps=[FIRST, ADDS, REMOVES], finish=True) == 3
    assert await columns_of(connection) == {"new"}


async def test_fresh_database_gets_all_files(connection: Any) -> None:
    assert await migrate(connection, steps=[FIRST, ADDS, REMOVES]) == 3


async def test_next_upgrade_is_refused_until_the_last_one_is_finished(connection: Any) -> None:
    await migrate(connection, steps=[FIRST, ADDS])

    with pytest.raises(SchemaMismatch, match=r"0003_c\.sql is missing.*migrate --finish"):
        await migrate(connection, steps=[FIRST, ADDS, REMOVES, LATER])


async def test_migration_that_fails_leaves_nothing_behind(connection: Any) -> None:
    broken = Migration("0002_x.sql", "pre", "CREATE TABLE half (id integer); CREATE TABLE a (id integer)")
    await migrate(connection, steps=[FIRST])

    with pytest.raises(asyncpg.DuplicateTableError):
        await migrate(connection, steps=[FIRST, broken])

    assert (await look(connection)).version == 1
    assert await connection.fetchval("SELECT to_regclass('dalsegno.half')") is None


async def test_step_may_take_longer_than_other_statements(postgres_url: str) -> None:
    slow = Migration("0001_slow.sql", "pre", "DO $$ BEGIN PERFORM pg_sleep(2.5); END $$")
    impatient = await asyncpg.connect(postgres_url, command_timeout=1.5)

    assert await migrate(impatient, steps=[slow]) == 1
    await impatient.close()


async def test_others_do_not_queue_behind_a_step_that_waits_for_a_table(
    postgres_url: str, connection: Any
) -> None:
    await migrate(connection, steps=[FIRST])
    holder, reader = await asyncpg.connect(postgres_url), await asyncpg.connect(postgres_url)
    async with holder.transaction():
        await holder.fetch("SELECT FROM dalsegno.a")
        migrating = asyncio.create_task(migrate(connection, steps=[FIRST, ADDS]))
        await until_somebody_waits(reader)

        await reader.fetch("SELECT FROM dalsegno.a", timeout=10)
        assert not migrating.done()

    assert await migrating == 2
    await holder.close()
    await reader.close()


async def test_step_gives_up_on_a_table_that_is_held_for_very_long(
    postgres_url: str, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dalsegno.adapters.postgres.migration.PATIENCE", 0.5)
    await migrate(connection, steps=[FIRST])
    holder = await asyncpg.connect(postgres_url)
    async with holder.transaction():
        await holder.fetch("SELECT FROM dalsegno.a")
        with pytest.raises(asyncpg.LockNotAvailableError):
            await migrate(connection, steps=[FIRST, ADDS])
    await holder.close()

    assert await migrate(connection, steps=[FIRST, ADDS]) == 2


def test_every_file_names_its_stage() -> None:
    assert [step.name[:4] for step in migrations()] == [f"{n:04}" for n in range(1, len(migrations()) + 1)]
    assert all(step.text.startswith(f"-- stage: {step.stage}\n") for step in migrations())


def blocking_indexes(step: Migration) -> list[str]:
    return re.findall(r"^CREATE (?:UNIQUE )?INDEX (?!IF NOT EXISTS )(\w+)", step.text, re.MULTILINE)


def test_indexes_that_upgrades_add_can_be_built_beforehand() -> None:
    """While a migration builds one, nobody writes to its table; ``CONCURRENTLY`` is for those who do it by hand."""
    first = 2  # files of the first schema, which finds no rows
    assert all(blocking_indexes(step) for step in migrations()[:first])
    assert [name for step in migrations()[first:] for name in blocking_indexes(step)] == []


def test_file_without_a_stage_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "schema").mkdir()
    (tmp_path / "schema" / "0001_x.sql").write_text("CREATE TABLE x ()")
    monkeypatch.setattr("dalsegno.adapters.postgres.migration.files", lambda _: tmp_path)

    with pytest.raises(InternalError, match=r"0001_x\.sql must begin with the line"):
        migrations()
