"""A stand-in for a pooler in transaction mode, as far as listeners notice one: messages of NOTIFY are not passed on."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

NOTIFICATION = b"A"


class DeafPooler:
    """``async with DeafPooler(url) as pooler:`` and connect to ``pooler.url``."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._server: asyncio.Server | None = None
        self._pipes: set[asyncio.Task[None]] = set()
        self.swallowed = 0

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

    @property
    def url(self) -> str:
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return urlunsplit(self._parts._replace(netloc=f"{self._parts.username}@127.0.0.1:{port}"))

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._parts.hostname is not None
        back, forth = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        for work in (self._pass_on(reader, forth), self._filter(back, writer)):
            task = asyncio.create_task(work)
            self._pipes.add(task)
            task.add_done_callback(self._pipes.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()

    async def _filter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The wish for encryption is answered by a single letter; all other answers are messages."""
        with contextlib.closing(writer), contextlib.suppress(asyncio.IncompleteReadError):
            kind = await reader.readexactly(1)
            if kind in (b"N", b"S"):
                writer.write(kind)
                kind = await reader.readexactly(1)
            while True:
                size = await reader.readexactly(4)
                body = await reader.readexactly(int.from_bytes(size) - 4)
                if kind == NOTIFICATION:
                    self.swallowed += 1
                else:
                    writer.write(kind + size + body)
                    await writer.drain()
                kind = await reader.readexactly(1)
