"""Commands on a store on PostgreSQL: ``migrate`` and ``doctor``, and one workflow through them all."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.cli.documents import HELLO, write
from tests.servers.postgres import PostgresServer


def has_schema(server: PostgresServer, url: str) -> bool:
    return server.psql("SELECT to_regnamespace('dalsegno') IS NOT NULL", url.rpartition("/")[2]) == "t"


def statuses(invoke: Invoke, store: str) -> dict[str, str]:
    told = json.loads(invoke("doctor", "--json", "--store", store).stdout)
    return {check["name"]: check["status"] for check in told["checks"]}


def test_migrate_says_what_is_to_be_done_and_does_it(invoke: Invoke, postgres_url: str) -> None:
    before = invoke("migrate", "--check", "--store", postgres_url)
    assert before.exit_code == 1
    assert "not up to date" in before.stdout

    assert "schema 0 is now" in invoke("migrate", "--store", postgres_url).stdout

    told = json.loads(invoke("migrate", "--check", "--json", "--store", postgres_url).stdout)
    assert told["before"] == told["schema"] == told["newest"] > 0


def test_migrate_makes_a_file_too(invoke: Invoke, folder: Path) -> None:
    assert invoke("migrate", "--check").exit_code == 1
    assert not (folder / "dalsegno.db").exists()
    assert "schema 0 is now" in invoke("migrate").stdout
    assert "is up to date" in invoke("migrate").stdout


def test_migrate_refuses_what_has_no_schema(invoke: Invoke) -> None:
    result = invoke("migrate", "--store", "memory:")
    assert result.exit_code != 0
    assert "no schema" in result.stderr


def test_migrate_refuses_a_database_of_a_newer_version(
    invoke: Invoke, postgres_url: str, postgres_server: PostgresServer
) -> None:
    invoke("migrate", "--store", postgres_url)
    database = postgres_url.rpartition("/")[2]
    postgres_server.psql("UPDATE dalsegno.installed SET schema = 999, oldest = 999", database)

    for options in ((), ("--check",)):
        result = invoke("migrate", "--store", postgres_url, *options)
        assert result.exit_code != 0
        assert "newer" in result.stderr


def test_doctor_looks_at_the_server(invoke: Invoke, postgres_url: str) -> None:
    invoke("migrate", "--store", postgres_url)
    found = statuses(invoke, postgres_url)
    database = ("database", "durability", "clearing up", "wake-ups", "server's clock")
    assert {found[name] for name in (*database, "schema", "workers", "executions")} == {"ok"}


def test_doctor_warns_of_history_without_a_partition_of_its_own(
    invoke: Invoke, postgres_url: str, postgres_server: PostgresServer
) -> None:
    invoke("migrate", "--store", postgres_url)
    assert statuses(invoke, postgres_url)["history"] == "ok"
    database = postgres_url.rpartition("/")[2]
    for table, columns in (("event", "seq, kind, node, scope, at"), ("output", "id, data")):
        values = "1, 'Started', '', '', 0" if table == "event" else "'o', 'x'"
        day = 19_676 if table == "event" else 19_678  # the first is 15 November 2023
        postgres_server.psql(
            f"INSERT INTO dalsegno.{table} (execution, {columns}) VALUES ({day}::bigint << 40, {values})",
            database,
        )

    told = invoke("doctor", "--store", postgres_url).stdout

    assert statuses(invoke, postgres_url)["history"] == "warn"
    assert "2023-11-15 to 2023-11-17" in told
    assert "Nothing is lost" in told


def history(invoke: Invoke, store: str) -> dict[str, str]:
    told = json.loads(invoke("doctor", "--json", "--store", store).stdout)
    return next(check for check in told["checks"] if check["name"] == "history")


def test_doctor_warns_of_a_role_that_cannot_make_partitions(
    invoke: Invoke, private_postgres: PostgresServer
) -> None:
    invoke("migrate", "--store", private_postgres.url)
    private_postgres.psql("CREATE ROLE tenant LOGIN; GRANT ALL ON SCHEMA dalsegno TO tenant")
    private_postgres.psql("GRANT ALL ON ALL TABLES IN SCHEMA dalsegno TO tenant")
    private_postgres.psql("GRANT ALL ON ALL SEQUENCES IN SCHEMA dalsegno TO tenant")
    tenant = private_postgres.url.replace("//dalsegno@", "//tenant@")

    alone = history(invoke, tenant)
    assert alone["status"] == "warn"
    assert "has no partition to go to; the role tenant does not own the tables" in alone["detail"]
    assert "ALTER TABLE dalsegno.event OWNER TO tenant;" in alone["cure"]

    assert history(invoke, private_postgres.url)["status"] == "ok"  # and partitions are made
    assert history(invoke, tenant)["status"] == "warn"

    private_postgres.psql(alone["cure"].partition(" a superuser run: ")[2])
    assert history(invoke, tenant)["status"] == "ok"


def test_doctor_names_the_rights_that_are_missing(invoke: Invoke, private_postgres: PostgresServer) -> None:
    invoke("migrate", "--store", private_postgres.url)
    private_postgres.psql("CREATE ROLE tenant LOGIN")
    tenant = private_postgres.url.replace("//dalsegno@", "//tenant@")

    told = rights(invoke, tenant)
    assert (
        "the role tenant may not read and write all of the store: schema dalsegno, sequence" in told["detail"]
    )

    private_postgres.psql("GRANT USAGE ON SCHEMA dalsegno TO tenant")
    private_postgres.psql("GRANT SELECT ON ALL TABLES IN SCHEMA dalsegno TO tenant")
    told = rights(invoke, tenant)
    assert "sequence execution_number" in told["detail"]
    assert "schema dalsegno" not in told["detail"]

    private_postgres.psql(told["cure"].partition(" a superuser run: ")[2])
    checks = json.loads(invoke("doctor", "--json", "--store", tenant).stdout)["checks"]
    assert {check["name"]: check["status"] for check in checks}["schema"] == "ok"


def rights(invoke: Invoke, store: str) -> dict[str, str]:
    looked = invoke("doctor", "--json", "--store", store)
    last = json.loads(looked.stdout)["checks"][-1]
    assert (looked.exit_code, last["name"], last["status"]) == (1, "rights", "fail")
    return dict(last)


def test_doctor_warns_of_days_that_have_no_partition(
    invoke: Invoke, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def make_none(store: object) -> None:
        pass

    invoke("migrate", "--store", postgres_url)
    with monkeypatch.context() as hindered:
        hindered.setattr("dalsegno.adapters.postgres.make_in_time", make_none)
        hindered.setattr("dalsegno.adapters.postgres.keep_ahead", make_none)
        found = history(invoke, postgres_url)
    assert found["status"] == "warn"
    assert "has no partition to go to" in found["detail"]
    assert history(invoke, postgres_url)["status"] == "ok"


def test_doctor_says_that_the_schema_is_missing_and_installs_nothing(
    invoke: Invoke, postgres_url: str, postgres_server: PostgresServer
) -> None:
    told = invoke("doctor", "--store", postgres_url)
    assert told.exit_code == 0
    assert "not installed" in told.stdout
    assert "dalsegno migrate --store" in " ".join(told.stdout.split())
    assert statuses(invoke, postgres_url)["schema"] == "warn"
    assert not has_schema(postgres_server, postgres_url)


@pytest.mark.parametrize(
    "command",
    [("ls",), ("show", "last"), ("resume", "last"), ("dead", "ls"), ("deploy", "--dry-run", "hello.yaml")],
)
def test_commands_that_only_look_install_nothing(
    invoke: Invoke, folder: Path, postgres_url: str, postgres_server: PostgresServer, command: tuple[str, ...]
) -> None:
    write(folder, hello_yaml=HELLO)
    told = invoke(*command, "--store", postgres_url)
    assert not has_schema(postgres_server, postgres_url)
    if command[0] != "deploy":  # it can tell what it would do
        assert told.exit_code == 2
        assert f"there is no store at {postgres_url}: the schema `dalsegno` is not installed" in told.stderr
        assert f"dalsegno migrate --store {postgres_url}" in told.stderr


def test_doctor_warns_of_a_server_that_may_lose_commits(
    invoke: Invoke, postgres_factory: Callable[..., PostgresServer]
) -> None:
    server = postgres_factory(fsync="off")
    assert statuses(invoke, server.url)["durability"] == "warn"


def test_doctor_warns_of_a_server_that_clears_nothing_up(
    invoke: Invoke, postgres_factory: Callable[..., PostgresServer]
) -> None:
    server = postgres_factory(autovacuum="off")
    assert statuses(invoke, server.url)["clearing up"] == "warn"
    assert "autovacuum" in invoke("doctor", "--store", server.url).stdout


def test_doctor_says_that_there_is_no_server(invoke: Invoke) -> None:
    result = invoke("doctor", "--store", "postgresql://me:secret@127.0.0.1:9/nowhere")
    assert result.exit_code == 1
    assert "cannot be reached" in result.stdout
    assert "secret" not in result.output


@pytest.mark.parametrize("command", ["ls", "migrate", "worker", "doctor"])
def test_missing_driver_is_told_with_what_installs_it(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    result = invoke(command, "--store", "postgresql://me@127.0.0.1:9/db")
    assert result.exit_code == (1 if command == "doctor" else 2)
    assert "pip install 'dalsegno[postgres]'" in " ".join(result.output.split())
    assert "sqlite:///" not in result.output


@pytest.mark.parametrize("command", [("run", "hello.yaml"), ("deploy", "hello.yaml")])
def test_documents_go_to_the_database(
    invoke: Invoke, folder: Path, postgres_url: str, command: tuple[str, ...]
) -> None:
    write(folder, hello_yaml=HELLO)
    assert invoke(*command, "--store", postgres_url).exit_code == 0
    assert "hello" in invoke("ls", "--store", postgres_url).stdout or command[0] == "deploy"
    assert not (folder / "dalsegno.db").exists()
