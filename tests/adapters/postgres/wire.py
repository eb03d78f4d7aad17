"""A wire between a process and PostgreSQL that can go dead without a sign, as when a host loses its power."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit


class Wire:
    """``async with Wire(url) as wire:`` and connect to ``wire.url``."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._server: asyncio.Server | None = None
        self._pipes: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self._alive = asyncio.Event()
        self._alive.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for pipe in self._pipes:
            pipe.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)
        for writer in self._writers:
            writer.close()

    @property
    def url(self) -> str:
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return urlunsplit(self._parts._replace(netloc=f"{self._parts.username}@127.0.0.1:{port}"))

    def go_dead(self) -> None:
        """What is sent is taken and goes nowhere; nothing is closed. New connections fare no better."""
        self._alive.clear()

    def come_back(self) -> None:
        """For new connections: what was there before is never heard of again."""
        self._alive = asyncio.Event()
        self._alive.set()

    def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        task = asyncio.create_task(self._join(reader, writer, self._alive))
        self._pipes.add(task)
        task.add_done_callback(self._pipes.discard)

    async def _join(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, alive: asyncio.Event
    ) -> None:
        assert self._parts.hostname is not None
        back, forth = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        self._writers.append(forth)
        await asyncio.gather(self._pass_on(reader, forth, alive), self._pass_back(back, writer, alive))

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, alive: asyncio.Event
    ) -> None:
        with contextlib.closing(writer):
            while data := await reader.read(65536):
                if alive.is_set():
                    writer.write(data)
                    await writer.drain()
            await alive.wait()  # a dead wire does not tell that one end was closed

    async def _pass_back(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, alive: asyncio.Event
    ) -> None:
        await self._pass_on(reader, writer, alive)
