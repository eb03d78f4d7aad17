"""What scripts survive: restarts, deleted timers, damaged snapshots, completions at any moment."""

from __future__ import annotations

import asyncio
import sqlite3

import asyncpg

from dalsegno.wiring import is_postgres, sqlite_path
from tests.scenarios.conftest import LASTING
from tests.scenarios.stage import Stage


def _change(url: str, statement: str) -> int:
    """Behind the engine's back; how many rows."""
    if is_postgres(url):
        return int(asyncio.run(_change_on_server(url, statement)).rpartition(" ")[2])
    with sqlite3.connect(sqlite_path(url)) as connection:
        return connection.execute(statement).rowcount


async def _change_on_server(url: str, statement: str) -> str:
    connection = await asyncpg.connect(url, server_settings={"search_path": "dalsegno"})
    try:
        tag: str = await connection.execute(statement)
    finally:
        await connection.close()
    return tag


@LASTING
def test_a_script_goes_on_in_another_process(store_url: str) -> None:
    source = """
    let seen = [await Task.run("echo", 1)]
    seen.push(await Signal.next("go"))
    seen.push(await Task.run("echo", 3))
    return seen
    """
    with Stage(store_url) as first:
        handle = first.start_script(source)
        first.until("it waits", handle, lambda: any(wait.kind == "signal" for wait in handle.why()))
    with Stage(store_url) as second:
        again = second.app.handle(handle.id)
        again.signal("go", 2)
        assert second.end_of(again).output == [1, 2, 3]


@LASTING
def test_a_damaged_snapshot_fails_that_execution_and_nothing_else(store_url: str) -> None:
    source = 'let a = await Signal.next("go")\nreturn a'
    with Stage(store_url) as first:
        broken = first.start_script(source)
        sound = first.start_script(source)
        for handle in (broken, sound):
            first.until_event(handle, "Suspended", "signal go")
    of_it = f"execution = (SELECT number FROM execution WHERE id = '{broken.id}')"
    damage = r"'\x00ff'" if is_postgres(store_url) else "x'00ff'"
    assert _change(store_url, f"UPDATE machine SET snapshot = {damage} WHERE {of_it}") == 1
    second = Stage(store_url)
    second._alarm.setLevel(100)  # it does complain, as it should
    with second:
        for handle in (broken, sound):
            second.app.handle(handle.id).signal("go", 1)
        ended = second.end_of(second.app.handle(broken.id))
        assert (ended.state, ended.error["code"]) == ("FAILED", "SNAPSHOT_DAMAGED")
        assert second.end_of(second.app.handle(sound.id)).output == 1


@LASTING
def test_a_timer_deleted_by_hand_counts_as_fired_once_its_time_has_passed(store_url: str) -> None:
    with Stage(store_url, reconcile_every=0.05, untouched_after=0.0) as stage:
        handle = stage.start_script('await Task.delay(30)\nreturn "went on"')
        stage.until_event(handle, "Suspended", "timer")
        assert _change(store_url, "DELETE FROM token WHERE kind = 'timer'") == 1
        stage.pass_time(31)
        assert stage.end_of(handle).output == "went on"


@LASTING
def test_a_script_whose_task_was_deleted_by_hand_is_reported(store_url: str) -> None:
    stage = Stage(store_url, reconcile_every=0.05, untouched_after=0.0)
    stage._alarm.setLevel(100)  # it does complain, as it should
    with stage:
        stage.app.deploy_script('await Signal.next("never")', "child")
        lost = stage.start_script('await Task.with({queue: "none"}).run("echo", 1)', name="lost")
        parent = stage.start_script('await Workflow.run("child", {})', name="parent")
        waiting = stage.start_script('await Signal.next("go")', name="waiting")
        for handle, awaited in ((lost, "task echo"), (parent, "workflow child"), (waiting, "signal go")):
            stage.until_event(handle, "Suspended", awaited)
        assert _change(store_url, "DELETE FROM token WHERE kind = 'task'") == 1
        stage.pass_time(1)
        stuck = stage.app.engine.reconciler.stuck
        stage.until("it is reported", lost, lambda: list(stuck) == [lost.id])


