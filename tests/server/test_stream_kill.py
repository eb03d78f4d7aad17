"""Watchers of live events while the server is killed and started again, over and over.

Every watcher must end with the complete history: each event once, in order. ``make test`` kills twice under 20
watchers of 5 executions; ``make chaos`` kills ten times under 200 watchers of 50.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import httpx
import pytest

from dalsegno.model.execution import ExecutionView
from dalsegno.ports.archive import ExecutionFilter
from dalsegno.wiring import open_stack
from tests.chaos.reporting import Report
from tests.server.conftest import LASTING
from tests.server.streaming import Watcher

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
TICKS = """
workflow ticks(inputs) {
  let sum = 0
  for (let i = 0; i < inputs.count; i += 1) {
    await Timer.delay("40ms")
    sum += i
  }
  return sum
}
"""


class ServerProcess:
    """A real server on a store, which can be killed and started again at the same address."""

    def __init__(self, store: str, program: tuple[str, ...] = ("-m", "dalsegno", "server")) -> None:
        self.store = store
        self._program = program
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        command = [sys.executable, *self._program, "--store", self.store, "--quiet"]
        self._process = subprocess.Popen([*command, "--port", str(self.port)], cwd=ROOT)
        self._until_it_answers()

    def _until_it_answers(self) -> None:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            assert self._process is not None
            assert self._process.poll() is None, "the server ended by itself"
            try:
                httpx.get(f"{self.url}/v1/executions", params={"limit": 1}, timeout=5)
            except httpx.TransportError:
                time.sleep(0.02)
            else:
                return
        raise AssertionError("the server does not answer")

    def kill(self) -> None:
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


async def follow_through_everything(watcher: Watcher, http: httpx.AsyncClient) -> None:
    """As a client does: when the line breaks, come back with the number of the last event."""
    while watcher.end is None:
        try:
            await watcher.follow(http)
        except httpx.TransportError:
            watcher.breaks += 1
            await asyncio.sleep(0.25)


async def start_all(http: httpx.AsyncClient, executions: int, ticks: int) -> list[str]:
    answer = await http.post("/v1/definitions", json={"source": TICKS, "kind": "script"})
    assert answer.status_code == 201, answer.text
    body = {"workflow": "ticks", "input": {"count": ticks}}
    return [(await http.post("/v1/executions", json=body)).json()["id"] for _ in range(executions)]


async def watch_under_fire(
    store: str, executions: int, watchers: int, kills: int, ticks: int
) -> list[Watcher]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    with ServerProcess(store) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE, limits=limits) as http:
            names = await start_all(http, executions, ticks)
            watching = [Watcher(server.url, names[number % executions]) for number in range(watchers)]
            following = [asyncio.create_task(follow_through_everything(each, http)) for each in watching]
            for _ in range(kills):
                before = sum(len(each.seen) for each in watching)
                while sum(len(each.seen) for each in watching) < before + watchers // 2:
                    await asyncio.sleep(0.01)
                    _raise_early(following)
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
            await asyncio.wait_for(asyncio.gather(*following), 10 * PATIENCE)
    return watching


def _raise_early(following: list[asyncio.Task[None]]) -> None:
    for task in following:
        if task.done():
            task.result()


async def histories(store: str) -> dict[str, tuple[ExecutionView, list[str]]]:
    stack = await open_stack(store)
    views = await stack.archive.executions(ExecutionFilter(), limit=500)
    found = {
        view.id: (view, [str(event.kind) for event in await stack.archive.events(view.id)]) for view in views
    }
    await stack.close()
    return found


async def check(store: str, executions: int, watchers: int, kills: int, ticks: int) -> str:
    """What it came to, in a sentence."""
    watching = await watch_under_fire(store, executions, watchers, kills, ticks)
    told = await histories(store)
    for watcher in watching:
        view, kinds = told[watcher.execution]
        assert view.state == "COMPLETED"
        assert watcher.seen == list(range(1, len(kinds) + 1))
        assert watcher.kinds == kinds
        assert watcher.end == {"state": "COMPLETED", "last": len(kinds)}
    breaks = sum(watcher.breaks for watcher in watching)
    assert breaks >= watchers, "the kills were not felt"
    return (
        f"{kills} kills of the server, {watchers} watchers of {executions} executions cut off or turned away "
        f"{breaks} times, "
        f"{sum(len(watcher.seen) for watcher in watching)} events seen, each once and in order"
    )


@LASTING
async def test_watchers_of_a_server_that_is_killed_have_the_whole_history(store_url: str) -> None:
    await check(store_url, executions=5, watchers=20, kills=2, ticks=20)


@pytest.mark.chaos
@LASTING
async def test_200_watchers_of_50_executions_have_the_whole_history(store_url: str, report: Report) -> None:
    report(await check(store_url, executions=50, watchers=200, kills=10, ticks=60))
