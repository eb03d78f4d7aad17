"""Scripts that are cancelled, time out or are paused, and what becomes of their tasks and children."""

from __future__ import annotations

from tests.scenarios.stage import Stage


def test_cancel_lets_finally_run(stage: Stage) -> None:
    source = """
    try {
      await Task.run("hold", "work")
    } finally {
      await Task.run("note", "compensated")
    }
    """
    handle = stage.start_script(source)
    stage.until_comers(handle, "work")
    handle.cancel("enough")
    ended = stage.end_of(handle)
    assert ended.state == "CANCELLED"
    assert stage.seen == ["compensated"]


def test_cancel_reaches_children(stage: Stage) -> None:
    stage.app.deploy_script('await Signal.next("never")', "child")
    handle = stage.start_script('await Workflow.run("child", {})')
    stage.until_event(handle, "ChildStarted", "child")
    (child,) = [one for one in _eventually(stage, handle) if one.id != handle.id]
    stage.until_event(child, "Suspended", "signal never")
    handle.cancel()
    assert stage.end_of(handle).state == "CANCELLED"
    assert stage.end_of(child).state == "CANCELLED"


def _eventually(stage: Stage, handle: object) -> list:
    stage.until("two executions", handle, lambda: len(stage.app.executions()) == 2)  # type: ignore[arg-type]
    return stage.app.executions()


def test_the_execution_timeout_throws_at_the_await_and_fails(stage: Stage) -> None:
    source = """```
timeout: 60s
```
    try { await Signal.next("never") } catch (e) { await Task.run("note", e.code); throw e }
    """
    handle = stage.start_script(source)
    stage.until_event(handle, "Suspended", "signal never")
    stage.pass_time(61)
    ended = stage.end_of(handle)
    assert (ended.state, ended.error["code"]) == ("FAILED", "TimeoutError")
    assert stage.seen == ["TimeoutError"]


def test_a_paused_script_waits_and_goes_on(stage: Stage) -> None:
    handle = stage.start_script('let a = await Signal.next("go")\nreturn await Task.run("echo", a)')
    stage.until_event(handle, "Suspended", "signal go")
    handle.pause()
    handle.signal("go", 5)
    assert handle.status().state == "PAUSED"
    handle.resume()
    assert stage.end_of(handle).output == 5


def test_the_tasks_of_a_cancelled_script_are_interrupted(stage: Stage) -> None:
    @stage.app.task
    async def endless(ctx) -> None:  # type: ignore[no-untyped-def]
        try:
            await stage.door("endless").passing(ctx.idempotency_key)
        except BaseException as error:
            stage.seen.append(type(error).__name__)
            raise

    handle = stage.start_script('await Task.run("endless", {})')
    stage.until_comers(handle, "endless")
    handle.cancel()
    assert stage.end_of(handle).state == "CANCELLED"
    stage.until("the task was interrupted", handle, lambda: stage.seen == ["CancelledError"])
