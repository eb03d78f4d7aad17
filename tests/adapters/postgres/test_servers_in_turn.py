"""URLs with several servers: one that does not answer at all does not keep anybody from the others."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from dalsegno import App
from dalsegno.adapters.postgres import PostgresStore, connections
from dalsegno.adapters.postgres.connections import connect, one_by_one
from dalsegno.adapters.postgres.diagnostics import examine_database
from tests.adapters.postgres.programs import app_of, chain_of

PREFERRING = "postgresql://u@a,b/db?target_session_attrs=prefer-standby"


@pytest.fixture
def silent() -> Iterator[str]:
    """Where connections are taken by the system, and nobody ever says a word."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def behind_silence(silent: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(connections, "SECONDS_PER_SERVER", 0.2)
    return postgres_url.replace("@", f"@{silent},")


async def test_server_after_a_silent_one_is_found(behind_silence: str) -> None:
    async with asyncio.timeout(9):
        store = await PostgresStore.open(behind_silence)
        await store.expect_writable()
        await store.close()
        facts = await examine_database(behind_silence, behind_silence)
    assert facts.wakes


def test_everything_works_behind_a_silent_server(behind_silence: str, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(chain_of(2, pause=0.0))
    app: App = app_of(file, behind_silence, lease_seconds=10.0)
    with app.running():
        assert app.start("chain", 1).result(timeout=20) == 4


async def test_time_is_shared_where_it_is_short(silent: str, postgres_url: str) -> None:
    async with asyncio.timeout(4):
        connection = await connect(postgres_url.replace("@", f"@{silent},{silent},"), timeout=3.0)
    await connection.close()


async def test_silent_servers_alone_are_waited_for_no_longer_than_asked(silent: str) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(TimeoutError):
        await connect(f"postgresql://me@{silent},{silent}/db", timeout=0.6)
    assert 0.5 < loop.time() - began < 20


async def test_server_that_is_away_is_told_rather_than_one_that_does_not_fit(
    silent: str, postgres_url: str
) -> None:
    """It may be the primary that is looked for."""
    url = postgres_url.replace("@", f"@{silent},") + "?target_session_attrs=standby"
    with pytest.raises(TimeoutError):
        await connect(url, timeout=0.6)


async def test_server_that_does_not_fit_is_passed_over(postgres_url: str) -> None:
    place = postgres_url.rpartition("@")[2].partition("/")[0]
    url = postgres_url.replace("@", f"@{place},") + "?target_session_attrs=standby"
    with pytest.raises(asyncpg.TargetServerAttributeNotMatched):
        await connect(url)


async def test_server_that_refuses_the_user_ends_the_search(postgres_url: str) -> None:
    place = postgres_url.rpartition("@")[2].partition("/")[0]
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await connect(postgres_url.replace("@", f"@{place},") + "_not")


@pytest.mark.parametrize(
    ("url", "each"),
    [
        ("postgresql://u:p@a/db", ["postgresql://u:p@a/db"]),
        ("postgres://u@a:1,b:2/db?x=1,2", ["postgres://u@a:1/db?x=1,2", "postgres://u@b:2/db?x=1,2"]),
        ("postgresql://a,[::1]:5", ["postgresql://a", "postgresql://[::1]:5"]),
        ("postgresql:///db?host=a,b", ["postgresql:///db?host=a,b"]),
        ("postgresql://u@a,/db", ["postgresql://u@a,/db"]),
        (PREFERRING, [PREFERRING]),
        ("nonsense", ["nonsense"]),
    ],
)
def test_url_is_taken_apart(url: str, each: list[str]) -> None:
    assert one_by_one(url) == each
