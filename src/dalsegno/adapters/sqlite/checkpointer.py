"""The checkpointer: folds the log into the file beside the writer, so that no commit has to wait for it."""

from __future__ import annotations

import logging
import sqlite3
import threading

logger = logging.getLogger("dalsegno.sqlite")

CHANGES_BETWEEN = 5_000
"""Changed rows after which the log is folded in: some thousand pages of it."""
LARGE_BYTES = 1024
"""Bytes of large values that count as one changed row: the log is folded in after 5 MB of them. When a commit has to do
it, at the writer's own limit, little is left to do."""


class Checkpointer:
    """Has a connection and a thread of its own. A passive checkpoint holds up neither the writer nor a reader; what it
    leaves, the next one takes. The writer's own limit (``wal_autocheckpoint``) stays as the net below."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
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
                logger.warning("the log of the store could not be folded into its file (%s)", error)
