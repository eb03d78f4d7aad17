"""Schedules in a running engine: what they start really runs, once, whoever was there or not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dalsegno import App
from dalsegno.engine.settings import EngineSettings
from dalsegno.errors import Conflict, NotFound, UsageError
from dalsegno.ports.archive import ExecutionFilter
from dalsegno.schedules import Schedules
from dalsegno.testing.clock import MIDNIGHT, FakeClock
from tests.scenarios.conftest import LASTING
from tests.scenarios.stage import LEASE, Stage

NOTE = {
    "name": "note",
    "nodes": [{"id": "note", "type": "task", "parameters": {"task": "note", "input": "{{ input }}"}}],
}
HOLD = {
    "name": "hold",
    "nodes": [{"id": "hold", "type": "task", "parameters": {"task": "hold", "input": "door"}}],
}
HOUR, DAY = 3600.0, 86_400.0


def schedules(stage: Stage) -> Schedules:
    return stage.app.schedules


def children(stage: Stage, name: str) -> list[str]:
    """States of what a schedule started, oldest first."""
    where = ExecutionFilter(parent=schedules(stage).get(name).execution, relations=("schedule",))
    views = stage.app.host.call(stage.app.client.executions(where))
    return [view.state for view in reversed(views)]


def until_started(stage: Stage, name: str, states: list[str]) -> None:
    handle = stage.app.handle(schedules(stage).get(name).execution)
    stage.until(f"'{name}' has started {states}", handle, lambda: children(stage, name) == states)


def test_schedule_starts_its_workflow_again_and_again(stage: Stage) -> None:
    stage.app.deploy(NOTE)
    schedules(stage).add("hourly", "0 * * * *", "note", input="tick")
    for number in range(1, 4):
        stage.pass_time(HOUR)
        until_started(stage, "hourly", ["COMPLETED"] * number)
    assert stage.seen == ["tick"] * 3


def test_started_execution_tells_where_it_comes_from(stage: Stage) -> None:
    stage.app.deploy(NOTE)
    view = schedules(stage).add("hourly", "0 * * * *", "note", tags={"team": "a"}, priority=5)
    stage.pass_time(HOUR)
    until_started(stage, "hourly", ["COMPLETED"])
    (run,) = stage.app.executions("note", tags={"schedule": "hourly"})
    status = run.status()
    assert (status.parent, status.relation, status.priority) == (view.execution, "schedule", 5)
    assert dict(status.tags) == {
        "team": "a",
        "schedule": "hourly",
        "scheduled_at": "2023-11-15T01:00:00Z",
    }


@pytest.mark.parametrize(("missed", "count"), [("skip", 0), ("once", 1), ("all", 3)])
def test_pause_of_days_is_made_up_for_as_the_policy_says(stage: Stage, missed: Any, count: int) -> None:
    stage.app.deploy(NOTE)
    book = schedules(stage)
    book.add("nightly", "0 2 * * *", "note", input="night", missed=missed)
    book.pause("nightly")
    stage.pass_time(2.5 * DAY)
    book.resume("nightly")
    until_started(stage, "nightly", ["COMPLETED"] * count)
    stage.pass_time(0.5 * DAY + 2 * HOUR)
    until_started(stage, "nightly", ["COMPLETED"] * (count + 1))
    view = book.get("nightly")
    assert (view.started, view.passed) == (count + 1, 3 - count)


def test_nothing_overlaps_where_that_is_not_wanted(stage: Stage) -> None:
    stage.app.deploy(HOLD)
    book = schedules(stage)
    book.add("often", "every 10m", "hold", overlap="skip")
    stage.pass_time(600)
    until_started(stage, "often", ["RUNNING"])
    handle = stage.app.handle(book.get("often").execution)
    for passed in range(1, 4):
        stage.pass_time(600)
        stage.until("the time was passed over", handle, lambda n=passed: book.get("often").passed == n)
    assert children(stage, "often") == ["RUNNING"]
    stage.door("door").open()
    until_started(stage, "often", ["COMPLETED"])
    stage.pass_time(600)
    until_started(stage, "often", ["COMPLETED", "COMPLETED"])


def test_alias_decides_at_each_start_which_version_runs(stage: Stage) -> None:
    versions = [stage.app.deploy({**NOTE, "description": str(number)}).version for number in range(3)]
    archive = stage.app.client.stack.archive
    stage.app.host.call(archive.set_alias("note", "stable", 2))
    schedules(stage).add("hourly", "0 * * * *", "note@stable")
    stage.pass_time(HOUR)
    until_started(stage, "hourly", ["COMPLETED"])
    stage.app.host.call(archive.set_alias("note", "stable", 1))
    stage.pass_time(HOUR)
    until_started(stage, "hourly", ["COMPLETED"] * 2)
    assert versions == [1, 2, 3]
    assert [handle.status().version for handle in stage.app.executions("note")] == [1, 2]


def test_triggered_start_runs_beside_the_times(stage: Stage) -> None:
    stage.app.deploy(NOTE)
    book = schedules(stage)
    book.add("nightly", "0 2 * * *", "note", input="now")
    assert book.trigger("nightly").result(15) == "now"
    assert book.get("nightly").next[0] == MIDNIGHT + 2 * HOUR
    assert children(stage, "nightly") == ["COMPLETED"]


def test_removed_schedule_starts_nothing_more_and_what_it_started_runs_on(stage: Stage) -> None:
    stage.app.deploy(HOLD)
    book = schedules(stage)
    execution = book.add("hourly", "0 * * * *", "hold").execution
    stage.pass_time(HOUR)
    until_started(stage, "hourly", ["RUNNING"])
    book.remove("hourly")
    with pytest.raises(NotFound, match="no schedule 'hourly'"):
        book.get("hourly")
    stage.pass_time(5 * HOUR)
    (run,) = stage.app.executions("hold")
    stage.door("door").open()
    assert stage.end_of(run).state == "COMPLETED"
    assert stage.app.handle(execution).status().state == "CANCELLED"


def test_schedule_whose_workflow_is_not_there_goes_on(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """The start fails for all to see; later ones work as soon as somebody deploys."""
    book = schedules(stage)
    book.add("hourly", "0 * * * *", "note", allow_unknown=True)
    stage.pass_time(HOUR)
    handle = stage.app.handle(book.get("hourly").execution)
    stage.until("it fired", handle, lambda: book.get("hourly").started == 1)
    stage.until("it was told", handle, lambda: "no workflow is named 'note'" in caplog.text)
    until_started(stage, "hourly", ["FAILED"])
    stage.app.deploy(NOTE)
    stage.pass_time(HOUR)
    until_started(stage, "hourly", ["FAILED", "COMPLETED"])


def test_names_are_taken_once_and_changed_on_demand(stage: Stage) -> None:
    stage.app.deploy(NOTE)
    book = schedules(stage)
    book.add("hourly", "0 * * * *", "note", input=1)
    with pytest.raises(Conflict):
        book.add("hourly", "0 * * * *", "note")
    book.add("hourly", "0 * * * *", "note", input=2, replace=True)
    assert [view.name for view in book.list()] == ["hourly"]
    stage.pass_time(HOUR)
    until_started(stage, "hourly", ["COMPLETED"])
    assert stage.seen == [2]


SCRIPT = """
workflow doubling(inputs) {
  const noted = await Task.run("note", inputs.n * 2)
  await Timer.delay("5m")
  return noted
}
"""


def test_scripts_are_started_by_schedules(stage: Stage) -> None:
    stage.app.deploy_script(SCRIPT)
    schedules(stage).add("hourly", "0 * * * *", "doubling", input={"n": 21})
    stage.pass_time(HOUR)
    until_started(stage, "hourly", ["RUNNING"])
    stage.until("it has noted", stage.app.executions("doubling")[0], lambda: stage.seen == [42])
    stage.pass_time(400)
    until_started(stage, "hourly", ["COMPLETED"])


def test_python_workflows_are_started_by_schedules(stage: Stage) -> None:
    @stage.app.workflow
    async def adding(first: int, second: int) -> int:
        return first + second

    book = schedules(stage)
    book.add("hourly", "0 * * * *", adding, input={"first": 1, "second": 2})
    stage.pass_time(HOUR)
    until_started(stage, "hourly", ["COMPLETED"])
    assert stage.app.executions("adding")[0].result(15) == 3
    assert book.trigger("hourly").result(15) == 3


def test_option_that_does_not_exist_is_named(stage: Stage) -> None:
    stage.app.deploy(NOTE)
    with pytest.raises(UsageError, match="unexpected keyword argument 'when'"):
        schedules(stage).add("x", "@daily", "note", when=3)  # type: ignore[call-arg]


async def test_every_call_has_an_async_twin(store_url: str) -> None:
    clock = FakeClock()
    app = App(store_url, clock=clock)
    book = app.schedules
    async with app.running():
        await app.adeploy(
            {"name": "w", "nodes": [{"id": "l", "type": "log", "parameters": {"message": "x"}}]}
        )
        await book.aadd("s", "@daily", "w")
        assert [view.name for view in await book.alist()] == ["s"]
        await book.apause("s")
        assert (await book.aget("s")).state == "PAUSED"
        await book.aresume("s")
        await (await book.atrigger("s")).aresult(15)
        await book.aremove("s")
        assert await book.alist() == []


@LASTING
async def test_several_processes_fire_each_time_once(store_url: str) -> None:
    """Three engines on one store; one of them is stopped and started again while times pass."""
    clock = FakeClock()
    settings = EngineSettings(lease_seconds=LEASE)
    apps = [App(store_url, clock=clock, settings=settings) for _ in range(3)]
    await apps[0].adeploy(
        {"name": "w", "nodes": [{"id": "l", "type": "log", "parameters": {"message": "x"}}]}
    )
    for number in range(5):
        timing = ("every 1m", "* * * * *")[number % 2]
        await apps[0].schedules.aadd(f"s{number}", timing, "w", missed="all")
    await apps[0].aclose()
    for app in apps[:2]:
        await app.running().__aenter__()
    for minute in range(1, 11):
        clock.advance(60)
        if minute == 4:
            await apps[0].aclose()
        if minute == 6:
            await apps[2].running().__aenter__()
        for app in apps:
            if app._host is not None:
                app.engine.timers.notice(0.0)
        await _until_started(apps[1], 5 * minute)
    handles = await apps[1].aexecutions("w", limit=1000)
    assert len(handles) == 50
    for app in apps:
        await app.aclose()


async def _until_started(app: App, count: int) -> None:
    async with asyncio.timeout(60):
        while len(await app.aexecutions("w", limit=1000)) < count:  # noqa: ASYNC110 - others start them
            await asyncio.sleep(0.01)
