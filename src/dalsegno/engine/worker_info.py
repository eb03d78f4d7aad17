"""What a worker's row in the ledger says about it, written with every heartbeat and read by people."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dalsegno.model.token import Lease
from dalsegno.ports.clock import Clock
from dalsegno.version import __version__

if TYPE_CHECKING:
    from dalsegno.engine.worker import Worker

SHOWN = 20
"""Steps in progress that are named; the others are counted."""


class Running(Struct, frozen=True, omit_defaults=True):
    """A step in progress."""

    execution: str
    node: str
    kind: str
    queue: str
    attempt: int = 1


class WorkerInfo(Struct, frozen=True, omit_defaults=True):
    queues: tuple[str, ...] = ()
    concurrency: int = 0
    since: float = 0.0
    heard: float = 0.0
    """When it wrote this: its last heartbeat."""
    host: str = ""
    process: int = 0
    running: tuple[Running, ...] = ()
    """As of the last heartbeat, at most a few."""
    remote: str | None = None
    """The name of a remote worker, whose tasks a server holds for it."""
    tasks: tuple[str, ...] = ()
    """Those that a remote worker holds."""
    offers: tuple[str, ...] = ()
    """What it can run that not every worker can: see `elsewhere`."""
    version: str = ""
    """Of the process that wrote this: the worker itself, or the server that speaks for a remote one. Empty: it is of a
    version that does not say so."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(WorkerInfo).decode


def describe(worker: Worker, clock: Clock) -> Callable[[], bytes]:
    """Called from the thread of the heartbeat: it only copies."""
    since, host = clock.now(), socket.gethostname()

    def info() -> bytes:
        running = running_of(list(worker.running.values()))
        return write_info(
            WorkerInfo(
                worker.queues,
                worker.concurrency,
                since,
                clock.now(),
                host,
                os.getpid(),
                running,
                offers=worker.offers(),
            )
        )

    return info


def running_of(leases: Iterable[Lease]) -> tuple[Running, ...]:
    """The first of them, as they are shown."""
    return tuple(
        Running(lease.execution, lease.node, lease.kind, lease.queue, lease.attempt)
        for lease in islice(leases, SHOWN)
    )


def write_info(info: WorkerInfo) -> bytes:
    return _encode(replace(info, version=info.version or __version__))


def read_info(info: bytes) -> WorkerInfo:
    """Of another version, as far as it can be read."""
    try:
        return _decode(info) if info else WorkerInfo()
    except msgspec.DecodeError:
        return WorkerInfo()
