"""Fixtures for all tests."""

import os
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings

MEMORY = Path("/dev/shm")
ROOM = 4 * 1024**3


def use_memory() -> None:
    """Stores and servers of tests lie in memory where there is room. Tests kill processes, never the machine: nothing
    that they look for depends on the disk, and waiting for it takes a third of their time. ``TMPDIR`` wins."""
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return
    found = os.statvfs(MEMORY)
    if found.f_bavail * found.f_frsize >= ROOM and not found.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


use_memory()

# Processes that tests start use each other's compiled code: without it each start takes seconds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

pytest_plugins = [
    "tests.collecting",
    "tests.command_line",
    "tests.servers.plugin",
    "tests.servers.hasty",
    "tests.servers.children",
    "tests.chaos.reporting",
    "tests.reruns",
]

# The same examples every time: a build is red because of its change, not by chance. `make soak` looks further.
settings.register_profile(
    "steady",
    derandomize=True,
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)
settings.register_profile(
    "searching", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("DALSEGNO_EXAMPLES", "steady"))
