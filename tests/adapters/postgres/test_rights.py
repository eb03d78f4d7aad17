"""A user that owns nothing is told which rights it lacks, and with these it can run workflows."""

from __future__ import annotations

import re

import pytest

from dalsegno import App
from dalsegno.adapters.postgres import PostgresArchive, PostgresStore
from dalsegno.adapters.postgres.archive.partitions import make_ahead, missing_among, name_of
from dalsegno.adapters.postgres.store import day_at
from dalsegno.errors import StoreReadOnly
from dalsegno.testing.clock import FakeClock
from tests.adapters.postgres.old_partitions import partitions, pass_days, put_ended, rows_of
from tests.servers.postgres import SUPERUSER, PostgresServer

SCRIPT = """
const doubled = await Task.run("double", inputs.value)
const answer = await Signal.next("answer")
await Timer.delay(0.05)
return doubled + answer
"""


def url_of(role: str, server: PostgresServer) -> str:
    return server.url.replace(f"//{SUPERUSER}@", f"//{role}@")


@pytest.fixture
async def tenant(private_postgres: PostgresServer) -> str:
    """The URL of a role without any rights; the tables belong to ``landlord``."""
    private_postgres.psql("CREATE ROLE landlord LOGIN; CREATE ROLE tenant LOGIN")
    private_postgres.psql("CREATE SCHEMA dalsegno AUTHORIZATION landlord")
    await (await PostgresStore.open(url_of("landlord", private_postgres))).close()
    return url_of("tenant", private_postgres)


async def refusal(url: str) -> str:
    with pytest.raises(StoreReadOnly) as refused:
        await work(url)
    return str(refused.value)


async def work(url: str) -> None:
    """All roles of a process: a task, a signal, a timer, a limit, and what has ended is removed."""
    app = App(url)

    @app.task(concurrency=1)
    async def double(value: int) -> int:
        return 2 * value

    try:
        async with app.running():
            await app.adeploy_script(SCRIPT, "s")
            handle = await app.astart("s", value=20)
            await handle.asignal("answer", 2)
            assert await handle.aresult(timeout=30) == 42
            archive = app.engine.stack.archive
            assert await archive.remove_ended(app.engine.stack.ledger.now() + 60, 10) == 1
    finally:
        await app.aclose()


def statements_in(message: str) -> list[str]:
    """Those for a role that owns nothing."""
    return [
        statement.replace("<user>", "tenant")
        for statement in re.findall(r"GRANT \w[^;]* TO <user>;", message)
    ]


async def test_grants_that_are_named_suffice_to_run_workflows(
    private_postgres: PostgresServer, tenant: str, caplog: pytest.LogCaptureFixture
) -> None:
    told = await refusal(tenant)
    assert told.startswith("the database user may not do this. ")

    for statement in statements_in(told):
        private_postgres.psql(statement)
    caplog.clear()

    await work(tenant)
    assert "42501" not in caplog.text


@pytest.mark.parametrize("left_out", ["SCHEMA dalsegno TO", "ALL TABLES", "ALL SEQUENCES"])
async def test_none_of_these_grants_can_be_left_out(
    private_postgres: PostgresServer, tenant: str, left_out: str
) -> None:
    grants = statements_in(await refusal(tenant))
    needless = [statement for statement in grants if f" ON {left_out}" not in statement]
    assert len(needless) == len(grants) - 1
    for statement in needless:
        private_postgres.psql(statement)

    assert "SQLSTATE 42501" in await refusal(tenant)


async def test_member_of_the_owner_needs_nothing_else(private_postgres: PostgresServer, tenant: str) -> None:
    told = await refusal(tenant)
    assert "(GRANT <owner> TO <user>;)" in told
    private_postgres.psql("GRANT landlord TO tenant")

    await work(tenant)

    store = await PostgresStore.open(tenant)
    await make_ahead(store)
    names = [name for (name,) in await store.fetch("partitions.names", "dalsegno.event")]
    assert missing_among(names, day_at(store.now())) == []
    await store.close()


async def test_user_that_may_not_even_install_the_tables_is_told_what_that_takes(
    private_postgres: PostgresServer,
) -> None:
    private_postgres.psql("CREATE ROLE tenant LOGIN")
    tenant = url_of("tenant", private_postgres)
    assert "to install them it needs CREATE on the database" in await refusal(tenant)

    private_postgres.psql("GRANT CREATE ON DATABASE postgres TO tenant")

    await work(tenant)


async def test_days_whose_partitions_belong_to_another_are_removed_row_by_row(
    private_postgres: PostgresServer, tenant: str
) -> None:
    for statement in statements_in(await refusal(tenant)):
        private_postgres.psql(statement)
    clock = FakeClock()
    owning = await PostgresStore.open(url_of("landlord", private_postgres), clock)
    await make_ahead(owning)
    day = day_at(owning.now())
    number = await put_ended(owning, "done", day)
    assert await rows_of(owning, number) == 4
    await pass_days(owning, 3)

    store = await PostgresStore.open(tenant, clock)
    assert await PostgresArchive(store).remove_ended(store.now()) == 1

    assert await rows_of(store, number) == 0
    assert name_of("event", day) in await partitions(store)
    await store.close()
    await owning.close()
