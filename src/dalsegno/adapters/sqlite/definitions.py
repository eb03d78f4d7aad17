"""Removing definitions: only what nothing needs any more, in one transaction with the look at what needs it."""

from __future__ import annotations

import sqlite3

from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.model.removal import Needs, refuse_needed, unknown

NAMED = 3
"""Executions that a refusal names."""


def remove_definition(connection: sqlite3.Connection, name: str, version: int | None) -> int:
    row = connection.execute(SQL["definition.current"], (name,)).fetchone()
    if row is None or (
        version is not None
        and connection.execute(SQL["definition.version"], (name, version)).fetchone() is None
    ):
        raise unknown(name, version)
    parts = [part for (part,) in connection.execute(SQL["definition.parts"], {"name": name})]
    aliases = dict(connection.execute(SQL["definition.aliases"], (name,)).fetchall())
    needs = Needs(
        unfinished=_unfinished(connection, name, version, parts if version is None else []),
        aliases=tuple(alias for alias, meant in aliases.items() if version in (None, meant)),
        current=row[1] == version,
    )
    refuse_needed(name, version, needs)
    if version is None:
        for part in parts:
            _delete(connection, part, None)
    return _delete(connection, name, version)


def _unfinished(
    connection: sqlite3.Connection, name: str, version: int | None, parts: list[str]
) -> tuple[str, ...]:
    found: list[str] = []
    for workflow in (name, *parts):
        for state in ("PENDING", "RUNNING", "PAUSED"):
            given = {"name": workflow, "state": state, "version": version, "limit": NAMED - len(found)}
            found += [row[0] for row in connection.execute(SQL["definition.unfinished_of"], given)]
    return tuple(found)


def _delete(connection: sqlite3.Connection, name: str, version: int | None) -> int:
    given = {"name": name, "version": version}
    connection.execute(SQL["definition.remember_removed"], given)
    if version is None:
        connection.execute(SQL["definition.delete_current"], (name,))
    return connection.execute(SQL["definition.delete"], given).rowcount
