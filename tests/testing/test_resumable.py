"""``assert_resumable``: a workflow stopped at each await comes to the same as an undisturbed one, or is told off."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from dalsegno import App, gather, sleep, timeout
from dalsegno.testing import Stuck, TestKit
from dalsegno.testing.kit.system import System
from tests.testing import shop

GRAPH = {
    "name": "chain",
    "nodes": [
        {"id": "a", "type": "task", "parameters": {"task": "double", "input": 1}},
        {"id": "w", "type": "wait", "parameters": {"amount": 1, "unit": "hours"}},
        {"id": "b", "type": "task", "parameters": {"task": "double", "input": "$a"}},
    ],
    "edges": [{"src": "a", "dst": "w"}, {"src": "w", "dst": "b"}],
}


def test_python_workflows_are_resumable() -> None:
    with TestKit(shop.app) as kit:
        charged = kit.mock("charge", returns="paid")
        kit.mock("ship", side_effect=[OSError("once"), "parcel"])
        kit.assert_resumable(shop.checkout, shop.Order(7, 100))
        kit.assert_resumable(shop.count_all, ["a b", "c"])
        kit.assert_resumable(shop.approval, "ann", signals={"decision": {"by": "bob", "answer": "yes"}})
        charged.assert_not_called()
        assert kit.run(shop.checkout, shop.Order(7, 100))["parcel"] == "parcel"


def test_scripts_are_resumable(workflows: TestKit) -> None:
    workflows.mock("double", side_effect=lambda n: n * 2)
    workflows.assert_resumable(
        """
        let seen = {}
        function twice(n) { return await Task.run("double", n) }
        for (let n of [1, 2, 3]) { seen["n" + n] = await twice(n) }
        Task.run("double", 99)
        return seen
        """
    )


def test_graphs_are_resumable(workflows: TestKit) -> None:
    workflows.mock("double", side_effect=lambda n: n * 2)
    workflows.assert_resumable(GRAPH)


def test_a_workflow_that_fails_alike_is_resumable(workflows: TestKit) -> None:
    workflows.mock("charge", raises=ValueError("declined"))
    workflows.assert_resumable('await Timer.delay(1); await Task.run("charge", 1)')


def test_a_result_that_differs_is_told_with_the_place(workflows: TestKit) -> None:
    numbers = itertools.count()
    workflows.mock("roll", side_effect=lambda: next(numbers))
    with pytest.raises(AssertionError) as caught:
        workflows.assert_resumable('let a = 1\nlet b = await Task.run("roll", null)\nreturn b')
    told = str(caught.value)
    assert "stopped at stop 1 of 1 (script.flow:2, Suspended task roll)" in told
    assert "result undisturbed: COMPLETED 0" in told
    assert "result resumed:     COMPLETED 1" in told


def test_task_calls_that_differ_are_told() -> None:
    app = App("memory:")
    memory: list[int] = []

    @app.task
    async def note(value: Any) -> None:
        return None

    @app.workflow
    async def forgetful() -> str:
        memory.append(1)  # lives in the process, not in the workflow
        await sleep(1)
        await gather(*[note(number) for number in range(len(memory))])
        return "done"

    with TestKit(app) as kit, pytest.raises(AssertionError, match="task called only when resumed: note"):
        kit.assert_resumable(forgetful)


def test_a_workflow_that_needs_signals_says_so(workflows: TestKit) -> None:
    with pytest.raises(Stuck, match="give it: signals="):
        workflows.assert_resumable('return await Signal.next("go")')


def test_timers_due_at_the_same_moment_fire_in_the_same_order_each_time() -> None:
    app = App("memory:")

    @app.workflow
    async def tied() -> int:
        rounds = 0
        try:
            with timeout(2):
                while True:
                    await sleep(1)
                    rounds += 1
        except TimeoutError:
            return rounds

    with TestKit(app) as kit:
        kit.assert_resumable(tied)


def test_a_wide_gather_costs_no_crash_for_each_of_its_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    app = App("memory:")

    @app.task
    async def double(n: int) -> int:
        return 2 * n

    @app.workflow
    async def wide(count: int) -> int:
        return sum(await gather(*[double(n) for n in range(count)]))

    crashes: list[object] = []
    crash = System.crash

    def counted(*given: Any) -> None:
        crashes.append(given)
        crash(*given)

    monkeypatch.setattr(System, "crash", counted)
    with TestKit(app, patience=60) as kit:
        kit.assert_resumable(wide, 200)
    assert 40 <= len(crashes) <= 60
