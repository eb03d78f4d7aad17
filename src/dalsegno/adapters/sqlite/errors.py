"""Translation of SQLite's errors, and what prevents writing a file."""

from __future__ import annotations

import os
import shlex
import shutil
import sqlite3
from pathlib import Path

from dalsegno.errors import (
    BadConfiguration,
    DalSegnoError,
    InternalError,
    InvalidInput,
    StoreCorrupt,
    StoreFull,
    StoreReadOnly,
    Unavailable,
)

REFUSALS = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    OverflowError,
    UnicodeError,
)
"""Errors of SQLite or its driver about a value, not about the store: some row of the batch cannot be held."""


class RefusedValue(InvalidInput):
    """The store cannot hold a value that was given to it."""


PRIMARY_CODE = 0xFF
"""The low byte of an extended result code is the kind of error."""


def explain(error: Exception, path: Path) -> Exception:
    """Translate any error of a job for its caller."""
    if isinstance(error, REFUSALS):
        return RefusedValue(_refusal(error))
    if isinstance(error, sqlite3.Error):
        return _operator_error(error, path)
    return error


def _refusal(error: Exception) -> str:
    """Return why a transition cannot be stored, for readers of the failed node."""
    match error:
        case OverflowError():
            return f"the store cannot hold an integer beyond 64 bits ({error})"
        case UnicodeError():
            return f"the store cannot hold text that is not valid Unicode ({error})"
        case sqlite3.DataError():
            return f"a value is larger than the store can hold ({error})"
        case _:
            return f"the store refuses a value ({error})"


def _operator_error(error: sqlite3.Error, path: Path) -> DalSegnoError:
    """Translate SQLite's error into the error of the person who must act, with a sentence what to do."""
    code = getattr(error, "sqlite_errorcode", 0) & PRIMARY_CODE
    match code:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return Unavailable(
                f"{path} is locked by another process: end the one that has a write transaction on it (a "
                f"backup, a sqlite3 shell), then try again"
            )
        case sqlite3.SQLITE_FULL:
            return _full(path)
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return _read_only(path)
        case sqlite3.SQLITE_NOTADB:
            return StoreCorrupt(f"{path} is not a SQLite database; give another path, or move the file away")
        case sqlite3.SQLITE_CORRUPT:
            return StoreCorrupt(
                f"{path} is damaged ({error}); stop all processes that use it and restore a backup,"
                " or rescue the readable data with `sqlite3 FILE .recover`"
            )
        case sqlite3.SQLITE_CANTOPEN:
            return _cannot_open(path)
        case sqlite3.SQLITE_IOERR:
            return _io_error(error, path)
        case _:
            return InternalError(f"unexpected SQLite error on {path}: {error}")


def _full(path: Path) -> DalSegnoError:
    return StoreFull(f"no space left for {path}: free some on its disk; nothing of this commit was applied")


def _read_only(path: Path) -> DalSegnoError:
    obstacle = why_not_writable(path)
    return StoreReadOnly(
        obstacle or f"{path} cannot be written: check the permissions of the file and of its directory"
    )


def _cannot_open(path: Path) -> DalSegnoError:
    if not path.parent.is_dir():
        return BadConfiguration(
            f"the directory {path.parent} does not exist; create it, or give another path for the store"
        )
    if path.is_dir():
        return BadConfiguration(f"{path} is a directory; the store needs the path of a file")
    return StoreReadOnly(f"{path} cannot be opened: check the permissions of the file and of {path.parent}")


def _io_error(error: sqlite3.Error, path: Path) -> DalSegnoError:
    """Translate an I/O error; a full disk shows as one if SQLite extends its shared memory."""
    try:
        full = shutil.disk_usage(path.parent).free == 0
    except OSError:
        full = False
    if full:
        return _full(path)
    return Unavailable(f"reading or writing {path} failed ({error}): check the disk and the file system")


READ_ONLY_MOUNT = getattr(os, "ST_RDONLY", 1)


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
