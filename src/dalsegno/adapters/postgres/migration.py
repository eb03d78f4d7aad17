"""The schema `dalsegno`: numbered files, applied forward only.

Each file names its stage in its first line. ``pre``: only adds, so that processes of the previous version can run
and be started alongside it; applied by the first process that opens the store. ``post``: removes what only they
needed; applied on demand, once none of them is left, and from then on they are refused. A fresh database gets all
files.

The database records which files were applied, and which programs it still fits. The command line inspects and
upgrades it here without opening a store.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Any, Literal

import asyncpg
from msgspec import Struct

from dalsegno.adapters.postgres.connections import (
    CONNECTED,
    WITHOUT_VERSION,
    connect,
    name_of,
    naming,
    process_of,
)
from dalsegno.adapters.postgres.errors import connecting, driver_errors
from dalsegno.errors import InternalError, SchemaMismatch
from dalsegno.ports.ledger import ConnectedProcess, WorkerView

HAS_NAMESPACE = "SELECT to_regnamespace('dalsegno') IS NOT NULL"
HAS_TABLE = "SELECT to_regclass('dalsegno.installed') IS NOT NULL"
HAS_OLDEST = """
SELECT EXISTS (
    SELECT FROM pg_attribute
    WHERE attrelid = 'dalsegno.installed'::regclass AND attname = 'oldest' AND NOT attisdropped
)
"""
NUMBERS = "SELECT schema, (to_jsonb(installed) ->> 'oldest')::integer FROM dalsegno.installed"
"""Works also for a table that was created before there was a second number."""
MAKE_TABLE = """
CREATE TABLE IF NOT EXISTS dalsegno.installed (
    single boolean PRIMARY KEY DEFAULT true CHECK (single), -- one row
    schema integer NOT NULL, -- files applied
    oldest integer -- files that a program has to know
);
INSERT INTO dalsegno.installed (schema) VALUES (0) ON CONFLICT DO NOTHING;
"""
ADD_OLDEST = "ALTER TABLE dalsegno.installed ADD COLUMN oldest integer"
WRITE = "UPDATE dalsegno.installed SET schema = $1, oldest = $2"


class Installed(Struct, frozen=True):
    version: int
    """Files applied; 0 for a database without our schema."""
    oldest: int
    """Files that a program has to know to fit: those up to the last one that removed something. Later ones only
    added, and do not disturb programs that do not know them.
    """

    def refuse_older(self, known: int) -> None:
        """Refuse a schema that needs a newer program. ``known``: how many files this program knows."""
        if known >= self.oldest:
            return
        raise SchemaMismatch(
            f"the database has schema version {self.version}, for programs that know version {self.oldest} or more,"
            f" this program knows up to {known}: it was written by a newer Dal Segno; upgrade this one, or use"
            " another database"
        )


async def look(connection: Any) -> Installed:
    if not await connection.fetchval(HAS_TABLE):
        return Installed(0, 0)
    version, oldest = await connection.fetchrow(NUMBERS)
    return Installed(version, version if oldest is None else oldest)


async def make_room(connection: Any) -> None:
    """Create the schema, unless an administrator created it for a user who may not."""
    if not await connection.fetchval(HAS_NAMESPACE):
        await connection.execute("CREATE SCHEMA IF NOT EXISTS dalsegno")
    await connection.execute(MAKE_TABLE)


async def write(connection: Any, installed: Installed) -> None:
    """Record the version, last in a migration.

    If the second number is missing, the table cannot be read from here to the end.
    """
    if not await connection.fetchval(HAS_OLDEST):
        await connection.execute(ADD_OLDEST)
    await connection.execute(WRITE, installed.version, installed.oldest)


logger = logging.getLogger("dalsegno.postgres")

LOCK = 0x4453474E
"""Key of the advisory lock under which concurrent migrations take turns."""

LOCK_TIMEOUT = "200ms"
"""How long a step waits for a table that others use, since later ones queue behind it."""
PATIENCE = 60.0
"""Seconds for which it is retried."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
AS_LONG_AS_IT_TAKES = 7 * 86_400.0
"""Seconds, instead of the usual limit of a statement. A step may rewrite a large table, and other processes wait
for their turn as long.
"""

STAGE = re.compile(r"-- stage: (pre|post)\n")


Agree = Callable[[Any], Awaitable[None]]
"""Called with the connection, under the lock. Raises if nothing may be removed now."""


class Migration(Struct, frozen=True):
    name: str
    stage: Literal["pre", "post"]
    text: str


def migrations() -> list[Migration]:
    """Return the migrations in their order."""
    folder = files("dalsegno.adapters.postgres") / "schema"
    entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
    return [
        _read(entry.name, entry.read_text(encoding="utf-8"))
        for entry in entries
        if entry.name.endswith(".sql")
    ]


def _read(name: str, text: str) -> Migration:
    found = STAGE.match(text)
    if found is None:
        raise InternalError(f"{name} must begin with the line '-- stage: pre' or '-- stage: post'")
    return Migration(name, found.group(1), text)  # type: ignore[arg-type]


