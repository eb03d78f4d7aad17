"""Schedules on a store: they come, fire and go; nothing fires twice whatever happens to a worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dalsegno.core import commands
from dalsegno.errors import Conflict, InvalidInput, LimitExceeded, NotFound, NotJson
from dalsegno.model.transition import AlreadyApplied, Applied
from dalsegno.ports.archive import ExecutionFilter
from dalsegno.testing.clock import MIDNIGHT, FakeClock
from tests.engine.schedule_fixture import DAY, HOUR, ScheduleFixture

TWO = MIDNIGHT + 2 * HOUR


# -- coming ---------------------------------------------------------------------------------------------------


async def test_schedule_tells_its_next_times(schedule_fixture: ScheduleFixture) -> None:
    await schedule_fixture.add(input={"day": 1}, timezone="Europe/Berlin", tags={"team": "a"})
    view = await schedule_fixture.book.describe("nightly", 3)
    assert (view.name, view.state, view.started, view.last) == ("nightly", "RUNNING", 0, None)
    assert view.next == tuple(MIDNIGHT + HOUR + day * DAY for day in range(3))
    assert bytes(view.spec.input) == b'{"day":1}'


async def test_schedules_are_listed_by_name_and_not_among_executions(
    schedule_fixture: ScheduleFixture,
) -> None:
    for name in ("b", "a", "c"):
        await schedule_fixture.add(name)
    await schedule_fixture.book.remove("c")
    assert [view.name for view in await schedule_fixture.book.list()] == ["a", "b"]
    assert await schedule_fixture.stack.archive.executions(ExecutionFilter()) == []


async def test_name_that_is_taken_is_refused(schedule_fixture: ScheduleFixture) -> None:
    await schedule_fixture.add()
    with pytest.raises(Conflict, match="there is a schedule 'nightly' already"):
        await schedule_fixture.add()


async def test_removed_name_can_be_used_again_and_begins_anew(schedule_fixture: ScheduleFixture) -> None:
    first = await schedule_fixture.add()
    await schedule_fixture.pass_time(2 * HOUR)
    await schedule_fixture.book.remove("nightly")
    second = await schedule_fixture.add()
    assert second.execution != first.execution
    assert (second.started, second.next[0]) == (0, TWO + DAY)


@pytest.mark.parametrize("workflow", ["report", "report@1", "report@stable", "report@latest"])
async def test_target_may_name_a_version(schedule_fixture: ScheduleFixture, workflow: str) -> None:
    await schedule_fixture.stack.archive.set_alias("report", "stable", 1)
    await schedule_fixture.add(workflow=workflow)
    await schedule_fixture.pass_time(2 * HOUR)
    (order,) = await schedule_fixture.orders()
    assert (order.workflow, order.version) == (
        "report",
        {"1": 1, "stable": "stable"}.get(workflow.rpartition("@")[2]),
    )


UNKNOWN = {
    "workflow": ("nobody", "no workflow is named 'nobody'; deployed here: 'report'"),
    "version": ("report@2", "workflow 'report' has no version 2"),
    "alias": ("report@stable", "workflow 'report' has no alias 'stable'"),
}


@pytest.mark.parametrize(("workflow", "message"), UNKNOWN.values(), ids=UNKNOWN)
async def test_unknown_target_is_refused_unless_it_is_allowed(
    schedule_fixture: ScheduleFixture, workflow: str, message: str
) -> None:
    with pytest.raises(NotFound, match=message):
        await schedule_fixture.add(workflow=workflow)
    assert await schedule_fixture.book.list() == []
    assert (
        await schedule_fixture.add(workflow=workflow, allow_unknown=True)
    ).spec.workflow == workflow.partition("@")[0]


BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "cron": ({"timing": "0 25 * * *"}, InvalidInput, "bad hour"),
    "input that is no JSON": ({"input": {"x": object()}}, NotJson, "the input is not JSON"),
    "input that does not fit": (
        {"input": {"day": "x"}},
        InvalidInput,
        "does not fit the workflow's input_schema",
    ),
    "input that is large": ({"input": "x" * 300_000}, LimitExceeded, "more than 262,144"),
    "start": (
        {"start": "tomorrow"},
        InvalidInput,
        "'start' of a schedule: 'tomorrow' is not a point in time",
    ),
    "grace": ({"grace": "soon"}, InvalidInput, "'grace' of a schedule: 'soon' is not a duration"),
    "target": ({"workflow": "a@b@c"}, InvalidInput, "more than one '@'"),
    "name": ({"name": "a@b"}, InvalidInput, "cannot be the name of a schedule"),
    "a timing that is no text": ({"timing": 5}, InvalidInput, "'timing' of a schedule must be text"),
    "a tag that is no text": ({"tags": {"a": 1}}, InvalidInput, "the tag 'a' of a schedule must be text"),
    "a tag that is no Unicode": ({"tags": {"a": "\udcff"}}, InvalidInput, "not valid Unicode"),
    "tags that are none": ({"tags": ["a"]}, InvalidInput, "must map names to texts"),
    "a priority beyond all": ({"priority": 10**30}, InvalidInput, "'priority' of a schedule must be"),
    "a limit that is no number": ({"catch_up": "many"}, InvalidInput, "'catch_up' of a schedule"),
}


@pytest.mark.parametrize(("fields", "error", "message"), BAD.values(), ids=BAD)
async def test_bad_schedule_is_refused_and_nothing_is_stored(
    schedule_fixture: ScheduleFixture, fields: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        await schedule_fixture.add(**fields)
    assert await schedule_fixture.book.list() == []


async def test_bounds_are_meant_in_the_schedules_zone(schedule_fixture: ScheduleFixture) -> None:
    await schedule_fixture.add(
        start="2023-11-20", end="2023-11-21T12:00", timing="0 * * * *", timezone="Asia/Kolkata"
    )
    spec = (await schedule_fixture.book.describe("nightly")).spec
    assert spec.start == MIDNIGHT + 5 * DAY - 5.5 * HOUR
    assert spec.end == MIDNIGHT + 6.5 * DAY - 5.5 * HOUR


# -- firing ---------------------------------------------------------------------------------------------------


async def test_time_fires_once_and_the_next_one_follows(schedule_fixture: ScheduleFixture) -> None:
    view = await schedule_fixture.add()
    await schedule_fixture.pass_time(2 * HOUR - 1)
    assert await schedule_fixture.orders() == []
    await schedule_fixture.pass_time(1)
    (order,) = await schedule_fixture.orders()
    assert (order.parent, order.relation) == (view.execution, "schedule")
    await schedule_fixture.pass_time(60)
    assert await schedule_fixture.orders() == []
    await schedule_fixture.pass_time(DAY)
    (following,) = await schedule_fixture.orders()
    assert following.execution != order.execution
    after = await schedule_fixture.book.describe("nightly")
    assert (after.started, after.last, after.last_execution) == (2, TWO + DAY, following.execution)


async def test_time_that_nobody_fires_is_overdue(schedule_fixture: ScheduleFixture) -> None:
    await schedule_fixture.add()
    schedule_fixture.clock.advance(DAY)
    view = await schedule_fixture.book.describe("nightly")
    assert (view.overdue, view.next[0]) == (TWO, TWO + DAY)
    await schedule_fixture.book.pause("nightly")
    assert (await schedule_fixture.book.describe("nightly")).overdue is None
    await schedule_fixture.book.resume("nightly")
    await schedule_fixture.fire()
    assert (await schedule_fixture.book.describe("nightly")).overdue is None


@pytest.mark.parametrize(
    ("missed", "days"), [("skip", []), ("once", [3]), ("all", [0, 1, 2, 3])], ids=["skip", "once", "all"]
)
async def test_days_without_a_worker_are_treated_as_the_policy_says(
    schedule_fixture: ScheduleFixture, missed: str, days: list[int]
) -> None:
    await schedule_fixture.add(missed=missed)
    await schedule_fixture.pass_time(3.5 * DAY)
    assert await schedule_fixture.times() == [TWO + day * DAY for day in days]
    await schedule_fixture.pass_time(0.5 * DAY + 2 * HOUR)
    assert await schedule_fixture.times() == [TWO + 4 * DAY]
    view = await schedule_fixture.book.describe("nightly")
    assert (view.started, view.passed) == (len(days) + 1, 4 - len(days))


async def test_many_missed_times_are_made_up_in_order_and_up_to_the_limit(
    schedule_fixture: ScheduleFixture,
) -> None:
    await schedule_fixture.add(timing="every 1m", missed="all", catch_up=250)
    await schedule_fixture.pass_time(DAY)
    assert await schedule_fixture.times() == [MIDNIGHT + DAY - 60 * number for number in range(249, -1, -1)]


async def test_schedule_ends_with_its_last_time(schedule_fixture: ScheduleFixture) -> None:
    await schedule_fixture.add(end=TWO + DAY)
    await schedule_fixture.pass_time(2 * HOUR)
    await schedule_fixture.pass_time(DAY)
    assert len(await schedule_fixture.orders()) == 2
    view = await schedule_fixture.book.describe("nightly")
    assert (view.state, view.next) == ("COMPLETED", ())
    assert await schedule_fixture.book.list() == []
    assert (await schedule_fixture.add()).state == "RUNNING"


async def test_worker_that_dies_before_its_commit_changes_nothing(schedule_fixture: ScheduleFixture) -> None:
    await schedule_fixture.add()
    schedule_fixture.clock.advance(2 * HOUR)
    for number in range(7):  # more often than a node's token may be lost
        worker = f"w{number}"
        schedule_fixture.stack.ledger.heartbeat(worker, 10)
        assert len(await schedule_fixture.leases(worker)) == 1
        schedule_fixture.clock.advance(0.1)
        await schedule_fixture.stack.ledger.expire([worker])
    await schedule_fixture.fire()
    assert await schedule_fixture.times() == [TWO]


async def test_commit_that_comes_twice_fires_once(schedule_fixture: ScheduleFixture) -> None:
    await schedule_fixture.add()
    schedule_fixture.clock.advance(2 * HOUR)
    (lease,) = await schedule_fixture.leases()
    assert isinstance(await schedule_fixture.commit(lease), Applied)
    assert isinstance(await schedule_fixture.commit(lease), AlreadyApplied)
    assert await schedule_fixture.times() == [TWO]


async def test_late_commit_of_a_worker_that_lost_its_lease_changes_nothing(
    schedule_fixture: ScheduleFixture,
) -> None:
    await schedule_fixture.add()
    schedule_fixture.clock.advance(2 * HOUR)
    (lost,) = await schedule_fixture.leases("w1")
    await schedule_fixture.stack.ledger.expire(["w1"])
    await schedule_fixture.fire()
    schedule_fixture.clock.advance(DAY)
    assert not isinstance(await schedule_fixture.commit(lost), Applied)
    await schedule_fixture.fire()
    assert await schedule_fixture.times() == [TWO, TWO + DAY]


async def test_several_schedulers_share_the_schedules(tmp_path: Path) -> None:
    clock, url = FakeClock(), f"sqlite:///{tmp_path}/shared.db"
    desks = [await ScheduleFixture.open(url, clock) for _ in range(3)]
    await desks[0].deploy()
    for number in range(10):
        await desks[number % 3].add(f"s{number}", "every 1m", missed="all")
    for _ in range(20):
        clock.advance(60)
        for schedule_fixture in desks:
            await schedule_fixture.fire()
    orders = await desks[1].orders()
    assert len({order.execution for order in orders}) == len(orders) == 10 * 20
    for schedule_fixture in desks:
        await schedule_fixture.stack.close()


async def test_schedule_outlives_every_process(tmp_path: Path) -> None:
    clock, url = FakeClock(), f"sqlite:///{tmp_path}/store.db"
    first = await ScheduleFixture.open(url, clock)
    await first.deploy()
    await first.add(missed="once")
    await first.pass_time(2 * HOUR)
    await first.stack.close()
    clock.advance(10 * DAY)
    second = await ScheduleFixture.open(url, clock)
    await second.fire()
    assert await second.times() == [TWO, TWO + 10 * DAY]
    assert (await second.book.describe("nightly")).started == 2
    await second.stack.close()


# -- overlapping ----------------------------------------------------------------------------------------------


async def test_nothing_starts_while_the_last_one_runs(schedule_fixture: ScheduleFixture) -> None:
    await schedule_fixture.add(timing="0 * * * *", overlap="skip")
    await schedule_fixture.pass_time(HOUR)
    (order,) = await schedule_fixture.orders()
    await schedule_fixture.run(order)
    await schedule_fixture.pass_time(HOUR)
    await schedule_fixture.pass_time(HOUR)
    assert await schedule_fixture.orders() == []
    await schedule_fixture.committer.commit(commands.cancel(order.execution, schedule_fixture.clock.now()))
    await schedule_fixture.pass_time(HOUR)
    assert await schedule_fixture.times() == [MIDNIGHT + 4 * HOUR]
    assert (await schedule_fixture.book.describe("nightly")).passed == 2


async def test_start_that_is_on_its_way_counts_as_running(schedule_fixture: ScheduleFixture) -> None:
    await schedule_fixture.add(timing="every 20s", overlap="skip")
    await schedule_fixture.pass_time(20)
    await schedule_fixture.pass_time(20)
    assert await schedule_fixture.times() == [MIDNIGHT + 20]


async def test_start_that_never_came_does_not_block_for_ever(schedule_fixture: ScheduleFixture) -> None:
    await schedule_fixture.add(timing="every 20s", overlap="skip")
    for _ in range(4):
        await schedule_fixture.pass_time(20)
    assert await schedule_fixture.times() == [MIDNIGHT + 20, MIDNIGHT + 80]
