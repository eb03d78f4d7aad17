"""Starts in transactions of callers, with the connections of psycopg, SQLAlchemy and Django."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from dalsegno import App
from dalsegno.errors import NotFound, UsageError
from tests.docs.pages import DOCS, Block, blocks
from tests.scenarios.asking import ask
from tests.servers.forking import run_python

LATER = "workflow later(inputs) {\n  return inputs.n\n}\n"
INSERT = "INSERT INTO public.orders (id) VALUES ('o-1')"


class Undo(Exception):
    """Ends a block so that its transaction is rolled back."""


@pytest.fixture
def app(postgres_url: str) -> Iterator[App]:
    app = App(postgres_url)
    app.deploy_script(LATER)
    ask(postgres_url, "CREATE TABLE public.orders (id TEXT PRIMARY KEY)")
    yield app
    app.close()


def start(app: App, connection: Any) -> str:
    return (
        app.with_options(connection=connection, tags={"from": 'a "caller" \\ of ours'}).start("later", n=7).id
    )


async def astart(app: App, connection: Any) -> str:
    within = app.with_options(connection=connection, tags={"from": 'a "caller" \\ of ours'})
    return (await within.astart("later", n=7)).id


# -- one block of each kind -----------------------------------------------------------------------------------


def with_psycopg(app: App, url: str, end: Callable[[], None]) -> list[str]:
    with closing(psycopg.connect(url, row_factory=dict_row)) as connection, connection:
        connection.execute(INSERT)
        started = start(app, connection)
        [row] = connection.execute("SELECT 1 AS one, '{}'::jsonb AS object").fetchall()
        assert row == {"one": 1, "object": {}}, "what the caller has chosen holds"
        end()
    return [started]


def with_psycopg_autocommit(app: App, url: str, end: Callable[[], None]) -> list[str]:
    with closing(psycopg.connect(url, autocommit=True)) as connection, connection.transaction():
        started = start(app, connection)
        connection.execute(INSERT)
        end()
    return [started]


def with_sqlalchemy(app: App, url: str, end: Callable[[], None]) -> list[str]:
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    try:
        with engine.begin() as connection:
            started = start(app, connection)
            connection.execute(sqlalchemy.text(INSERT))
            end()
    finally:
        engine.dispose()
    return [started]


def with_a_session(app: App, url: str, end: Callable[[], None]) -> list[str]:
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    try:
        with Session(engine) as session, session.begin():
            session.execute(sqlalchemy.text(INSERT))
            started = start(app, session)
            end()
    finally:
        engine.dispose()
    return [started]


def with_a_scoped_session(app: App, url: str, end: Callable[[], None]) -> list[str]:
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    session = scoped_session(sessionmaker(engine))
    try:
        with session.begin():
            started = start(app, session)
            session.execute(sqlalchemy.text(INSERT))
            end()
    finally:
        session.remove()
        engine.dispose()
    return [started]


async def with_async_psycopg(app: App, url: str, end: Callable[[], None]) -> list[str]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        started = await astart(app, connection)
        await connection.execute(INSERT)
        end()
    return [started]


async def with_async_sqlalchemy(app: App, url: str, end: Callable[[], None], driver: str) -> list[str]:
    engine = create_async_engine(url.replace("postgresql:", f"postgresql+{driver}:"))
    try:
        async with engine.begin() as connection:
            started = await astart(app, connection)
            await connection.execute(sqlalchemy.text(INSERT))
            end()
    finally:
        await engine.dispose()
    return [started]


async def with_an_async_session(app: App, url: str, end: Callable[[], None], driver: str) -> list[str]:
    engine = create_async_engine(url.replace("postgresql:", f"postgresql+{driver}:"))
    try:
        async with AsyncSession(engine) as session, session.begin():
            await session.execute(sqlalchemy.text(INSERT))
            started = await astart(app, session)
            end()
    finally:
        await engine.dispose()
    return [started]


Kind = Callable[[App, str, Callable[[], None]], list[str]]


def on_a_loop(kind: Callable[..., Awaitable[list[str]]], *more: Any) -> Kind:
    async def run(app: App, url: str, end: Callable[[], None]) -> list[str]:
        return await kind(app, url, end, *more)

    return lambda app, url, end: asyncio.run(run(app, url, end))


KINDS: dict[str, Kind] = {
    "psycopg": with_psycopg,
    "psycopg-autocommit": with_psycopg_autocommit,
    "psycopg-async": on_a_loop(with_async_psycopg),
    "sqlalchemy": with_sqlalchemy,
    "session": with_a_session,
    "scoped-session": with_a_scoped_session,
    "sqlalchemy-async-asyncpg": on_a_loop(with_async_sqlalchemy, "asyncpg"),
    "sqlalchemy-async-psycopg": on_a_loop(with_async_sqlalchemy, "psycopg"),
    "async-session-asyncpg": on_a_loop(with_an_async_session, "asyncpg"),
    "async-session-psycopg": on_a_loop(with_an_async_session, "psycopg"),
}
EACH = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())


@EACH
def test_a_commit_starts_it(app: App, postgres_url: str, kind: Kind) -> None:
    [execution] = kind(app, postgres_url, lambda: None)

    with app.running():
        assert app.handle(execution).result(30) == 7
    assert dict(app.handle(execution).status().tags) == {"from": 'a "caller" \\ of ours'}
    assert ask(postgres_url, "SELECT id FROM public.orders") == ["o-1"]


@EACH
def test_a_rollback_leaves_nothing(app: App, postgres_url: str, kind: Kind) -> None:
    def undo() -> None:
        raise Undo

    with pytest.raises(Undo):
        kind(app, postgres_url, undo)

    assert app.executions() == []
    assert ask(postgres_url, "SELECT id FROM public.orders") == []


# -- what else holds ------------------------------------------------------------------------------------------


def test_a_refused_start_leaves_the_transaction_as_it_was(app: App, postgres_url: str) -> None:
    with closing(psycopg.connect(postgres_url)) as connection, connection:
        within = app.with_options(connection=connection, idempotency_key="k")
        first, second = within.start("later", n=1), within.start("later", n=1)
        with pytest.raises(NotFound):
            within.start("unknown", n=1)
        connection.execute(INSERT)
    assert first.id == second.id
    assert [handle.id for handle in app.executions()] == [first.id]
    assert ask(postgres_url, "SELECT id FROM public.orders") == ["o-1"]


def test_a_large_input_arrives_as_it_is(app: App, postgres_url: str) -> None:
    given = {"text": 'ä "quoted" \\ {x} \n' * 5000, "n": 1.5, "list": [None, True, -1e300]}
    with closing(psycopg.connect(postgres_url)) as connection, connection:
        handle = app.with_options(connection=connection).start("later", **given)
    [event] = [each for each in handle.events() if each.kind == "ExecutionStarted"]
    assert event.execution == handle.id
    with app.running():
        assert handle.result(30) == 1.5


def test_a_connection_without_a_transaction_is_refused(app: App, postgres_url: str) -> None:
    plain = psycopg.connect(postgres_url, autocommit=True)
    with closing(plain), pytest.raises(UsageError, match="begin a transaction"):
        start(app, plain)
    engine = sqlalchemy.create_engine(postgres_url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection, pytest.raises(UsageError, match="begin a transaction of SQLAlchemy"):
        start(app, connection)
    engine.dispose()


def test_a_connection_of_async_code_is_refused_in_plain_code(app: App, postgres_url: str) -> None:
    async def refuse() -> None:
        engine = create_async_engine(postgres_url.replace("postgresql:", "postgresql+asyncpg:"))
        async with await psycopg.AsyncConnection.connect(postgres_url) as one, engine.begin() as two:
            for connection in (one, two):
                with pytest.raises(UsageError, match="astart"):
                    start(app, connection)
        await engine.dispose()

    asyncio.run(refuse())


def test_another_database_is_refused(app: App, empty_postgres: Callable[[], str]) -> None:
    connection = psycopg.connect(empty_postgres())
    with closing(connection), pytest.raises(UsageError, match="one transaction only in one database"):
        start(app, connection)


# -- SQLite ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("writes_first", [True, False])
@pytest.mark.parametrize("commits", [True, False])
def test_sqlalchemy_on_sqlite(tmp_path: Path, commits: bool, writes_first: bool) -> None:
    app = App(f"sqlite:///{tmp_path}/store.db")
    app.deploy_script(LATER)
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/store.db")
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE orders (id TEXT PRIMARY KEY)"))
    insert = sqlalchemy.text("INSERT INTO orders (id) VALUES ('o-1')")
    with Session(engine) as session:
        if writes_first:
            session.execute(insert)
        execution = start(app, session)
        if not writes_first:
            session.execute(insert)
        (session.commit if commits else session.rollback)()

    assert [handle.id for handle in app.executions()] == ([execution] if commits else [])
    with engine.connect() as connection:
        rows = connection.execute(sqlalchemy.text("SELECT id FROM orders")).fetchall()
    assert [tuple(row) for row in rows] == ([("o-1",)] if commits else [])
    if commits:
        with app.running():
            assert app.handle(execution).result(30) == 7
    engine.dispose()
    app.close()


# -- Django ---------------------------------------------------------------------------------------------------

DJANGO = """
import os
import sys

