"""Detection of commits of other processes by the writer's thread.

The idle thread queries its connection for ``data_version``. That costs some microseconds, and the number changes
only by commits of other connections: a process that is alone on its file gets no notifications.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Callable

LOOK_EVERY = 0.01
"""Seconds between two queries of a thread without jobs, and at least between two notifications."""
LOOK_IDLE = 0.03
"""The same if nothing has been committed for a moment, here or elsewhere: a query costs some 0.1 ms of CPU time."""
MOMENT = 0.25
LATELY = 5.0


class OtherProcesses:
    """``notice`` and ``look`` belong to the writer's thread. Listeners are called in their own event loops."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._seen = self._version()
        self._is_notified = True
        self._notified_at = self._committed_at = 0.0
        self._changed_at = -LATELY
        """When a commit of another process was noticed."""
        self._listeners: list[tuple[asyncio.AbstractEventLoop, Callable[[], None]]] = []

    def listen(self, committed: Callable[[], None]) -> None:
        self._listeners.append((asyncio.get_running_loop(), committed))

    def is_active(self, now: float) -> bool:
        """Return True if other processes have committed lately."""
        return now - self._changed_at < LATELY

    def idle_seconds(self) -> float:
        return LOOK_EVERY if time.monotonic() - self._committed_at < MOMENT else LOOK_IDLE

    def look(self) -> None:
        """Query the version. An error is ignored: the next statement of a caller meets and reports it."""
        if self._listeners:
            with contextlib.suppress(sqlite3.Error):
                self._compare(self._version(), time.monotonic())

    def notice(self, version: int) -> None:
        """Compare the version that a transaction of the thread saw."""
        self._committed_at = time.monotonic()
        self._compare(version, self._committed_at)

    def _compare(self, version: int, now: float) -> None:
        if version != self._seen:
            self._seen, self._is_notified, self._committed_at, self._changed_at = version, False, now, now
        if not self._is_notified and now - self._notified_at >= LOOK_EVERY:  # otherwise with the next query
            self._notified_at, self._is_notified = now, True
            self._notify()

    def _version(self) -> int:
        (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        return int(version)

    def _notify(self) -> None:
        for loop, committed in self._listeners:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(committed)
