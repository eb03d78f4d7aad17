"""Server, worker and scheduler are started in any order: they wait for a server of PostgreSQL that is not there yet."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable

import pytest

from dalsegno.app import App
from dalsegno.cli import patience
from dalsegno.cli.patience import open_patiently
from dalsegno.cli.session import Stopping
from dalsegno.errors import BadConfiguration, DalSegnoError, Unavailable
from tests.cli.programs import Program, Programs
from tests.servers.postgres import PostgresServer

ROLES = {"worker": "serves default", "scheduler": "scheduler: timers", "server": "listens at"}


def line_with(program: Program, text: str) -> str:
    """The first line on stderr that holds it; fails at the end of the output."""
    assert program.process.stderr is not None
    read = []
    for line in program.process.stderr:
        read.append(line)
        if text in line:
            return line
    raise AssertionError(f"{text!r} is not in {''.join(read)}")


def options_of(role: str) -> tuple[str, ...]:
    return ("--port", "0") if role == "server" else ()


@pytest.mark.parametrize("role", ROLES)
def test_role_waits_for_its_store(
    programs: Programs, postgres_factory: Callable[..., PostgresServer], role: str
) -> None:
    server = postgres_factory()
    server.stop()
    program = programs.begin(role, *options_of(role), DALSEGNO_STORE=server.url)
    assert "WARNING" in line_with(program, f"127.0.0.1:{server.port} cannot be reached")
    server.start()
    line_with(program, ROLES[role])
    program.send(signal.SIGTERM)
    assert program.finish()[0] == 0


@pytest.mark.parametrize("role", ROLES)
def test_role_that_waits_can_be_stopped(programs: Programs, role: str) -> None:
    program = programs.begin(role, *options_of(role), "--store", "postgresql://me@127.0.0.1:9/db")
    line_with(program, "cannot be reached")
    program.send(signal.SIGTERM)
    code, _, err = program.finish()
    assert code == 0
    assert "stopped before the store could be opened" in err


def test_role_does_not_wait_for_what_waiting_does_not_mend(programs: Programs, postgres_url: str) -> None:
    code, _, err = programs.begin("worker", "--store", f"{postgres_url}_not").finish()
    assert code == 2
    assert "there is no such database" in err


# -- without processes ----------------------------------------------------------------------------------------


class Store:
    """Stands for an application whose store is away for some tries."""

    url = "postgresql://me@host/db"

    def __init__(self, *errors: DalSegnoError) -> None:
        self.errors = list(errors)
        self.tries = 0

    async def host_here(self) -> None:
        self.tries += 1
        if self.errors:
            raise self.errors.pop(0)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Those that were made, in no time."""
    made: list[float] = []
    sleep = asyncio.sleep

    async def pause(seconds: float) -> None:
        made.append(seconds)
        await sleep(0)

    monkeypatch.setattr(patience.asyncio, "sleep", pause)
    # Commands that ran in this process have taken the handlers of our own loggers.
    monkeypatch.setattr(patience, "logger", logging.getLogger("tests.patience"))
    return made


async def opened(store: Store) -> bool:
    application: App = store  # type: ignore[assignment]
    return await open_patiently(application, Stopping())


async def test_pauses_grow_and_not_every_try_is_told(
    pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    assert await opened(Store(*(Unavailable("away") for _ in range(7))))
    assert pauses == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0]
    assert [record.levelname for record in caplog.records].count("WARNING") == 1


async def test_it_is_said_again_now_and_then(
    pauses: list[float], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "REMINDER", 0.0)
    assert await opened(Store(Unavailable("away"), Unavailable("starting up")))
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert ["away" in told[0], "starting up" in told[1]] == [True, True]


async def test_other_errors_end_the_wait(pauses: list[float]) -> None:
    store = Store(Unavailable("away"), BadConfiguration("the password is wrong"))
    with pytest.raises(BadConfiguration):
        await opened(store)
    assert store.tries == 2


async def test_try_that_gets_no_answer_does_not_hold_up_the_end() -> None:
    class Silent(Store):
        async def host_here(self) -> None:
            await asyncio.Event().wait()

    stopping = Stopping()
    application: App = Silent()  # type: ignore[assignment]
    asyncio.get_running_loop().call_later(0.05, stopping.ask, signal.SIGTERM)
    began = time.monotonic()
    assert not await open_patiently(application, stopping)
    assert time.monotonic() - began < 5
