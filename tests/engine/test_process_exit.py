"""What a process that ends leaves to the others on its store: they begin with it at once, not at their next look."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dalsegno import App
from dalsegno.engine.settings import EngineSettings
from tests.scenarios.documents import graph, task
from tests.waiting import until

SOON = 11.0
"""Seconds: less than a worker that nobody wakes waits for its next look, which is 12 to 18."""


class Shop:
    """An application with two tasks, of which the first may take a while."""

    def __init__(self, url: str, nap: float = 0.0, grace: float = 10.0) -> None:
        self.app = App(url, settings=EngineSettings(grace=grace))
        self.ran: list[str] = []
        self.nap = nap
        self.app.task(self.first)
        self.app.task(self.second)

    async def first(self, value: int) -> None:
        self.ran.append("first")
        await asyncio.sleep(self.nap)

    async def second(self, value: int) -> None:
        self.ran.append("second")


@pytest.mark.parametrize(
    ("nap", "grace"), [(1.0, 10.0), (60.0, 0.5)], ids=["its last step", "what it did not finish"]
)
def test_worker_that_stops(empty_postgres: Callable[[], str], nap: float, grace: float) -> None:
    url = empty_postgres()
    leaving, staying = Shop(url, nap, grace), Shop(url)
    leaving.app.deploy(graph("a > b", {"a": task("first", 1), "b": task("second", 1)}))
    with staying.app.running():
        with leaving.app.running():
            until(lambda: is_idle(staying.app), "the other one to wait for work")
            leaving.app.start("scenario")
            until(lambda: leaving.ran, "the first task")
        until(lambda: "second" in staying.ran, "the other one to go on", SOON)


def is_idle(app: App) -> bool:
    return bool(app.engine.stack.broker._reported)  # type: ignore[attr-defined]


def test_program_that_does_not_close_its_application(
    empty_postgres: Callable[[], str], tmp_path: Path
) -> None:
    shop = Shop(empty_postgres())
    shop.app.deploy(graph("a", {"a": task("second", 1)}))
    program = tmp_path / "program.py"
    program.write_text(f"from dalsegno import App\n\nApp({shop.app.url!r}).start('scenario')\n")
    with shop.app.running():
        until(lambda: is_idle(shop.app), "the worker to wait for work")

        ended = subprocess.run(
            [sys.executable, str(program)], check=False, capture_output=True, text=True, timeout=60
        )

        assert (ended.returncode, ended.stderr) == (0, "")
        began = time.monotonic()
        until(lambda: shop.ran, "the worker to begin", SOON)
        assert time.monotonic() - began < SOON
