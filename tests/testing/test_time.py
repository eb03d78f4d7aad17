"""Time in the kit: skipped while the test waits, never while something runs, moved by hand where that is wanted."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from typing import Any

import pytest

from dalsegno import App, NodeContext, RetryPolicy, WorkflowFailed
from dalsegno.testing import Stuck, TestKit
from tests.testing import shop

NOON = dt.datetime(2030, 5, 1, 12, tzinfo=dt.UTC)
WAIT_GRAPH: dict[str, Any] = {
    "name": "waiting",
    "nodes": [
        {"id": "w", "type": "wait", "parameters": {"amount": 30, "unit": "days"}},
        {"id": "z", "type": "log", "parameters": {"message": "done"}},
    ],
    "edges": [{"src": "w", "dst": "z"}],
}


def test_a_week_of_sleep_takes_no_time(workflows: TestKit) -> None:
    began = time.monotonic()
    before = workflows.now
    workflows.run('await Timer.delay("7d"); return 1')
    assert workflows.now - before == dt.timedelta(days=7)
    assert time.monotonic() - began < 60


def test_scripts_see_the_skipped_time() -> None:
    with TestKit(now=NOON) as kit:
        before, after = kit.run('let a = Date.now(); await Timer.delay("1d"); return [a, Date.now()]')
    assert before == NOON.timestamp() * 1000
    assert after - before == 86_400_000


def test_tasks_see_the_skipped_time() -> None:
    app = App("memory:")

    @app.task
    async def read_clock(ctx: NodeContext) -> float:
        return float(ctx.now)

    with TestKit(app, now=NOON) as kit:
        seen = kit.run('await Timer.delay("1d"); return await Task.run("read_clock", null)')
    assert seen == NOON.timestamp() + 86_400


def test_graphs_skip_too(workflows: TestKit) -> None:
    before = workflows.now
    workflows.run(WAIT_GRAPH)
    assert workflows.now - before == dt.timedelta(days=30)


def test_retries_wait_without_waiting() -> None:
    with TestKit(shop.app) as kit:
        kit.mock(shop.charge, returns="paid")
        parcels = kit.mock(shop.ship, side_effect=[OSError("1"), OSError("2"), "parcel 7"])
        before = kit.now
        assert kit.run(shop.checkout, shop.Order(7, 100)) == {"receipt": "paid", "parcel": "parcel 7"}
        assert kit.now - before == dt.timedelta(days=7, seconds=60 + 120)
        assert [call.attempt for call in parcels.calls] == [1, 2, 3]


def test_a_deadline_comes_when_nothing_else_does() -> None:
    with TestKit(shop.app) as kit, pytest.raises(WorkflowFailed, match="timeout"):
        kit.run(shop.impatient)


def test_a_time_limit_inside_a_workflow_comes_too() -> None:
    with TestKit(shop.app) as kit:
        before = kit.now
        assert kit.run(shop.limited) == "gave up"
        assert kit.now - before == dt.timedelta(minutes=10)


def test_time_stands_still_until_the_test_waits() -> None:
    with TestKit(shop.app) as kit:
        handle = kit.start(shop.approval, "ann")
        kit.idle()
        time.sleep(0.05)
        handle.signal("decision", {"by": "bob", "answer": "yes"})
        assert handle.result() == "ann: bob said yes"
        assert kit.run(shop.approval, "cid") == "cid: nobody decided"


def test_the_earlier_of_two_timers_wins_and_the_clock_stops_there() -> None:
    with TestKit(shop.app) as kit:
        before = kit.now
        assert kit.run(shop.first_of_two) == "1h"
        assert kit.now - before == dt.timedelta(days=1, hours=1)


def test_no_time_passes_while_a_task_runs() -> None:
    app = App("memory:")

    @app.task
    async def slow(_: Any) -> str:
        await asyncio.sleep(0.1)
        return "done"

    with TestKit(app) as kit:
        before = kit.now
        winner = kit.run('return await Promise.race([Timer.delay("1s"), Task.run("slow", 1)])')
        assert winner == "done"
        assert kit.now == before


def test_by_hand_each_timer_fires_at_its_own_time() -> None:
    with TestKit(skip=False, now=NOON) as kit:
        handle = kit.start(
            'let seen = []; for (let i = 0; i < 3; i++) { await Timer.delay("1h"); seen.push(Date.now()) } return seen'
        )
        kit.advance("90m")
        picture = handle.picture()
        assert picture is not None
        assert len(picture.variables["seen"]) == 1
        kit.advance(dt.timedelta(hours=2))
        start = NOON.timestamp() * 1000
        assert handle.result() == [start + hour * 3_600_000 for hour in (1, 2, 3)]
        assert kit.now == NOON + dt.timedelta(hours=3, minutes=30)


def test_by_hand_a_wait_that_needs_time_says_how_much() -> None:
    with TestKit(skip=False) as kit, pytest.raises(Stuck, match=r"advance\(3600\)"):
        kit.run('await Timer.delay("1h")')


def test_a_wait_for_a_signal_that_nobody_sends_says_so_at_once() -> None:
    began = time.monotonic()
    with TestKit() as kit, pytest.raises(Stuck) as caught:
        kit.run('let a = 1\nlet s = await Signal.next("approved")')
    assert "script.flow:2" in str(caught.value)
    assert 'await Signal.next("approved")' in str(caught.value)
    assert "handle.signal('approved', …)" in str(caught.value)
    assert time.monotonic() - began < 60


def test_a_task_that_never_ends_is_named() -> None:
    app = App("memory:")

    @app.task
    async def hang(_: Any) -> None:
        await asyncio.Event().wait()

    with TestKit(app, patience=0.2) as kit:
        with pytest.raises(Stuck, match="task 'hang' is running"):
            kit.run('return await Task.run("hang", 1)')
        with pytest.raises(Stuck, match="task 'hang' is running"):
            kit.idle()


def test_an_explicit_timeout_of_a_result_is_real_time() -> None:
    app = App("memory:")

    @app.task
    async def hang(_: Any) -> None:
        await asyncio.Event().wait()

    with TestKit(app) as kit, pytest.raises(TimeoutError):
        kit.start('return await Task.run("hang", 1)').result(timeout=0.05)


def test_a_paused_workflow_does_not_keep_the_kit_busy(workflows: TestKit) -> None:
    workflows.mock("step", returns=1)
    handle = workflows.start('await Timer.delay("1h"); return await Task.run("step", 1)')
    workflows.idle()
    handle.pause()
    workflows.advance("2h")
    workflows.idle()
    handle.resume()
    assert handle.result() == 1


def test_queues_need_no_worker_of_their_own() -> None:
    app = App("memory:")

    @app.task(queue="gpu", retries=RetryPolicy(max_attempts=2))
    async def render(_: Any) -> str:
        return "picture"

    with TestKit(app) as kit:
        assert kit.run('return await Task.with({queue: "gpu"}).run("render", 1)') == "picture"
