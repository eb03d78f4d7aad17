"""Scripts on every stack: tasks, timers, signals and children, and what happens when they fail or race."""

from __future__ import annotations

import pytest

from dalsegno.errors import KeyReused
from tests.scenarios.stage import Stage


def test_a_script_returns_what_its_task_gave(stage: Stage) -> None:
    ended = stage.run_script('let r = await Task.run("echo", {n: inputs.n + 1})\nreturn r.n * 2', {"n": 20})
    assert (ended.state, ended.output) == ("COMPLETED", 42)
    assert ended.count("TaskCompleted", "echo") == 1


def test_a_chain_of_tasks_keeps_its_variables(stage: Stage) -> None:
    source = """
    let total = 0
    for (let i = 0; i < 20; i++) {
      total += await Task.run("echo", i)
    }
    return total
    """
    ended = stage.run_script(source)
    assert ended.output == 190
    assert ended.count("TaskCompleted") == 20


def test_an_awaited_failure_is_thrown_at_the_await(stage: Stage) -> None:
    source = """
    try {
      await Task.run("fail", {message: "no money", code: "DECLINED"})
    } catch (e) {
      return {code: e.code, message: e.message}
    }
    """
    assert stage.run_script(source).output == {"code": "DECLINED", "message": "no money"}


def test_an_uncaught_failure_fails_the_execution_with_its_error(stage: Stage) -> None:
    ended = stage.run_script('await Task.run("fail", {message: "no money", code: "DECLINED"})')
    assert ended.state == "FAILED"
    assert ended.error["code"] == "DECLINED"
    assert ended.error["message"] == "no money"


def test_all_gives_results_in_the_order_asked_for(stage: Stage) -> None:
    source = """
    let handles = []
    for (let i = 0; i < 50; i++) { handles.push(Task.run("echo", i)) }
    return await Task.all(handles)
    """
    assert stage.run_script(source).output == list(range(50))


def test_a_failure_inside_all_is_thrown_while_others_still_run(stage: Stage) -> None:
    source = """
    try {
      await Task.all([Task.run("hold", "slow"), Task.run("fail", {message: "broken", code: "BROKEN"})])
    } catch (e) { return e.code }
    """
    assert stage.run_script(source).output == "BROKEN"


def test_any_ignores_failures_and_takes_the_first_success(stage: Stage) -> None:
    source = """
    let good = Task.run("echo", "good")
    let won = await Task.any([Task.run("fail", {message: "x", code: "X"}), good])
    return {same: won.item_id == good, result: won.result}
    """
    assert stage.run_script(source).output == {"same": True, "result": "good"}


def test_any_of_failures_only_is_an_aggregate_error(stage: Stage) -> None:
    source = """
    try {
      await Task.any([Task.run("fail", {message: "a", code: "A"}), Task.run("fail", {message: "b", code: "B"})])
    } catch (e) { return e.code }
    """
    assert stage.run_script(source).output == "AggregateError"


def test_race_tells_a_failure_that_comes_first(stage: Stage) -> None:
    source = """
    let bad = Task.run("fail", {message: "x", code: "X"})
    let won = await Task.race([bad, Task.run("hold", "slow")])
    return [won.item_id == bad.id, won.status, won.error.code]
    """
    assert stage.run_script(source).output == [True, "failed", "X"]


def test_a_race_against_a_timer_is_a_timeout(stage: Stage) -> None:
    source = """
    let timeout_timer = Task.delay(30)
    let result = await Task.race([Task.run("hold", "slow"), timeout_timer])
    if (result.item_id == timeout_timer) { return {error: "Operation timed out"} }
    return result
    """
    handle = stage.start_script(source)
    stage.until_comers(handle, "slow")
    stage.pass_time(30)
    assert stage.end_of(handle).output == {"error": "Operation timed out"}


def test_a_sleeping_script_holds_nothing_and_wakes_in_time(stage: Stage) -> None:
    handle = stage.start_script('await Timer.delay("7d")\nreturn Date.now()')
    stage.until_event(handle, "Suspended", "timer")
    before = stage.clock.now()
    stage.pass_time(7 * 86400)
    assert stage.end_of(handle).output == pytest.approx((before + 7 * 86400) * 1000, abs=5)


