"""Under which name connections show: who it is, of which version, and what the user has called it."""

from __future__ import annotations

import asyncpg
import pytest

from dalsegno import App, NodeContext
from dalsegno.adapters.postgres.connections import name_of, process_of
from dalsegno.ports.ledger import ConnectedProcess
from dalsegno.version import __version__
from tests.servers.postgres import SUPERUSER, PostgresServer
from tests.waiting import until

NAMES = """
SELECT DISTINCT application_name FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() ORDER BY 1
"""
OURS = f"dalsegno/{__version__}"


@pytest.mark.parametrize("query", ["?application_name=shop", "?jit=on&application_name=shop#x"])
def test_name_in_the_url_is_kept(query: str) -> None:
    assert name_of(f"postgresql://me@host/db{query}") == f"{OURS} shop"
    assert name_of(f"postgresql://me@host/db{query}", "task") == f"{OURS} task shop"


@pytest.mark.parametrize("url", ["postgresql://me@host/db", "postgresql://me@host/db?application_name="])
def test_without_one_it_is_the_process(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "web-1")
    monkeypatch.setattr("os.getpid", lambda: 4711)

    assert name_of(url, "listener") == f"{OURS} listener web-1:4711"


@pytest.mark.parametrize("name", ["listener-1:12", "tasks", "a b", "shop - 10.0.0.1:5555"])
def test_what_was_named_is_found_again(name: str) -> None:
    for purpose in ("", "listener ", "task "):
        assert process_of(f"dalsegno/1.2.3rc1 {purpose}{name}", "::1") == ConnectedProcess(
            name, "1.2.3rc1", "::1"
        )


def test_every_connection_says_its_version(postgres_url: str, postgres_server: PostgresServer) -> None:
    app = App(f"{postgres_url}?application_name=shop")

    @app.task
    async def booking(ctx: NodeContext) -> int:
        async with ctx.transaction() as connection:
            return int(await connection.fetchval("SELECT 1"))

    app.deploy_script('return await Task.run("booking", null)', "books")
    database = postgres_url.rpartition("/")[2]
    with app.running():
        assert app.start("books").result(timeout=30) == 1
        wanted = [f"{OURS} listener shop", f"{OURS} shop", f"{OURS} task shop"]
        until(
            lambda: postgres_server.psql(NAMES, database).splitlines() == wanted,
            "all are there, and no other",
        )


async def test_names_are_shown_to_every_role_and_addresses_to_their_own(
    private_postgres: PostgresServer,
) -> None:
    private_postgres.psql("CREATE ROLE humble LOGIN")
    other = await asyncpg.connect(
        private_postgres.url, server_settings={"application_name": "dalsegno/0.0.9 x"}
    )
    humble = await asyncpg.connect(private_postgres.url.replace(f"//{SUPERUSER}@", "//humble@"))
    rows = await humble.fetch(
        "SELECT application_name, client_addr FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    )
    await other.close()
    await humble.close()

    assert ("dalsegno/0.0.9 x", None) in [tuple(row) for row in rows]
