"""Names of worker processes that tell, on the same machine, whether the process still lives.

A dead process's leases can then be taken over at once instead of after their expiry.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4


def worker_name() -> str:
    return f"{_machine()}:{os.getpid()}:{_started(os.getpid())}:{uuid4().hex[:8]}"


def dead_among(workers: Sequence[str]) -> list[str]:
    """Those that were processes of this machine and are no more. Others may live: only their lease tells."""
    return [worker for worker in workers if _is_dead(worker)]


def _is_dead(worker: str) -> bool:
    parts = worker.rsplit(":", 3)
    if len(parts) != 4 or parts[0] != _machine() or not parts[1].isdigit() or parts[2] == "?":
        return False
    return _started(int(parts[1])) != parts[2]


def _machine() -> str:
    """Host and boot: process ids mean nothing after a reboot, nor in another container."""
    boot = _read("/proc/sys/kernel/random/boot_id").strip()[:8]
    space = _read_link("/proc/self/ns/pid")
    return f"{socket.gethostname()}:{boot}:{space}"


def _started(process: int) -> str:
    """Start time of a process in clock ticks, "gone" if there is none, "?" where the system does not tell."""
    if not Path("/proc/self/stat").exists():
        return "?"
    stat = _read(f"/proc/{process}/stat")
    # A zombie still has an entry, but will never commit again.
    fields = stat.rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in ("Z", "X"):
        return "gone"
    return fields[19]


def _read_link(path: str) -> str:
    try:
        return Path(path).readlink().name.strip("pid:[]")
    except OSError:
        return ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
