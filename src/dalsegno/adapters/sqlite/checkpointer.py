"""The checkpointer: folds the log into the file beside the writer, so that no commit has to wait for it."""

from __future__ import annotations

import logging
import sqlite3
import threading
from pathlib import Path

from dalsegno.adapters.sqlite.errors import explain
from dalsegno.adapters.sqlite.file import why_not_writable
from dalsegno.errors import StoreReadOnly

logger = logging.getLogger("dalsegno.sqlite")

CHANGES_BETWEEN = 5_000
"""Changed rows after which the log is folded in: some thousand pages of it."""
LARGE_BYTES = 1024
"""Bytes of large values that count as one changed row: the log is folded in after 5 MB of them. When a commit has to do
it, at the writer's own limit, little is left to do."""


class Checkpointer:
    """Has a connection and a thread of its own. A passive checkpoint holds up neither the writer nor a reader; what it
    leaves, the next one takes. The writer's own limit (``wal_autocheckpoint``) stays as the net below.

    Commits go to the log, and succeed where the file itself cannot be written any more. Once a checkpoint has failed
    for that reason they are refused, until the file can be written again: else the log would grow without end."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._refusal: StoreReadOnly | None = None
        self._next = CHANGES_BETWEEN
        self._asked = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="dalsegno-sqlite-checkpointer", daemon=True)
        self._thread.start()

    def notice(self, rows: int, large_bytes: int = 0) -> None:
        """Told by the writer after each commit: rows changed since it was opened, and bytes of large values among
        them."""
        changes = rows + large_bytes // LARGE_BYTES
        if changes >= self._next:
            self._next = changes + CHANGES_BETWEEN
            self._asked.set()

    def expect_writable(self) -> None:
        """Raises StoreReadOnly where the last checkpoint found that the file cannot be written, and it still cannot."""
        if self._refusal is None:
            return
        if why_not_writable(self._path) is not None:
            raise self._refusal
        self._refusal = None
        self._asked.set()
        logger.info("%s can be written again", self._path)

    def close(self) -> None:
        self._closed = True
        self._asked.set()
        self._thread.join()
        self._connection.close()

    def _work(self) -> None:
        while True:
            self._asked.wait()
            if self._closed:
                return
            self._asked.clear()
            try:
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            except sqlite3.Error as error:
                self._failed(error)

    def _failed(self, error: sqlite3.Error) -> None:
        obstacle = why_not_writable(self._path)
        if obstacle is None:
            reason = explain(error, self._path)
            logger.warning("the log of the store could not be folded into its file: %s", reason)
        else:
            self._refusal = StoreReadOnly(obstacle)
            logger.error("the store takes no more commits: %s", obstacle)
