"""The writer: every change of the file goes through its thread, in transactions that waiting jobs share."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from dalsegno.adapters.sqlite.checkpointer import Checkpointer
from dalsegno.adapters.sqlite.connection import BUSY_SECONDS
from dalsegno.adapters.sqlite.elsewhere import Elsewhere
from dalsegno.adapters.sqlite.errors import explain
from dalsegno.adapters.sqlite.file import StoreFile
from dalsegno.adapters.sqlite.thread import Answer, DatabaseThread, Job
from dalsegno.adapters.sqlite.workspace import SqliteWorkspace
from dalsegno.errors import StoreLost, StoreReadOnly, Unavailable

T = TypeVar("T")
Work = Callable[[SqliteWorkspace], T]

RETRY_SECONDS = 0.0005
"""Between two tries for the write lock. SQLite's own waiting grows to 100 ms, by which a busy process would starve
the others."""
GAP_SECONDS = 0.001
"""Between two transactions while other processes write, too: their next try finds the lock free."""


class Writer:
    """Jobs that waited together run in one transaction: one sync to disk for all of them. If one of them fails, all
    are rolled back and run again one by one, so that each gets its own answer.

    No commit is confirmed whose file is not at the store's path any more directly after it."""

    def __init__(
        self, connection: sqlite3.Connection, path: Path, checkpointer: Checkpointer, file: StoreFile
    ) -> None:
        self._connection = connection
        self._checkpointer = checkpointer
        self._path = path
        self._file = file
        self._workspace = SqliteWorkspace(connection)
        self._ended = 0.0
        """When the last transaction did."""
        self.elsewhere = Elsewhere(connection)
        self._thread = DatabaseThread("dalsegno-sqlite-writer", self._run, self)

    async def call(self, work: Work[T]) -> T:
        return await self._thread.call(lambda: work(self._workspace))

    def call_blocking(self, work: Work[T]) -> T:
        return self._thread.call_blocking(lambda: work(self._workspace))

    def patience(self) -> float:
        return self.elsewhere.patience()

    def look(self) -> None:
        """While there are no jobs."""
        self.elsewhere.look()
        self._file.look()

    def close(self) -> None:
        self._thread.close()
        self._checkpointer.close()
        self._connection.close()

    def _run(self, jobs: Sequence[Job]) -> list[Answer]:
        answers = self._transaction(jobs)
        error = answers[0][1]
        if len(jobs) == 1 or error is None or isinstance(error, Unavailable | StoreLost | StoreReadOnly):
            return answers
        return [self._transaction([job])[0] for job in jobs]

    def _transaction(self, jobs: Sequence[Job]) -> list[Answer]:
        try:
            if self._file.lost is not None:
                raise self._file.lost
            self._checkpointer.expect_writable()
            self._begin()
            self._workspace.begin()
            results = []
            for job in jobs:
                results.append(job())
                self._workspace.flush()
            self._connection.execute("COMMIT")
            self._file.expect()
            self._ended = time.monotonic()
            self._checkpointer.notice(self._connection.total_changes, self._workspace.large_bytes)
            self.elsewhere.notice(self._workspace.version)
        except Exception as error:  # noqa: BLE001 - whatever a job raises is its caller's answer
            reason = self._abandon(error)
            return [(None, reason) for _ in jobs]
        return [(result, None) for result in results]

    def _begin(self) -> None:
        now = time.monotonic()
        if now - self._ended < GAP_SECONDS and self.elsewhere.is_active(now):
            time.sleep(GAP_SECONDS)
        deadline = now + BUSY_SECONDS
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_SECONDS)
            else:
                return

    def _abandon(self, error: Exception) -> Exception:
        """Undoes everything; the connection is usable again."""
        self._workspace.reset()
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as second:
            error = second
        return explain(error, self._path)
