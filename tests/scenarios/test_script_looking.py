"""Scripts and tasks as people see them: why they wait, where they stand, what ran, in every state; queues, priorities,
logs and the context."""

from __future__ import annotations

import logging

import pytest

from dalsegno.errors import Conflict, InvalidInput
from dalsegno.handle import Handle
from tests.scenarios.conftest import LASTING
from tests.scenarios.stage import Stage


def _kinds(handle: Handle) -> list[str]:
    return [wait.kind for wait in handle.why()]


# -- why and where --------------------------------------------------------------------------------------------


def test_why_tells_every_thing_a_group_still_needs(stage: Stage) -> None:
    stage.app.deploy_script('await Signal.next("never")', "child")
    source = """
    let all = [Task.run("hold", "a"), Task.run("hold", "b"), Task.run("echo", 1), Timer.delay(60),
               Signal.when("go", {timeout: 90}), Workflow.run("child", {})]
    await Promise.all(all)
    """
    handle = stage.start_script(source)
    stage.until_comers(handle, "a")
    stage.until_comers(handle, "b")
    stage.until_event(handle, "TaskCompleted", "echo")
    waits = {wait.kind: wait for wait in handle.why() if wait.execution is None}
    assert set(waits) == {"running", "timer", "signal", "child"}
    assert waits["running"].count == 2
    assert waits["timer"].due == pytest.approx(stage.clock.now() + 60)
    assert waits["signal"].due == pytest.approx(stage.clock.now() + 90)
    assert all(wait.line == 4 for wait in waits.values())


def test_a_large_snapshot_is_looked_at_in_a_process(stage: Stage) -> None:
    """Values over 32 KiB are kept apart: it is many smaller ones that make a snapshot large."""
    texts = [f'const text{number} = "{number}".repeat(20000)' for number in range(8)]
    handle = stage.start_script(
        "\n".join([*texts, "const named = [7]", 'await Signal.next("go")', "return named"])
    )
    stage.until_event(handle, "Suspended", "signal go")
    offload = stage.app.engine.client.offload
    assert offload.processes == 0
    picture = handle.picture()
    assert picture is not None
    assert offload.processes == 1
    assert (picture.line, picture.awaiting) == (10, "signal go")
    assert picture.variables["named"] == [7]
    assert picture.variables["text3"].startswith("333")
    assert [(thing.kind, thing.node) for thing in picture.things] == [("signal", "go")]
    assert _kinds(handle) == ["signal"]
    handle.signal("go", 1)
    assert stage.end_of(handle).output == [7]


def test_why_of_a_task_that_is_tried_again(stage: Stage) -> None:
    handle = stage.start_script('await Task.with({retries: 3}).run("flaky", {failures: 2})')
    stage.until_event(handle, "TaskRetrying", "flaky")
    (wait,) = handle.why()
    assert "attempt 2" in wait.sentence
    assert wait.due is not None


def test_why_of_a_task_that_no_worker_serves(stage: Stage) -> None:
    handle = stage.start_script('await Task.with({queue: "video"}).run("echo", 1)')
    stage.until_event(handle, "Suspended", "task echo")
    (wait,) = handle.why()
    assert "'video'" in wait.sentence
    assert handle.nodes()["echo"].state == "QUEUED"


def test_why_and_picture_of_a_paused_a_cleaning_and_an_ended_script(stage: Stage) -> None:
    source = 'let n = 7\ntry { await Signal.next("a") } finally { await Signal.next("b") }'
    handle = stage.start_script(source)
    stage.until_event(handle, "Suspended", "signal a")
    handle.pause()
    assert _kinds(handle) == ["paused", "signal"]
    seen = handle.picture()
    assert seen is not None
    assert (seen.line, seen.awaiting, seen.variables["n"]) == (2, "signal a", 7)
    handle.resume()
    handle.cancel()
    stage.until_event(handle, "Suspended", "signal b")
    assert _kinds(handle) == ["cleanup", "signal"]
    handle.signal("b")
    stage.end_of(handle)
    assert (handle.why(), handle.picture()) == ([], None)


def test_a_task_of_its_own_is_seen_like_any_other(stage: Stage) -> None:
    @stage.app.task
    async def work(ctx, n: int) -> int:  # type: ignore[no-untyped-def]
        await stage.door("work").passing(ctx.idempotency_key)
        return n

    handle = stage.app.start(work, 3)
    stage.until_comers(handle, "work")
    assert _kinds(handle) == ["running"]
    assert handle.picture() is None
    assert handle.nodes()["work"].state == "RUNNING"
    with pytest.raises(Conflict, match="accepts no signals"):
        handle.signal("nobody-listens", 1)
    handle.pause()
    assert _kinds(handle) == ["paused", "running"]
    handle.resume()
    stage.door("work").open()
    ended = stage.end_of(handle)
    assert (ended.output, ended.nodes) == (3, {"work": ("COMPLETED", 1)})
    assert ended.count("TaskCompleted", "work") == 1


def test_nodes_counts_runs_failures_and_attempts(stage: Stage) -> None:
    source = """
    await Task.all([Task.run("echo", 1), Task.run("echo", 2)])
    try { await Task.run("fail", {message: "x", code: "X"}) } catch (e) { return 1 }
    """
    ended = stage.run_script(source)
    assert ended.nodes == {"echo": ("COMPLETED", 2), "fail": ("FAILED", 1)}
    assert ended.handle.nodes()["fail"].failed == 1


