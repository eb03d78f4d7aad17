"""Files of SQLite with the tables in them: to copy one is quicker than to make the tables. That the tables
are made where there is no file is what tests/adapters/sqlite is about."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from dalsegno.adapters.sqlite import SqliteStore
from dalsegno.testing.clock import FakeClock


@functools.cache
def _empty_store() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "empty.db"
        SqliteStore.open(path, FakeClock()).close()
        return path.read_bytes()


def empty_sqlite(path: Path) -> str:
    """The URL of a store without anything in it, which is made there."""
    path.touch(mode=0o600)
    path.write_bytes(_empty_store())
    return f"sqlite:///{path}"
