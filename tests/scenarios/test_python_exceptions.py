"""Exceptions of tasks, children and workflows, as a Python workflow meets them."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from dalsegno import TaskError, WorkflowFailed, run, signal
from tests.scenarios.stage import Stage


class OutOfStock(Exception):
    def __init__(self, item: str, left: int) -> None:
        super().__init__(item, left)
        self.item = item
        self.left = left


class Coded(Exception):
    code = "E42"


def test_an_exception_of_a_child_arrives_as_what_it_is(stage: Stage) -> None:
    @stage.app.workflow
    async def child() -> None:
        raise OutOfStock("tea", 3)

    @stage.app.workflow
    async def parent() -> list[Any]:
        try:
            await child()
        except OutOfStock as error:
            return [error.item, error.left]
        return []

    assert stage.app.start(parent).result(10) == ["tea", 3]


def test_an_exception_passes_through_two_workflows(stage: Stage) -> None:
    @stage.app.task
    async def reserve() -> None:
        raise OutOfStock("tea", 3)

    @stage.app.workflow
    async def leaf() -> None:
        await reserve()

    @stage.app.workflow
    async def middle() -> None:
        await leaf()

    @stage.app.workflow
    async def top() -> list[Any]:
        try:
            await middle()
        except OutOfStock as error:
            return [type(error).__name__, error.item, error.left]
        return []

    assert stage.app.start(top).result(10) == ["OutOfStock", "tea", 3]


def test_a_script_sees_the_class_and_the_code_of_a_python_childs_exception(stage: Stage) -> None:
    @stage.app.workflow
    async def plain() -> None:
        raise OutOfStock("tea", 3)

    @stage.app.workflow
    async def coded() -> None:
        raise Coded("bad")

    stage.app.start(coded).wait(10)
    source = """
    let seen = []
    for (let name of ["plain", "coded"]) {
      try { await Workflow.run(name, {}) } catch (e) { seen.push([e.code, e.type]) }
    }
    return seen
    """
    assert stage.run_script(source).output == [["OutOfStock", "OutOfStock"], ["E42", "Coded"]]


def test_a_python_workflow_catches_the_error_of_a_script(stage: Stage) -> None:
    stage.app.deploy_script('throw {code: "NOPE", message: "not today"}', "scripted")

    @stage.app.workflow
    async def catching() -> list[str]:
        try:
            await run("scripted", {})
        except TaskError as error:
            return [error.code, str(error)]
        return []

    code, message = stage.app.start(catching).result(10)
    assert code == "NOPE"
    assert "not today" in message


def test_a_child_that_was_cancelled_raises_at_the_await(stage: Stage) -> None:
    @stage.app.workflow
    async def child() -> None:
        await signal("never")

    @stage.app.workflow
    async def parent() -> str:
        try:
            await child()
        except BaseException as error:  # noqa: BLE001 - which one is the question
            return type(error).__name__
        return "nothing"

    handle = stage.app.start(parent)
    stage.until("both run", handle, lambda: len(stage.app.executions()) == 2)
    (running,) = [one for one in stage.app.executions() if one.id != handle.id]
    running.cancel()
    assert handle.result(10) == "CancelledError"


def test_an_uncaught_exception_of_a_task_fails_the_workflow_with_its_class(stage: Stage) -> None:
    @stage.app.task
    async def reserve() -> None:
        raise OutOfStock("tea", 3)

    @stage.app.workflow
    async def careless() -> None:
        await reserve()

    with pytest.raises(WorkflowFailed) as caught:
        stage.app.start(careless).result(10)
    assert caught.value.error["type"] == "OutOfStock"


@pytest.mark.parametrize("kind", ["task", "workflow"])
def test_leaving_the_process_is_a_failure_and_no_more(stage: Stage, kind: str) -> None:
    @stage.app.task
    async def leave() -> None:
        sys.exit(3)

    @stage.app.task
    def leave_the_thread() -> None:
        sys.exit(3)

    @stage.app.workflow
    async def tasks() -> list[str]:
        seen = []
        for task in (leave, leave_the_thread):
            try:
                await task()
            except TaskError as error:
                seen.append(error.type)
        return seen

    @stage.app.workflow
    async def workflow() -> None:
        sys.exit(3)

    if kind == "task":
        assert stage.app.start(tasks).result(10) == ["SystemExit", "SystemExit"]
    else:
        assert stage.end_of(stage.app.start(workflow)).error["type"] == "SystemExit"
    assert stage.run_script("return 1", name="after").output == 1


def test_a_task_that_raises_cancelled_error_by_itself_fails(stage: Stage) -> None:
    @stage.app.task
    async def gives_up() -> None:
        raise asyncio.CancelledError("by itself")

    source = 'try { await Task.run("gives_up", {}) } catch (e) { return e.type }'
    assert stage.run_script(source).output == "CancelledError"


def test_errors_that_no_store_could_hold_are_mended(stage: Stage) -> None:
    @stage.app.task
    async def mumble() -> None:
        raise ValueError("\ud800", {"k": "\udfff"})

    @stage.app.workflow
    async def half() -> None:
        raise ValueError("half \ud800")

    @stage.app.workflow
    async def passed_on() -> None:
        await mumble()

    @stage.app.workflow
    async def long() -> None:
        raise ValueError("x" * 1_000_000)

    @stage.app.workflow
    async def unnameable() -> None:
        await run("\ud800", {})

    ended = {one: stage.end_of(stage.app.start(one)) for one in (half, passed_on, long, unnameable)}
    assert {one.state for one in ended.values()} == {"FAILED"}
    assert ended[half].error["message"] == "half ?"
    assert "half" in ended[half].error["details"]["traceback"]
    assert ended[passed_on].error["type"] == "ValueError"
    assert len(ended[long].error["message"]) < 11_000
    assert "Unicode" in ended[unnameable].error["message"]
