"""Memory of processes that only run Dal Segno (``dalsegno server``, ``worker``, ``run``, ``bench``).

A library must not change this for its host; a process of our own may. What is loaded at start stays for good, so it
is taken out of every collection, and the young generation is large enough for a batch of steps. Large values go back to
the system as soon as they are freed.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys

YOUNG_OBJECTS = 50_000
SWITCH_SECONDS = 0.001
"""For which a thread that computes holds up another one. The thread that writes to the store lets others run at each
statement, and until its turn comes again it keeps the lock of the file."""
TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8
"""Parameters of glibc's ``mallopt``."""
LARGE_BYTES = 512 * 1024
"""From this size on memory is mapped by itself, and goes back when it is freed. Unless it is told, glibc raises this to
32 MiB with the first large value that is freed; after that, values of megabytes leave holes that stay."""
KEPT_BYTES = 4 * 1024 * 1024
"""Free memory at the end of a heap that is kept for the next batch of steps."""
ARENAS = 2
"""Separate heaps. Otherwise there may be eight for each core, one for each thread, and what one thread has freed no
other can use."""


def tune_memory() -> None:
    give_back_large_values()
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 100)
    sys.setswitchinterval(SWITCH_SECONDS)


def give_back_large_values() -> None:
    """Where the C library is glibc; others have no such parameters."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(ARENA_MAX, ARENAS)
