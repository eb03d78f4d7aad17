"""Replies in one piece: the head of a reply goes out with the first of its body, if that follows at once.

uvicorn writes them one after the other, which is two system calls, two packets, and a client that is woken twice.
"""

from __future__ import annotations

import asyncio
from typing import Any

HEAD = b"HTTP/1.1 "


class WholeReplies:
    """A transport, but for `write`."""

    __slots__ = ("_head", "_loop", "_soon", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._head = b""
        self._soon: asyncio.Handle | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._head:
            self._transport.writelines((self._taken(), data))
        elif data.startswith(HEAD):
            self._head = data
            # A stream may have nothing to send for hours after its head.
            self._soon = self._loop.call_soon(self._write_head)
        elif data:
            self._transport.write(data)

    def close(self) -> None:
        self._write_head()
        self._transport.close()

    def _write_head(self) -> None:
        if self._head:
            self._transport.write(self._taken())

    def _taken(self) -> bytes:
        head, self._head = self._head, b""
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        return head
