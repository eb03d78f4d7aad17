"""Process-wide matters: background tasks, the event loop, memory and warm-up.

- Background tasks serve many callers and belong to none of them.
- Processes of our own run on uvloop if it is installed. An application that runs the engine in its own loop keeps
  that loop.
- Memory and threads are tuned only in processes that run nothing but Dal Segno (``dalsegno server``, ``worker``,
  ``run``, ``bench``); a library must not change this for its host. Objects loaded at start are excluded from garbage
  collection, the young generation is large enough for a batch of steps, and large values are returned to the system
  as soon as they are freed.
- Lazily built objects are built before the process accepts requests or work, so that the first request does not delay
  others.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import gc
import importlib
import sys
from collections.abc import Coroutine, Iterable
from importlib.util import find_spec
from typing import Any, TypeVar

from dalsegno.graph.build import load_graph
from dalsegno.graph.catalog import Catalog
from dalsegno.graph.json_schema.shape import found_within
from dalsegno.lang import compile as compile_script


def in_background(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Start a task in its own context: it is not part of the caller's trace and is not cancelled with the caller."""
    return contextvars.Context().run(asyncio.get_running_loop().create_task, work)


def is_under_way(task: asyncio.Task[None] | None) -> bool:
    return task is not None and not task.done()


async def end(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


T = TypeVar("T")


def new_event_loop() -> asyncio.AbstractEventLoop:
    if find_spec("uvloop") is None:
        return asyncio.new_event_loop()
    import uvloop  # noqa: PLC0415 - only where it is installed

    return uvloop.new_event_loop()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine as ``asyncio.run`` does, on the loop of `new_event_loop`."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)


GC_THRESHOLD = 50_000
SHARED_SWITCH_SECONDS = 0.001
"""Switch interval, in seconds, of processes that share a SQLite file. The thread that writes releases the GIL at each
statement and, until it gets it back, holds the lock that the other processes wait for. A process that is alone on its
file keeps Python's 5 ms: frequent switching costs it some percent.
"""
TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8
"""Parameters of glibc's ``mallopt``."""
LARGE_BYTES = 512 * 1024
"""Size from which on glibc maps memory separately and returns it when it is freed. By default, glibc raises this to
32 MiB with the first large value that is freed; after that, values of megabytes leave permanent holes.
"""
KEPT_BYTES = 4 * 1024 * 1024
"""Free memory at the end of a heap that is kept for the next batch of steps."""
ARENAS = 2
"""Number of malloc arenas. By default there may be eight per core, one for each thread, and a thread cannot reuse
memory that another one has freed.
"""


def tune_memory() -> None:
    give_back_large_values()
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 20, 100)


def switch_often() -> None:
    """Shorten the switch interval after another process has committed to the store's file. No effect in a process
    whose memory was not tuned, because it is not ours.
    """
    if gc.get_threshold()[0] == GC_THRESHOLD:
        sys.setswitchinterval(SHARED_SWITCH_SECONDS)


def give_back_large_values() -> None:
    """Set glibc's malloc parameters. No effect with other C libraries."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(ARENA_MAX, ARENAS)


HTTP_NODE = "dalsegno.nodes.http.exchange"
"""Module with the HTTP client: importing it takes most of the warm-up."""
GRAPH = {
    "name": "warm-up",
    "nodes": [{"id": "a", "type": "log", "parameters": {"message": "{{ $trigger.a }}"}}],
    "input_schema": {"type": "object"},
}


def warm_up(catalog: Catalog, modules: Iterable[str] = ()) -> None:
    """Build grammars and catalogs and run deferred imports, which takes half a second."""
    for name in modules:
        importlib.import_module(name)
    compile_script("return `${1}`", "warm-up")
    load_graph(GRAPH, catalog)
    found_within({"type": "object"}, {}, 100)
