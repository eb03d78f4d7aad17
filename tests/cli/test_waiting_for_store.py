"""Server, worker and scheduler are started in any order: they wait for a server of PostgreSQL that is not there yet."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from dalsegno.app import App
from dalsegno.cli.process import startup
from dalsegno.cli.process.startup import Awaited, running_when_open
from dalsegno.cli.run.session import Stopping
from dalsegno.engine.worker.heartbeat import Heartbeat
from dalsegno.errors import BadConfiguration, DalSegnoError, Unavailable
from dalsegno.wiring import open_stack
from tests.adapters.postgres.standby import Pair, make_pair
from tests.cli.programs import Program, Programs
from tests.cli.roles import NOBODY, ROLES, line_with, options_of, stop
from tests.servers.postgres import PostgresServer
from tests.servers.workspace import Workspace
from tests.waiting import until

PARTING = """
import os, time
from pathlib import Path

from dalsegno.cli.main import main
from dalsegno.engine.engine import Engine

begin = getattr(Engine, os.environ["MOMENT"])


def begin_later(self, **roles):
    Path("is_open").touch()
    while not Path("may_go_on").exists():
        time.sleep(0.01)
    return begin(self, **roles)


setattr(Engine, os.environ["MOMENT"], begin_later)
main()
"""
"""The program, which stands still in a moment in which its store is open and not everything runs yet."""

MOMENTS = [(role, "start") for role in ("worker", "scheduler", "server")] + [("worker", "_start_worker")]


@pytest.fixture
def pair(private_postgres: PostgresServer, server_workspace: Workspace) -> Iterator[Pair]:
    pair = make_pair(private_postgres, server_workspace.new_folder)
    yield pair
    pair.standby.discard()


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
    stop(program)


@pytest.mark.parametrize("role", ROLES)
def test_role_that_waits_can_be_stopped(programs: Programs, role: str) -> None:
    program = programs.begin(role, *options_of(role), "--store", NOBODY)
    line_with(program, "cannot be reached")
    program.send(signal.SIGTERM)
    code, _, err = program.finish()
    assert code == 0
    assert "stopped before the store could be opened" in err


def test_role_does_not_wait_for_what_waiting_does_not_mend(programs: Programs, postgres_url: str) -> None:
    code, _, err = programs.begin("worker", "--store", f"{postgres_url}_not").finish()
    assert code == 2
    assert "there is no such database" in err


@pytest.mark.parametrize("role", ROLES)
def test_role_waits_for_the_promotion_of_the_only_server_it_finds(
    programs: Programs, pair: Pair, role: str
) -> None:
    """One name, and nothing said about what is wanted: the standby is opened without a complaint."""
    invoke_migrate(programs, pair.primary.create_database("promoted"))
    pair.primary.kill()
    program = programs.begin(role, *options_of(role), "--store", pair.standby.url_of("promoted"))
    assert "it is a standby" in line_with(program, "the store cannot be opened")
    with pytest.raises(subprocess.TimeoutExpired):
        program.process.wait(1.5)
    pair.promote()
    line_with(program, ROLES[role])
    stop(program)


def begin_parting(programs: Programs, url: str, role: str, moment: str) -> Program:
    (programs.folder / "parting.py").write_text(PARTING)
    program = programs.forked("parting.py", role, *options_of(role), "--store", url, MOMENT=moment)
    until((programs.folder / "is_open").exists, "the store to be open")
    return program


@pytest.mark.parametrize(("role", "moment"), MOMENTS)
def test_server_that_goes_away_between_opening_and_starting_is_waited_for(
    programs: Programs, postgres_factory: Callable[..., PostgresServer], folder: Path, role: str, moment: str
) -> None:
    server = postgres_factory()
    program = begin_parting(programs, server.url, role, moment)
    server.kill()
    (folder / "may_go_on").touch()
    assert "cannot be reached" in line_with(program, "the store cannot be opened")
    server.start()
    line_with(program, ROLES[role])
    stop(program)


@pytest.mark.parametrize(("role", "moment"), MOMENTS)
def test_role_that_is_stopped_while_it_starts_closes_what_it_has_opened(
    programs: Programs, postgres_url: str, folder: Path, role: str, moment: str
) -> None:
    program = begin_parting(programs, postgres_url, role, moment)
    program.send(signal.SIGTERM)
    (folder / "may_go_on").touch()
    code, _, err = program.finish(patience=15)
    assert code == 0
    assert "stopped" in err


async def test_store_that_is_not_fit_for_writing_is_closed(
    monkeypatch: pytest.MonkeyPatch, postgres_server: PostgresServer, postgres_url: str
) -> None:
    """Whoever tries again opens another one each time."""

    async def refuse(store: object) -> None:
        raise Unavailable("away")

    monkeypatch.setattr("dalsegno.adapters.postgres.make_in_time", refuse)
    with pytest.raises(Unavailable):
        await open_stack(postgres_url)
    connected = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{postgres_url.rpartition('/')[2]}'"
    until(lambda: postgres_server.psql(connected) == "0", "the connections to be closed")


async def test_engine_whose_first_beat_was_not_stored_can_be_closed(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    def refuse(heartbeat: Heartbeat) -> None:
        raise Unavailable("away")

    monkeypatch.setattr(Heartbeat, "beat", refuse)
    app = App(f"sqlite:///{folder / 'beat.db'}")
    with pytest.raises(Unavailable):
        await app.running().__aenter__()
    await app.aclose()


def test_user_without_rights_is_not_waited_for(
    programs: Programs, postgres_server: PostgresServer, postgres_url: str
) -> None:
    """It is refused writes as by a standby, but nobody promotes a user."""
    invoke_migrate(programs, postgres_url)
    postgres_server.psql("DROP ROLE IF EXISTS stranger")
    postgres_server.psql("CREATE ROLE stranger LOGIN")
    stranger = postgres_url.replace("://dalsegno@", "://stranger@")
    assert stranger != postgres_url
    code, _, err = programs.begin("worker", "--store", stranger).finish()
    assert code == 2
    assert "the database user may not do this" in err


def invoke_migrate(programs: Programs, url: str) -> None:
    assert programs.begin("migrate", "--store", url).finish()[0] == 0


# -- without processes ----------------------------------------------------------------------------------------


class Store:
    """Stands for an application whose store is away for some tries."""

    url = "postgresql://me@host/db"

    def __init__(self, *errors: DalSegnoError) -> None:
        self.errors = list(errors)
        self.tries = self.closed = 0
        self.engine = SimpleNamespace(stack=SimpleNamespace(expect_writable=None))

    async def host_here(self) -> None:
        self.tries += 1

    async def aclose(self) -> None:
        self.closed += 1

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Store]:
        if self.errors:
            raise self.errors.pop(0)
        yield self


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Those that were made, in no time."""
    made: list[float] = []
    sleep = asyncio.sleep

    async def pause(seconds: float) -> None:
        made.append(seconds)
        await sleep(0)

    monkeypatch.setattr("dalsegno.cli.process.startup.asyncio.sleep", pause)
    # Commands that ran in this process have taken the handlers of our own loggers.
    monkeypatch.setattr(startup, "logger", logging.getLogger("tests.patience"))
    return made