import django
from django.conf import settings

settings.configure(DATABASES={"default": DATABASE}, USE_TZ=True)
django.setup()

from django.db import connection, connections, transaction

from dalsegno import App
from dalsegno.errors import UsageError

app = App(os.environ["STORE"])
app.deploy_script("workflow later(inputs) {\\n  return inputs.n\\n}\\n")
with connection.cursor() as cursor:
    cursor.execute("CREATE TABLE orders (id TEXT PRIMARY KEY)")


def take_order(order, given, undo=False):
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO orders VALUES (%s)", [order])
        handle = app.with_options(connection=given).start("later", n=7)
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM orders")
        if undo:
            transaction.set_rollback(True)
    return handle


try:
    app.with_options(connection=connection).start("later", n=7)
except UsageError as error:
    assert "transaction.atomic" in str(error), error
take_order("o-1", connection, undo=True)
done = [take_order("o-2", connection), take_order("o-3", connections["default"])]
with connection.cursor() as cursor:
    cursor.execute("SELECT id FROM orders ORDER BY id")
    print([row[0] for row in cursor.fetchall()])
connection.close()
print(sorted(view.id for view in app.executions()) == sorted(handle.id for handle in done))
with app.running():
    print([handle.result(60) for handle in done])
app.close()
"""


@pytest.mark.parametrize("store", ["postgres", "sqlite"])
def test_django(request: pytest.FixtureRequest, tmp_path: Path, store: str) -> None:
    """In a process of its own: Django is configured once for all."""
    if store == "postgres":
        url = request.getfixturevalue("postgres_url")
        parts = psycopg.conninfo.conninfo_to_dict(url)
        names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
        database = {name: str(parts[given]) for name, given in names.items() if given in parts}
        database["ENGINE"] = "django.db.backends.postgresql"
    else:
        url = f"sqlite:///{tmp_path}/store.db"
        database = {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{tmp_path}/store.db"}
    program = tmp_path / "orders.py"
    program.write_text(f"DATABASE = {database!r}\n{DJANGO}")
    ended = run_python(str(program), env={**os.environ, "STORE": url}, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == ["['o-2', 'o-3']", "True", "[7, 7]"]


PROGRAMS = blocks(DOCS / "how-to" / "transactional-starts.md")


@pytest.mark.parametrize("block", PROGRAMS, ids=lambda block: str(block.line))
def test_programs_of_the_manual_run(postgres_url: str, tmp_path: Path, block: Block) -> None:
    parts = psycopg.conninfo.conninfo_to_dict(postgres_url)
    names = {"NAME": "dbname", "USER": "user", "HOST": "host", "PORT": "port"}
    place = ", ".join(f'"{name}": "{parts[given]}"' for name, given in names.items())
    text = block.body.replace('"NAME": "shop", "USER": "shop", "HOST": "db"', place)
    for driver in ("", "+psycopg", "+asyncpg"):
        own = postgres_url.replace("postgresql:", f"postgresql{driver}:")
        text = text.replace(f"postgresql{driver}://shop@db/shop", own)
    program = tmp_path / "orders.py"
    program.write_text(text)
    ask(postgres_url, "CREATE TABLE orders (id TEXT PRIMARY KEY)")

    ended = run_python(str(program), timeout=120)

    assert (ended.returncode, ended.stderr) == (0, "")
    app = App(postgres_url)
    [handle] = app.executions("checkout")
    assert ended.stdout.split() == ["started", handle.id]
    assert ask(postgres_url, "SELECT id FROM orders") == ["o-1"]
    app.close()


def test_the_runtime_imports_none_of_these_packages() -> None:
    program = (
        "import sys, dalsegno, dalsegno.app, dalsegno.adapters.postgres; dalsegno.App('memory:');"
        "print(sorted({'psycopg', 'sqlalchemy', 'django'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"
