"""Upgrades on PostgreSQL at the prompt: looking changes no schema, and nothing is taken away from those who need it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import msgspec
import pytest

from dalsegno import App
from dalsegno.adapters.postgres import migration
from dalsegno.adapters.postgres import migration as upgrading
from dalsegno.adapters.postgres.migration import Migration, migrations
from dalsegno.cli.migrate import is_older
from dalsegno.engine.worker.directory import WorkerInfo, write_info
from dalsegno.version import __version__
from tests.cli.conftest import Invoke
from tests.cli.documents import HELLO, write
from tests.servers.postgres import PostgresServer

ADDS = Migration("9998_more.sql", "pre", "ALTER TABLE execution ADD COLUMN more integer")
REMOVES = Migration("9999_less.sql", "post", "ALTER TABLE execution DROP COLUMN more")
NOW = len(migrations())


def become(monkeypatch: pytest.MonkeyPatch, *more: Migration) -> None:
    """From here on this program is a version with more files."""
    known = [*migrations(), *more]
    for module in (migration, upgrading):
        monkeypatch.setattr(module, "migrations", lambda: known)


def installed(server: PostgresServer, url: str) -> int:
    return int(server.psql("SELECT schema FROM dalsegno.installed", url.rpartition("/")[2]))


@pytest.fixture
def store(invoke: Invoke, postgres_url: str) -> str:
    """Of this version."""
    invoke("migrate", "--store", postgres_url)
    return postgres_url


# -- commands for people --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        ("ls",),
        ("show", "last"),
        ("why", "last"),
        ("workers",),
        ("resume", "last"),
        ("dead", "ls"),
        ("webhook", "ls"),
        ("alerts", "ls"),
        ("keys", "ls"),
        ("keys", "add", "ci"),
        ("deploy", "--dry-run", "hello.yaml"),
        ("deploy", "hello.yaml"),
    ],
)
def test_newer_program_that_does_not_run_workflows_leaves_the_schema_alone(
    invoke: Invoke,
    folder: Path,
    store: str,
    postgres_server: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
) -> None:
    write(folder, hello_yaml=HELLO)
    become(monkeypatch, ADDS)

    told = invoke(*command, "--store", store)

    assert told.exit_code != 0
    assert f"the database has schema version {NOW}, this program needs {NOW + 1}" in told.stderr
    assert "run `dalsegno migrate`" in told.stderr
    assert installed(postgres_server, store) == NOW


def test_doctor_of_a_newer_program_says_that_the_schema_is_older(
    invoke: Invoke, store: str, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    become(monkeypatch, ADDS)

    told = invoke("doctor", "--json", "--store", store)

    schema = next(check for check in json.loads(told.stdout)["checks"] if check["name"] == "schema")
    assert schema["status"] == "fail"
    assert "run `dalsegno migrate`" in schema["detail"]
    assert installed(postgres_server, store) == NOW


def test_older_program_looks_and_runs_beside_a_newer_one(
    invoke: Invoke, folder: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        become(newer, ADDS, REMOVES)
        invoke("migrate", "--store", store)

    write(folder, hello_yaml=HELLO)
    assert invoke("run", "hello.yaml", "--store", store).exit_code == 0
    assert "hello" in invoke("ls", "--store", store).stdout
    said = " ".join(invoke("migrate", "--check", "--store", store).stdout.split())
    assert f"schema {NOW + 1} is newer than this program, which knows up to {NOW}, and fits it" in said


def test_program_that_runs_workflows_brings_the_schema_up_to_date(
    invoke: Invoke,
    folder: Path,
    store: str,
    postgres_server: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write(folder, hello_yaml=HELLO)
    become(monkeypatch, ADDS)

    assert invoke("run", "hello.yaml", "--store", store).exit_code == 0
    assert installed(postgres_server, store) == NOW + 1


# -- finishing ------------------------------------------------------------------------------------------------


def hear(store: str, name: str, info: bytes, seconds: float = 60.0) -> None:
    async def beat() -> None:
        app = App(store)
        await asyncio.to_thread(app.client.stack.ledger.heartbeat, name, seconds, info)
        await app.aclose()

    asyncio.run(beat())


def about(version: str) -> bytes:
    return write_info(WorkerInfo(host="far", process=12, version=version))


def silent() -> bytes:
    """As versions wrote it that did not say which they are."""
    return msgspec.json.encode(WorkerInfo(host="old", process=7))


def test_upgrade_is_not_finished_while_older_workers_are_alive(
    invoke: Invoke, store: str, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hear(store, "a", about("0.0.9"))
    hear(store, "b", silent())
    hear(store, "c", about(__version__))
    become(monkeypatch, ADDS, REMOVES)
    assert invoke("migrate", "--store", store).exit_code == 0

    refused = invoke("migrate", "--finish", "--store", store)

    told = " ".join(refused.stderr.split())
    assert refused.exit_code == 2
    assert "older workers are alive: far:12 (version 0.0.9), old:7 (does not say its version)" in told
    assert f"version {__version__}" not in told
    assert "--force" in told
    assert installed(postgres_server, store) == NOW + 1


def test_upgrade_is_finished_beside_older_workers_by_force(
    invoke: Invoke, store: str, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hear(store, "b", silent())
    become(monkeypatch, ADDS, REMOVES)

    assert invoke("migrate", "--finish", "--force", "--store", store).exit_code == 0
    assert installed(postgres_server, store) == NOW + 2


def test_upgrade_is_finished_beside_what_is_dead_or_of_this_version(
    invoke: Invoke, store: str, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hear(store, "dead", silent(), -1.0)
    hear(store, "alive", about(__version__))
    become(monkeypatch, ADDS, REMOVES)

    assert invoke("migrate", "--finish", "--store", store).exit_code == 0
    assert installed(postgres_server, store) == NOW + 2


@contextmanager
def connected(store: str, name: str) -> Iterator[None]:
    """As a process that runs no worker, while the block lasts."""
    loop = asyncio.new_event_loop()
    connection = loop.run_until_complete(
        asyncpg.connect(store, server_settings={"application_name": name}, statement_cache_size=0)
    )
    try:
        yield
    finally:
        loop.run_until_complete(connection.close())
        loop.close()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("dalsegno/0.0.9 web-1:4711", "web-1:4711 at 127.0.0.1 (version 0.0.9)"),
        ("dalsegno/0.0.9 listener web-1:4711", "web-1:4711 at 127.0.0.1 (version 0.0.9)"),
        ("dalsegno/0.0.9 the shop's scheduler", "the shop's scheduler at 127.0.0.1 (version 0.0.9)"),
        ("dalsegno/0.0.9", "a process at 127.0.0.1 (version 0.0.9)"),
        ("dalsegno listener", "a process at 127.0.0.1 (does not say its version)"),
        ("dalsegno", "a process at 127.0.0.1 (does not say its version)"),
    ],
)
def test_upgrade_is_not_finished_while_older_processes_are_connected(
    invoke: Invoke,
    store: str,
    postgres_server: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    told: str,
) -> None:
    become(monkeypatch, ADDS, REMOVES)
    with connected(store, name):
        refused = invoke("migrate", "--finish", "--store", store)

    assert refused.exit_code == 2
    assert f"older processes are connected: {told}" in " ".join(refused.stderr.split())
    assert installed(postgres_server, store) == NOW
    assert invoke("migrate", "--finish", "--store", store).exit_code == 0


@pytest.mark.parametrize(
    "name", [f"dalsegno/{__version__} web-1:4711", "dalsegno/99.0", "psql", "dalsegno's own tool", ""]
)
def test_upgrade_is_finished_beside_connections_of_this_version_and_of_others(
    invoke: Invoke,
    store: str,
    postgres_server: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    become(monkeypatch, ADDS, REMOVES)
    with connected(store, name):
        assert invoke("migrate", "--finish", "--store", store).exit_code == 0
    assert installed(postgres_server, store) == NOW + 2


def test_older_worker_is_not_named_again_for_its_connections(
    invoke: Invoke, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hear(store, "a", about("0.0.9"))
    become(monkeypatch, ADDS, REMOVES)
    with connected(store, "dalsegno/0.0.9 far:12"):
        refused = invoke("migrate", "--finish", "--store", store)

    assert "older workers are alive: far:12 (version 0.0.9)" in " ".join(refused.stderr.split())
    assert "connected" not in refused.stderr


def test_finishing_where_nothing_is_taken_away_asks_nobody(invoke: Invoke, store: str) -> None:
    hear(store, "b", silent())

    told = invoke("migrate", "--finish", "--store", store)
    assert told.exit_code == 0
    assert f"schema {NOW} is up to date; there is nothing to remove" in " ".join(told.stdout.split())
    assert "remove" not in invoke("migrate", "--store", store).stdout


@pytest.mark.parametrize(
    ("options", "instead"),
    [
        (("--force",), "`dalsegno migrate --finish --force`"),
        (("--check", "--force"), "`dalsegno migrate --finish --force`"),
        (("--check", "--finish"), "`dalsegno migrate --check`, then run `dalsegno migrate --finish`"),
    ],
)
def test_options_that_do_not_go_together_are_refused_with_what_to_write(
    invoke: Invoke, folder: Path, options: tuple[str, ...], instead: str
) -> None:
    refused = invoke("migrate", *options)

    assert refused.exit_code == 2
    assert instead in " ".join(refused.stderr.split())
    assert not list(folder.glob("*.db"))


@pytest.mark.parametrize(
    ("version", "older"),
    [
        (None, True),
        ("0.9.0", True),
        ("0.10.0", False),
        ("0.11.0", False),
        ("0.10.0rc1", True),
        ("1.0", False),
        ("?", True),
    ],
)
def test_versions_are_compared_by_their_numbers(version: str | None, older: bool) -> None:
    assert is_older(version, "0.10.0") is older
