"""A separate server process with cheap connections to it, and the two workloads that it serves.

- ``http``: starts at a steady rate. The generator is open-loop: it sends when a start is due, not when the last answer
  arrived. A server that falls behind shows in the latencies instead of in a lower rate.
- ``remote``: tasks for remote workers, which take them in batches, answer each one and do no other work. The tasks
  exist before the clock starts, so that only ``/v1/tasks/claim`` and ``/complete`` are measured.
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
from contextlib import ExitStack, asynccontextmanager, closing
from typing import Any

from dalsegno.bench.report import Meter, Report, percentile, raw_limits, reported
from dalsegno.bench.workloads import Progress
from dalsegno.errors import InternalError
from dalsegno.wiring import STORE_VARIABLE

PATIENCE = 60.0
"""Seconds in which a server must listen, and in which all executions must end, with a margin for a busy machine."""


TRIES = 3
"""Of a server that ends at once."""


class Line:
    """A keep-alive connection with a minimal HTTP implementation: a client library would take the server's CPU."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> Line:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, method: str, path: str, body: object = None) -> Any:
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
        try:
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        except asyncio.IncompleteReadError:
            raise InternalError("the server closed the connection instead of answering") from None
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        if headers.get("transfer-encoding") == "chunked":
            raise InternalError("the server answers in chunks, which this generator does not read")
        return int(head[0].split(" ")[1]), await self._reader.readexactly(int(headers["content-length"]))

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def connected(port: int, count: int) -> AsyncIterator[list[Line]]:
    """Yield ``count`` connections and close them in any case."""
    with ExitStack() as stack:
        yield [stack.enter_context(closing(await Line.open(port))) for _ in range(count)]


@asynccontextmanager
async def served(url: str) -> AsyncIterator[int]:
    port = _free_port()
    process = await _started(url, port)
    try:
        for left in reversed(range(TRIES)):
            if await _listens(port, process):
                break
            if not left:
                raise InternalError(f"the server ended at once, with code {process.returncode}")
            port = _free_port()  # another program may have taken the one before meanwhile
            process = await _started(url, port)
        yield port
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


async def _started(url: str, port: int) -> asyncio.subprocess.Process:
    command = ["-m", "dalsegno", "server", "--port", str(port), "--quiet"]
    return await asyncio.create_subprocess_exec(
        sys.executable, *command, env={**os.environ, STORE_VARIABLE: url, "PYTHONUNBUFFERED": "1"}
    )


