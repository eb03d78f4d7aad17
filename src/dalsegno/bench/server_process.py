"""A separate server process, and cheap connections to it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, closing
from typing import Any

from dalsegno.bench.workloads import Progress
from dalsegno.errors import InternalError
from dalsegno.wiring import STORE_VARIABLE

PATIENCE = 60.0
"""Seconds in which a server must listen, and in which all executions must end, with a margin for a busy machine."""


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
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["-m", "dalsegno", "server", "--port", str(port), "--quiet"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, env={**os.environ, STORE_VARIABLE: url, "PYTHONUNBUFFERED": "1"}
    )
    try:
        await _until_it_listens(port, process)
        yield port
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _until_it_listens(port: int, process: asyncio.subprocess.Process) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if process.returncode is not None:
            raise InternalError(f"the server ended at once, with code {process.returncode}")
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return
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
