"""Checks that need no store: interpreter, libraries, clock, event loop, limits."""

from __future__ import annotations

import asyncio
import platform
import resource
import sqlite3
import sys
import time
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dalsegno.cli.doctor.check import Check, judge
from dalsegno.version import __version__

OLDEST_SQLITE = (3, 35, 0)
"""The first version with RETURNING."""
FEW_FILES = 256
SLOW_LOOP = 0.05
BUILT = 1_735_689_600
"""2025-01-01: a clock before the release of this program is wrong."""


async def examine_machine() -> list[Check]:
    return [_python(), _sqlite(), _clock(), _zones(), await _event_loop(), _open_files()]


def _python() -> Check:
    version = platform.python_version()
    detail = f"Python {version}, dalsegno {__version__}, {platform.system()} {platform.machine()}"
    return judge("python", detail, fail=sys.version_info < (3, 11), cure="Use Python 3.11 or newer.")


def _sqlite() -> Check:
    old = sqlite3.sqlite_version_info < OLDEST_SQLITE
    cure = "Use a Python that was built with a newer SQLite."
    return judge("sqlite", f"SQLite {sqlite3.sqlite_version}", fail=old, cure=cure)


def _clock() -> Check:
    now = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    cure = "Set the system's clock: timers and leases go by it."
    return judge("clock", now, fail=time.time() < BUILT, cure=cure)


def _zones() -> Check:
    try:
        ZoneInfo("Europe/Berlin")
    except ZoneInfoNotFoundError:
        return judge("time zones", "no data", fail=True, cure="Install the package tzdata.")
    return judge("time zones", "IANA data found")


async def _event_loop() -> Check:
    """Check how late a timer of ten milliseconds fires."""
    late = 0.0
    for _ in range(10):
        began = time.perf_counter()
        await asyncio.sleep(0.01)
        late = max(late, time.perf_counter() - began - 0.01)
    cure = "The machine is busy: timers and heartbeats come late."
    return judge("event loop", f"timers at most {late * 1000:.1f} ms late", warn=late > SLOW_LOOP, cure=cure)


def _open_files() -> Check:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = soft != resource.RLIM_INFINITY and soft < FEW_FILES
    shown = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft:,}"
    return judge("open files", shown, warn=few, cure="Raise the limit: ulimit -n 4096.")
