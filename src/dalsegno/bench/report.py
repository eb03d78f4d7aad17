"""One measurement, as a table for people and an object for programs."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self


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
    """Wall time, CPU time and memory growth of a block. ``others``: processes whose CPU time and memory count, too."""

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
        """How much more memory the process has ever held than before the block, in MB."""
        return max(peak_mb() - self.rss_before, 0.0)


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def cpu_of(process: int) -> float:
    """CPU seconds of another process so far; 0 where the system does not tell."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(process: int | None = None) -> float:
    """Of this process, or of another one; 0 of one that is gone."""
    try:
        pages = int(Path(f"/proc/{process or 'self'}/statm").read_text().split()[1])
    except OSError:
        return peak_mb() if process is None else 0.0
    return pages * resource.getpagesize() / 1e6


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def percentile(values: Sequence[float], share: float) -> float | None:
    """Nearest rank; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
