"""Schedules on a store that people pause, trigger and change: nothing fires twice, and nothing is made up for."""

from __future__ import annotations

import pytest

from dalsegno.errors import NotFound
from dalsegno.model.transition import Stale
from dalsegno.testing.clock import MIDNIGHT
from tests.engine.schedule_fixture import DAY, HOUR, REPORT, ScheduleFixture

TWO = MIDNIGHT + 2 * HOUR


# -- pausing and triggering -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("missed", "count"), [("skip", 0), ("all", 3)])
async def test_paused_schedule_fires_nothing_and_then_counts_times_as_missed(
    schedule_fixture: ScheduleFixture, missed: str, count: int
) -> None:
    await schedule_fixture.add(missed=missed)
    await schedule_fixture.book.pause("nightly")
    view = await schedule_fixture.book.describe("nightly")
    assert (view.state, view.next) == ("PAUSED", ())
    await schedule_fixture.pass_time(2.5 * DAY)
    assert await schedule_fixture.orders() == []
    await schedule_fixture.book.resume("nightly")
    await schedule_fixture.fire()
    assert len(await schedule_fixture.orders()) == count
    assert (await schedule_fixture.book.describe("nightly")).state == "RUNNING"


async def test_triggering_orders_a_start_beside_the_times(schedule_fixture: ScheduleFixture) -> None:
    view = await schedule_fixture.add(input={"day": 7})
    order = await schedule_fixture.book.trigger("nightly")
    assert (order.workflow, bytes(order.input), order.parent) == ("report", b'{"day":7}', view.execution)
    assert (await schedule_fixture.book.trigger("nightly")).execution != order.execution
    await schedule_fixture.pass_time(2 * HOUR)
    assert await schedule_fixture.times() == [TWO]


async def test_unknown_schedule_is_told_with_those_there_are(schedule_fixture: ScheduleFixture) -> None:
    await schedule_fixture.add("known")
    for call in (
        schedule_fixture.book.describe,
        schedule_fixture.book.pause,
        schedule_fixture.book.resume,
        schedule_fixture.book.remove,
        schedule_fixture.book.trigger,
    ):
        with pytest.raises(NotFound, match="no schedule 'nightly'; there are: 'known'"):
            await call("nightly")


# -- changing -------------------------------------------------------------------------------------------------


async def test_change_keeps_the_schedule_and_what_it_counted(schedule_fixture: ScheduleFixture) -> None:
    before = await schedule_fixture.add()
    await schedule_fixture.pass_time(2 * HOUR)
    after = await schedule_fixture.add(input={"day": 2}, replace=True)
    assert (after.execution, after.started, after.last) == (before.execution, 1, TWO)
    await schedule_fixture.pass_time(DAY)
    first, second = await schedule_fixture.orders()
    assert (bytes(first.input), bytes(second.input)) == (b"{}", b'{"day":2}')


async def test_change_of_the_times_does_not_make_up_for_the_past(schedule_fixture: ScheduleFixture) -> None:
    await schedule_fixture.add()
    await schedule_fixture.pass_time(DAY)
    await schedule_fixture.orders()
    await schedule_fixture.add(timing="* * * * *", missed="all", replace=True)
    await schedule_fixture.pass_time(60)
    assert await schedule_fixture.times() == [MIDNIGHT + DAY + 60]


async def test_change_while_a_step_runs_wins_and_nothing_fires_twice(
    schedule_fixture: ScheduleFixture,
) -> None:
    await schedule_fixture.add()
    schedule_fixture.clock.advance(2 * HOUR)
    (running,) = await schedule_fixture.leases()
    await schedule_fixture.add(input={"day": 2}, replace=True)
    assert isinstance(await schedule_fixture.commit(running), Stale)
    await schedule_fixture.fire()
    (order,) = await schedule_fixture.orders()
    assert bytes(order.input) == b'{"day":2}'


async def test_change_just_after_a_time_fired_does_not_fire_it_again(
    schedule_fixture: ScheduleFixture,
) -> None:
    await schedule_fixture.add()
    await schedule_fixture.pass_time(2 * HOUR)
    await schedule_fixture.add(missed="all", replace=True)
    await schedule_fixture.fire()
    assert await schedule_fixture.times() == [TWO]


async def test_adding_with_replace_creates_what_is_not_there(schedule_fixture: ScheduleFixture) -> None:
    assert (await schedule_fixture.add(replace=True)).started == 0


async def test_changed_schedule_can_be_changed_paused_and_removed(schedule_fixture: ScheduleFixture) -> None:
    for day in range(3):
        await schedule_fixture.add(input={"day": day}, replace=True)
    await schedule_fixture.book.pause("nightly")
    view = await schedule_fixture.add(input={"day": 9}, replace=True)
    assert view.state == "PAUSED"
    await schedule_fixture.book.remove("nightly")
    assert await schedule_fixture.book.list() == []


async def test_schedule_whose_zone_is_gone_fails_and_is_listed_with_the_reason(
    schedule_fixture: ScheduleFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await schedule_fixture.add(timezone="Europe/Berlin")
    monkeypatch.setattr("dalsegno.core.schedules.cron._find_zone", lambda name: None)
    await schedule_fixture.pass_time(HOUR)
    (view,) = await schedule_fixture.book.list()
    assert view.state == "FAILED"
    assert "there is no time zone 'Europe/Berlin'" in str((view.error or {}).get("message"))


async def test_new_version_is_used_by_the_next_start(schedule_fixture: ScheduleFixture) -> None:
    await schedule_fixture.add()
    await schedule_fixture.deploy({**REPORT, "description": "better"})
    await schedule_fixture.pass_time(2 * HOUR)
    (order,) = await schedule_fixture.orders()
    assert order.version is None
