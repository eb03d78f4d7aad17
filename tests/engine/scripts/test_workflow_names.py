"""Names of a program's workflows: two cannot have one, and each finds its own function."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path

import pytest

from dalsegno import App, signal
from dalsegno.engine.scripts.python_workflows import Workflows
from dalsegno.errors import InvalidInput
from dalsegno.lang.python import DurableTask, DurableWorkflow, compile_workflow
from tests.waiting import until


async def first() -> int:
    return 1


async def second() -> int:
    return 2


def test_a_name_that_is_taken_is_refused_with_both_places() -> None:
    workflows = Workflows()
    workflows.register(compile_workflow(first, "pay"), first)
    with pytest.raises(InvalidInput) as caught:
        workflows.register(compile_workflow(second, "pay"), second)
    lines = [function.__code__.co_firstlineno for function in (second, first)]
    assert str(caught.value) == (
        f"{__file__}:{lines[0]}: a workflow named 'pay' is registered already, from {__file__}:{lines[1]}; "
        "give one of them another name"
    )


def shop(url: str) -> tuple[App, DurableWorkflow[[], int], DurableWorkflow[[], int]]:
    """Two workflows that one function makes."""
    app = App(url)

    @app.task
    async def one() -> int:
        return 1

    @app.task
    async def two() -> int:
        return 2

    def made(task: DurableTask[[], Awaitable[int]], name: str) -> DurableWorkflow[[], int]:
        @app.workflow(name=name)
        async def calls() -> int:
            await signal("go")
            return await task()

        return calls

    return app, made(one, "first"), made(two, "second")


def test_workflows_that_one_function_makes_see_their_own_values(tmp_path: Path) -> None:
    """Also those that go on in another process."""
    url = f"sqlite:///{tmp_path}/made.db"
    app, *workflows = shop(url)
    with app.running():
        begun = [app.start(workflow) for workflow in workflows]
        until(lambda: all("signal" in str(each.why()) for each in begun), "both wait")
        assert len({each.status().definition for each in begun}) == 2
    again, *_ = shop(url)
    with again.running():
        handles = [again.handle(each.id) for each in begun]
        for handle in handles:
            handle.signal("go")
        assert [handle.result(30) for handle in handles] == [1, 2]


def test_workflow_whose_name_was_changed_is_found_by_its_function() -> None:
    workflows = Workflows()
    workflows.register(compile_workflow(first, "pay"), first)
    assert workflows.resolve(__name__, "first", "charge") is first


def test_of_several_that_one_function_makes_none_stands_for_another() -> None:
    workflows = Workflows()

    def made(name: str) -> None:
        async def inner() -> int:
            return len(name)

        workflows.register(compile_workflow(inner, name), inner)

    made("pay")
    made("refund")
    here = test_of_several_that_one_function_makes_none_stands_for_another.__qualname__
    qualname = f"{here}.<locals>.made.<locals>.inner"
    assert workflows.resolve(__name__, qualname, "pay").__closure__[0].cell_contents == "pay"
    assert workflows.resolve(__name__, qualname, "charge") is None
