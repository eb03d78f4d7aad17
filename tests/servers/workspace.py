"""The folder where one pytest process keeps its servers' data, and the sweeping of folders that dead runs left.

It is not below pytest's own temporary folder: that one is closed to other users, and PostgreSQL must run as
another user when the tests run as root. It is also short, because a Unix socket's path must be.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
import tempfile
import time
from pathlib import Path

from tests.servers.postgres import release_shared_memory

_PREFIX = "ds-servers-"
_NEWBORN_SECONDS = 60  # a folder may be a moment old and not locked yet


class Workspace:
    """Owns a folder by holding a lock in it: the lock ends with the process, however that ends."""

    def __init__(self) -> None:
        sweep()
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self.path.chmod(0o755)
        self._lock = os.open(self.path / "lock", os.O_CREAT | os.O_RDWR)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._numbers = itertools.count(1)

    def new_folder(self, kind: str) -> Path:
        folder = self.path / f"{kind}{next(self._numbers)}"
        folder.mkdir(mode=0o755)
        return folder

    def remove(self) -> None:
        os.close(self._lock)
        _remove(self.path)


def sweep() -> None:
    """Removes the workspaces of runs that were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            if (
                path.owner() == _me()
                and time.time() - path.stat().st_mtime > _NEWBORN_SECONDS
                and _unlocked(path)
            ):
                _remove(path)
        except (OSError, KeyError):
            continue  # another run sweeps it at the same moment, or its owner has no name


def _me() -> str:
    return Path("/proc/self").owner()


def _unlocked(path: Path) -> bool:
    try:
        descriptor = os.open(path / "lock", os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _remove(path: Path) -> None:
    for pid_file in path.glob("*/data/postmaster.pid"):
        release_shared_memory(pid_file)
    shutil.rmtree(path, ignore_errors=True)
