"""Limits of SQLite and the disk without the engine, measured in the same run as the reference for ratios."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from dalsegno.adapters.sqlite.connections.file import WRITER_PRAGMAS, connect_writer, tune
from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.wiring import sqlite_path


async def raw_limits(url: str) -> dict[str, float]:
    """Return single commits per second and batched rows per second; nothing for a store without such limits."""
    if urlsplit(url).scheme != "sqlite":
        return {}

    with tempfile.TemporaryDirectory(dir=sqlite_path(url).resolve().parent) as folder:
        return await asyncio.to_thread(measure_raw, Path(folder) / "raw.db")


SECONDS = 1.0
BATCH = 500


def measure_raw(path: str | Path) -> dict[str, float]:
    """Measure commits of one small row per second, and rows per second when 500 share a commit.

    Creates its own file next to ``path`` and removes it.
    """
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
