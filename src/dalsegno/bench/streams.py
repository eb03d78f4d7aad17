"""The streams workload: many readers of live events on one server, over real sockets."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import resource
import socket
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from dalsegno.bench.report import Meter, Report, reported
from dalsegno.bench.workloads import Progress
from dalsegno.errors import UsageError

SPARE = 500
"""File descriptors for everything else."""
AT_ONCE = 100
"""Connections that are opened at the same time."""
PATIENCE = 300.0
WAITS = 'workflow watched(inputs) {\n  await Signal.when("go")\n  return 1\n}\n'
REFUSED = 503


async def streams(url: str, progress: Progress, *, executions: int = 100, watchers: int = 10_000) -> Report:
    """Open ``watchers`` streams on ``executions`` executions, then end all executions.

    One stream more than the server allows must be refused. Every watcher must receive every event once and in order.
    """
    if url.startswith("memory:"):
        raise UsageError("streams need a store that the server's own process can open")
    count = min(watchers, _descriptors() - SPARE)
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(url, count, theirs))
    server.start()
    try:
        port = await asyncio.to_thread(ours.recv)
        figures, delays, meter = await _watch(port, executions, count, server.pid or 0, progress)
    finally:
        server.terminate()
        await asyncio.to_thread(server.join, 30)
        server.kill()
    return await reported("streams", url, count, delays, meter, figures)


def _descriptors() -> int:
    """Return the file descriptor limit of this process; the server gets the same."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


async def _watch(
    port: int, executions: int, count: int, server: int, progress: Progress
) -> tuple[dict[str, Any], list[float], Meter]:
    names = await _start(port, executions)
    idle = _memory_mb(server)
    with Meter() as meter:
        watching = [_Watcher(port, names[number % executions]) for number in range(count)]
        for begin in range(0, count, AT_ONCE):
            await asyncio.gather(*(each.open() for each in watching[begin : begin + AT_ONCE]))
            if begin % 2000 == 0:
                progress(f"{begin + AT_ONCE} streams are open")
    busy = _memory_mb(server)
    beyond = await _request(port, "GET", f"/v1/executions/{names[0]}/stream")
    if beyond[0] != REFUSED:
        raise AssertionError(f"a stream beyond the limit was answered with {beyond[0]}")
    progress("all open; one more was refused; now all executions end")
    reading = [asyncio.ensure_future(each.read()) for each in watching]
    began = time.perf_counter()
    for name in names:
        await _request(port, "POST", f"/v1/executions/{name}/signals", {"name": "go"})
    await asyncio.wait_for(asyncio.gather(*reading), PATIENCE)
    seconds = time.perf_counter() - began
    if (await _request(port, "GET", "/v1/executions?limit=1"))[0] != 200:
        raise AssertionError("the server no longer answers")
    for each in watching:
        each.check()
    figures = {
        "streams": count,
        "executions": executions,
        "refused_beyond": 1,
        "kb_per_stream": (busy - idle) * 1000 / count,
        "server_mb": busy,
        "all_ended_s": seconds,
        "events": sum(len(each.seen) for each in watching),
    }
    return figures, [(each.ended - began) * 1000 for each in watching], meter


async def _start(port: int, executions: int) -> list[str]:
    await _request(port, "POST", "/v1/definitions", {"source": WAITS, "kind": "script"})
    names = []
    for _ in range(executions):
        _, body = await _request(port, "POST", "/v1/executions", {"workflow": "watched"})
        names.append(str(json.loads(body)["id"]))
    return names


def _memory_mb(process: int) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


class _Watcher:
    """One open stream, read as data arrives."""

    def __init__(self, port: int, execution: str) -> None:
        self.port = port
        self.execution = execution
        self.seen: list[int] = []
        self.ended = 0.0
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port)
        path = f"/v1/executions/{self.execution}/stream"
        self._writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n\r\n".encode())
        answer = await self._reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in answer.partition(b"\r\n")[0]:
            raise AssertionError(f"a stream was answered with {answer[:100]!r}")

    async def read(self) -> None:
        if self._reader is None or self._writer is None:
            raise AssertionError("it is not open")
        while line := await self._reader.readline():
            if line.startswith(b"id: "):
                self.seen.append(int(line[4:]))
            elif line.startswith(b"event: end"):
                self.ended = time.perf_counter()
                break
        self._writer.close()

    def check(self) -> None:
        if not self.ended or self.seen != list(range(1, len(self.seen) + 1)):
            raise AssertionError(f"the history of {self.execution} came as {self.seen}")


async def _request(port: int, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps(body).encode() if body is not None else b""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n"
    if data:
        head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
    writer.write(head.encode() + b"\r\n" + data)
    answer = await reader.read()
    writer.close()
    status, _, rest = answer.partition(b"\r\n")
    return int(status.split()[1]), rest.partition(b"\r\n\r\n")[2]


def _serve(url: str, most: int, ready: Connection) -> None:
    """Run the server in a separate process."""
    import uvicorn  # noqa: PLC0415 - only what is used is loaded

    from dalsegno.app import App  # noqa: PLC0415 - as above
    from dalsegno.engine.process import run  # noqa: PLC0415 - as above
    from dalsegno.server import ServerSettings  # noqa: PLC0415 - as above
    from dalsegno.server.application import create_application  # noqa: PLC0415 - as above
    from dalsegno.server.http.connections import http_protocol  # noqa: PLC0415 - as above

    _descriptors()
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    settings = ServerSettings(port=listener.getsockname()[1], streams=most)
    config = uvicorn.Config(
        create_application(App(url), settings),
        http=http_protocol(settings),
        loop="none",
        ws="none",
        log_level="error",
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    ready.send(settings.port)
    run(uvicorn.Server(config).serve([listener]))
