"""SqliteStore: one file, its writer and its reader."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from dalsegno.adapters.sqlite.connections import (
    WRITER_PRAGMAS,
    Checkpointer,
    Look,
    OtherProcesses,
    Reader,
    StoreFile,
    Work,
    Writer,
    connect_reader,
    connect_writer,
    tune,
)
from dalsegno.adapters.sqlite.errors import explain, why_not_writable
from dalsegno.adapters.sqlite.migration import check, migrate, migrations
from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.errors import BadConfiguration, SchemaMismatch, StoreReadOnly
from dalsegno.ports.clock import Clock

T = TypeVar("T")


class SqliteStore:
    """The part that ledger, archive, blobs and broker of one process share. Open it with :meth:`open`."""

    def __init__(
        self, path: Path, clock: Clock, file: StoreFile, reader: Reader, writer: Writer | None
    ) -> None:
        self.path = path
        self.clock = clock
        self.file = file
        self.announce_opening: Callable[[float], None] = lambda at: None
        """Called when a line that a rate has stopped continues."""
        self._reader = reader
        self._writer = writer

    @classmethod
    def open(
        cls, path: str | Path, clock: Clock, *, create: bool = True, read_only: bool = False
    ) -> SqliteStore:
        """Open the file, create it if requested, and bring its schema up to date."""
        file = Path(path)
        if not file.exists() and (read_only or not create):
            raise BadConfiguration(f"there is no store at {file}")
        try:
            return cls._open_reader(file, clock) if read_only else cls._open_writer(file, clock, create)
        except sqlite3.Error as error:
            raise explain(error, file) from error

    @classmethod
    def _open_writer(cls, path: Path, clock: Clock, create: bool) -> SqliteStore:
        connection = connect_writer(path, create=create)
        try:
            check(
                connection, path, len(migrations())
            )  # before the first write: the file may be someone else's
            tune(connection, WRITER_PRAGMAS)
            migrate(connection, path)
            reader = connect_reader(path)
            file = StoreFile(path)
            checkpointer = Checkpointer(connect_writer(path, create=False), path)
            connection.execute("PRAGMA busy_timeout = 0")  # from here on the writer waits by itself
        except BaseException:
            connection.close()
            raise
        writer = Writer(connection, path, checkpointer, file)
        return cls(path, clock, file, Reader(reader, path, file), writer)

    @classmethod
    def _open_reader(cls, path: Path, clock: Clock) -> SqliteStore:
        connection = connect_reader(path)
        try:
            known = len(migrations())
            version = check(connection, path, known)
            if version < known:
                raise SchemaMismatch(
                    f"{path} has schema version {version}, this program needs {known}:"
                    " open it once for writing to bring it up to date"
                )
        except BaseException:
            connection.close()
            raise
        file = StoreFile(path)
        return cls(path, clock, file, Reader(connection, path, file), None)

    @property
    def elsewhere(self) -> OtherProcesses:
        """Return the detector of commits of other processes."""
        return self._writing().elsewhere

    @property
    def news(self) -> int:
        """Return a number that changes when claims may find more than before."""
        return self._writing().news

    async def read(self, look: Look[T]) -> T:
        return await self._reader.call(look)

    async def fetch(self, statement: str, *parameters: object) -> list[Any]:
        """Run a statement that reads, by its name."""
        text = SQL[statement]
        return await self._reader.call(lambda connection: connection.execute(text, parameters).fetchall())

    async def write(self, work: Work[T]) -> T:
        """Run ``work`` in the writer's thread, in a transaction that is on disk when this returns."""
        return await self._writing().call(work)

    async def expect_writable(self) -> None:
        """Check that the file is writable. SQLite opens a read-only file for reading, and fails at the first commit."""
        obstacle = why_not_writable(self.path)
        if obstacle is not None:
            raise StoreReadOnly(obstacle)

    def write_blocking(self, work: Work[T]) -> T:
        return self._writing().call_blocking(work)

    def close(self) -> None:
        """Finish the queued jobs and close. Nothing is lost without it."""
        # The writer is closed last: only a connection that may write can checkpoint the log into the file.
        self._reader.close()
        if self._writer is not None:
            self._writer.close()

    def _writing(self) -> Writer:
        if self._writer is None:
            raise StoreReadOnly(f"{self.path} was opened for reading only")
        return self._writer
