"""The schema `dalsegno`: numbered files, applied forward only.

Each file names its stage in its first line. ``pre``: only adds, so that processes of the version before go on beside
it; applied by whoever opens the store first. ``post``: takes away what only they needed; applied on demand, once none
of them is left. A fresh database gets all files.
"""

from __future__ import annotations

import asyncio
import logging
import re
from importlib.resources import files
from typing import Any, Literal

import asyncpg
from msgspec import Struct

from dalsegno.errors import InternalError, SchemaMismatch

logger = logging.getLogger("dalsegno.postgres")

LOCK = 0x4453474E
"""Key of the advisory lock under which processes that migrate at once take turns."""

LOCK_TIMEOUT = "200ms"
"""How long a step waits for a table that others use: whoever comes after it waits behind it."""
PATIENCE = 60.0
"""Seconds for which it is tried again."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
AS_LONG_AS_IT_TAKES = 7 * 86_400.0
"""Seconds, instead of those that a connection grants any other statement. A step may rewrite a large table, and whoever
waits for its turn waits for that."""

STAGE = re.compile(r"-- stage: (pre|post)\n")

INSTALLED = "SELECT to_regclass('dalsegno.installed') IS NOT NULL"
VERSION = "SELECT schema FROM dalsegno.installed"
PREPARE = """
CREATE SCHEMA IF NOT EXISTS dalsegno;
CREATE TABLE IF NOT EXISTS dalsegno.installed (
    single boolean PRIMARY KEY DEFAULT true CHECK (single), -- one row
    schema integer NOT NULL -- files applied
);
INSERT INTO dalsegno.installed (schema) VALUES (0) ON CONFLICT DO NOTHING;
"""


class Migration(Struct, frozen=True):
    name: str
    stage: Literal["pre", "post"]
    text: str


def migrations() -> list[Migration]:
    """In their order."""
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


async def installed_version(connection: Any) -> int:
    """How many files were applied; 0 for a database that knows nothing of us."""
    if not await connection.fetchval(INSTALLED):
        return 0
    return int(await connection.fetchval(VERSION))


async def migrate(
    connection: Any, *, may_change: bool = True, finish: bool = False, steps: list[Migration] | None = None
) -> int:
    """Brings the schema up to date, ``finish``: also by what waits until no older process runs. Returns its version."""
    known = migrations() if steps is None else steps
    version = await installed_version(connection)
    _refuse_newer(version, len(known))
    wanted = _wanted(known, version, finish=finish)
    if version >= wanted:
        return version
    if not may_change:
        raise SchemaMismatch(
            f"the database has schema version {version}, this program needs {wanted}: run `dalsegno migrate`"
        )
    return await _apply_patiently(connection, known, wanted)


async def _apply_patiently(connection: Any, known: list[Migration], wanted: int) -> int:
    """Again from the start, as long as somebody holds a table that is to be changed."""
    clock = asyncio.get_running_loop().time
    until, pause = clock() + PATIENCE, FIRST_PAUSE
    while True:
        try:
            return await _apply(connection, known, wanted)
        except asyncpg.LockNotAvailableError as error:
            if clock() >= until:
                raise
            logger.info("the schema cannot be changed now (%s); trying again", error)
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)


async def _apply(connection: Any, known: list[Migration], wanted: int) -> int:
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK, timeout=AS_LONG_AS_IT_TAKES)
        await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
        await connection.execute(PREPARE)
        version = int(await connection.fetchval(VERSION))
        _refuse_newer(version, len(known))
        await connection.execute("SET LOCAL search_path = dalsegno")
        for step in known[version:wanted]:
            await connection.execute(step.text, timeout=AS_LONG_AS_IT_TAKES)
        if version < wanted:
            await connection.execute("UPDATE dalsegno.installed SET schema = $1", wanted)
        return max(version, wanted)


def _refuse_newer(version: int, known: int) -> None:
    if version > known:
        raise SchemaMismatch(
            f"the database has schema version {version}, this program knows up to {known}:"
            " it was written by a newer Dal Segno; upgrade this one, or use another database"
        )


def _wanted(known: list[Migration], version: int, *, finish: bool) -> int:
    """Up to which file to go."""
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