async def migrate(
    connection: Any,
    *,
    may_change: bool = True,
    finish: bool = False,
    agree: Agree | None = None,
    steps: list[Migration] | None = None,
) -> int:
    """Bring the schema up to date; return its version.

    ``finish``: apply also the files that wait until no older process runs, which ``agree`` checks.
    """
    known = migrations() if steps is None else steps
    found = await look(connection)
    found.refuse_older(len(known))
    wanted = _wanted(known, found.version, finish=finish)
    if found.version >= wanted:
        return found.version
    if not may_change:
        raise SchemaMismatch(
            f"the database has schema version {found.version}, this program needs {wanted}: run `dalsegno "
            f"migrate`, or use a matching version of Dal Segno"
        )
    return await _apply_patiently(connection, known, finish=finish, agree=agree)


async def _apply_patiently(
    connection: Any, known: list[Migration], *, finish: bool, agree: Agree | None
) -> int:
    """Apply, and restart as long as another transaction holds a table that is to be changed."""
    clock = asyncio.get_running_loop().time
    until, pause = clock() + PATIENCE, FIRST_PAUSE
    while True:
        try:
            return await _apply(connection, known, finish=finish, agree=agree)
        except asyncpg.LockNotAvailableError as error:
            if clock() >= until:
                raise
            logger.info("the schema cannot be changed now (%s); trying again", error)
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)


async def _apply(connection: Any, known: list[Migration], *, finish: bool, agree: Agree | None) -> int:
    """Apply under the lock.

    What is to be done is determined again: the previous holder may have been of another version. So is whether it
    may be done: an older process may have been started during the wait.
    """
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK, timeout=AS_LONG_AS_IT_TAKES)
        await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
        await make_room(connection)
        found = await look(connection)
        found.refuse_older(len(known))
        wanted = _wanted(known, found.version, finish=finish)
        if found.version >= wanted:
            return found.version
        if finish and agree is not None and _takes_away(known, found.version):
            await agree(connection)
        await connection.execute("SET LOCAL search_path = dalsegno")
        for step in known[found.version : wanted]:
            await connection.execute(step.text, timeout=AS_LONG_AS_IT_TAKES)
        await write(connection, Installed(wanted, _oldest_that_fits(known[:wanted])))
        return wanted


def _takes_away(known: list[Migration], version: int) -> bool:
    """Return True if finishing the upgrade of this schema removes something that processes may still use."""
    return version > 0 and any(step.stage == "post" for step in known[version:])


def _oldest_that_fits(applied: list[Migration]) -> int:
    """Return how many of these files a program has to know."""
    return max((number for number, step in enumerate(applied, 1) if step.stage == "post"), default=1)


def _wanted(known: list[Migration], version: int, *, finish: bool) -> int:
    """Return the number of the last file to apply."""
    if finish or version == 0:
        return len(known)
    waiting = next((number for number in range(version, len(known)) if known[number].stage == "post"), None)
    if waiting is None:
        return len(known)
    if any(step.stage == "pre" for step in known[waiting:]):
        raise SchemaMismatch(
            f"the last upgrade was not finished ({known[waiting].name} is missing): stop all processes of older"
            " versions, then run `dalsegno migrate --finish`"
        )
    return waiting


WORKERS = "SELECT id, expires_at, 0, info FROM dalsegno.worker ORDER BY id"
"""Works on a schema of any version, and therefore omits how much they hold."""
NOW = "SELECT extract(epoch FROM clock_timestamp())::float8"

ProcessCheck = Callable[[Sequence[WorkerView], Sequence[ConnectedProcess], float], None]
"""Called with the store's workers, the connected processes and the store's time. Raises to refuse."""


async def upgrade(
    url: str, *, check: bool, finish: bool, agree: ProcessCheck | None = None
) -> tuple[int, int, int]:
    """Return the schema's version before, now, and the newest that is known.

    ``check``: nothing is changed. ``agree`` is called before something is removed that older processes need.
    """
    known = migrations()
    async with _connected(url) as connection:
        found = await look(connection)
        found.refuse_older(len(known))
        if check:
            return found.version, found.version, len(known)
        asked = None if agree is None else partial(_ask, agree)
        return found.version, await migrate(connection, finish=finish, agree=asked), len(known)


async def is_installed(url: str) -> bool:
    """Return True if the database has our schema, in any version."""
    async with _connected(url) as connection:
        return (await look(connection)).version > 0


async def is_up_to_date(url: str) -> bool:
    """Return False if the schema is missing. One that this program would have to change first is refused."""
    async with _connected(url) as connection:
        if (await look(connection)).version == 0:
            return False
        await migrate(connection, may_change=False)
        return True


async def _ask(agree: ProcessCheck, connection: Any) -> None:
    workers = [WorkerView(*row) for row in await connection.fetch(WORKERS)]
    connected = [process_of(*row) for row in await connection.fetch(CONNECTED, WITHOUT_VERSION)]
    agree(workers, list(dict.fromkeys(connected)), await connection.fetchval(NOW))


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[Any]:
    with driver_errors():
        with connecting(url):
            connection = await connect(
                url, timeout=30, statement_cache_size=0, server_settings=naming(name_of(url))
            )
        try:
            yield connection
        finally:
            await connection.close()
