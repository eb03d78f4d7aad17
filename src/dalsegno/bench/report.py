"""One measurement, as a table for people and an object for programs, and its reference: the limits of SQLite and the
disk without the engine, measured in the same run.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from dalsegno.adapters.sqlite.connections import WRITER_PRAGMAS, connect_writer, tune
from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.wiring import sqlite_path


@dataclass(slots=True)
class Report:
    workload: str
    store: str
    steps_per_s: float
    p50_ms: float | None
    p99_ms: float | None
    cpu_s: float
    rss_mb: float
    raw: dict[str, float]
    details: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Meter:
    """Wall time, CPU time and memory growth of a block.

    ``others`` are processes whose CPU time and memory are included.
    """

    def __init__(self, others: Sequence[int] = ()) -> None:
        self._others = others

    def __enter__(self) -> Self:
        self.rss_before = resident_mb()
        self._cpu = self._cpu_now()
        self._wall = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds = time.perf_counter() - self._wall
        self.cpu = self._cpu_now() - self._cpu
        self.rss = resident_mb() + sum(map(resident_mb, self._others))

    def _cpu_now(self) -> float:
        return _cpu_seconds() + sum(map(cpu_of, self._others))

    @property
    def growth(self) -> float:
        """Return the growth of peak memory during the block, in MB."""
        return max(peak_mb() - self.rss_before, 0.0)


async def reported(
    workload: str, url: str, done: float, times: Sequence[float], meter: Meter, details: dict[str, Any]
) -> Report:
    """Build the report. ``done``: work finished while the meter ran; ``times``: milliseconds of each unit of work."""
    p50, p99 = percentile(times, 0.5), percentile(times, 0.99)
    rate = done / meter.seconds
    return Report(workload, url, rate, p50, p99, meter.cpu, meter.rss, await raw_limits(url), details)


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def cpu_of(process: int) -> float:
    """Return the CPU seconds of another process so far; 0 where the system does not report them."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(process: int | None = None) -> float:
    """Return the resident memory of this or another process; 0 if it has ended."""
    try:
        pages = int(Path(f"/proc/{process or 'self'}/statm").read_text().split()[1])
    except OSError:
        return peak_mb() if process is None else 0.0
    return pages * resource.getpagesize() / 1e6


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the percentile by nearest rank; None for an empty sequence."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


# -- raw limits ----------------------------------------------------------------------------------------------


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