async def opened(store: Store, stopping: Stopping | None = None) -> bool:
    application: App = store  # type: ignore[assignment]
    block = store.running
    async with running_when_open(application, block, stopping or Stopping(), Awaited()) as begun:
        return begun is not None


async def test_pauses_grow_and_not_every_try_is_told(
    pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    assert await opened(Store(*(Unavailable("away") for _ in range(7))))
    assert pauses == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0]
    assert [record.levelname for record in caplog.records].count("WARNING") == 1


async def test_it_is_said_again_now_and_then(
    pauses: list[float], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(startup, "REMINDER", 0.0)
    assert await opened(Store(Unavailable("away"), Unavailable("starting up")))
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert ["away" in told[0], "starting up" in told[1]] == [True, True]


async def test_other_errors_end_the_wait(pauses: list[float]) -> None:
    store = Store(Unavailable("away"), BadConfiguration("the password is wrong"))
    with pytest.raises(BadConfiguration):
        await opened(store)
    assert store.tries == 2


async def test_what_a_try_has_opened_is_closed_before_the_next(pauses: list[float]) -> None:
    store = Store(Unavailable("away"), Unavailable("still"))
    assert await opened(store)
    assert (store.tries, store.closed) == (3, 2)


async def test_store_that_is_a_file_is_tried_once(pauses: list[float]) -> None:
    store = Store(Unavailable("locked"))
    store.url = "sqlite:///x.db"
    with pytest.raises(Unavailable):
        await opened(store)
    assert (store.tries, store.closed, pauses) == (1, 1, [])


async def test_try_that_gets_no_answer_does_not_hold_up_the_end() -> None:
    class Silent(Store):
        async def host_here(self) -> None:
            await asyncio.Event().wait()

    stopping = Stopping()
    asyncio.get_running_loop().call_later(0.05, stopping.ask, signal.SIGTERM)
    began = time.monotonic()
    assert not await opened(Silent(), stopping)
    assert time.monotonic() - began < 30
