"""A service that accepts connections and never answers, and workflows that call it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any


class Silent:
    """``open``: connections at this moment; ``most``: at any moment; ``total``: ever."""

    def __init__(self) -> None:
        self.open = 0
        self.most = 0
        self.total = 0
        self.url = ""

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.total += 1
        self.most = max(self.most, self.open)
        try:
            with contextlib.suppress(ConnectionError):
                while await reader.read(65536):
                    pass
        finally:
            self.open -= 1
            writer.close()


@asynccontextmanager
async def silent_listener() -> AsyncIterator[Silent]:
    silent = Silent()
    server = await asyncio.start_server(silent.accept, "127.0.0.1", 0, backlog=1024)
    silent.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    try:
        yield silent
    finally:
        server.close()


def calling(name: str, url: str, **more: Any) -> dict[str, Any]:
    """A graph that calls it once, for as long as it may."""
    node = {"id": "call", "type": "http", "parameters": {"url": url, "timeout": 300, **more}}
    return {"name": name, "nodes": [node]}


def honest(name: str = "honest") -> dict[str, Any]:
    node = {"id": "answer", "type": "log", "parameters": {"message": "42"}}
    return {"name": name, "nodes": [node]}