def test_signals_are_kept_and_taken_in_order(stage: Stage) -> None:
    source = """
    await Task.run("hold", "door")
    let a = await Signal.next("go")
    let b = await wait_for_signal("go")
    return [a, b]
    """
    handle = stage.start_script(source)
    stage.until_comers(handle, "door")
    handle.signal("go", 1)
    handle.signal("other", "ignored")
    handle.signal("go", 2, id="second")
    handle.signal("go", 2, id="second")
    with pytest.raises(KeyReused, match="'second' was used for another signal"):
        handle.signal("go", 3, id="second")
    stage.door("door").open()
    assert stage.end_of(handle).output == [1, 2]


def test_a_signal_wakes_a_waiting_script(stage: Stage) -> None:
    handle = stage.start_script('let d = await Signal.next("decision")\nreturn d.by')
    stage.until_event(handle, "Suspended", "signal decision")
    assert [wait.kind for wait in handle.why()] == ["signal"]
    handle.signal("decision", {"by": "ann"})
    assert stage.end_of(handle).output == "ann"


def test_a_wait_for_a_signal_ends_with_a_timeout_error(stage: Stage) -> None:
    source = """
    try { return await Signal.when("decision", {timeout: "1h"}) } catch (e) { return e.code }
    """
    handle = stage.start_script(source)
    stage.until_event(handle, "Suspended", "signal decision")
    stage.pass_time(3600)
    assert stage.end_of(handle).output == "TimeoutError"


def test_a_lost_race_does_not_swallow_the_next_signal(stage: Stage) -> None:
    source = """
    await Promise.race([Signal.next("go"), Timer.delay(5)])
    return await Signal.next("go")
    """
    handle = stage.start_script(source)
    stage.until_event(handle, "Suspended", "race of 2")
    stage.pass_time(5)
    stage.until_event(handle, "TimerFired")
    handle.signal("go", "first")
    assert stage.end_of(handle).output == "first"


def test_a_child_script_gives_its_result(stage: Stage) -> None:
    stage.app.deploy_script('workflow double(inputs) { return await Task.run("echo", inputs.n * 2) }')
    ended = stage.run_script('return await Workflow.run("double", {n: 21})')
    assert ended.output == 42
    assert ended.count("ChildStarted", "double") == 1
    assert ended.count("ChildEnded", "double") == 1


def test_a_child_may_be_a_graph(stage: Stage) -> None:
    stage.app.deploy(
        {
            "name": "graph-child",
            "nodes": [{"id": "work", "type": "task", "parameters": {"task": "echo", "input": "$trigger"}}],
            "edges": [],
        }
    )
    assert stage.run_script('return await Workflow.run("graph-child", {a: 1})').output == {"a": 1}


def test_a_child_that_fails_throws_at_the_await(stage: Stage) -> None:
    stage.app.deploy_script('throw {code: "NOPE", message: "not today"}', "failing")
    source = 'try { await Workflow.run("failing", {}) } catch (e) { return [e.code, e.message] }'
    assert stage.run_script(source).output == ["NOPE", "not today"]


def test_a_child_that_nobody_deployed_throws_at_the_await(stage: Stage) -> None:
    source = 'try { await Workflow.run("missing", {}) } catch (e) { return e.code }'
    assert stage.run_script(source).output == "NOT_FOUND"


def test_a_started_child_outlives_its_parent(stage: Stage) -> None:
    stage.app.deploy_script('await Task.run("hold", "child")\nreturn "done"', "slow-child")
    parent = stage.run_script('return Workflow.start("slow-child", {})')
    assert parent.state == "COMPLETED"
    child = stage.app.handle(parent.output)
    stage.until_comers(parent.handle, "child")
    stage.door("child").open()
    assert stage.end_of(child).output == "done"


def test_tasks_nobody_awaits_outlive_the_script(stage: Stage) -> None:
    ended = stage.run_script('Task.run("hold", "mail")\nTask.run("note", "logged")\nreturn "ok"')
    assert ended.output == "ok"
    stage.until_comers(ended.handle, "mail")
    stage.door("mail").open()
    tasks = {handle.status().workflow: handle for handle in stage.app.executions() if handle.id != ended.id}
    assert set(tasks) == {"hold", "note"}
    assert stage.end_of(tasks["hold"]).output == "mail"
    assert stage.end_of(tasks["note"]).output == "logged"
    assert tasks["hold"].status().parent == ended.id
    assert stage.seen == ["logged"]


def test_a_task_that_runs_when_its_script_ends_is_not_run_again(stage: Stage) -> None:
    source = 'let slow = Task.run("hold", "slow")\nawait Task.run("hold", "first")\nreturn "over"'
    handle = stage.start_script(source)
    stage.until_comers(handle, "slow")
    stage.until_comers(handle, "first")
    stage.door("first").open()
    ended = stage.end_of(handle)
    stage.door("slow").open()
    (task,) = [one for one in stage.app.executions() if one.id != ended.id]
    assert stage.end_of(task).output == "slow"
    assert len(stage.door("slow").comers) == 1


