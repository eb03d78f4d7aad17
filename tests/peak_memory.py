"""The most resident memory of this process over a stretch of time. The kernel keeps the mark, and resets it when it is
told to; that of ``getrusage`` never falls."""

from __future__ import annotations

import ctypes
from pathlib import Path


def peak_kib() -> int:
    """The most resident memory in KiB since the mark was last reset."""
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise AssertionError("the kernel tells no high-water mark of memory")


def reset_peak() -> int:
    """The mark falls to what is resident now, which is returned. What was freed is given back to the kernel first, so
    that using it again counts."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    Path("/proc/self/clear_refs").write_text("5", "ascii")
    return peak_kib()
