"""What is recorded of runs that take long."""

from __future__ import annotations

import asyncio
import threading

from dalsegno import App, EngineSettings
from dalsegno.engine.steps.tasks import TURN_THREADS
from dalsegno.engine.worker.long_runs import AFTER
from tests.waiting import come_about


async def test_a_task_that_has_returned_is_not_recorded_as_started_while_its_script_waits_for_a_thread() -> (
    None
):
    """The step of a task ends with its script's turn, which may wait for a thread: the task is over by then."""
    app = App("memory:", settings=EngineSettings(workflow_share=1.0))
    gate, begun, go_on = threading.Event(), threading.Event(), threading.Event()
    returned = False

    @app.task
    async def quick() -> None:
        nonlocal returned
        returned = True

    @app.workflow
    async def patient() -> None:
        begun.set()
        go_on.wait(60)
        await quick()

    async with app.running():
        try:
            execution = await app.client.start("patient")
            await come_about(begun.is_set, "the first turn runs")
            holding = [asyncio.create_task(app.tasks.call(lambda: _pass(gate))) for _ in range(TURN_THREADS)]
            await asyncio.sleep(
                0
            )  # one more than there are threads: the last takes over that of the first turn
            go_on.set()
            await come_about(lambda: returned, "the task is over")
            await asyncio.sleep(3 * AFTER)
        finally:
            go_on.set()
            gate.set()
        await asyncio.gather(*holding)
        assert (await app.client.wait(execution, timeout=30)).state == "COMPLETED"
        kinds = [event.kind for event in await app.client.events(execution)]
    assert kinds.count("TaskCompleted") == 1
    assert "TaskStarted" not in kinds


def _pass(gate: threading.Event) -> None:
    assert gate.wait(60)