def test_retries_of_a_task_are_durable(stage: Stage) -> None:
    source = 'return (await Task.with({retries: 3}).run("flaky", {failures: 2})).attempt'
    handle = stage.start_script(source)
    stage.until_event(handle, "TaskRetrying", "flaky")
    stage.pass_time(1)
    stage.until_event(handle, "TaskRetrying", "flaky", 2)
    stage.pass_time(2)
    assert stage.end_of(handle).output == 3


def test_an_unknown_task_fails_with_a_clear_error(stage: Stage) -> None:
    ended = stage.run_script('await Task.run("nothing_like_it", {})')
    assert ended.error["code"] == "TASK_NOT_FOUND"
    assert "nothing_like_it" in ended.error["message"]


def test_a_bad_option_is_named_with_the_task_it_was_given_to(stage: Stage) -> None:
    source = 'Task.run("note", 1)\nawait Task.with(inputs.options).run("echo", 1)'
    ended = stage.run_script(source, {"options": {"colour": "red"}})
    assert ended.state == "FAILED"
    assert ended.error["message"].startswith("Task.with() has no option 'colour'; known are")
    assert ":2)" in ended.error["stack"][0]
    ended = stage.run_script('await Workflow.with(inputs.options).run("w", 1)', {"options": {"key": "k"}})
    assert ended.error["message"].startswith(
        "Workflow.with() has no option 'key'; known are version, tags, priority"
    )
    caught = 'try { await Task.with({timeout: inputs.t}).run("echo", 1) } catch (e) { return e.message }'
    ended = stage.run_script(caught, {"t": "soon"})
    assert ended.output.startswith("Task.with(): the option 'timeout' is not a duration"), ended.error


def test_a_library_node_runs_from_a_script(stage: Stage) -> None:
    source = 'let d = await Node.run("limit", {input_array: [1, 2, 3], limit: 2})\nreturn d.items'
    ended = stage.run_script(source)
    assert ended.output == [1, 2], ended.error


def test_a_hundred_completions_cause_two_or_three_resumes(stage: Stage) -> None:
    source = """
    let handles = []
    for (let i = 0; i < 100; i++) { handles.push(Task.run("echo", i)) }
    let results = await Task.all(handles)
    return results.length
    """
    ended = stage.run_script(source)
    assert ended.output == 100
    assert ended.count("Suspended") <= 3
    assert ended.count("TaskCompleted") == 100


def test_the_picture_shows_line_and_variables(stage: Stage) -> None:
    handle = stage.start_script('let order = {id: 7}\nlet ok = await Signal.next("go")\nreturn ok')
    stage.until_event(handle, "Suspended", "signal go")
    seen = handle.picture()
    assert seen is not None
    assert (seen.line, seen.source) == (2, 'let ok = await Signal.next("go")')
    assert seen.variables["order"] == {"id": 7}


def test_losers_of_a_race_are_cancelled_on_demand(stage: Stage) -> None:
    source = """
    await Task.race([Task.run("echo", 1), Task.run("hold", "loser")], {cancel: true})
    return "over"
    """
    ended = stage.run_script(source)
    assert ended.output == "over"
    assert ended.count("TaskHandedOver") == 0
    assert [handle.id for handle in stage.app.executions()] == [ended.id]


def test_a_script_with_errors_is_refused_with_all_of_them(stage: Stage) -> None:
    from dalsegno.engine.scripts.programs import InvalidScript

    with pytest.raises(InvalidScript) as caught:
        stage.app.deploy_script('let a = b\nTask.run("x")', "broken")
    assert [(found.rule, found.line) for found in caught.value.findings] == [
        ("undefined-variable", 1),
        ("argument-count", 2),
    ]
    assert "line 1, column 9" in str(caught.value)


def test_a_task_on_its_own_takes_no_signals(stage: Stage) -> None:
    from dalsegno.errors import Conflict

    handle = stage.app.start(stage.app.task(name="alone")(_alone))
    with pytest.raises(Conflict, match="is a task: it accepts no signals"):
        handle.signal("go")
    assert handle.result(10) == "alone"


async def _alone() -> str:
    return "alone"


def test_a_forgotten_await_is_named(stage: Stage) -> None:
    ended = stage.run_script('let n = Task.run("echo", 1)\nreturn n + 1')
    assert ended.error["message"] == "'+' cannot add promise and number; await the promise first"
