"""User code may raise what is no Exception: that fails the code, and neither stops nor hangs the worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.scenarios.conftest import ONE_STACK
from tests.scenarios.documents import graph
from tests.scenarios.stage import Stage

pytestmark = ONE_STACK


class Abort(BaseException):
    pass


ERRORS = [Abort("stop"), KeyboardInterrupt("stop"), GeneratorExit("stop"), SystemExit(3)]


def _register(stage: Stage, error: BaseException, how: str) -> None:
    """``how``: on the event loop or in a thread; watched, in an asyncio task of its own."""
    limit: dict[str, Any] = {"timeout": "1m"} if "watched" in how else {}

    async def on_the_loop(_: Any) -> None:
        await asyncio.sleep(0)
        raise error

    def in_a_thread(_: Any) -> None:
        raise error

    function: Callable[..., Any] = on_the_loop if "async" in how else in_a_thread
    stage.app.task(name="raise_it", retries=1, **limit)(function)


@pytest.mark.parametrize("how", ["async", "thread", "watched async", "watched thread"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_task_that_raises_anything_fails_and_is_retried(
    stage: Stage, error: BaseException, how: str
) -> None:
    _register(stage, error, how)
    handle = stage.start_script(
        "try { await Task.run('raise_it', 1) } catch (e) { return [e.type, e.message] }"
    )
    stage.until("a retry", handle, lambda: _retries(stage, handle.id) == 1)
    stage.pass_time(3600)
    kind, message = stage.end_of(handle).output
    if isinstance(error, SystemExit):
        assert "called exit(3)" in message
    else:
        assert (kind, message) == (type(error).__name__, "stop")
    assert stage.run_script("return 1", name="after").output == 1


def _retries(stage: Stage, execution: str) -> int:
    return sum(event.kind == "TaskRetrying" for event in stage.app.handle(execution).events())


@pytest.mark.parametrize("error", [*ERRORS, asyncio.CancelledError("stop")], ids=lambda e: type(e).__name__)
def test_a_node_type_that_raises_anything_fails_its_execution(stage: Stage, error: BaseException) -> None:
    @stage.app.node("raising")
    async def raising(ctx: Any, parameters: dict[str, Any]) -> None:
        raise error

    ended = stage.run(graph("a", {"a": {"type": "raising"}}))
    assert ended.state == "FAILED"
    assert ended.error["type"] == type(error).__name__
    assert stage.run_script("return 1", name="after").output == 1


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_python_workflow_catches_what_its_task_raised(stage: Stage, error: BaseException) -> None:
    @stage.app.task
    def raise_it() -> None:
        raise error

    @stage.app.workflow
    async def catching() -> str:
        try:
            await raise_it()
        except BaseException as caught:  # noqa: BLE001 - to see what it is
            return str(caught)
        return "nothing"

    expected = "SystemExit: task 'raise_it' called exit(3)" if isinstance(error, SystemExit) else "stop"
    assert stage.app.start(catching).result(15) == expected


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_python_workflow_that_raises_anything_fails(stage: Stage, error: BaseException) -> None:
    @stage.app.workflow
    async def raising() -> None:
        raise error

    assert stage.end_of(stage.app.start(raising)).error["type"] == type(error).__name__
    assert stage.run_script("return 1", name="after").output == 1
