"""The file at the store's path: its connections, and whether it is still the one that this process has open.

A file that is deleted or replaced stays open for the process that has it: SQLite continues to commit to a file
that cannot be opened again. So the path is compared with the open file after every commit and at least once a
second.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote

from dalsegno.errors import StoreLost

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


Identity: TypeAlias = tuple[int, int]
"""Device and inode."""

LOOK_EVERY = 1.0
"""Seconds between two checks of a process that commits nothing."""
DESCRIPTORS = Path("/proc/self/fd")
READ_ONLY_MOUNT = getattr(os, "ST_RDONLY", 1)

RESTORE = (
    "commits since then are lost. Stop all processes that use it, restore a backup or put the file back,"
    " then start them again"
)
RESTART = (
    "this process accepts no more commits. Start it again; SQLite writes the committed changes into the "
    "store when the last process that has it open ends"
)


class StoreFile:
    """``expect`` may be called from every thread.

    A file that was lost once counts as lost, even if it comes back: it is unknown what was written where in
    between.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.lost: StoreLost | None = None
        self._lock = threading.Lock()
        self._listeners: list[Callable[[StoreLost], None]] = []
        self._looked_at = 0.0
        beside = str(self.path.resolve())
        self._main = str(self.path)
        self._log, self._index = f"{beside}-wal", f"{beside}-shm"
        self._identity = _identity(self._main)
        self._log_identity, self._index_identity = _identity(self._log), _identity(self._index)
        if self._identity is None or not _is_open(self._identity):
            raise self._lose(f"the store {path} was deleted or replaced while it was opened: try again")

    def listen(self, listener: Callable[[StoreLost], None]) -> None:
        """Register a callback; it is called in the thread that notices the loss."""
        with self._lock:
            self._listeners.append(listener)
        if self.lost is not None:
            listener(self.lost)

    def expect(self) -> None:
        """Raise StoreLost if the path no longer leads to the open file. Two system calls."""
        if self.lost is not None:
            raise self.lost
        if not self._is_there():
            raise self._lose(self._what_happened())

    def look(self) -> None:
        """Check while nothing is committed. Nothing is raised: listeners are called."""
        now = time.monotonic()
        if self.lost is not None or now - self._looked_at < LOOK_EVERY:
            return
        self._looked_at = now
        if not self._is_there() or not _is_same(self._index, self._index_identity):
            self._lose(self._what_happened())

    def _is_there(self) -> bool:
        return _is_same(self._main, self._identity) and _is_same(self._log, self._log_identity)

    def _what_happened(self) -> str:
        if _identity(self._main) is None:
            return f"the store {self.path} was deleted or moved while this process had it open: {RESTORE}"
        if not _is_same(self._main, self._identity):
            return f"the store {self.path} was replaced by another file while this process had it open: {RESTORE}"
        what = self._index if _is_same(self._log, self._log_identity) else self._log
        return f"{what}, a part of the store, was deleted or replaced while it was in use: {RESTART}"

    def _lose(self, reason: str) -> StoreLost:
        with self._lock:
            if self.lost is not None:
                return self.lost
            self.lost = StoreLost(reason)
            listeners = list(self._listeners)
        for listener in listeners:
            listener(self.lost)
        return self.lost


def _is_same(path: str, known: Identity | None) -> bool:
    """Return True if the path has the known identity, which is None for what did not exist when the store was opened.

    A path that cannot be checked counts as the same: SQLite gets that error, too, and reports more about it.
    """
    try:
        found = os.stat(path)  # noqa: PTH116 - called for every commit
    except (FileNotFoundError, NotADirectoryError):
        return known is None
    except OSError:
        return True
    return known is None or (found.st_dev, found.st_ino) == known


def _identity(path: str) -> Identity | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - as above
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _is_open(identity: Identity) -> bool:
    """Return True if this process has this file open, or if the system does not report it."""
    try:
        names = os.listdir(DESCRIPTORS)  # noqa: PTH208 - names are wanted
    except OSError:
        return True
    return any(_identity(f"{DESCRIPTORS}/{name}") == identity for name in names)


def why_not_writable(path: Path) -> str | None:
    """Return what prevents this user from writing the file and what to do; None if it is writable.

    Asks the kernel, which also knows immutable files and read-only mounts.
    """
    if not path.exists() or os.access(path, os.W_OK):
        return None
    return f"{path} cannot be written: {_obstacle(path)}"


def _obstacle(path: Path) -> str:
    if os.statvfs(path).f_flag & READ_ONLY_MOUNT:
        return (
            "its file system is mounted read-only. Find out why (see the kernel's log for disk errors), then mount it"
            " for writing: mount -o remount,rw"
        )
    if _may_write_by_mode(path):
        return f"it is immutable. Make it writable: chattr -i {shlex.quote(str(path))}"
    return (
        "this user has no right to do so. Check its permissions (chmod, chown) and attributes (lsattr), or run as its"
        " owner"
    )


def _may_write_by_mode(path: Path) -> bool:
    found, user = path.stat(), os.geteuid()
    if user in (0, found.st_uid):
        return bool(found.st_mode & 0o200)
    return bool(found.st_mode & (0o020 if found.st_gid in os.getgroups() else 0o002))
