"""How often a script is resumed: once per reason to go on, not once per completion."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dalsegno import App
from dalsegno.engine.scripts.turns import Turns
from tests.chaos.counting import check_histories

TASKS = 100
SPREAD = 1.0
"""Seconds over which they finish."""
SCRIPT = f"""
let promises = []
for (let n = 0; n < {TASKS}; n++) {{ promises.push(Task.run("after", n)) }}
return (await Task.all(promises)).length
"""


def application(url: str) -> App:
    app = App(url)

    @app.task
    async def after(number: int) -> int:
        await asyncio.sleep(SPREAD * number / TASKS)
        return number

    @app.workflow
    async def gathering() -> int:
        from dalsegno import gather

        return len(await gather(*[after(number) for number in range(TASKS)]))

    return app


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every run of a machine, by the execution it belongs to."""
    seen: list[str] = []
    real = Turns.run

    async def run(self: Turns, job: Any, *arguments: Any) -> Any:
        seen.append(job.execution)
        return await real(self, job, *arguments)

    monkeypatch.setattr(Turns, "run", run)
    return seen


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize("workflow", ["gathering", "script"])
def test_a_hundred_tasks_that_finish_over_a_second_cause_two_or_three_resumes(
    tmp_path: Path, turns: list[str], workflow: str, store: str
) -> None:
    app = application("memory:" if store == "memory" else f"sqlite:///{tmp_path}/resumes.db")
    with app.running():
        app.deploy_script(SCRIPT, "script")
        handle = app.start(workflow)
        assert handle.result(30) == TASKS
        check_histories(app)
        suspended = [event for event in handle.events() if event.kind == "Suspended"]
    assert 2 <= len(turns) <= 3
    assert len(suspended) == len(turns) - 1
