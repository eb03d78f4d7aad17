"""What SQLite does on this machine without us: the limit beside which a benchmark shows our own numbers."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from dalsegno.adapters.sqlite.connection import WRITER_PRAGMAS, connect_writer, tune
from dalsegno.adapters.sqlite.statements import SQL

SECONDS = 1.0
BATCH = 500


def measure_raw(path: str | Path) -> dict[str, float]:
    """Commits of one small row per second, and rows per second when 500 share a commit. Makes a file of its own
    beside ``path`` and removes it."""
    file = Path(path).with_name(Path(path).name + ".raw")
    connection = connect_writer(file, create=True)
    try:
        tune(connection, WRITER_PRAGMAS)
        connection.execute(SQL["raw.table"])
        return {
            "single_commits_per_s": _rate(connection, 1),
            "batched_rows_per_s": _rate(connection, BATCH),
        }
    finally:
        connection.close()
        for suffix in ("", "-wal", "-shm"):
            file.with_name(file.name + suffix).unlink(missing_ok=True)


def _rate(connection: sqlite3.Connection, rows: int) -> float:
    batch = [("x" * 32, "y" * 150)] * rows

    def commit() -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(SQL["raw.insert"], batch)
        connection.execute("COMMIT")

    return rows * _times_per_second(commit)


def _times_per_second(action: Callable[[], None]) -> float:
    began = time.perf_counter()
    done = 0
    while time.perf_counter() - began < SECONDS:
        action()
        done += 1
    return done / (time.perf_counter() - began)
