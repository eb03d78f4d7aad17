"""A consistent copy of a store while processes use it.

The copy is the state of the store at the moment it was begun. It is written under another name in the same
directory, verified, and only then linked to its final name, so that a file of that name is always complete.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from dalsegno.adapters.sqlite.connections import OWNER_ONLY, connect_reader, connect_writer
from dalsegno.adapters.sqlite.errors import explain
from dalsegno.adapters.sqlite.migration import check, migrations
from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.errors import BadConfiguration, Conflict, StoreCorrupt

PAGES = 1000
"""Pages copied between two reports."""

Report = Callable[[int, int], None]
"""Pages copied, and pages in all."""


@dataclass(frozen=True, slots=True)
class Backup:
    file: Path
    bytes: int
    schema: int
    executions: int


def back_up(path: Path, to: Path, report: Report = lambda copied, total: None) -> Backup:
    """Copy the store at ``path`` to a new file that only its owner may read.

    Raises Conflict if the file exists; a failed copy leaves nothing behind.
    """
    if not path.is_file():
        raise BadConfiguration(f"there is no store at {path}")
    _refuse_existing(to)
    with _written_beside(to) as partial:
        try:
            schema = _copy(path, partial, report)
        except sqlite3.Error as error:
            raise explain(error, _path_at_fault(error, path, to)) from error
        executions = _verify(partial, schema)
        size = partial.stat().st_size
        _name(partial, to)
    return Backup(to, size, schema, executions)


def _copy(path: Path, partial: Path, report: Report) -> int:
    """Copy the pages; return the schema's version."""
    with closing(connect_reader(path)) as source, closing(connect_writer(partial, create=False)) as target:
        # One read transaction for the whole copy: without it every commit of another process restarts it.
        source.execute("BEGIN")
        schema = check(source, path, len(migrations()))
        source.backup(target, pages=PAGES, progress=lambda _, left, total: report(total - left, total))
        source.execute("COMMIT")
        target.execute(
            "PRAGMA journal_mode = DELETE"
        )  # one file, without -wal and -shm; opening it turns WAL on
    return schema


def _verify(partial: Path, schema: int) -> int:
    """Check the copy; return how many executions are in it."""
    try:
        with closing(connect_reader(partial)) as copy:
            (damage,) = copy.execute("PRAGMA quick_check(1)").fetchone()
            found = check(copy, partial, len(migrations()))
            (executions,) = copy.execute(SQL["execution.count"]).fetchone()
    except sqlite3.Error as error:
        raise explain(error, partial) from error
    if damage != "ok" or found != schema:
        reason = damage if damage != "ok" else f"schema {found} instead of {schema}"
        raise StoreCorrupt(f"the copy is not correct ({reason}); check the store: `dalsegno doctor`")
    return int(executions)


@contextlib.contextmanager
def _written_beside(to: Path) -> Iterator[Path]:
    """Yield a new, empty file in the same directory, for its owner only.

    It is removed at the end, with its ``-wal`` and ``-shm``.
    """
    partial = to.with_name(f".{to.name}.{secrets.token_hex(4)}.partial")
    try:
        os.close(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, OWNER_ONLY))
    except OSError as error:
        raise BadConfiguration(
            f"no file can be made in {to.absolute().parent}: {error.strerror}; give another path"
        ) from error
    try:
        yield partial
    finally:
        for suffix in ("", "-journal", "-wal", "-shm"):
            partial.with_name(partial.name + suffix).unlink(missing_ok=True)


def _name(partial: Path, to: Path) -> None:
    """Give the copy its name by a link, which fails if the name is taken; a rename would replace the file."""
    try:
        os.link(partial, to)
    except FileExistsError:
        _refuse_existing(to)
    except OSError:  # a file system without links
        _refuse_existing(to)
        partial.rename(to)
    _sync(to)


def _sync(to: Path) -> None:
    """Make the file and its name survive a crash of the machine."""
    for each in (to, to.absolute().parent):
        descriptor = os.open(each, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _refuse_existing(to: Path) -> None:
    if to.is_symlink() or to.exists():
        raise Conflict(f"{to} exists, and is not overwritten: give another name, or move the file")


def _path_at_fault(error: sqlite3.Error, path: Path, to: Path) -> Path:
    """Return the file an error is about; SQLite does not say which. If the copy does not fit, it is the target."""
    full = getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
    return to if full else path
