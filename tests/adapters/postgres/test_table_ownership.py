"""Roles that may do everything with the tables but give them partitions: they are told, and it helps."""

from __future__ import annotations

import asyncio
import logging

import pytest

from dalsegno.adapters.postgres import PostgresStore, keep_ahead
from dalsegno.adapters.postgres.archive import partitions as days
from dalsegno.adapters.postgres.archive.partitions import make_ahead, missing_among
from dalsegno.adapters.postgres.store import day_at
from tests.servers.postgres import SUPERUSER, PostgresServer
from tests.waiting import come_about

GRANTS = (
    "GRANT ALL ON SCHEMA dalsegno TO tenant; GRANT ALL ON ALL TABLES IN SCHEMA dalsegno TO tenant;"
    " GRANT ALL ON ALL SEQUENCES IN SCHEMA dalsegno TO tenant"
)
ROUNDS = 3
"""Of tending, in which a process says everything that it says at all."""


def url_of(role: str, server: PostgresServer) -> str:
    return server.url.replace(f"//{SUPERUSER}@", f"//{role}@")


async def install(owner: str, server: PostgresServer) -> None:
    if owner != SUPERUSER:
        server.psql(f"CREATE ROLE {owner} LOGIN")
        server.psql(f"CREATE SCHEMA dalsegno AUTHORIZATION {owner}")
    await (await PostgresStore.open(url_of(owner, server))).close()
    server.psql("CREATE ROLE tenant LOGIN")


async def tend(url: str, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """As a process does for as long as it runs; the days of the week to come that have no partition then."""
    store, rounds = await PostgresStore.open(url, may_migrate=False), 0

    async def counting(store: PostgresStore) -> int:
        nonlocal rounds
        rounds += 1
        return await make_ahead(store)

    with monkeypatch.context() as patched:
        patched.setattr(days, "make_ahead", counting)
        patched.setattr(days, "LASTING", 0.0)
        patched.setattr(days, "MAINTAIN_EVERY", 0.0)
        tending = asyncio.create_task(keep_ahead(store))
        await come_about(lambda: rounds > ROUNDS, "rounds of tending")
        tending.cancel()
        await asyncio.gather(tending, return_exceptions=True)
    names = [name for (name,) in await store.fetch("partitions.names", "dalsegno.event")]
    missing = missing_among(names, day_at(store.now()))
    await store.close()
    return {days.name_of_day(day) for day in missing}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("owner", ["landlord", SUPERUSER])
async def test_role_with_all_grants_is_told_once_what_lets_it_make_partitions(
    private_postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    owner: str,
) -> None:
    await install(owner, private_postgres)
    private_postgres.psql(GRANTS)
    url = url_of("tenant", private_postgres)

    assert len(await tend(url, monkeypatch)) == days.AHEAD + 1
    [told] = warnings(caplog)
    assert f"the role tenant does not own the tables of history ({owner} does)" in told
    assert "grant it the schema" not in caplog.text

    private_postgres.psql(told.partition(" a superuser run: ")[2])
    caplog.clear()
    assert await tend(url, monkeypatch) == set()
    assert warnings(caplog) == []


async def test_owner_of_the_tables_in_a_schema_of_somebody_else_is_told_which_grant_is_missing(
    private_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await install("tenant_before", private_postgres)
    private_postgres.psql("GRANT tenant_before TO tenant; ALTER SCHEMA dalsegno OWNER TO dalsegno")
    private_postgres.psql("GRANT USAGE ON SCHEMA dalsegno TO tenant")
    url = url_of("tenant", private_postgres)

    assert await tend(url, monkeypatch)
    [told] = warnings(caplog)
    assert "GRANT CREATE ON SCHEMA dalsegno TO tenant;" in told

    private_postgres.psql("GRANT CREATE ON SCHEMA dalsegno TO tenant;")
    assert await tend(url, monkeypatch) == set()


async def test_role_that_only_reads_is_not_told(
    private_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await install(SUPERUSER, private_postgres)
    private_postgres.psql(
        "GRANT USAGE ON SCHEMA dalsegno TO tenant; GRANT SELECT ON ALL TABLES IN SCHEMA dalsegno TO tenant"
    )

    await tend(url_of("tenant", private_postgres), monkeypatch)
    assert warnings(caplog) == []
