"""Clean-ups of scripts and Python workflows that are asked to end: they are not cut short, and where they do not come
to their end, that is a dead letter from which another execution goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from dalsegno import App, NodeContext, signal
from dalsegno.engine.operations.dead_letters import DeadLetter, DeadLetters
from dalsegno.engine.scripts import steps
from dalsegno.engine.scripts.kept import Cleanup
from dalsegno.engine.scripts.steps import ScriptStep, ScriptSteps
from dalsegno.engine.settings import EngineLimits
from dalsegno.engine.steps import values as storage
from dalsegno.errors import Conflict, NotFound
from dalsegno.handle import Handle
from dalsegno.lang import SnapshotError
from dalsegno.model.token import Lease
from tests.scenarios.stage import Stage
from tests.waiting import come_about

WAITS_TWICE = """
try { await Signal.next("never") } finally { await Signal.next("clean"); await Task.run("note", "undone") }
"""


def with_settings(source: str, **settings: str) -> str:
    return "```\n" + "".join(f"{name}: {value}\n" for name, value in settings.items()) + f"```\n{source}"


def letters(app: App) -> list[DeadLetter]:
    return app.host.call(DeadLetters(app.engine).all())


def the_letter(stage: Stage, handle: Handle) -> DeadLetter:
    stage.until("a dead letter", handle, lambda: letters(stage.app))
    (letter,) = letters(stage.app)
    assert letter.id == f"cleanup:{handle.id}"
    return letter


def gone_on(stage: Stage, handle: Handle) -> Handle:
    """The execution that goes on with a clean-up; the letter is gone then."""
    letter = the_letter(stage, handle)
    dead = DeadLetters(stage.app.engine)
    execution = stage.app.host.call(dead.retry(letter.id))
    assert letter.id not in [each.id for each in letters(stage.app)]
    return stage.app.handle(execution)


def cleaning_up(stage: Stage, source: str) -> Handle:
    handle = stage.start_script(source)
    stage.until_event(handle, "Suspended", "signal never")
    handle.cancel("enough")
    stage.until_event(handle, "Suspended", "signal clean")
    return handle


# -- requests to end ------------------------------------------------------------------------------------------


def test_a_clean_up_has_no_limit_and_a_second_cancel_changes_nothing(stage: Stage) -> None:
    handle = cleaning_up(stage, WAITS_TWICE)
    stage.pass_time(30 * 86_400)
    handle.cancel()
    handle.cancel("again")
    (first, *_) = handle.why()
    assert (first.kind, "without a limit" in first.sentence) == ("cleanup", True)
    assert handle.status().state == "RUNNING"
    handle.signal("clean")
    ended = stage.end_of(handle)
    assert (ended.state, stage.seen, ended.count("CancelRequested")) == ("CANCELLED", ["undone"], 1)
    assert letters(stage.app) == []


def test_a_cancel_does_not_cut_short_the_clean_up_after_a_timeout(stage: Stage) -> None:
    handle = stage.start_script(with_settings(WAITS_TWICE, timeout="60s"))
    stage.until_event(handle, "Suspended", "signal never")
    stage.pass_time(61)
    stage.until_event(handle, "Suspended", "signal clean")
    handle.cancel()
    handle.signal("clean")
    ended = stage.end_of(handle)
    assert (ended.state, ended.error["code"], stage.seen) == ("FAILED", "TimeoutError", ["undone"])


def test_a_paused_script_cleans_up_when_it_is_cancelled(stage: Stage) -> None:
    handle = stage.start_script(WAITS_TWICE)
    stage.until_event(handle, "Suspended", "signal never")
    handle.pause()
    handle.cancel()
    stage.until_event(handle, "Suspended", "signal clean")
    handle.pause()
    handle.signal("clean")
    assert handle.status().state == "PAUSED"
    handle.cancel()  # it is cleaning up already: the pause stays
    assert handle.status().state == "PAUSED"
    handle.resume()
    assert (stage.end_of(handle).state, stage.seen) == ("CANCELLED", ["undone"])


def test_no_clock_of_an_execution_runs_in_a_pause(stage: Stage) -> None:
    """Neither its timeout nor its grace."""
    handle = stage.start_script(with_settings(WAITS_TWICE, timeout="60s", cancel_grace="30s"))
    stage.until_event(handle, "Suspended", "signal never")
    handle.pause()
    stage.pass_time(600)
    handle.resume()
    stage.pass_time(59)
    assert handle.status().state == "RUNNING"
    stage.pass_time(2)
    stage.until_event(handle, "Suspended", "signal clean")
    handle.pause()
    stage.pass_time(600)
    handle.resume()
    stage.pass_time(29)
    handle.signal("clean")
    ended = stage.end_of(handle)
    assert (ended.state, ended.error["code"], stage.seen) == ("FAILED", "TimeoutError", ["undone"])


def test_a_child_cleans_up_in_its_own_time(stage: Stage) -> None:
    stage.app.deploy_script(WAITS_TWICE, "child")
    handle = stage.start_script('await Workflow.run("child", {})')
    stage.until("a child", handle, lambda: len(stage.app.executions()) == 2)
    (child,) = [each for each in stage.app.executions() if each.id != handle.id]
    stage.until_event(child, "Suspended", "signal never")
    handle.cancel()
    assert stage.end_of(handle).state == "CANCELLED"
    stage.until_event(child, "Suspended", "signal clean")
    stage.pass_time(3600)
    child.signal("clean")
    assert (stage.end_of(child).state, stage.seen) == ("CANCELLED", ["undone"])


def test_a_cancel_that_is_acknowledged_is_not_lost_to_the_last_turn(stage: Stage) -> None:
    """The code behind the last await runs while the cancel comes."""
    reached, goes_on = threading.Event(), threading.Event()

    @stage.app.task
    async def undo(what: str) -> None:
        stage.seen.append(what)

    def last_turn() -> None:
        reached.set()
        goes_on.wait(10)

    @stage.app.workflow
    async def slow_to_end() -> str:
        try:
            await signal("go")
            last_turn()
            return "done"
        finally:
            await undo("all")

    handle = stage.app.start(slow_to_end)
    stage.until_event(handle, "Suspended", "signal go")
    handle.signal("go")
    assert reached.wait(10)
    handle.cancel()
    goes_on.set()
    ended = stage.end_of(handle)
    assert (ended.state, stage.seen) == ("CANCELLED", ["all"])


# -- clean-ups that do not come to their end ------------------------------------------------------------------


def test_the_grace_belongs_to_the_definition(stage: Stage) -> None:
    handle = cleaning_up(stage, with_settings(WAITS_TWICE, cancel_grace="30s"))
    stage.pass_time(29)
    assert handle.status().state == "RUNNING"
    stage.pass_time(2)
    ended = stage.end_of(handle)
    assert (ended.state, ended.error["code"]) == ("CANCELLED", "CLEANUP_CUT_OFF")
    assert "within its cancel_grace of 30 s" in the_letter(stage, handle).reason
    again = gone_on(stage, handle)
    stage.until_event(again, "Suspended", "signal clean")
    assert (again.status().parent, again.status().relation) == (handle.id, "cleanup")
    again.signal("clean")
    assert (stage.end_of(again).state, stage.seen) == ("CANCELLED", ["undone"])
    assert letters(stage.app) == []


def test_a_grace_of_the_engine_is_for_workflows_that_name_none(store_url: str) -> None:
    with Stage(store_url, cancel_grace=10.0) as stage:
        short = cleaning_up(stage, WAITS_TWICE)
        long = cleaning_up(stage, with_settings(WAITS_TWICE, name="long", cancel_grace="1h"))
        stage.pass_time(11)
        assert stage.end_of(short).state == "CANCELLED"
        assert long.status().state == "RUNNING"


def test_a_clean_up_that_failed_is_gone_on_with(stage: Stage) -> None:
    """The task is asked again, with the same idempotency key; what was done before is not done again."""
    source = """
    try { await Signal.next("never") } finally {
      await Task.run("note", "first")
      await Task.run("flaky", {failures: 2})
      await Task.run("note", "last")
    }
    """
    handle = stage.start_script(source)
    stage.until_event(handle, "Suspended", "signal never")
    handle.cancel()
    ended = stage.end_of(handle)
    assert (ended.state, ended.error["code"]) == ("CANCELLED", "FLAKY")
    assert "its clean-up failed: attempt 1 failed" in the_letter(stage, handle).reason
    second = gone_on(stage, handle)
    assert stage.end_of(second).state == "CANCELLED"
    third = gone_on(stage, second)
    assert stage.end_of(third).error["code"] == "CancelledError"
    assert stage.seen == ["first", "last"]
    assert list(stage.attempts.values()) == [3]
    assert letters(stage.app) == []


def test_several_tasks_of_a_clean_up_are_gone_on_with(stage: Stage) -> None:
    """Of which one failed, one is done, and one still runs."""
    source = """
    try { await Signal.next("never") } finally {
      const [a, b, c] = await Promise.all([
        Task.run("note", "once"), Task.run("flaky", {failures: 1}), Task.run("hold", "door")
      ])
      await Task.run("note", [a, b.attempt, c])
    }
    """
    handle = stage.start_script(source)
    stage.until_event(handle, "Suspended", "signal never")
    handle.cancel()
    assert stage.end_of(handle).state == "CANCELLED"
    again = gone_on(stage, handle)
    stage.door("door").open()
    stage.until("the last note", again, lambda: len(stage.seen) >= 2)
    assert stage.end_of(again).state == "CANCELLED"
    assert [each for each in stage.seen if each != "once"] == [["once", 1, "door"]]
    assert len(set(stage.door("door").comers)) == 1


def test_a_python_workflow_is_gone_on_with(stage: Stage) -> None:
    @stage.app.task
    async def refund(ctx: NodeContext, receipt: str, large: int) -> str:
        key = ctx.idempotency_key
        stage.attempts[key] = stage.attempts.get(key, 0) + 1
        if stage.attempts[key] == 1:
            raise RuntimeError("the provider is down")
        stage.seen.append((receipt, large))
        return receipt

    @stage.app.workflow(cancel_grace="1h")
    async def order(receipt: str) -> None:
        large = b"x" * 500_000
        try:
            await signal("never")
        finally:
            assert await refund(receipt, len(large)) == receipt

    handle = stage.app.start(order, "r-1")
    stage.until_event(handle, "Suspended", "signal never")
    handle.cancel()
    assert stage.end_of(handle).state == "CANCELLED"
    assert "the provider is down" in the_letter(stage, handle).reason
    again = gone_on(stage, handle)
    assert stage.end_of(again).state == "CANCELLED"
    assert stage.seen == [("r-1", 500_000)]
    assert list(stage.attempts.values()) == [2]


FILLS_UP = """
try { await Signal.next("never") } finally {
    const rows = await Promise.all([1, 2, 3, 4, 5, 6, 7, 8].map(n => Task.run("rows", n)))
    await Task.run("note", rows.length)
}
"""


def test_a_clean_up_that_stores_too_much_is_gone_on_with(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "AT_ONCE", 1)
    with Stage(store_url, limits=EngineLimits(stored_bytes=20_000)) as stage:
        size = 4_000

        @stage.app.task
        async def rows(number: int) -> str:
            return str(number) * size

        handle = stage.start_script(FILLS_UP)
        stage.until_event(handle, "Suspended", "signal never")
        handle.cancel("enough")
        ended = stage.end_of(handle)
        assert (ended.state, ended.error["code"]) == ("CANCELLED", "LimitExceeded")
        assert "and its clean-up failed: the execution" in the_letter(stage, handle).reason
        size = 2
        assert stage.end_of(gone_on(stage, handle)).state == "CANCELLED"
        assert stage.seen == [8]


OVERTAKES = """
try { await Signal.next("never") } finally {
    const rows = Task.run("rows", 1)
    await Task.run("hold", "refund")
    await Task.run("note", "refunded")
    await Promise.all([Signal.next("clean"), rows])
}
"""


def test_a_clean_up_that_goes_on_while_it_fails_does_nothing_twice(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state that is kept is the one in which the refund was made, not the one before."""
    monkeypatch.setattr(storage, "AT_ONCE", 1)
    read, overtaken = steps.read_kept, list[str]()
    with Stage(store_url, limits=EngineLimits(stored_bytes=20_000)) as stage:
        size = 25_000

        @stage.app.task
        async def rows(number: int) -> str:
            return str(number) * size

        async def is_refunded(execution: str) -> bool:
            events = await stage.app.client.events(execution)
            return any((each.kind, each.node) == ("TaskCompleted", "note") for each in events)

        async def read_and_wait(ledger: Any, blobs: Any, execution: str, *about: Any) -> Any:
            found = await read(ledger, blobs, execution, *about)
            if not overtaken:
                overtaken.append(execution)
                stage.door("refund").open()
                await come_about(partial(is_refunded, execution), "the refund was made")
            return found

        monkeypatch.setattr(steps, "read_kept", read_and_wait)
        handle = stage.start_script(OVERTAKES)
        stage.until_event(handle, "Suspended", "signal never")
        handle.cancel("enough")
        ended = stage.end_of(handle)
        assert (ended.state, ended.error["code"], overtaken) == ("CANCELLED", "LimitExceeded", [handle.id])
        size = 2
        again = gone_on(stage, handle)
        again.signal("clean")
        assert stage.end_of(again).state == "CANCELLED"
        assert stage.seen == ["refunded"]