def test_a_script_has_no_nodes_to_rerun_from(stage: Stage) -> None:
    ended = stage.run_script("return 1")
    with pytest.raises(InvalidInput):
        ended.handle.rerun("anything")


# -- how it runs ----------------------------------------------------------------------------------------------


def test_the_context_names_the_execution(stage: Stage) -> None:
    handle = stage.start_script("return Context", name="named")
    context = stage.end_of(handle).output
    assert context == {
        "executionId": handle.id,
        "workflow": "named",
        "version": 1,
        "startedAt": pytest.approx(stage.clock.now() * 1000, abs=5),
        "attempt": 1,
    }


def test_log_goes_to_the_log_with_its_level(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "dalsegno.log")
    ended = stage.run_script(
        'log("a", {n: 1})\nlog("warning", "careful")\nawait Task.run("echo", 1)\nlog("b")'
    )
    told = [
        (record.levelname, record.getMessage()) for record in caplog.records if record.name == "dalsegno.log"
    ]
    assert told == [
        ("INFO", f'{ended.id} workflow: a {{"n":1}}'),
        ("WARNING", f"{ended.id} workflow: careful"),
        ("INFO", f"{ended.id} workflow: b"),
    ]


def test_a_task_is_run_in_the_queue_its_registration_or_its_options_name(store_url: str) -> None:
    with Stage(store_url, queues=("default", "special")) as stage:

        @stage.app.task(queue="special")
        async def special() -> None:
            return None

        source = 'await Task.run("special", {})\nawait Task.with({queue: "special"}).run("echo", 1)\nreturn 1'
        assert stage.run_script(source).output == 1
    with Stage(store_url, queues=("default",)) as stage:

        @stage.app.task(queue="special")
        async def special() -> None:
            return None

        handle = stage.start_script('await Task.run("special", {})', name="waiting")
        stage.until("it waits for a worker", handle, lambda: "'special'" in handle.why()[0].sentence)


def test_tasks_have_the_priority_of_their_execution_unless_told_otherwise(stage: Stage) -> None:
    source = """
    let all = [Task.with({queue: "none"}).run("echo", 1), Task.with({queue: "none", priority: 7}).run("echo", 2)]
    await Promise.all(all)
    """
    handle = stage.start_script(source, priority=5)
    stage.until_event(handle, "Suspended", "all of 2")
    inspection = stage.app.host.call(stage.app.engine.stack.ledger.inspect(handle.id))
    assert inspection is not None
    assert sorted(token.priority for token in inspection.tokens) == [5, 7]


def test_the_idempotency_key_of_a_task_can_be_chosen(stage: Stage) -> None:
    source = """
    let own = await Task.with({key: "order-1"}).run("flaky", {failures: 0})
    let derived = await Task.run("flaky", {failures: 0})
    return [own.key, derived.key.length]
    """
    assert stage.run_script(source).output == ["order-1", 32]


def test_a_task_with_a_time_limit_of_its_own_fails_with_a_timeout(stage: Stage) -> None:
    source = 'try { await Task.with({timeout: "20ms"}).run("hold", "slow") } catch (e) { return e.code }'
    assert stage.run_script(source).output == "TimeoutError"


def test_starts_with_one_idempotency_key_are_one_execution(stage: Stage) -> None:
    one = stage.start_script("return inputs.n", {"n": 1}, idempotency_key="k")
    two = stage.start_script("return inputs.n", {"n": 2}, idempotency_key="k")
    assert one.id == two.id
    assert stage.end_of(two).output == 1


def test_ended_scripts_are_removed_after_their_retention(store_url: str) -> None:
    with Stage(store_url, retention=60.0, reconcile_every=0.05) as stage:
        # Nobody waits for the large one: held until the script has ended, it goes on as an execution of its own.
        ended = stage.run_script('Task.run("hold", "x".repeat(500000))\nawait Task.run("echo", 1)\nreturn 1')
        stage.until("the task's own", ended.handle, lambda: len(stage.app.executions()) == 2)
        stage.door("x" * 500_000).open()
        tasks = [handle for handle in stage.app.executions() if handle.id != ended.id]
        stage.end_of(tasks[0])
        waiting = stage.start_script('await Signal.next("go")', name="waiting")
        stage.until_event(waiting, "Suspended", "signal go")
        stage.pass_time(3600)
        stage.until(
            "only one is left", waiting, lambda: [one.id for one in stage.app.executions()] == [waiting.id]
        )


@LASTING
def test_an_order_this_process_cannot_carry_out_does_not_hold_up_others(store_url: str) -> None:
    document = {"name": "special", "nodes": [{"id": "n", "type": "special"}], "edges": []}
    with Stage(store_url) as stage:
        _offer_special(stage)
        stage.app.deploy(document)
    with Stage(store_url) as stage:
        stage.app.deploy_script("return 7", "plain")
        handle = stage.start_script('return await Workflow.run("special", {})')
        stage.until_event(handle, "ChildStarted", "special")
        assert stage.run_script('return await Workflow.run("plain", {})', name="other").output == 7
        assert handle.status().state == "RUNNING"
    with Stage(store_url) as stage:
        _offer_special(stage)
        assert stage.end_of(stage.app.handle(handle.id)).output == "specially"


def _offer_special(stage: Stage) -> None:
    @stage.app.node("special")
    async def special(ctx, parameters) -> str:  # type: ignore[no-untyped-def]
        return "specially"
