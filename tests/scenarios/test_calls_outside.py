"""Workflows and functions that are called or started by ordinary code."""

from __future__ import annotations

import asyncio

import pytest

from dalsegno import App, InvalidInput, OutsideWorkflow, WorkflowFailed, sleep
from dalsegno.testing import TestKit
from tests.scenarios.stage import Stage, all_events


def _application(url: str = "memory:") -> tuple[App, object]:
    app = App(url)

    @app.task
    async def double(number: int) -> int:
        return number * 2

    @app.workflow
    async def order(number: int, plus: int = 0) -> int:
        if number < 0:
            raise ValueError("negative")
        await sleep(0)
        return await double(number) + plus

    return app, order


def test_a_call_in_a_running_application_is_an_execution(stage: Stage) -> None:
    @stage.app.task
    async def double(number: int) -> int:
        return number * 2

    @stage.app.workflow
    async def order(number: int, plus: int = 0) -> int:
        return await double(number) + plus

    async def handler() -> list[int]:
        """As of a web framework: on a loop of its own."""
        return list(await asyncio.gather(order(2), order(3, plus=1)))

    assert asyncio.run(handler()) == [4, 7]
    handles = stage.app.executions("order")
    assert len(handles) == 2
    assert all("TaskCompleted" in [event.kind for event in all_events(handle)] for handle in handles)


async def test_it_is_one_on_the_application_s_own_loop_too() -> None:
    app, order = _application()
    async with app.running():
        assert await order(2) == 4  # type: ignore[operator]
        with pytest.raises(WorkflowFailed, match="negative"):
            await order(-1)  # type: ignore[operator]
        [failed, done] = await app.aexecutions("order")
        assert (await done.aresult(), (await failed.astatus()).state) == (4, "FAILED")
        tagged = order.with_options(tags={"a": "b"})  # type: ignore[attr-defined]
        assert await tagged(5) == 10
        assert len(await app.aexecutions(tags={"a": "b"})) == 1


def test_a_test_kit_runs_the_application(store_url: str) -> None:
    app, order = _application()
    with TestKit(app):
        assert asyncio.run(_awaited(order)) == 4


async def _awaited(order: object) -> int:
    return int(await order(2))  # type: ignore[operator]


def test_elsewhere_a_call_says_how_to_start_it() -> None:
    app, order = _application()
    with pytest.raises(OutsideWorkflow) as caught:
        order(2)  # type: ignore[operator]
    said = str(caught.value)
    assert "workflow 'order' is called where no workflow runs" in said
    assert "app.start(order, …)" in said
    assert "async with app.running()" in said
    with app.running():
        pass
    with pytest.raises(OutsideWorkflow):
        order(2)  # type: ignore[operator]
    app.close()


def test_the_plain_function_is_still_there() -> None:
    _, order = _application()
    coroutine = order.function(-1)  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="negative"):
        asyncio.run(coroutine)


async def test_a_task_stays_the_function_it_was() -> None:
    app = App("memory:")

    @app.task
    def price(sku: str) -> int:
        return len(sku)

    assert price("abc") == 3  # type: ignore[comparison-overlap]
    async with app.running():
        assert price("abc") == 3  # type: ignore[comparison-overlap]
        assert await app.aexecutions() == []


def test_an_ordinary_function_is_not_started(stage: Stage) -> None:
    async def plain(number: int) -> int:
        return number

    with pytest.raises(InvalidInput, match=r"'plain' is an ordinary function.*write @app\.workflow above"):
        stage.app.start(plain, 2)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"app\.start\(plain, …\) instead of app\.start\(plain\(…\)\)"):
        stage.app.start(plain(2))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="not dict"):
        stage.app.start({"name": "x"})  # type: ignore[arg-type]
