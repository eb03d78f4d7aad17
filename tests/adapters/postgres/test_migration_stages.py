"""Which programs a schema fits: what is added disturbs nobody, what is taken away shuts out those who need it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from dalsegno.adapters.postgres import PostgresLedger, PostgresStore
from dalsegno.adapters.postgres.migration import Installed, Migration, look, migrate, migrations
from dalsegno.errors import SchemaMismatch
from dalsegno.testing.contract.builders import RUN, start, token
from tests.servers.postgres import SUPERUSER, PostgresServer
from tests.waiting import come_about

FIRST = Migration("0001_a.sql", "pre", "CREATE TABLE a (old integer)")
ADDS = Migration("0002_b.sql", "pre", "ALTER TABLE a ADD COLUMN new integer")
REMOVES = Migration("0003_c.sql", "post", "ALTER TABLE a DROP COLUMN old")
LATER = Migration("0004_d.sql", "pre", "CREATE TABLE d (id integer)")
OLD, NEW = [FIRST], [FIRST, ADDS, REMOVES]
NEXT_ADDS = Migration("9998_more.sql", "pre", "ALTER TABLE execution ADD COLUMN more integer")
NEXT_REMOVES = Migration("9999_less.sql", "post", "ALTER TABLE execution DROP COLUMN more")
FORGET_OLDEST = "ALTER TABLE dalsegno.installed DROP COLUMN oldest"
"""As in a database that was installed before there was a second number."""
IS_MIGRATING = """
SELECT EXISTS (
    SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = database
    WHERE datname = current_database() AND locktype = 'advisory' AND granted
)
"""


@pytest.fixture
async def connection(postgres_url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


async def test_version_before_works_on_a_schema_to_which_something_was_added(connection: Any) -> None:
    await migrate(connection, steps=OLD)
    assert await migrate(connection, steps=NEW) == 2

    assert await migrate(connection, steps=OLD) == 2
    assert await migrate(connection, steps=OLD, may_change=False) == 2
    assert await migrate(connection, steps=OLD, finish=True) == 2


async def test_version_before_is_refused_once_what_it_needs_is_taken_away(connection: Any) -> None:
    await migrate(connection, steps=OLD)
    await migrate(connection, steps=NEW)
    await migrate(connection, steps=NEW, finish=True)

    told = r"schema version 3, for programs that know version 3 or more, this program knows up to 1.*upgrade this one"
    with pytest.raises(SchemaMismatch, match=told):
        await migrate(connection, steps=OLD)


async def test_what_is_added_later_leaves_those_alone_who_know_what_was_taken_away(connection: Any) -> None:
    await migrate(connection, steps=[*NEW, LATER])

    assert await look(connection) == Installed(4, 3)
    assert await migrate(connection, steps=NEW) == 4
    with pytest.raises(SchemaMismatch, match="knows up to 2"):
        await migrate(connection, steps=[FIRST, ADDS])


async def test_store_opens_and_works_on_a_schema_to_which_something_was_added(
    postgres_url: str, connection: Any
) -> None:
    await migrate(connection, steps=[*migrations(), NEXT_ADDS])

    ledger = PostgresLedger(await PostgresStore.open(postgres_url))
    await ledger.commit([start(RUN, token("a"))])
    assert await ledger.inspect(RUN) is not None
    await ledger.close()


async def test_store_does_not_open_once_something_it_does_not_know_of_was_taken_away(
    postgres_url: str, connection: Any
) -> None:
    await migrate(connection, steps=[*migrations(), NEXT_ADDS, NEXT_REMOVES])

    with pytest.raises(SchemaMismatch, match="written by a newer Dal Segno; upgrade this one"):
        await PostgresStore.open(postgres_url)


async def test_old_and_new_programs_that_start_at_once_take_nothing_away(
    postgres_url: str, connection: Any
) -> None:
    """Also where a new one found an empty database, and an old one was faster: it is there, so it needs the rest."""
    slow = Migration(FIRST.name, "pre", f"{FIRST.text}; SELECT pg_sleep(1)")
    older, newer = await asyncpg.connect(postgres_url), await asyncpg.connect(postgres_url)
    async with asyncio.TaskGroup() as group:
        group.create_task(migrate(older, steps=[slow]))
        await come_about(lambda: connection.fetchval(IS_MIGRATING), "the older program migrates")
        group.create_task(migrate(newer, steps=NEW))
    await older.close()
    await newer.close()

    assert await look(connection) == Installed(2, 1)


async def test_twenty_programs_of_two_versions_at_once_come_to_one_schema(
    postgres_url: str, connection: Any
) -> None:
    await migrate(connection, steps=OLD)

    async def migrate_alone(steps: list[Migration]) -> int:
        own = await asyncpg.connect(postgres_url)
        try:
            return await migrate(own, steps=steps)
        finally:
            await own.close()

    await asyncio.gather(*(migrate_alone(steps) for steps in (OLD, NEW) * 10))

    assert await look(connection) == Installed(2, 1)


async def test_whether_something_may_be_taken_away_is_asked_under_the_lock_in_every_try(
    postgres_url: str, connection: Any
) -> None:
    """An older process may be started while the upgrade waits for a table."""
    await migrate(connection, steps=[FIRST, ADDS])
    holder = await asyncpg.connect(postgres_url)
    reading = holder.transaction()
    await reading.start()
    await holder.execute("SELECT FROM dalsegno.a")
    asked = []

    async def agree(own: Any) -> None:
        asked.append(await own.fetchval(IS_MIGRATING))
        if len(asked) == 2:
            raise RuntimeError("an older process has been started")

    with pytest.raises(RuntimeError, match="has been started"):
        await migrate(connection, steps=NEW, finish=True, agree=agree)

    assert asked == [True, True]
    assert await look(connection) == Installed(2, 1)
    await reading.rollback()
    await holder.close()


async def test_nobody_is_asked_where_nothing_is_taken_away(connection: Any) -> None:
    async def agree(_: Any) -> None:
        raise RuntimeError("nobody should ask")

    assert await migrate(connection, steps=NEW, finish=True, agree=agree) == 3, "nobody can use it yet"
    assert await migrate(connection, steps=[*NEW, LATER], finish=True, agree=agree) == 4


# -- databases without the second number ----------------------------------------------------------------------


async def test_database_without_the_second_number_is_used_as_it_is(
    postgres_url: str, connection: Any
) -> None:
    await migrate(connection)
    await connection.execute(FORGET_OLDEST)

    await (await PostgresStore.open(postgres_url, may_migrate=False)).close()
    assert (await look(connection)).version == len(migrations())


async def test_database_without_the_second_number_is_refused_by_the_first(connection: Any) -> None:
    await migrate(connection, steps=[FIRST, ADDS])
    await connection.execute(FORGET_OLDEST)

    with pytest.raises(SchemaMismatch, match="knows up to 1"):
        await migrate(connection, steps=OLD)


async def test_next_migration_writes_the_second_number_where_it_is_missing(connection: Any) -> None:
    await migrate(connection, steps=OLD)
    await connection.execute(FORGET_OLDEST)

    assert await migrate(connection, steps=NEW) == 2

    assert await look(connection) == Installed(2, 1)
    assert await migrate(connection, steps=OLD) == 2


# -- a schema that somebody else has made ---------------------------------------------------------------------


@pytest.fixture
def humble_url(private_postgres: PostgresServer) -> str:
    """Of a user who owns the schema and may create nothing else in the database."""
    private_postgres.psql("CREATE ROLE humble LOGIN")
    private_postgres.psql("CREATE SCHEMA dalsegno AUTHORIZATION humble")
    return private_postgres.url.replace(f"//{SUPERUSER}@", "//humble@")


async def test_user_who_may_create_no_schema_installs_into_one_that_is_there(humble_url: str) -> None:
    ledger = PostgresLedger(await PostgresStore.open(humble_url))
    await ledger.commit([start(RUN, token("a"))])
    assert await ledger.inspect(RUN) is not None
    await ledger.close()


async def test_user_who_may_create_no_schema_upgrades(humble_url: str) -> None:
    connection = await asyncpg.connect(humble_url)
    await migrate(connection, steps=OLD)

    assert await migrate(connection, steps=NEW) == 2
    assert await migrate(connection, steps=NEW, finish=True) == 3
    await connection.close()


async def test_user_who_may_create_no_schema_is_told_so_where_there_is_none(
    private_postgres: PostgresServer,
) -> None:
    private_postgres.psql("CREATE ROLE humble LOGIN")
    connection = await asyncpg.connect(private_postgres.url.replace(f"//{SUPERUSER}@", "//humble@"))

    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="permission denied for database"):
        await migrate(connection, steps=OLD)
    await connection.close()
