"""Garbage collection for processes that only run Dal Segno (``dalsegno worker``, ``run``, ``bench``).

A library must not change this for its host; a process of our own may. What is loaded at start stays for good, so it
is taken out of every collection, and the young generation is large enough for a batch of steps.
"""

from __future__ import annotations

import gc
import sys

YOUNG_OBJECTS = 50_000
SWITCH_SECONDS = 0.001
"""For which a thread that computes holds up another one. The thread that writes to the store lets others run at each
statement, and until its turn comes again it keeps the lock of the file."""


def tune_memory() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 100)
    sys.setswitchinterval(SWITCH_SECONDS)
