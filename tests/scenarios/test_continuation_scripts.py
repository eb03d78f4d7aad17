"""The scripts of the continuation design, as they are written there, with the outcomes it describes."""

from __future__ import annotations

import pytest

from tests.scenarios.stage import Stage

EXAMPLE = """
workflow example(inputs) {
  result = await Task.run("process_data", inputs)
  // Workflow needs to resume here when task completes
  return result
}
"""

FASTEST = """
fastest = await Task.any([
  Task.run("api1", inputs),
  Task.run("api2", inputs),
  Task.run("api3", inputs)
])
// Returns first successful result
"""

RACE = """
result = await Task.race([
  Task.run("operation", inputs),
  Task.delay(30)  // Timeout
])

if (result.item_id == timeout_timer) {
  return {error: "Operation timed out"}
}
"""

APPROVAL = """
approval = await wait_for_signal("approval")
"""


@pytest.fixture
def tasks(stage: Stage) -> Stage:
    @stage.app.task
    async def process_data(inputs):  # type: ignore[no-untyped-def]
        return {"processed": inputs}

    @stage.app.task
    async def api1(inputs):  # type: ignore[no-untyped-def]
        raise ConnectionError("api1 is down")

    @stage.app.task
    async def api2(inputs):  # type: ignore[no-untyped-def]
        return {"from": "api2", **inputs}

    @stage.app.task
    async def api3(ctx, inputs):  # type: ignore[no-untyped-def]
        await stage.door("api3").passing(ctx.idempotency_key)

    @stage.app.task
    async def operation(ctx, inputs):  # type: ignore[no-untyped-def]
        if inputs.get("slow"):
            await stage.door("operation").passing(ctx.idempotency_key)
        if inputs.get("broken"):
            raise ValueError("it broke")
        return "operated"

    return stage


def test_a_task_is_awaited_and_its_result_returned(tasks: Stage) -> None:
    definition = tasks.app.deploy_script(EXAMPLE)
    assert definition.name == "example"
    assert tasks.end_of(tasks.app.start("example", {"a": 1})).output == {"processed": {"a": 1}}


def test_any_gives_the_first_success_and_who_it_was(tasks: Stage) -> None:
    ended = tasks.run_script(FASTEST + "return fastest", {"q": 1})
    assert ended.output["result"] == {"from": "api2", "q": 1}
    assert isinstance(ended.output["item_id"], str)


def test_a_race_that_the_timer_wins_is_a_timeout(tasks: Stage) -> None:
    bound = RACE.replace("Task.delay(30)  // Timeout", "timeout_timer  // Timeout")
    source = "let timeout_timer = Task.delay(30)\n" + bound + "return result"
    handle = tasks.start_script(source, {"slow": True})
    tasks.until_comers(handle, "operation")
    tasks.pass_time(30)
    assert tasks.end_of(handle).output == {"error": "Operation timed out"}


@pytest.mark.parametrize(("payload", "status"), [({}, "completed"), ({"broken": True}, "failed")])
def test_a_race_tells_how_its_winner_ended(tasks: Stage, payload: dict[str, bool], status: str) -> None:
    """The fragment as it stands, with the name it leaves open bound to no timer at all."""
    ended = tasks.run_script("let timeout_timer = null\n" + RACE + "return result", payload)
    assert ended.output["status"] == status
    assert ("result" in ended.output, "error" in ended.output) == (status == "completed", status == "failed")


def test_a_signal_resumes_the_workflow(tasks: Stage) -> None:
    handle = tasks.start_script(APPROVAL + "return approval")
    tasks.until_event(handle, "Suspended", "signal approval")
    handle.signal("approval", {"ok": True})
    assert tasks.end_of(handle).output == {"ok": True}


def test_tasks_and_timers_mix_in_all(tasks: Stage) -> None:
    source = (
        'return await Task.all([Task.run("process_data", 1), Task.delay(30), Task.run("process_data", 2)])'
    )
    handle = tasks.start_script(source)
    tasks.until_event(handle, "TaskCompleted", "process_data", 2)
    tasks.pass_time(30)
    assert tasks.end_of(handle).output == [{"processed": 1}, None, {"processed": 2}]
