"""The servers that other tests rely on: they start, die, come back with their data, and leave nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest
import redis.asyncio

from tests.servers import PostgresServer, RedisServer, ServerFailed
from tests.servers.process import _ports, alive, children_of, free_port, wait_until
from tests.servers.workspace import Workspace

ROOT = Path(__file__).parents[2]


async def test_postgres_gives_each_test_an_empty_database(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    try:
        assert await connection.fetch("SELECT * FROM pg_tables WHERE schemaname = 'public'") == []
        assert await connection.fetchval("SHOW fsync") == "on"
        await connection.execute("CREATE TABLE left_behind ()")
    finally:
        await connection.close()


async def test_postgres_database_of_another_test_is_not_seen(postgres_url: str) -> None:
    await test_postgres_gives_each_test_an_empty_database(postgres_url)


async def test_postgres_keeps_what_it_committed_when_killed(private_postgres: PostgresServer) -> None:
    url = private_postgres.create_database("kept")
    connection = await asyncpg.connect(url)
    await connection.execute("CREATE TABLE t (n int)")
    await connection.execute("INSERT INTO t VALUES (1), (2)")
    private_postgres.kill()
    with pytest.raises((asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError)):
        await connection.fetchval("SELECT 1")
    connection.terminate()
    with pytest.raises(OSError):  # noqa: PT011 - connection refused, whatever its text
        await asyncpg.connect(url)

    private_postgres.start()

    connection = await asyncpg.connect(url)
    try:
        assert await connection.fetchval("SELECT sum(n) FROM t") == 3
    finally:
        await connection.close()


def test_postgres_stops_orderly_and_starts_again(private_postgres: PostgresServer) -> None:
    url = private_postgres.url
    private_postgres.psql("CREATE TABLE t ()")
    private_postgres.stop()
    assert not private_postgres.running
    private_postgres.start()
    assert private_postgres.url == url
    assert private_postgres.psql("SELECT count(*) FROM t") == "0"
    assert "not properly shut down" not in private_postgres.log_text()


def test_postgres_takes_settings_and_writes_a_log(
    postgres_factory: Callable[..., PostgresServer],
) -> None:
    server = postgres_factory(log_statement="all", fsync="off")
    assert server.psql("SHOW fsync") == "off"
    assert "SHOW fsync" in server.log_text()
    with pytest.raises(ServerFailed, match="does not exist"):
        server.psql("SELECT * FROM nowhere")
    assert 'relation "nowhere" does not exist' in server.log_text()


def test_a_server_that_cannot_start_says_why(postgres_factory: Callable[..., PostgresServer]) -> None:
    with pytest.raises(ServerFailed, match="no_such_setting"):
        postgres_factory(no_such_setting="1")


async def test_redis_is_empty_at_the_start_of_a_test(redis_url: str) -> None:
    async with redis.asyncio.from_url(redis_url) as client:
        assert await client.dbsize() == 0
        await client.set("left", "behind")


async def test_redis_keys_of_another_test_are_not_seen(redis_url: str) -> None:
    await test_redis_is_empty_at_the_start_of_a_test(redis_url)


@pytest.mark.parametrize("appendonly", [True, False])
async def test_redis_keeps_data_when_killed_if_it_appends(
    redis_factory: Callable[..., RedisServer], appendonly: bool
) -> None:
    server = redis_factory(appendonly=appendonly)
    async with redis.asyncio.from_url(server.url) as client:
        await client.set("k", "v")
    server.kill()
    server.start()
    async with redis.asyncio.from_url(server.url) as client:
        assert await client.get("k") == (b"v" if appendonly else None)


def test_shared_servers_come_back_after_a_test_killed_them(
    postgres_server: PostgresServer, redis_server: RedisServer, request: pytest.FixtureRequest
) -> None:
    postgres_server.kill()
    redis_server.kill()
    assert request.getfixturevalue("postgres_url").startswith("postgresql://")
    assert request.getfixturevalue("redis_url") == redis_server.url


def test_discarded_server_leaves_neither_process_nor_folder(server_workspace: Workspace) -> None:
    server = RedisServer(server_workspace.new_folder("redis"))
    with server:
        pid = server.pid
    assert not alive(pid)
    assert not server.folder.exists()


_FORGETFUL = """
import json, signal, threading
from tests.servers import PostgresServer, RedisServer
from tests.servers.postgres import make_template
from tests.servers.workspace import Workspace

space = Workspace()
servers = [
    PostgresServer(space.new_folder("pg"), make_template(space.new_folder("initdb"))),
    RedisServer(space.new_folder("redis")),
]
for server in servers:
    thread = threading.Thread(target=server.start)  # the death of the thread must not be the server's
    thread.start()
    thread.join()
assert all(server.running for server in servers)
print(json.dumps([str(space.path), *[server.pid for server in servers]]), flush=True)
signal.pause()
"""


def test_no_server_outlives_a_killed_pytest() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _FORGETFUL], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        folder, *pids = json.loads(process.stdout.readline())
        family = [member for pid in pids for member in (pid, *children_of(pid))]
        assert len(family) > 2, "PostgreSQL has processes of its own"
        process.kill()
    wait_until(lambda: not any(map(alive, family)), seconds=10, what="orphans to die")

    os.utime(folder, (0, 0))  # as if the killed run were old
    Workspace().remove()  # any later run sweeps
    assert not Path(folder).exists()


def test_interrupt_at_the_terminal_does_not_reach_the_servers(private_redis: RedisServer) -> None:
    assert os.getpgid(private_redis.pid) != os.getpgid(0)


def test_a_port_is_given_to_one_process_until_that_one_ends() -> None:
    """A server that was killed finds it free when it starts again."""
    line = "from tests.servers.process import free_port; print(free_port(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", line], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        port = int(other.stdout.readline())
        assert not _ports().take(port)
        other.communicate("\n")
    assert _ports().take(port)
    assert not _ports().take(port)
    given = {free_port() for _ in range(200)}
    assert len(given) == 200
    assert port not in given
