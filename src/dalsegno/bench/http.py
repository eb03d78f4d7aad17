"""Starts over HTTP at a steady rate: a server process of its own, a generator with few connections on loopback.

The generator is open-loop: it sends when a start is due, not when the last answer came, so a server that falls behind
shows in the latencies instead of in a lower rate.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dalsegno.bench.raw import raw_limits
from dalsegno.bench.report import Meter, Report, percentile
from dalsegno.bench.workloads import Progress
from dalsegno.errors import InternalError

GRAPH = {
    "name": "bench-http",
    "nodes": [
        {
            "id": "one",
            "type": "edit",
            "parameters": {"assignments": [{"name": "n", "value": "{{ input.n }}"}]},
        }
    ],
    "output": "$one.n",
}
CONNECTIONS = 16
PATIENCE = 60.0
"""Seconds after the last start in which everything must have ended."""


async def http(url: str, progress: Progress, *, rate: int = 500, seconds: int = 60) -> Report:
    """``rate`` starts a second for ``seconds`` seconds; afterwards every one of them is looked for."""
    async with _server(url) as port:
        lines = [await Line.open(port) for _ in range(CONNECTIONS)]
        await lines[0].ask("POST", "/v1/definitions", GRAPH)
        progress(f"{rate} starts/s for {seconds} s over {CONNECTIONS} connections")
        with Meter() as meter:
            times = await _load(lines, rate, rate * seconds)
        ended, waited = await _ended(lines[0], rate * seconds, progress)
        for line in lines:
            line.close()
    late = [each for each in times if each > 1000]
    return Report(
        "http",
        url,
        len(times) / meter.seconds,
        percentile(times, 0.5),
        percentile(times, 0.99),
        meter.cpu,
        meter.rss,
        await raw_limits(url),
        {
            "asked_per_s": rate,
            "started": len(times),
            "completed": ended,
            "lost": len(times) - ended,
            "slower_than_1_s": len(late),
            "seconds_until_all_had_ended": waited,
        },
    )


# -- the generator --------------------------------------------------------------------------------------------


class Line:
    """A keep-alive connection that speaks just enough HTTP: a client library would take the server's CPU."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> Line:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, method: str, path: str, body: object = None) -> object:
        data = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n"
        )
        self._writer.write(head.encode() + data)
        status, answer = await self._answer()
        if status >= 300:
            raise InternalError(f"{method} {path} was answered {status}: {answer[:300]!r}")
        return json.loads(answer) if answer else None

    async def _answer(self) -> tuple[int, bytes]:
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        if headers.get("transfer-encoding") == "chunked":
            raise InternalError("the server answers in chunks, which this generator does not read")
        return int(head[0].split(" ")[1]), await self._reader.readexactly(int(headers["content-length"]))

    def close(self) -> None:
        self._writer.close()


async def _load(lines: list[Line], rate: int, count: int) -> list[float]:
    """Milliseconds from when each start was due to its answer."""
    due = deque(range(count))
    times: list[float] = []
    began = time.perf_counter()

    async def send(line: Line) -> None:
        while due:
            number = due.popleft()
            at = began + number / rate
            await asyncio.sleep(max(at - time.perf_counter(), 0))
            await line.ask("POST", "/v1/executions", {"workflow": "bench-http", "input": {"n": number}})
            times.append((time.perf_counter() - at) * 1000)

    await asyncio.gather(*(send(line) for line in lines))
    return times


async def _ended(line: Line, count: int, progress: Progress) -> tuple[int, float]:
    """How many have completed, counted page by page, and how long that took after the last start."""
    began = time.perf_counter()
    while True:
        found = await _completed(line)
        waited = time.perf_counter() - began
        if found >= count or waited > PATIENCE:
            return found, waited
        progress(f"{found:,} of {count:,} have ended")
        await asyncio.sleep(0.5)


async def _completed(line: Line) -> int:
    found, cursor = 0, ""
    while True:
        more = f"&cursor={cursor}" if cursor else ""
        path = f"/v1/executions?workflow=bench-http&state=COMPLETED&limit=500{more}"
        page = await line.ask("GET", path)
        if not isinstance(page, dict):
            raise InternalError("the server's list is no page")
        found += len(page["items"])
        cursor = page.get("next") or ""
        if not cursor:
            return found


# -- the server -----------------------------------------------------------------------------------------------


@asynccontextmanager
async def _server(url: str) -> AsyncIterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["-m", "dalsegno", "server", "--store", url, "--port", str(port), "--quiet"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )
    try:
        await _until_it_listens(port, process)
        yield port
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _until_it_listens(port: int, process: asyncio.subprocess.Process) -> None:
    for _ in range(200):
        if process.returncode is not None:
            raise InternalError(f"the server ended at once, with code {process.returncode}")
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return
    raise InternalError("the server did not begin to listen within 10 seconds")
