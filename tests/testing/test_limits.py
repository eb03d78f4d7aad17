"""Limits, rates and priorities in the kit: the same program runs there and on SQLite, in the same order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dalsegno import App, EngineSettings
from dalsegno.engine.operations.limits import OperatorLimits
from dalsegno.testing import Stuck, TestKit

Program = str | dict[str, Any]
QUEUES = ("default", "slow")

PER_CALL = """
let calls = []
for (let i = 0; i < 8; i++) {
  calls.push(Task.with({concurrency: {key: "mail", limit: 2}}).run("work", i))
}
return await Promise.all(calls)
"""
OTHER_QUEUE = """
let calls = []
for (let i = 0; i < 6; i++) {
  calls.push(Task.with({queue: "slow", concurrency: {key: "mail", limit: 3}}).run("work", i))
}
return await Promise.all(calls)
"""
PRIORITIES = """
let calls = []
for (let i = 0; i < 6; i++) {
  calls.push(Task.with({priority: i, concurrency: {key: "mail", limit: 1}}).run("work", i))
}
return await Promise.all(calls)
"""
TWO_KEYS = """
let calls = []
for (let i = 0; i < 6; i++) {
  calls.push(Task.with({concurrency: {key: i < 4 ? "a" : "b", limit: 1}}).run("work", i))
}
return await Promise.all(calls)
"""
RATE = """
let calls = []
for (let i = 0; i < 6; i++) {
  calls.push(Task.with({concurrency: {key: "mail", rate: "2/s"}}).run("work", i))
}
return await Promise.all(calls)
"""
GRAPH: dict[str, Any] = {
    "name": "limited-items",
    "nodes": [
        {"id": "each", "type": "split", "parameters": {"input_array": [0, 1, 2, 3, 4]}},
        {
            "id": "work",
            "type": "task",
            "parameters": {"task": "work", "input": "{{ $item }}"},
            "concurrency": {"key": "mail", "limit": 2},
        },
        {"id": "all", "type": "aggregator"},
    ],
    "edges": [{"src": "each", "dst": "work"}, {"src": "work", "dst": "all"}],
}


class Watched:
    """An application whose task notes what runs, and when."""

    def __init__(self, url: str) -> None:
        self.app = App(url, settings=EngineSettings(queues=QUEUES))
        self.order: list[int] = []
        self.starts: list[float] = []
        self.at_once = 0
        self.most = 0
        self.now: Callable[[], float] = time.time
        self.app.task(self._work, name="work")

    async def _work(self, number: int) -> int:
        self.order.append(number)
        self.starts.append(self.now())
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(0.01)
        self.at_once -= 1
        return number


def in_kit(program: Program) -> Watched:
    watched = Watched("memory:")
    with TestKit(watched.app) as kit:
        watched.now = kit.clock.now
        kit.run(program)
    return watched


def on_sqlite(program: Program, path: Path) -> Watched:
    watched = Watched(f"sqlite:///{path / 'store.db'}")
    with watched.app.running():
        if isinstance(program, str):
            watched.app.deploy_script(program, name="limited")
        else:
            watched.app.deploy(program)
        name = "limited" if isinstance(program, str) else str(program["name"])
        watched.app.start(name).result(timeout=30)
    return watched


@pytest.mark.parametrize(
    ("program", "most"),
    [(PER_CALL, 2), (OTHER_QUEUE, 3), (PRIORITIES, 1), (TWO_KEYS, 2), (GRAPH, 2)],
    ids=["per-call", "other-queue", "priorities", "two-keys", "graph"],
)
def test_a_limit_holds_in_the_kit_as_on_a_store(program: Program, most: int, tmp_path: Path) -> None:
    tested, real = in_kit(program), on_sqlite(program, tmp_path)
    assert tested.order == real.order
    assert tested.most == real.most == most


def test_higher_priorities_come_first_in_the_kit() -> None:
    assert in_kit(PRIORITIES).order == [5, 4, 3, 2, 1, 0]


def test_a_rate_holds_in_the_kit_as_on_a_store(tmp_path: Path) -> None:
    tested, real = in_kit(RATE), on_sqlite(RATE, tmp_path)
    assert tested.order == real.order == list(range(6))
    for watched in (tested, real):
        gaps = [later - first for first, later in zip(watched.starts, watched.starts[2:], strict=False)]
        # On the store they are the times at which the tasks ran: one may be late, and the next one not.
        assert all(gap > (0.99 if watched is tested else 0.5) for gap in gaps), gaps
    assert real.starts[-1] - real.starts[0] > 1.5
    assert tested.starts[-1] - tested.starts[0] == pytest.approx(2.0)


def test_a_slow_rate_takes_no_time_in_the_kit() -> None:
    began = time.monotonic()
    watched = in_kit(RATE.replace("2/s", "1/h"))
    assert watched.starts[-1] - watched.starts[0] == pytest.approx(5 * 3600)
    assert time.monotonic() - began < 60


def test_a_limit_of_executions_holds_in_the_kit() -> None:
    """The slot is held while the execution sleeps, and the next begins when it has ended."""
    source = "```\nname: alone\nconcurrency: {limit: 1}\n```\nawait Timer.delay('1d'); return Date.now()"
    with TestKit() as kit:
        kit.deploy(source)
        began = kit.clock.now()
        ends = [handle.result() / 1000 - began for handle in [kit.start("alone") for _ in range(3)]]
    assert ends == [86_400, 2 * 86_400, 3 * 86_400]


async def test_limits_that_operators_set_hold_in_the_kit() -> None:
    """A key that is stopped stays stopped, and the wait says so."""
    watched = Watched("memory:")
    stopped = 'return await Task.with({concurrency: {key: "mail"}}).run("work", 1)'
    async with TestKit(watched.app) as kit:
        limits = OperatorLimits(watched.app.client.stack)
        await limits.set("mail", concurrency=0)
        handle = await kit.astart(stopped)
        with pytest.raises(Stuck, match="limit 'mail'"):
            await handle.aresult()
        await limits.remove("mail")
        assert await handle.aresult() == 1
