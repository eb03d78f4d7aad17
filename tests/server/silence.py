"""A PostgreSQL that stands still, as in a machine that is frozen: it takes connections and says nothing on any."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.servers.postgres import PostgresServer

KEYS_SECONDS = 0.1
AFTER_A_LOOK = 4.0
"""Seconds: the store has two, and the machine may be busy."""


@contextmanager
def standing_still(server: PostgresServer) -> Iterator[None]:
    """The postmaster first, so that nobody new is there when its children are listed."""
    stopped: list[int] = []
    try:
        stop(server.pid, stopped)
        while running := children_of(server.pid) - set(stopped):  # of those that run, the list may miss some
            for child in running:
                stop(child, stopped)
        yield
    finally:
        for process in stopped:
            with suppress(ProcessLookupError):  # it had just ended, and the postmaster knows by now
                os.kill(process, signal.SIGCONT)


def stop(process: int, stopped: list[int]) -> None:
    os.kill(process, signal.SIGSTOP)
    stopped.append(process)


def children_of(process: int) -> set[int]:
    return set(map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split()))


@asynccontextmanager
async def silence(server: PostgresServer) -> AsyncIterator[None]:
    with standing_still(server):
        await asyncio.sleep(2 * KEYS_SECONDS)
        yield


@dataclass(frozen=True, slots=True)
class Witness:
    """Somebody who asks a server while its store stands still, and does not wait for long."""

    http: httpx.AsyncClient
    server: PostgresServer

    def silence(self) -> AbstractAsyncContextManager[None]:
        return silence(self.server)

    async def get(
        self, path: str, seconds: float = AFTER_A_LOOK, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        return await self.ask("GET", path, seconds, headers=headers)

    async def ask(self, method: str, path: str, seconds: float = AFTER_A_LOOK, **more: Any) -> httpx.Response:
        asking = asyncio.create_task(self.http.request(method, path, **more))
        await asyncio.wait({asking}, timeout=seconds)
        if not asking.done():
            asking.cancel()  # not awaited: it may wait for the store, which speaks again when the test has failed
            raise AssertionError(f"{method} {path} was not answered within {seconds:g} s")
        return asking.result()

    async def get_twice(self, path: str) -> list[httpx.Response]:
        """In one silence: the second question comes while the first is still under way."""
        async with self.silence():
            return [await self.get(path), await self.get(path)]
