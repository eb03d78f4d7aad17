"""A service that accepts connections and never answers, workflows that call it, and tasks that block."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from dalsegno import App


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


def add_blocking_tasks(app: App) -> tuple[threading.Event, list[Any]]:
    """A task that blocks until the event is set, and one that answers at once; and the inputs of those that block."""
    gate, blocked = threading.Event(), list[Any]()

    @app.task
    def block(value: Any) -> None:
        blocked.append(value)
        gate.wait(60)

    @app.task
    def answer(value: Any) -> int:
        return 42

    return gate, blocked


async def deploy_blocking(app: App) -> None:
    """``hog`` runs the task that blocks, ``honest`` the other one."""
    for name, task in (("hog", "block"), ("honest", "answer")):
        node = {"id": "a", "type": "task", "parameters": {"task": task, "input": 1}}
        await app.client.deploy({"name": name, "nodes": [node]})