def test_three_completions_before_any_resume_cause_one(stage: Stage) -> None:
    source = """
    let all = [Task.run("hold", "a"), Task.run("hold", "b"), Task.run("hold", "c")]
    return await Task.all(all)
    """
    handle = stage.start_script(source)
    for door in "abc":
        stage.until_comers(handle, door)
    for door in "abc":
        stage.door(door).open()
    ended = stage.end_of(handle)
    assert ended.output == ["a", "b", "c"]
    assert ended.count("Suspended") == 1


def test_a_completion_that_arrives_while_the_script_runs_still_wakes_it(stage: Stage) -> None:
    """Both tasks end while the other's resume may be running; none is lost, whichever way it goes."""
    source = """
    let a = Task.run("hold", "a")
    let b = Task.run("hold", "b")
    let out = []
    for (let i = 0; i < 20; i++) { out.push(await Task.run("echo", i)) }
    out.push(await a)
    out.push(await b)
    return out
    """
    handle = stage.start_script(source)
    stage.until_comers(handle, "a")
    stage.door("a").open()
    stage.door("b").open()
    assert stage.end_of(handle).output == [*range(20), "a", "b"]


def test_a_settled_promise_may_be_awaited_again(stage: Stage) -> None:
    source = """
    let p = Task.run("echo", 7)
    let first = await p
    await Task.run("echo", "between")
    return [first, await p, await Promise.all([p, p])]
    """
    assert stage.run_script(source).output == [7, 7, [7, 7]]


def test_a_snapshot_beyond_its_limit_fails_with_its_name(store_url: str) -> None:
    from dalsegno.engine.settings import EngineLimits

    source = """
    let words = []
    for (let i = 0; i < 5000; i++) { words.push("word number " + i) }
    let more = []
    for (let w of words) { more.push({w}) }
    await Task.run("echo", 1)
    return more.length
    """
    with Stage(store_url, limits=EngineLimits(snapshot_bytes=1000)) as stage:
        pieces = "let parts = {}\n" + "".join(f'parts.k{i} = "value {i}"\n' for i in range(200))
        ended = stage.run_script(pieces + 'await Task.run("echo", 1)\nreturn parts.k1')
        assert (ended.state, ended.error["code"]) == ("FAILED", "LimitExceeded")
        assert "snapshot_bytes" in ended.error["message"]
        assert stage.run_script(source, name="lists").output == 5000


def test_rolling_back_to_an_old_source_makes_it_current_again(stage: Stage) -> None:
    old, new = "return 'old'", "return 'new'"
    assert stage.app.deploy_script(old, "job").version == 1
    assert stage.app.deploy_script(new, "job").version == 2
    assert stage.app.deploy_script(old, "job").version == 1
    assert stage.end_of(stage.app.start("job")).output == "old"


def test_an_execution_stays_on_the_version_it_was_started_with(stage: Stage) -> None:
    stage.app.deploy_script('await Signal.next("go")\nreturn "old"', "job")
    handle = stage.app.start("job")
    stage.until_event(handle, "Suspended", "signal go")
    stage.app.deploy_script('await Signal.next("go")\nreturn "new"', "job")
    handle.signal("go")
    assert stage.end_of(handle).output == "old"
    assert stage.end_of(_signalled(stage, "job")).output == "new"


def _signalled(stage: Stage, name: str):  # type: ignore[no-untyped-def]
    handle = stage.app.start(name)
    handle.signal("go")
    return handle


def test_a_failed_script_can_be_tried_again_as_a_new_execution(stage: Stage) -> None:
    source = 'return await Task.run("fail_if", {when: inputs.bad && Context.attempt < 1, value: "fine"})'
    first = stage.run_script(source, {"bad": False})
    again = first.handle.retry()
    ended = stage.end_of(again)
    assert ended.output == "fine"
    assert again.status().parent == first.id
