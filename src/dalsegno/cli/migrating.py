"""What ``migrate`` does, by the kind of store."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from dalsegno.cli.finishing import refuse_beside_older
from dalsegno.cli.problems import Refusal
from dalsegno.wiring import SystemClock, is_postgres, require_postgres_driver, sqlite_path


@dataclass(frozen=True, slots=True)
class SchemaState:
    before: int
    after: int
    newest: int

    def sentence(self, *, finish: bool = False) -> str:
        """``finish``: what only older versions needed was to be taken away, too."""
        if self.before != self.after:
            return f"schema {self.before} is now {self.after}"
        if self.after > self.newest:
            return f"schema {self.after} is newer than this program, which knows up to {self.newest}, and fits it"
        if self.after < self.newest:
            return f"schema {self.after} of {self.newest}: not up to date"
        return f"schema {self.after} is up to date" + ("; there is nothing to take away" if finish else "")


async def bring_up_to_date(url: str, *, check: bool, finish: bool, force: bool = False) -> SchemaState:
    """``force``: the upgrade is finished also beside processes of older versions."""
    if is_postgres(url):
        return await _postgres(url, check=check, finish=finish, force=force)
    if url.startswith("sqlite:"):
        return await asyncio.to_thread(_sqlite, url, check=check)
    raise Refusal("a store in memory has no schema to migrate", "Give a SQLite or PostgreSQL store.")


async def _postgres(url: str, *, check: bool, finish: bool, force: bool) -> SchemaState:
    require_postgres_driver()
    from dalsegno.adapters.postgres.upgrading import upgrade  # noqa: PLC0415 - only who has such a store has the driver

    agree = None if force else refuse_beside_older
    return SchemaState(*await upgrade(url, check=check, finish=finish, agree=agree))


def _sqlite(url: str, *, check: bool) -> SchemaState:
    from dalsegno.adapters.sqlite import SqliteStore  # noqa: PLC0415 - only what is used is loaded
    from dalsegno.adapters.sqlite.connection import connect_reader  # noqa: PLC0415 - the same
    from dalsegno.adapters.sqlite.migration import check as version_of  # noqa: PLC0415 - the same
    from dalsegno.adapters.sqlite.migration import migrations  # noqa: PLC0415 - the same

    path, newest = sqlite_path(url), len(migrations())
    before = 0
    if path.exists():
        connection = connect_reader(path)
        try:
            before = version_of(connection, path, newest)
        finally:
            connection.close()
    if not check:
        SqliteStore.open(path, SystemClock()).close()
    return SchemaState(before, before if check else newest, newest)
