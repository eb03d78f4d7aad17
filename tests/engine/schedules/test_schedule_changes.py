"""Schedules on a store that people pause, trigger and change: nothing fires twice, and nothing is made up for."""

from __future__ import annotations

import pytest

from dalsegno.errors import NotFound
from dalsegno.model.transition import Stale
from dalsegno.testing.clock import MIDNIGHT
from tests.engine.desk import DAY, HOUR, REPORT, Desk

TWO = MIDNIGHT + 2 * HOUR


# -- pausing and triggering -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("missed", "count"), [("skip", 0), ("all", 3)])
async def test_paused_schedule_fires_nothing_and_then_counts_times_as_missed(
    desk: Desk, missed: str, count: int
) -> None:
    await desk.add(missed=missed)
    await desk.book.pause("nightly")
    view = await desk.book.describe("nightly")
    assert (view.state, view.next) == ("PAUSED", ())
    await desk.pass_time(2.5 * DAY)
    assert await desk.orders() == []
    await desk.book.resume("nightly")
    await desk.fire()
    assert len(await desk.orders()) == count
    assert (await desk.book.describe("nightly")).state == "RUNNING"


async def test_triggering_orders_a_start_beside_the_times(desk: Desk) -> None:
    view = await desk.add(input={"day": 7})
    order = await desk.book.trigger("nightly")
    assert (order.workflow, bytes(order.input), order.parent) == ("report", b'{"day":7}', view.execution)
    assert (await desk.book.trigger("nightly")).execution != order.execution
    await desk.pass_time(2 * HOUR)
    assert await desk.times() == [TWO]


async def test_unknown_schedule_is_told_with_those_there_are(desk: Desk) -> None:
    await desk.add("known")
    for call in (
        desk.book.describe,
        desk.book.pause,
        desk.book.resume,
        desk.book.remove,
        desk.book.trigger,
    ):
        with pytest.raises(NotFound, match="no schedule 'nightly'; there are: 'known'"):
            await call("nightly")


# -- changing -------------------------------------------------------------------------------------------------


async def test_change_keeps_the_schedule_and_what_it_counted(desk: Desk) -> None:
    before = await desk.add()
    await desk.pass_time(2 * HOUR)
    after = await desk.add(input={"day": 2}, replace=True)
    assert (after.execution, after.started, after.last) == (before.execution, 1, TWO)
    await desk.pass_time(DAY)
    first, second = await desk.orders()
    assert (bytes(first.input), bytes(second.input)) == (b"{}", b'{"day":2}')


async def test_change_of_the_times_does_not_make_up_for_the_past(desk: Desk) -> None:
    await desk.add()
    await desk.pass_time(DAY)
    await desk.orders()
    await desk.add(timing="* * * * *", missed="all", replace=True)
    await desk.pass_time(60)
    assert await desk.times() == [MIDNIGHT + DAY + 60]


async def test_change_while_a_step_runs_wins_and_nothing_fires_twice(desk: Desk) -> None:
    await desk.add()
    desk.clock.advance(2 * HOUR)
    (running,) = await desk.leases()
    await desk.add(input={"day": 2}, replace=True)
    assert isinstance(await desk.commit(running), Stale)
    await desk.fire()
    (order,) = await desk.orders()
    assert bytes(order.input) == b'{"day":2}'


async def test_change_just_after_a_time_fired_does_not_fire_it_again(desk: Desk) -> None:
    await desk.add()
    await desk.pass_time(2 * HOUR)
    await desk.add(missed="all", replace=True)
    await desk.fire()
    assert await desk.times() == [TWO]


async def test_adding_with_replace_creates_what_is_not_there(desk: Desk) -> None:
    assert (await desk.add(replace=True)).started == 0


async def test_changed_schedule_can_be_changed_paused_and_removed(desk: Desk) -> None:
    for day in range(3):
        await desk.add(input={"day": day}, replace=True)
    await desk.book.pause("nightly")
    view = await desk.add(input={"day": 9}, replace=True)
    assert view.state == "PAUSED"
    await desk.book.remove("nightly")
    assert await desk.book.list() == []


async def test_schedule_whose_zone_is_gone_fails_and_is_listed_with_the_reason(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.add(timezone="Europe/Berlin")
    monkeypatch.setattr("dalsegno.core.schedules.cron._find_zone", lambda name: None)
    await desk.pass_time(HOUR)
    (view,) = await desk.book.list()
    assert view.state == "FAILED"
    assert "there is no time zone 'Europe/Berlin'" in str((view.error or {}).get("message"))


async def test_new_version_is_used_by_the_next_start(desk: Desk) -> None:
    await desk.add()
    await desk.deploy({**REPORT, "description": "better"})
    await desk.pass_time(2 * HOUR)
    (order,) = await desk.orders()
    assert order.version is None
