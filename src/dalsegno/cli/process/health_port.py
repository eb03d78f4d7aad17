"""The health port of a process that serves no requests: ``/live``, ``/ready`` and ``/metrics``, without a key.

It answers from threads of its own, so that it can report a blocked event loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from dalsegno.cli.errors import Refusal
from dalsegno.cli.process.startup import Awaited
from dalsegno.cli.run.session import Stopping
from dalsegno.engine.engine import Engine
from dalsegno.errors import OperatorError, Unavailable
from dalsegno.server.operations.store_probe import ask_store
from dalsegno.version import __version__

if TYPE_CHECKING:
    from dalsegno.server.operations.metrics import Meter

T = TypeVar("T")

VARIABLE = "DALSEGNO_HEALTH_PORT"
HERE = "127.0.0.1"
LOOP_PATIENCE = 3.0
"""Seconds in which the event loop must take a turn."""
LONGEST_LOOK = 8.0
"""Additional seconds for a reading of the store."""

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

say = logging.getLogger("dalsegno.cli").info


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def health_address(given: str | None, number: int = 0) -> Address | None:
    """Return the address in the option, else in the environment. The processes of one command use consecutive ports."""
    text = given if given is not None else os.environ.get(VARIABLE)
    return read_address(text, number) if text else None


def read_address(text: str, offset: int = 0) -> Address:
    """Parse ``8701`` (this machine only) or ``0.0.0.0:8701`` (all addresses of the machine). ``offset`` is added to the
    port."""
    host, colon, port = text.strip().rpartition(":")
    if not port.isdecimal() or int(port) + offset > 65_535 or (colon and not host):
        raise Refusal(
            f"{text!r} is not a port for health and metrics",
            "Write --health-port 8701, or --health-port 0.0.0.0:8701 to be reached from other machines.",
        )
    return Address(host.strip("[]") or HERE, int(port) + offset if int(port) else 0)


@dataclass(frozen=True, slots=True)
class Running:
    """A running engine and its request counters."""

    engine: Engine
    meter: Meter
    broadcast: None = None


class Probed:
    """The state behind the port: a process that waits for its store, and later its engine."""

    def __init__(self, stopping: Stopping, awaited: Awaited) -> None:
        self._running: Running | None = None
        self._awaited = awaited
        self._stopping = stopping
        self._loop = asyncio.get_running_loop()

    def report_on(self, engine: Engine) -> None:
        """Report this engine from now on."""
        from dalsegno.server.operations.metrics import Meter  # noqa: PLC0415 - only what is used is loaded

        running = Running(engine, Meter())
        running.meter.watch(engine)
        self._running = running

    def live(self) -> None:
        self._ask(asyncio.sleep(0), LOOP_PATIENCE)

    def ready(self) -> None:
        if self._stopping.event.is_set():
            raise Unavailable("the process is stopping")
        if self._running is None:
            raise self._awaited.refusal()
        self._ask(ask_store(self._running.engine.stack), LOOP_PATIENCE + LONGEST_LOOK)

    def metrics(self) -> bytes:
        if self._running is None:
            return metrics_without_store()
        from dalsegno.server.operations.metrics import exposition  # noqa: PLC0415 - only what is used is loaded

        return self._ask(exposition(self._running), LOOP_PATIENCE + LONGEST_LOOK)

    def _ask(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """Run ``work`` on the event loop, from another thread."""
        asked = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return asked.result(seconds)
        except concurrent.futures.TimeoutError:
            asked.cancel()
            raise Unavailable(
                f"the event loop did not answer within {seconds:g} s: an async task computes or makes a "
                f"blocking call in it; make it an ordinary function, which runs in a thread"
            ) from None


def metrics_without_store() -> bytes:
    """Return the metrics of a process without an engine: alerts need to know that the store is not reached."""
    from prometheus_client import CollectorRegistry, Gauge, Info, generate_latest  # noqa: PLC0415 - the same

    registry = CollectorRegistry(auto_describe=False)
    Info("dalsegno", "This process.", registry=registry).info({"version": __version__})
    Gauge("dalsegno_store_up", "Whether the store answered.", registry=registry).set(0)
    return generate_latest(registry)


@contextmanager
def health_port(
    address: Address | None, stopping: Stopping, awaited: Awaited
) -> Iterator[Callable[[Engine], None]]:
    """Serve the health port inside the block, if there is one. Call the yielded function once an engine runs.

    The port is open while the process waits for its store, so that a supervisor does not restart it as dead.
    """
    if address is None:
        yield lambda engine: None
        return
    probed = Probed(stopping, awaited)
    server = _listen(address, probed)
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="dalsegno-health", daemon=True)
    thread.start()
    say("health and metrics: http://%s/live, /ready, /metrics", Address(address.host, server.server_port))
    try:
        yield probed.report_on
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    probed: Probed


class _ServerV6(_Server):
    address_family = socket.AF_INET6


def _listen(address: Address, probed: Probed) -> _Server:
    kind = _ServerV6 if ":" in address.host else _Server
    try:
        server = kind((address.host, address.port), _Answer)
    except OSError as error:
        raise Refusal(
            f"the health port {address} cannot be used: {error.strerror or error}",
            "Choose another one with --health-port.",
        ) from None
    server.probed = probed
    return server


class _Answer(BaseHTTPRequestHandler):
    timeout = 10  # seconds for clients that connect and send nothing
    server: _Server
    protocol_version = "HTTP/1.0"
    server_version, sys_version = "dalsegno", ""
    paths: ClassVar = ("/live", "/ready", "/metrics")

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path not in self.paths:
            self._send(404, {"status": "unknown", "detail": f"here are {', '.join(self.paths)}"})
            return
        try:
            reply = getattr(self.server.probed, path[1:])()
        except OperatorError as error:
            self._send(503, {"status": "down", "detail": str(error)})
            return
        self._send(200, reply if isinstance(reply, bytes) else {"status": "ok"})

    def _send(self, status: int, body: bytes | dict[str, str]) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", METRICS_TYPE if isinstance(body, bytes) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: probes come every few seconds."""
