"""What is said where the first connection fails: whose fault it is, where, and what helps."""

from __future__ import annotations

from collections.abc import Callable

import asyncpg
import pytest

from dalsegno.adapters.postgres.errors import explain
from dalsegno.errors import BadConfiguration, DalSegnoError, Unavailable
from dalsegno.wiring import open_stack
from tests.servers.postgres import PostgresServer


async def refused(url: str) -> DalSegnoError:
    with pytest.raises(DalSegnoError) as caught:
        await (await open_stack(url)).close()
    return caught.value


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://me@127.0.0.1:54x2/db", "the port '54x2' in the store's URL is not a number"),
        ("postgresql://me@127.0.0.1:5432/db?sslmode=perhaps", "sslmode"),
        ("postgresql://me@127.0.0.1:5432/db?port", "the store's URL cannot be used"),
        ("postgresql://me@[::1/db", "the store's URL cannot be used"),
        ("postgresql://me:p/sekret@127.0.0.1/db", "%2F"),
    ],
)
async def test_url_that_cannot_be_read(url: str, said: str) -> None:
    error = await refused(url)
    assert isinstance(error, BadConfiguration)
    assert said in str(error)
    assert "sekret" not in str(error)


@pytest.mark.parametrize("setting", ["foo=bar", "work_mem=much", "no%20name=1"])
async def test_setting_that_the_server_does_not_take(postgres_url: str, setting: str) -> None:
    error = await refused(f"{postgres_url}?{setting}")
    assert isinstance(error, BadConfiguration)
    assert "query of the store's URL" in str(error)


async def test_user_who_may_not_connect(postgres_url: str, postgres_server: PostgresServer) -> None:
    database = postgres_url.rpartition("/")[2]
    postgres_server.psql("DROP ROLE IF EXISTS stranger")
    postgres_server.psql("CREATE ROLE stranger LOGIN")
    postgres_server.psql(f"REVOKE CONNECT ON DATABASE {database} FROM PUBLIC")
    error = await refused(postgres_url.replace("dalsegno", "stranger", 1))
    assert isinstance(error, BadConfiguration)
    assert "grant it CONNECT" in str(error)


async def test_database_that_is_not_there(postgres_url: str) -> None:
    error = await refused(f"{postgres_url}_not")
    assert isinstance(error, BadConfiguration)
    assert "create it" in str(error)


async def test_server_without_ssl(postgres_url: str) -> None:
    """Not one that is away: whoever waits for it would do so for ever."""
    error = await refused(f"{postgres_url}?sslmode=require")
    assert isinstance(error, BadConfiguration)
    assert "does not speak SSL, which `sslmode`" in str(error)


async def test_host_that_is_not_known_is_named() -> None:
    error = await refused("postgresql://me:sekret@nowhere.invalid:5433/db")
    assert isinstance(error, Unavailable)
    assert "PostgreSQL at nowhere.invalid:5433 cannot be reached" in str(error)
    assert "%40" not in str(error)


@pytest.mark.parametrize("password", ["p@sekret", "p@sekret/w", "p@sekret:x"])
async def test_password_that_ends_too_early_is_hinted_at_and_not_shown(password: str) -> None:
    error = await refused(f"postgresql://me:{password}@nowhere.invalid/db")
    assert "%40" in str(error)
    assert "sekret" not in str(error)


async def test_server_without_a_free_connection_is_not_unreachable(
    postgres_factory: Callable[..., PostgresServer],
) -> None:
    server = postgres_factory(max_connections="4", superuser_reserved_connections="0", max_wal_senders="0")
    taken = [await asyncpg.connect(server.url) for _ in range(4)]
    try:
        error = await refused(server.url)
    finally:
        for each in taken:
            await each.close()
    assert isinstance(error, Unavailable)
    assert "accepts no connections now" in str(error)
    assert "too many clients" in str(error)


async def test_database_that_takes_no_connections_speaks_of_no_commit(
    postgres_url: str, postgres_server: PostgresServer
) -> None:
    database = postgres_url.rpartition("/")[2]
    postgres_server.psql(f"ALTER DATABASE {database} ALLOW_CONNECTIONS false")
    error = await refused(postgres_url)
    assert isinstance(error, Unavailable)
    assert "not currently accepting connections" in str(error)
    assert "sent again" not in str(error)


def test_transaction_that_was_undone_can_be_sent_again() -> None:
    for error in (
        asyncpg.DeadlockDetectedError("x"),
        asyncpg.SerializationError("x"),
        asyncpg.LockNotAvailableError("x"),
    ):
        told = explain(error)
        assert isinstance(told, Unavailable)
        assert "can be sent again" in str(told)


@pytest.mark.parametrize("listen", ["postgresql://me@host:54x2/db", "sqlite:///x.db", "host:5432", "//h/db"])
async def test_unreadable_url_to_listen_at(
    postgres_url: str, listen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DALSEGNO_LISTEN", listen)
    with pytest.raises(BadConfiguration, match="DALSEGNO_LISTEN is no URL"):
        await open_stack(postgres_url)


@pytest.mark.parametrize(
    "host", ["127.0.0.1:{port}", "127.0.0.1:9,127.0.0.1:{port}", "[::1]:{port}", "localhost"]
)
async def test_readable_url_to_listen_at(
    postgres_url: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether anybody answers there is seen later."""
    port = postgres_url.rpartition(":")[2].partition("/")[0]
    monkeypatch.setenv("DALSEGNO_LISTEN", f"postgresql://me:s@{host.format(port=port)}/db")
    stack = await open_stack(postgres_url)
    await stack.close()
