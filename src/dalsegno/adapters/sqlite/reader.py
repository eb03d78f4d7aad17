"""The reader: a connection and thread of its own, so that no look at the store waits for a commit."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from dalsegno.adapters.sqlite.errors import explain
from dalsegno.adapters.sqlite.file import StoreFile
from dalsegno.adapters.sqlite.thread import Answer, DatabaseThread, Job

T = TypeVar("T")
Look = Callable[[sqlite3.Connection], T]


class Reader:
    """Every job sees one state of the store, at least as new as the last commit that was reported before it."""

    def __init__(self, connection: sqlite3.Connection, path: Path, file: StoreFile) -> None:
        self._connection = connection
        self._path = path
        self._file = file
        self._thread = DatabaseThread("dalsegno-sqlite-reader", self._run)

    async def call(self, look: Look[T]) -> T:
        return await self._thread.call(lambda: look(self._connection))

    def close(self) -> None:
        self._thread.close()
        self._connection.close()

    def _run(self, jobs: Sequence[Job]) -> list[Answer]:
        return [self._look(job) for job in jobs]

    def _look(self, job: Job) -> Answer:
        try:
            self._file.expect()
            self._connection.execute("BEGIN")
            try:
                return job(), None
            finally:
                self._connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - whatever a job raises is its caller's answer
            return None, explain(error, self._path)