def test_a_cancel_that_arrives_while_a_script_fails_is_not_lost(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either the script cleans up, or it fails with a letter, and what goes on with it does."""
    monkeypatch.setattr(storage, "AT_ONCE", 1)
    fail, failed = ScriptSteps.fail, list[str]()
    with Stage(store_url, limits=EngineLimits(stored_bytes=20_000)) as stage:
        size = 25_000

        @stage.app.task
        async def rows(number: int) -> str:
            return str(number) * size

        async def fail_and_wait(self: ScriptSteps, lease: Lease, error: Any) -> ScriptStep:
            step = await fail(self, lease, error)
            if not failed:
                failed.append(lease.execution)
                await stage.app.client.cancel(lease.execution)
            return step

        monkeypatch.setattr(ScriptSteps, "fail", fail_and_wait)
        handle = stage.start_script(
            """
            try { await Promise.all([Task.run("rows", 1), Signal.next("never")]) }
            finally { await Task.run("note", "undone") }
            """
        )
        ended = stage.end_of(handle)
        assert (ended.state, failed) == ("CANCELLED", [handle.id])
        if ended.error["code"] == "LimitExceeded":
            size = 2
            assert stage.end_of(gone_on(stage, handle)).state == "CANCELLED"
        assert stage.seen == ["undone"]


def test_a_clean_up_is_gone_on_with_once(stage: Stage) -> None:
    handle = cleaning_up(stage, with_settings(WAITS_TWICE, cancel_grace="30s"))
    stage.pass_time(31)
    stage.end_of(handle)
    letter, dead = the_letter(stage, handle), DeadLetters(stage.app.engine)
    first = stage.app.host.call(stage.app.engine.client.cancelling.clean_up(handle.id))
    second = stage.app.host.call(dead.retry(letter.id))
    assert (second, len(stage.app.executions())) == (first.execution, 2)
    with pytest.raises(NotFound):
        stage.app.host.call(dead.drop(letter.id))
    with pytest.raises(Conflict, match="no unfinished clean-up"):
        stage.app.host.call(stage.app.engine.client.cancelling.clean_up(second))


def test_a_letter_about_a_clean_up_can_be_dropped(stage: Stage) -> None:
    handle = cleaning_up(stage, WAITS_TWICE)
    handle.terminate()
    stage.app.host.call(DeadLetters(stage.app.engine).drop(the_letter(stage, handle).id))
    assert letters(stage.app) == []


def held_before_its_first_turn(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, letter: str
) -> tuple[Handle, Callable[[], None]]:
    """An execution that goes on with a clean-up and has a worker, but no machine of its own yet; and what lets go."""
    entered, goes_on = threading.Event(), threading.Event()
    job = Cleanup.job

    async def slowly(cleanup: Cleanup, now: float) -> Any:
        entered.set()
        await asyncio.to_thread(goes_on.wait, 10)
        return await job(cleanup, now)

    monkeypatch.setattr(Cleanup, "job", slowly)
    execution = stage.app.host.call(DeadLetters(stage.app.engine).retry(letter))
    assert entered.wait(10)

    def let_go() -> None:
        monkeypatch.setattr(Cleanup, "job", job)
        goes_on.set()

    return stage.app.handle(execution), let_go


REFUNDS = """
const receipt = inputs.order
try { await Signal.next("never") } finally {
  await Task.run("note", "first")
  await Task.run("flaky", {failures: 1})
  await Task.run("note", receipt)
}
"""


def test_a_clean_up_that_is_terminated_before_it_has_begun_is_not_lost(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice: it goes on with the state of the first execution each time."""
    handle = stage.start_script(REFUNDS, {"order": "r-1"})
    stage.until_event(handle, "Suspended", "signal never")
    handle.cancel()
    stage.end_of(handle)
    last = handle
    for _ in range(2):
        last, let_go = held_before_its_first_turn(stage, monkeypatch, the_letter(stage, last).id)
        last.terminate("no worker has it")
        let_go()
        assert stage.end_of(last).error["code"] == "TERMINATED"
        assert "no worker has it" in the_letter(stage, last).reason
    again = gone_on(stage, last)
    assert again.status().parent == handle.id
    assert stage.end_of(again).state == "CANCELLED"
    assert (stage.seen, list(stage.attempts.values())) == (["first", "r-1"], [2])
    assert letters(stage.app) == []


def test_a_clean_up_whose_first_turn_fails_is_not_lost(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = stage.start_script(REFUNDS, {"order": "r-1"})
    stage.until_event(handle, "Suspended", "signal never")
    handle.cancel()
    stage.end_of(handle)

    async def lost(*_: Any, **__: Any) -> None:
        raise SnapshotError("its key is gone")

    stage._alarm.setLevel(100)  # it does complain, as it should
    with monkeypatch.context() as patch:
        patch.setattr(Cleanup, "loader", lost)
        failed = gone_on(stage, handle)
        assert stage.end_of(failed).error["code"] == "SNAPSHOT_DAMAGED"
    assert "its clean-up failed: its key is gone" in the_letter(stage, failed).reason
    assert stage.end_of(gone_on(stage, failed)).state == "CANCELLED"
    assert stage.seen == ["first", "r-1"]


def test_a_letter_that_was_taken_up_is_not_taken_up_again(stage: Stage) -> None:
    handle = cleaning_up(stage, WAITS_TWICE)
    handle.terminate()
    letter = the_letter(stage, handle)
    again = gone_on(stage, handle)
    with pytest.raises(NotFound, match="continued meanwhile"):
        stage.app.host.call(DeadLetters(stage.app.engine).retry(letter.id))
    again.signal("clean")
    stage.end_of(again)


# -- terminating ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", ["nothing", "pause", "cancel"])
def test_a_terminated_script_ends_at_once_and_can_clean_up_later(stage: Stage, before: str) -> None:
    handle = stage.start_script(WAITS_TWICE)
    stage.until_event(handle, "Suspended", "signal never")
    if before == "pause":
        handle.pause()
    elif before == "cancel":
        handle.cancel()
        stage.until_event(handle, "Suspended", "signal clean")
    handle.terminate("it hangs")
    ended = stage.end_of(handle)
    assert (ended.state, ended.error["code"], stage.seen) == ("CANCELLED", "TERMINATED", [])
    assert ended.error["message"] == "the execution was terminated: it hangs"
    with pytest.raises(Conflict):
        handle.terminate()
    what = "its clean-up was cut off" if before == "cancel" else "it did not clean up"
    assert the_letter(stage, handle).reason == f"the execution was terminated: it hangs; {what}"
    again = gone_on(stage, handle)
    again.signal("clean")
    assert (stage.end_of(again).state, stage.seen) == ("CANCELLED", ["undone"])


HOLDS = """
try { await Signal.next("never") } finally {
    await Promise.all([Task.run("lingering", 1), Signal.next("clean")])
    await Task.run("note", "undone")
}
"""


def test_a_task_that_ends_while_its_script_is_terminated_is_not_missed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = asyncio.Event()

    @stage.app.task
    async def lingering(number: int) -> int:
        await goes_on.wait()
        return number

    handle = stage.start_script(HOLDS)
    stage.until_event(handle, "Suspended", "signal never")
    handle.cancel()
    stage.until_event(handle, "Suspended", "all of 2")
    ledger, looks = stage.app.engine.stack.ledger, list[str]()

    async def has_ended(execution: str) -> bool:
        return any(each.kind == "TaskCompleted" for each in await stage.app.client.events(execution))

    def let_it_end_before_the_second(name: str) -> Any:
        look = getattr(ledger, name)

        async def slowly(execution: str) -> Any:
            looks.append(name)
            if len(looks) == 2:
                goes_on.set()
                await come_about(partial(has_ended, execution), "the task has ended")
            return await look(execution)

        return slowly

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "inspect", let_it_end_before_the_second("inspect"))
        patch.setattr(ledger, "machine", let_it_end_before_the_second("machine"))
        handle.terminate()
    again = gone_on(stage, handle)
    again.signal("clean")
    assert (stage.end_of(again).state, stage.seen) == ("CANCELLED", ["undone"])


def test_a_child_that_a_clean_up_starts_again_is_told_once(stage: Stage) -> None:
    """Its parent was terminated while the clean-up waited for it, and it with its parent."""
    stage.app.deploy_script('return await Signal.next("go")', "undo")
    handle = stage.start_script(
        'try { await Signal.next("never") } finally { await Workflow.run("undo", {}) }'
    )
    stage.until_event(handle, "Suspended", "signal never")
    handle.cancel()
    stage.until_event(handle, "ChildStarted", "undo")
    handle.terminate()
    again = gone_on(stage, handle)

    def started() -> list[Handle]:
        return [each for each in stage.app.executions() if each.status().parent == again.id]

    stage.until("the child runs again", again, started)
    (child,) = started()
    child.signal("go", 1)
    ended = stage.end_of(again)
    assert [ended.count(kind, "undo") for kind in ("ChildStarted", "ChildEnded")] == [1, 1]
    assert ended.data("ChildStarted", "undo")[0]["execution"] == child.id


def test_what_has_not_begun_leaves_nothing_when_it_is_terminated(stage: Stage) -> None:
    stage.app.deploy_script(WAITS_TWICE, "later")
    handle = stage.app.with_options(delay="1h").start("later")
    handle.terminate()
    assert (handle.status().state, letters(stage.app)) == ("CANCELLED", [])


def test_what_loses_its_workers_before_its_first_turn_has_nothing_to_clean_up(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelled, and its workers died again and again: there is no letter that could not be taken up."""
    entered, goes_on = threading.Event(), threading.Event()
    resume = ScriptSteps._resume

    async def lost(steps: ScriptSteps, lease: Lease) -> ScriptStep:
        entered.set()
        await asyncio.to_thread(goes_on.wait, 10)
        return await resume(steps, replace(lease, losses=steps.limits.losses))

    monkeypatch.setattr(ScriptSteps, "_resume", lost)
    handle = stage.start_script(REFUNDS, {"order": "r-1"})
    assert entered.wait(10)
    handle.cancel()
    goes_on.set()
    ended = stage.end_of(handle)
    assert (ended.state, ended.error["code"]) == ("CANCELLED", "WORKER_LOST")
    assert letters(stage.app) == []


def test_a_graph_is_terminated_as_such(stage: Stage) -> None:
    waits = {
        "name": "waits",
        "nodes": [{"id": "w", "type": "wait", "parameters": {"resume": "signal", "signal": "s"}}],
    }
    handle = stage.start(waits)
    stage.until_state(handle, "w", "WAITING")
    handle.terminate()
    ended = stage.end_of(handle)
    assert (ended.state, ended.error["code"], letters(stage.app)) == ("CANCELLED", "TERMINATED", [])


def test_children_of_a_terminated_script_clean_up(stage: Stage) -> None:
    stage.app.deploy_script(WAITS_TWICE, "child")
    handle = stage.start_script('await Workflow.run("child", {})')
    stage.until("a child", handle, lambda: len(stage.app.executions()) == 2)
    (child,) = [each for each in stage.app.executions() if each.id != handle.id]
    stage.until_event(child, "Suspended", "signal never")
    handle.terminate()
    stage.until_event(child, "Suspended", "signal clean")
    child.signal("clean")
    assert (stage.end_of(child).state, stage.seen) == ("CANCELLED", ["undone"])
