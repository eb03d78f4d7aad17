"""Threads of blocking tasks that were given up: how many are replaced, and that other runs wait beyond that."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from dalsegno.engine.steps.tasks import REPLACED, Tasks
from tests.nodes.fakes import FakeContext

THREADS = 2


async def test_threads_given_up_are_bounded_over_all_workflows(caplog: pytest.LogCaptureFixture) -> None:
    tasks, release = Tasks(THREADS), threading.Event()
    workflow = [""]
    tasks.workflow_of = lambda: workflow[0]
    begun = asyncio.Queue[None]()
    loop = asyncio.get_running_loop()

    def block() -> None:
        loop.call_soon_threadsafe(begun.put_nowait, None)
        release.wait(60)

    try:
        with caplog.at_level(logging.WARNING, "dalsegno.tasks"):
            for number in range(REPLACED * THREADS + THREADS):
                workflow[0] = f"workflow-{number}"
                run = asyncio.create_task(tasks.run_blocking(block, FakeContext()))
                await asyncio.wait_for(begun.get(), 30)
                run.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await run
        assert len(caplog.records) == THREADS
        assert "keeps its thread until it ends: 8 such threads" in caplog.text
        waiting = asyncio.create_task(tasks.run_blocking(lambda: "ran", FakeContext()))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        blocked = [each for each in threading.enumerate() if each.name.startswith("dalsegno-task")]
        assert len(blocked) == (REPLACED + 1) * THREADS
        release.set()
        assert await asyncio.wait_for(waiting, 30) == "ran"
    finally:
        release.set()
        await tasks.close()