async def _listens(port: int, process: asyncio.subprocess.Process) -> bool:
    """Wait until the server listens; return False if it ended instead."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if process.returncode is not None:
            return False
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return True
    raise InternalError(f"the server did not begin to listen within {PATIENCE:g} seconds")


async def completed_of(port: int, workflow: str) -> int:
    """Count the completed executions of a workflow page by page.

    The connection is a new one: the server may close an idle one at any moment.
    """
    found, cursor = 0, ""
    async with connected(port, 1) as (line,):
        while True:
            more = f"&cursor={cursor}" if cursor else ""
            page = await line.ask(
                "GET", f"/v1/executions?workflow={workflow}&state=COMPLETED&limit=500{more}"
            )
            found += len(page["items"])
            cursor = page.get("next") or ""
            if not cursor:
                return found


async def all_completed(port: int, workflow: str, count: int, progress: Progress) -> tuple[int, float]:
    """Wait for ``count`` completed executions; give how many there are, and the seconds that this took."""
    began = time.perf_counter()
    while True:
        found = await completed_of(port, workflow)
        waited = time.perf_counter() - began
        if found >= count or waited > PATIENCE:
            return found, waited
        progress(f"{found:,} of {count:,} have ended")
        await asyncio.sleep(0.5)


# -- starts over HTTP ------------------------------------------------------------------------------------------

GRAPH: dict[str, Any] = {
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


async def http(url: str, progress: Progress, *, rate: int = 500, seconds: int = 60) -> Report:
    """Start ``rate`` executions a second for ``seconds`` seconds, then check that every one of them has completed."""
    async with served(url) as port, connected(port, CONNECTIONS) as lines:
        await lines[0].ask("POST", "/v1/definitions", GRAPH)
        progress(f"{rate} starts/s for {seconds} s over {CONNECTIONS} connections")
        with Meter() as meter:
            times = await _load(lines, rate, rate * seconds)
        ended, waited = await all_completed(port, GRAPH["name"], rate * seconds, progress)
    late = [each for each in times if each > 1000]
    figures = {
        "asked_per_s": rate,
        "started": len(times),
        "completed": ended,
        "lost": len(times) - ended,
        "slower_than_1_s": len(late),
        "seconds_until_all_had_ended": waited,
    }
    return await reported("http", url, len(times), times, meter, figures)


# -- the generator --------------------------------------------------------------------------------------------


async def _load(lines: list[Line], rate: int, count: int) -> list[float]:
    """Return the milliseconds from when each start was due to its answer."""
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


# -- tasks for remote workers ----------------------------------------------------------------------------------

QUEUE = "bench-remote"
REMOTE_GRAPH: dict[str, Any] = {
    "name": "bench-remote",
    "nodes": [
        {"id": "one", "type": "task", "queue": QUEUE, "parameters": {"task": "echo", "input": "$trigger.n"}}
    ],
}
STARTERS = 16
WAIT = 5.0
"""Seconds that a claim waits for the first task. If no task is answered in ``PATIENCE``, one was lost."""


async def remote(
    url: str, progress: Progress, *, tasks: int = 10_000, workers: int = 8, batch: int = 20
) -> Report:
    """Run ``tasks`` executions of one task each on ``workers`` connections that take ``batch`` tasks at once."""
    async with served(url) as port:
        await _start(port, tasks, progress)
        progress(f"{workers} workers take {batch} at once")
        async with connected(port, workers) as lines:
            crew = [Worker(f"bench-{number}", line, batch) for number, line in enumerate(lines)]
            began = time.perf_counter()
            with Meter() as meter:
                await asyncio.gather(*(each.work(tasks, crew) for each in crew))
        completed, _ = await all_completed(port, REMOTE_GRAPH["name"], tasks, progress)
    times = [took for each in crew for took in each.times]
    return Report(
        "remote",
        url,
        len(times) / (max(each.last for each in crew) - began),  # the last claims wait without a task
        percentile(times, 0.5),
        percentile(times, 0.99),
        meter.cpu,
        meter.rss,
        await raw_limits(url),
        {
            "tasks": tasks,
            "workers": workers,
            "batch": batch,
            "claims": sum(each.claims for each in crew),
            "completed": completed,
            "lost": tasks - completed,
        },
    )


class Worker:
    def __init__(self, name: str, line: Line, batch: int) -> None:
        self.name = name
        self.line = line
        self.batch = batch
        self.claims = 0
        self.last = 0.0
        self.times: list[float] = []
        """Milliseconds from sending each answer to its acceptance."""

    async def work(self, tasks: int, crew: list[Worker]) -> None:
        """Work until all workers together have answered every task."""
        began, before = time.perf_counter(), 0
        while (done := sum(len(each.times) for each in crew)) < tasks:
            if done > before:
                began, before = time.perf_counter(), done
            elif time.perf_counter() - began > PATIENCE:
                raise InternalError(
                    f"nothing happened for {PATIENCE:g} s, and {tasks - done:,} tasks are not done"
                )
            asked = {"worker": self.name, "queues": [QUEUE], "limit": self.batch, "wait": WAIT}
            found = (await self.line.ask("POST", "/v1/tasks/claim", asked))["tasks"]
            self.claims += 1
            for task in found:
                await self._answer(task["id"], task["fence"], task["input"])

    async def _answer(self, task: str, fence: int, output: object) -> None:
        began = time.perf_counter()
        await self.line.ask("POST", f"/v1/tasks/{task}/complete", {"fence": fence, "output": output})
        self.last = time.perf_counter()
        self.times.append((self.last - began) * 1000)


async def _start(port: int, count: int, progress: Progress) -> None:
    progress(f"starting {count:,} executions of one task")
    due = deque(range(count))

    async def send(line: Line) -> None:
        while due:
            body = {"workflow": REMOTE_GRAPH["name"], "input": {"n": due.popleft()}}
            await line.ask("POST", "/v1/executions", body)

    async with connected(port, STARTERS) as lines:
        await lines[0].ask("POST", "/v1/definitions", REMOTE_GRAPH)
        await asyncio.gather(*map(send, lines))
