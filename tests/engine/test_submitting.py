"""``app.submit``: a start in two steps, of what is deployed and of functions of this program."""

from __future__ import annotations

import pytest

from dalsegno import App
from dalsegno.errors import InvalidInput, UsageError

GREET = """
name: greet
nodes:
  - {id: say, type: edit, parameters: {assignments: [{name: text, value: "Hello, {{ $trigger.name }}!"}]}}
output: $say.text
"""


class Program:
    """An application with a task and a workflow of its own."""

    def __init__(self) -> None:
        self.app = App("memory:")

        @self.app.task
        async def double(n: int) -> int:
            return n * 2

        @self.app.workflow
        async def twice(n: int) -> int:
            return await double(n)

        self.double, self.twice = double, twice


@pytest.fixture
def program() -> Program:
    return Program()


@pytest.fixture
def app(program: Program) -> App:
    return program.app


def test_a_deployed_workflow_waits_for_its_trigger(app: App) -> None:
    app.deploy(GREET)
    with app.running():
        run = app.submit("greet", name="Ada")
        assert (run.status().state, [each.kind for each in run.why()]) == ("PENDING", ["trigger"])
        run.trigger()
        assert run.result(timeout=10) == "Hello, Ada!"

        keyed = app.with_options(idempotency_key="k", tags={"env": "test"})
        first, again = keyed.submit("greet", name="Eve"), keyed.submit("greet", name="Eve")
        assert (first.id, first.status().tags) == (again.id, (("env", "test"),))


async def test_a_function_of_this_program_takes_its_own_arguments(program: Program) -> None:
    async with program.app.running():
        run = await program.app.asubmit(program.twice, 21)
        assert (await run.astatus()).state == "PENDING"
        await run.atrigger()
        assert await run.aresult(timeout=10) == 42


def test_what_does_not_fit_is_refused_when_it_is_submitted(program: Program) -> None:
    with pytest.raises(InvalidInput):
        program.app.submit(program.twice, 1, 2, 3)
    with pytest.raises(UsageError, match="'double' is a task: only workflows are submitted"):
        program.app.submit(program.double, 1)
