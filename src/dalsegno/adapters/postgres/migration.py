"""The schema `dalsegno`: numbered files, applied forward only.

Each file names its stage in its first line. ``pre``: only adds, so that processes of the version before go on beside
it, and can be started again; applied by whoever opens the store first. ``post``: takes away what only they needed;
applied on demand, once none of them is left, and from then on they are refused. A fresh database gets all files.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any, Literal

import asyncpg
from msgspec import Struct

from dalsegno.adapters.postgres.installed import Installed, look, make_room, write
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


Agree = Callable[[Any], Awaitable[None]]
"""Asked with the connection, under the lock. Raises where nothing may be taken away now."""


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
    return (await look(connection)).version


async def migrate(
    connection: Any,
    *,
    may_change: bool = True,
    finish: bool = False,
    agree: Agree | None = None,
    steps: list[Migration] | None = None,
) -> int:
    """Brings the schema up to date, ``finish``: also by what waits until no older process runs, as ``agree`` may know.
    Returns its version."""
    known = migrations() if steps is None else steps
    found = await look(connection)
    found.refuse_older(len(known))
    wanted = _wanted(known, found.version, finish=finish)
    if found.version >= wanted:
        return found.version
    if not may_change:
        raise SchemaMismatch(
            f"the database has schema version {found.version}, this program needs {wanted}: run `dalsegno migrate`,"
            " or use the version of Dal Segno that works there"
        )
    return await _apply_patiently(connection, known, finish=finish, agree=agree)


async def _apply_patiently(
    connection: Any, known: list[Migration], *, finish: bool, agree: Agree | None
) -> int:
    """Again from the start, as long as somebody holds a table that is to be changed."""
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
    """What is to be done is asked again under the lock: whoever had it before may have been of another version. So is
    whether it may be done: an older process may have been started while this one waited."""
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
    """Whether finishing the upgrade of this schema takes something away that processes may still use."""
    return version > 0 and any(step.stage == "post" for step in known[version:])


def _oldest_that_fits(applied: list[Migration]) -> int:
    """How many of these files a program has to know."""
    return max((number for number, step in enumerate(applied, 1) if step.stage == "post"), default=1)


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
