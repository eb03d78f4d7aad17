"""Crashes on purpose: the worker dies at any commit, another goes on, and the outcome is the same."""

from __future__ import annotations

import pytest

from dalsegno import App, InvalidInput
from dalsegno.testing import Crash, TestKit
from tests.testing import shop

FAN_OUT = """
    let sum = 0
    for (let n of await Task.all([Task.run("double", 1), Task.run("double", 2), Task.run("double", 3)])) { sum += n }
    await Timer.delay("1h")
    return sum + (await Task.run("double", sum))
"""
GRAPH = {
    "name": "chain",
    "nodes": [
        {"id": "a", "type": "task", "parameters": {"task": "double", "input": 1}},
        {"id": "b", "type": "task", "parameters": {"task": "double", "input": "$a"}},
    ],
    "edges": [{"src": "a", "dst": "b"}],
}


def test_a_python_workflow_survives_every_crash() -> None:
    with TestKit(shop.app) as kit:
        kit.mock("charge", returns="paid")
        kit.mock("ship", returns="parcel")
        order = shop.Order(7, 100)
        points = kit.crashes(shop.checkout, order)
        assert len(points) >= 8
        for number, point in enumerate(points, 1):
            kit.crash(point)
            assert kit.run(shop.checkout, order) == {"receipt": "paid", "parcel": "parcel"}, point
            assert kit.restarts == number


def test_a_script_survives_every_crash_and_each_task_keeps_its_key(workflows: TestKit) -> None:
    workflows.mock("double", side_effect=lambda n: n * 2)
    for point in workflows.crashes(FAN_OUT):
        before = len(workflows.calls)
        workflows.crash(point)
        assert workflows.run(FAN_OUT) == 36, point
        assert len({call.key for call in workflows.calls[before:]}) == 4, point


def test_a_graph_survives_every_crash(workflows: TestKit) -> None:
    workflows.mock("double", side_effect=lambda n: n * 2)
    for point in workflows.crashes(GRAPH):
        workflows.crash(point)
        assert workflows.run(GRAPH) == 4, point


def test_a_step_that_was_not_committed_is_done_again_under_the_same_key(workflows: TestKit) -> None:
    mock = workflows.mock("charge", returns=1)
    workflows.crash_before(2)
    workflows.run('return await Task.run("charge", 1)')
    assert mock.call_count == 2
    assert len({call.key for call in mock.calls}) == 1


def test_a_committed_step_is_not_done_again(workflows: TestKit) -> None:
    mock = workflows.mock("charge", returns=1)
    workflows.crash_after(2)
    workflows.run('await Task.run("charge", 1); await Timer.delay("1d"); return 2')
    mock.assert_called_once()
    assert workflows.restarts == 1


def test_the_kit_can_be_told_at_once_where_to_crash() -> None:
    with TestKit(crash_after=1) as kit:
        kit.mock("charge", returns=1)
        assert kit.run('return await Task.run("charge", 1)') == 1
        assert kit.restarts == 1


def test_a_worker_that_dies_while_a_workflow_sleeps_is_replaced(workflows: TestKit) -> None:
    handle = workflows.start('await Timer.delay("1d"); return 1')
    workflows.idle()
    workflows.crash()
    assert handle.result() == 1
    assert workflows.restarts == 1


def test_a_crash_that_never_comes_is_told(workflows: TestKit) -> None:
    workflows.crash_after(50)
    with pytest.raises(AssertionError, match=r"after commit 50, but the run took \d commits"):
        workflows.run("return 1")
    assert workflows.run("return 2") == 2


def test_points_tell_where_they_are(workflows: TestKit) -> None:
    workflows.mock("charge", returns=1)
    points = workflows.crashes('let a = 1\nlet b = await Task.run("charge", a)\nreturn b')
    assert Crash("after", 1) == Crash("after", points[1].number)
    assert "script.flow:2" in str(points[1])
    assert "task charge" in str(points[1])


def test_commits_are_counted_from_one(workflows: TestKit) -> None:
    with pytest.raises(InvalidInput, match="from 1"):
        workflows.crash_after(0)


def test_a_task_in_a_thread_outlives_its_worker_unheard() -> None:
    app = App("memory:")
    seen = []

    @app.task
    def blocking(number: int) -> int:
        seen.append(number)
        return number

    with TestKit(app, crash_before=2) as kit:
        assert kit.run('return await Task.run("blocking", 5)') == 5
    assert seen == [5, 5]


def test_a_kit_left_right_after_a_crash_closes_cleanly() -> None:
    with TestKit(crash_after=1) as kit:
        kit.mock("charge", returns=1)
        handle = kit.start('await Task.run("charge", 1); await Timer.delay("1d")')
        assert handle.status().state == "RUNNING"
    with TestKit() as kit:
        assert kit.run("return 1") == 1
