"""Applications on PostgreSQL: several processes on one database, and a server that goes away and comes back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from dalsegno import App
from dalsegno.adapters.urls import shown_url
from dalsegno.errors import BadConfiguration
from dalsegno.server.application import create_application
from dalsegno.wiring import open_stack
from tests.adapters.postgres.programs import app_of, chain_of
from tests.servers.postgres import PostgresServer
from tests.waiting import come_about, until

PATIENCE = 60.0


@pytest.fixture
def make_app(tmp_path: Path) -> Callable[[str], App]:
    """The application of program.py, in this process."""
    file = tmp_path / "program.py"
    file.write_text(chain_of(4))
    return lambda url: app_of(file, url, lease_seconds=5.0)


class Process:
    """``dalsegno <role>`` as an own process; its log is kept for whoever asks why."""

    def __init__(self, folder: Path, url: str, number: int, *command: str) -> None:
        self.log = folder / f"process-{number}.log"
        with self.log.open("wb") as log:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "dalsegno", *command],
                cwd=folder,
                env={**os.environ, "DALSEGNO_STORE": url},
                stderr=log,
            )

    def stop(self) -> int:
        self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(PATIENCE)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    begun: list[Process] = []

    def begin(url: str, *command: str) -> Process:
        process = Process(tmp_path, url, len(begun), *command)
        begun.append(process)
        return process

    yield begin
    for process in begun:
        if process.popen.poll() is None:
            process.popen.kill()
            process.popen.wait()


def test_work_goes_on_after_the_server_was_killed_and_came_back(
    private_postgres: PostgresServer, make_app: Callable[[str], App]
) -> None:
    app = make_app(private_postgres.create_database("app"))
    with app.running():
        assert app.start("chain", 1).result(timeout=PATIENCE) == 16
        handles = [app.start("chain", number) for number in range(30)]
        private_postgres.kill()
        private_postgres.start()

        assert [handle.result(timeout=PATIENCE) for handle in handles] == [
            16 * number for number in range(30)
        ]
        assert app.start("chain", 2).result(timeout=PATIENCE) == 32


async def test_readiness_says_that_the_server_is_away(
    private_postgres: PostgresServer, make_app: Callable[[str], App]
) -> None:
    application = create_application(make_app(private_postgres.create_database("app")))
    async with application.router.lifespan_context(application):
        transport = httpx.ASGITransport(application, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700") as http:
            assert (await http.get("/v1/health/ready")).status_code == 200
            private_postgres.kill()

            away = await http.get("/v1/health/ready")

            assert (away.status_code, (await http.get("/v1/health/live")).status_code) == (503, 200)
            assert "PostgreSQL" in away.text
            private_postgres.start()

            async def is_ready() -> bool:
                return (await http.get("/v1/health/ready")).status_code == 200

            await come_about(is_ready, "it is ready again")


def test_separate_processes_share_the_work(
    postgres_url: str,
    postgres_server: PostgresServer,
    processes: Callable[..., Process],
    make_app: Callable[[str], App],
) -> None:
    app = make_app(postgres_url)
    first, second = (processes(postgres_url, "worker", "--app", "program.py") for _ in range(2))
    processes(postgres_url, "scheduler")
    try:
        until(lambda: len(app.host.call(app.client.stack.ledger.workers())) == 2, "two living workers")
        handles = [app.start("chain", number) for number in range(40)]

        assert [handle.result(timeout=PATIENCE) for handle in handles] == [
            16 * number for number in range(40)
        ]
        assert first.stop() == 0
        processes(postgres_url, "worker", "--app", "program.py")
        handles = [app.start("chain", number) for number in range(40)]
        second.popen.kill()  # what it held is taken over by the newcomer

        assert [handle.result(timeout=PATIENCE) for handle in handles] == [
            16 * number for number in range(40)
        ]
    finally:
        app.close()
    assert "deadlock" not in postgres_server.log_text()


def test_password_is_not_shown() -> None:
    assert shown_url("postgresql://me:secret@host:5432/db?x=1") == "postgresql://me:***@host:5432/db?x=1"
    assert shown_url("postgresql://me@host/db") == "postgresql://me@host/db"
    assert shown_url("sqlite:///a.db") == "sqlite:///a.db"


async def test_wrong_database_is_named_without_its_password(postgres_server: PostgresServer) -> None:
    postgres_server.start()
    url = postgres_server.url_of("nowhere").replace("dalsegno@", "dalsegno:secret@")

    with pytest.raises(BadConfiguration, match="no such database") as refused:
        await open_stack(url)

    assert "secret" not in str(refused.value)
