"""The input of a task is read only by the process that calls its function."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.core.scripts.token_bodies import StoredInput, TaskBody
from dalsegno.engine.scripts.failures import Failed
from dalsegno.engine.scripts.tasks import TaskRunner
from dalsegno.engine.settings import EngineLimits
from dalsegno.engine.steps.tasks import Task, Tasks, make_task
from dalsegno.engine.worker.capabilities import RunsInProgram
from dalsegno.model.token import Lease
from dalsegno.nodes.registry import builtin_registry

INPUT = TaskBody(promise=1, stored=StoredInput("e", "input", 100_000))


class CountedInputs:
    def __init__(self) -> None:
        self.read = 0

    async def value(self, execution: str, body: TaskBody) -> Any:
        self.read += 1
        return 1


def lease(name: str) -> Lease:
    return Lease("t", "e", 1, "", "task", name, b"", "default", 0, 1, 0, "", 0.0, "", 0)


async def double(n: int) -> int:
    return 2 * n


def runner(inputs: CountedInputs, *tasks: Task) -> TaskRunner:
    registered = Tasks()
    for task in tasks:
        registered.register(task)
    return TaskRunner(
        builtin_registry(),
        {"tasks": registered},
        lambda *line: None,
        EngineLimits(),
        inputs,  # type: ignore[arg-type]
    )


async def test_a_task_that_this_process_has_gets_its_input() -> None:
    inputs = CountedInputs()
    assert await runner(inputs, make_task(double)).run(lease("double"), INPUT, "w", 0.0) == 2
    assert inputs.read == 1


@pytest.mark.parametrize("name", ["double", "node:no-such-node"])
async def test_the_input_of_what_is_missing_here_is_not_read(name: str) -> None:
    inputs = CountedInputs()
    assert isinstance(await runner(inputs).run(lease(name), INPUT, "w", 0.0), Failed)
    assert inputs.read == 0


async def test_the_input_of_a_remote_task_is_not_read() -> None:
    inputs = CountedInputs()
    remote = Task("double", double, queue="others", is_remote=True)
    with pytest.raises(RunsInProgram):
        await runner(inputs, remote).run(lease("double"), INPUT, "w", 0.0)
    assert inputs.read == 0
