"""A stand-in for a pooler that is not known for one: settings are taken, messages of NOTIFY are not passed on."""

from __future__ import annotations

import asyncio
import contextlib

from tests.adapters.postgres.wire import Wire

NOTIFICATION = b"A"


class DeafPooler(Wire):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.swallowed = 0

    async def _pass_back(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _alive: asyncio.Event
    ) -> None:
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
