"""The schema: numbered files, applied forward only, in one transaction under the write lock."""

from __future__ import annotations

import re
import sqlite3
from functools import cache
from importlib.resources import files
from pathlib import Path

from dalsegno.errors import SchemaMismatch, StoreCorrupt

APPLICATION_ID = 0x4453474E
"""``DSGN`` in the file's header: it distinguishes a Dal Segno store from other databases."""


@cache
def migrations() -> tuple[str, ...]:
    """Return the text of every migration; the n-th leads from version n - 1 to n."""
    folder = files("dalsegno.adapters.sqlite") / "schema"
    entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
    return tuple(entry.read_text(encoding="utf-8") for entry in entries if entry.name.endswith(".sql"))


@cache
def own_tables() -> frozenset[str]:
    """Return the names of the schema's tables."""
    return frozenset(re.findall(r"^CREATE TABLE (\w+)", "\n".join(migrations()), re.MULTILINE))


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the schema up to date. Concurrent migrations take turns."""
    steps = migrations()
    if check(connection, path, len(steps)) == len(steps):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for number in range(check(connection, path, len(steps)), len(steps)):
            for statement in split_statements(steps[number]):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(steps)}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def check(connection: sqlite3.Connection, path: Path, known: int) -> int:
    """Return the schema's version; 0 for an empty database.

    Refuses other databases, and versions newer than this program.
    """
    application = _pragma(connection, "application_id")
    version = _pragma(connection, "user_version")
    if application == APPLICATION_ID:
        if version > known:
            raise SchemaMismatch(
                f"{path} has schema version {version}, this program knows up to {known}:"
                " it was written by a newer Dal Segno; upgrade this one, or use another file"
            )
        return version
    if application == 0 and version == 0 and not _has_tables(connection):
        return 0
    raise StoreCorrupt(
        f"{path} contains tables of another application and no store; give another path for the store. To have your own"
        f" tables in the store's file, let Dal Segno make it before them: dalsegno migrate --store sqlite:///{path}"
    )


def split_statements(script: str) -> list[str]:
    """Split a script into statements, executed one by one: ``executescript`` would commit our transaction."""
    statements, pending = [], ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            statements.append(pending)
            pending = ""
    return statements


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)


def _has_tables(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is not None
