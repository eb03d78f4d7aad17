"""The file of a SQLite store is deleted, moved or replaced under running processes: they say so and end, and what they
were asked for after that was not confirmed."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from dalsegno import App
from dalsegno.cli.errors import STORE_LOST
from dalsegno.errors import StoreLost
from tests.cli.conftest import Invoke
from tests.cli.documents import HELLO, LONG_WAIT, write
from tests.cli.programs import Program, Programs
from tests.waiting import until

SOON = 30.0


def lose(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink()


def ended(program: Program) -> tuple[int, str]:
    began = time.monotonic()
    code, _, err = program.finish()
    assert time.monotonic() - began < SOON
    return code, err


@pytest.mark.parametrize(
    "arguments",
    [("worker",), ("scheduler",), ("server", "--port", "0"), ("dev", "--port", "0")],
    ids=" ".join,
)
def test_long_running_process_says_so_once_and_ends(
    programs: Programs, folder: Path, arguments: tuple[str, ...]
) -> None:
    store = folder / "dalsegno.db"
    invoked = programs.begin(*arguments)
    invoked.logged_up_to("workers run elsewhere", "serves", "callers need", "machine may", "open to")
    lose(store)

    code, err = ended(invoked)

    assert code == STORE_LOST
    logged = [line for line in err.splitlines() if "CRITICAL" in line]
    assert len(logged) == 1, err
    assert f"the store {store} was deleted or moved while this process had it open" in logged[0]
    assert "restore a backup" in logged[0]
    assert "WARNING" not in err


def test_run_ends_with_the_same(programs: Programs, folder: Path, invoke: Invoke) -> None:
    write(folder, sleeper_yaml=LONG_WAIT)
    run = programs.begin("run", "sleeper.yaml", "--json")
    until((folder / "dalsegno.db").exists, "a store")
    until(lambda: "sleeps" in invoke("why", "last").stdout, "the nap")
    lose(folder / "dalsegno.db")

    code, out, err = run.finish()

    assert code == STORE_LOST, err
    assert json.loads(out)["error"]["code"] == "DS-231"


def test_family_of_workers_ends_and_none_is_started_again(
    programs: Programs, folder: Path, invoke: Invoke
) -> None:
    parent = programs.begin("worker", "--processes", "2")
    until((folder / "dalsegno.db").exists, "a store")
    until(lambda: len(json.loads(invoke("workers", "--json").stdout)["workers"]) == 2, "two workers")
    lose(folder / "dalsegno.db")

    code, err = ended(parent)

    assert code == STORE_LOST
    assert "None is started again" in err
    assert not (folder / "dalsegno.db").exists()


def start(url: str) -> int:
    request = urllib.request.Request(
        f"{url}/v1/executions",
        json.dumps({"workflow": "hello"}).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def test_server_confirms_no_start_after_its_store_was_replaced(
    programs: Programs, folder: Path, invoke: Invoke
) -> None:
    """Starts are sent without a pause. Whatever was confirmed is in the file that was moved away with its log."""
    write(folder, hello_yaml=HELLO)
    invoke("deploy", "hello.yaml")
    server = programs.begin("server", "--port", "0", "--json")
    assert server.process.stdout is not None
    url = json.loads(server.process.stdout.readline())["url"]
    confirmed = sum(start(url) == 201 for _ in range(20))
    store, away = folder / "dalsegno.db", folder / "away.db"
    for suffix in ("-wal", "-shm", ""):
        store.with_name(store.name + suffix).rename(away.with_name(away.name + suffix))
    answers = []
    while not answers or answers[-1] != 0:
        answers.append(start(url))

    code, err = ended(server)

    assert code == STORE_LOST, err
    assert set(answers) <= {503, 0}
    with sqlite3.connect(away) as connection:
        (found,) = connection.execute("SELECT count(*) FROM execution").fetchone()
    connection.close()
    assert confirmed == 20
    assert confirmed <= found <= confirmed + 1  # one may be written that is not confirmed


def test_program_with_a_worker_of_its_own_gets_the_error(folder: Path) -> None:
    app = App(f"sqlite:///{folder}/own.db")

    @app.workflow
    async def waits() -> None:
        from dalsegno import sleep

        await sleep(3600)

    def run() -> None:
        with app.running():
            handle = app.start(waits)
            lose(folder / "own.db")
            with pytest.raises(StoreLost):
                handle.result(timeout=SOON)
            with pytest.raises(StoreLost):
                app.start(waits)

    with pytest.raises(StoreLost, match="was deleted or moved"):
        run()


def test_async_program_gets_it_when_it_leaves_the_block(folder: Path) -> None:
    async def main() -> None:
        app = App(f"sqlite:///{folder}/own.db")
        async with app.running():
            told = asyncio.Event()
            app.engine.when_lost(lambda error: told.set())
            lose(folder / "own.db")
            await told.wait()

    with pytest.raises(StoreLost, match="was deleted or moved"):
        asyncio.run(main())
