"""Opening the file: one kind of connection for the writer, one for readers."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

BUSY_SECONDS = 10.0
"""How long a statement waits for another process's lock before the store counts as unavailable."""

PAGE_SIZE = 4096
CACHED_STATEMENTS = 512

WRITER_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",  # a reported commit is on disk
    "PRAGMA wal_autocheckpoint = 12000",  # only a safety net: the checkpointer comes first
    "PRAGMA cache_size = -16384",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA secure_delete = FAST",  # Debian's library overwrites deleted content in extra writes by default
)
READER_PRAGMAS = ("PRAGMA query_only = ON", "PRAGMA cache_size = -8192", "PRAGMA temp_store = MEMORY")


OWNER_ONLY = 0o600


def connect_writer(path: Path, *, create: bool) -> sqlite3.Connection:
    if create:
        _create_for_owner(path)
    connection = _connect(path, "rwc" if create else "rw")
    connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    return connection


def _create_for_owner(path: Path) -> None:
    """Create the file for its owner only, whatever the umask: it holds inputs and outputs of all workflows.

    SQLite gives its ``-wal`` and ``-shm`` the same mode. A file that exists is not opened: closing any descriptor
    of a file drops all locks that this process holds on it.
    """
    with contextlib.suppress(OSError):  # it exists, or SQLite reports why it cannot be created
        os.close(os.open(path.resolve(), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, OWNER_ONLY))


def connect_reader(path: Path) -> sqlite3.Connection:
    connection = _connect(path, "ro")
    tune(connection, READER_PRAGMAS)
    return connection


def tune(connection: sqlite3.Connection, pragmas: tuple[str, ...]) -> None:
    for pragma in pragmas:
        connection.execute(pragma)


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    """Connect. Transactions are controlled here, not by the driver; so is the use by one thread at a time."""
    return sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode={mode}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=CACHED_STATEMENTS,
    )
