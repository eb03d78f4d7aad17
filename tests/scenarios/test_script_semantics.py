"""What awaiting means, down to the order of things: races, groups, signals, timers, promises awaited late."""

from __future__ import annotations

import pytest

from dalsegno import Handle
from tests.scenarios.stage import Stage

# -- order ----------------------------------------------------------------------------------------------------


def test_a_signal_that_came_before_a_task_wins_the_race(stage: Stage) -> None:
    source = 'return await Promise.race([Task.run("hold", "slow"), Signal.next("go")])'
    handle = stage.start_script(source)
    stage.until_comers(handle, "slow")
    handle.pause()
    handle.signal("go", "signal")
    stage.door("slow").open()
    stage.until_event(handle, "TaskCompleted", "hold")
    handle.resume()
    assert stage.end_of(handle).output == "signal"


def test_a_task_that_ended_before_the_signal_wins_the_race(stage: Stage) -> None:
    source = 'return await Promise.race([Signal.next("go"), Task.run("hold", "slow")])'
    handle = stage.start_script(source)
    stage.until_comers(handle, "slow")
    handle.pause()
    stage.door("slow").open()
    stage.until_event(handle, "TaskCompleted", "hold")
    handle.signal("go", "signal")
    handle.resume()
    assert stage.end_of(handle).output == "slow"


def test_a_signal_that_came_before_its_time_limit_is_not_lost_to_it(stage: Stage) -> None:
    source = 'return await Signal.when("go", {timeout: 60})'
    handle = stage.start_script(source)
    stage.until_event(handle, "Suspended", "signal go")
    handle.pause()
    handle.signal("go", "in time")
    stage.pass_time(61)
    handle.resume()
    assert stage.end_of(handle).output == "in time"


def start_race_of_timers(stage: Stage) -> Handle:
    source = """
    let late = Timer.delay(20)
    let early = Timer.delay(10)
    let won = await Promise.race_kv({late, early})
    return won.key
    """
    handle = stage.start_script(source)
    stage.until_event(handle, "Suspended", "race of 2")
    return handle


def test_timers_that_come_due_together_race_by_their_time(stage: Stage) -> None:
    handle = start_race_of_timers(stage)
    stage.pass_time(30)
    assert stage.end_of(handle).output == "early"


def test_timers_that_come_due_during_a_pause_race_by_their_time(stage: Stage) -> None:
    handle = start_race_of_timers(stage)
    handle.pause()
    stage.pass_time(30)
    handle.resume()
    assert stage.end_of(handle).output == "early"


def test_any_takes_the_first_success_in_time_not_in_place(stage: Stage) -> None:
    source = """
    let a = Task.run("hold", "a")
    let b = Task.run("hold", "b")
    await Signal.next("go")
    return await Promise.any([a, b])
    """
    handle = stage.start_script(source)
    stage.until_comers(handle, "a")
    stage.until_comers(handle, "b")
    stage.door("b").open()
    stage.until_event(handle, "TaskCompleted", "hold")
    stage.door("a").open()
    stage.until_event(handle, "TaskCompleted", "hold", 2)
    handle.signal("go")
    assert stage.end_of(handle).output == "b"


# -- groups ---------------------------------------------------------------------------------------------------


def test_a_failure_behind_pending_items_is_thrown_at_once(stage: Stage) -> None:
    source = """
    let slow = []
    for (let i = 0; i < 5; i++) { slow.push(Task.run("hold", "slow")) }
    try { await Promise.all([...slow, Task.run("fail", {message: "x", code: "X"})]) } catch (e) { return e.code }
    """
    assert stage.run_script(source).output == "X"


def test_the_same_promise_twice_in_a_group(stage: Stage) -> None:
    source = """
    let p = Task.run("hold", "door")
    let q = Task.run("echo", 2)
    return [await Promise.all([p, q, p]), await Promise.allSettled({a: p, b: p})]
    """
    handle = stage.start_script(source)
    stage.until_comers(handle, "door")
    stage.door("door").open()
    settled = {"status": "fulfilled", "value": "door"}
    assert stage.end_of(handle).output == [["door", 2, "door"], {"a": settled, "b": settled}]


def test_a_group_of_settled_and_pending_promises(stage: Stage) -> None:
    source = """
    let a = Task.run("echo", 1)
    await a
    let b = Task.run("echo", 2)
    await b
    return await Promise.all([a, b, Task.run("echo", 3), 4])
    """
    assert stage.run_script(source).output == [1, 2, 3, 4]


def test_groups_inside_groups(stage: Stage) -> None:
    source = """
    let slow = Task.run("hold", "slow")
    let both = Promise.all([Task.run("echo", 1), Task.run("echo", 2)])
    let won = await Promise.race([slow, both])
    let kept = await Promise.allSettled([both, Promise.any([Task.run("fail", {message: "x", code: "X"})])])
    return [won, kept[0].value, kept[1].reason.code]
    """
    assert stage.run_script(source).output == [[1, 2], [1, 2], "AggregateError"]


@pytest.mark.parametrize(
    ("call", "outcome"),
    [
        ("Promise.all([])", []),
        ("Promise.all({})", {}),
        ("Promise.allSettled([])", []),
        ("Promise.all([1, 2])", [1, 2]),
        ("Promise.race([1, 2])", 1),
    ],
)
def test_groups_without_anything_to_wait_for(stage: Stage, call: str, outcome: object) -> None:
    assert stage.run_script(f"return await {call}").output == outcome


def test_a_hundred_promises_awaited_one_by_one(stage: Stage) -> None:
    source = """
    let handles = []
    for (let i = 0; i < 100; i++) { handles.push(Task.run("echo", i)) }
    let sum = 0
    for (let h of handles) { sum += await h }
    return sum
    """
    assert stage.run_script(source).output == 4950


# -- promises awaited late ------------------------------------------------------------------------------------


def test_a_promise_is_awaited_long_after_it_was_settled(stage: Stage) -> None:
    source = """
    let early = Task.run("echo", {n: 1})
    let first = await early
    first.n = 2
    for (let i = 0; i < 5; i++) { await Task.run("echo", i) }
    await Signal.next("go")
    let again = await early
    return [first.n, again.n, early.id]
    """
    handle = stage.start_script(source)
    stage.until("it waits for the signal", handle, lambda: handle.why()[0].kind == "signal")
    handle.signal("go")
    assert stage.end_of(handle).output == [2, 1, "p0"]


def test_a_failure_is_thrown_at_every_await_of_its_promise(stage: Stage) -> None:
    source = """
    let bad = Task.run("fail", {message: "x", code: "X"})
    let seen = []
    for (let i = 0; i < 3; i++) {
      try { await bad } catch (e) { seen.push(e.code) }
      await Task.run("echo", i)
    }
    return seen
    """
    assert stage.run_script(source).output == ["X", "X", "X"]


def test_a_promise_made_in_one_function_is_awaited_in_another(stage: Stage) -> None:
    source = """
    function begin(n) { return Task.run("echo", n) }
    function finish(p) { let v = await p; return v + 1 }
    let pending = [1, 2, 3].map(n => begin(n))
    return pending.map(p => finish(p))
    """
    assert stage.run_script(source).output == [2, 3, 4]


def test_a_returned_promise_is_awaited(stage: Stage) -> None:
    assert stage.run_script('return Task.run("echo", 7)').output == 7


# -- signals --------------------------------------------------------------------------------------------------


def test_several_waits_for_one_name_take_signals_in_the_order_of_their_making(stage: Stage) -> None:
    source = """
    let a = Signal.next("go")
    let b = Signal.next("go")
    return {second: await b, first: await a}
    """
    handle = stage.start_script(source)
    stage.until_event(handle, "Suspended", "signal go")
    handle.signal("go", 1)
    handle.signal("go", 2)
    assert stage.end_of(handle).output == {"second": 2, "first": 1}


def test_early_signals_are_kept_across_restarts_of_the_wait(stage: Stage) -> None:
    source = """
    let got = []
    for (let i = 0; i < 3; i++) {
      let won = await Promise.race_kv({signal: Signal.next("go"), time: Timer.delay(10)})
      got.push(won.key == "signal" ? won.value : "time")
    }
    return got
    """
    handle = stage.start_script(source)
    stage.until_event(handle, "Suspended", "race of 2")
    stage.pass_time(10)
    stage.until_event(handle, "TimerFired")
    handle.signal("go", "a")
    handle.signal("go", "b")
    assert stage.end_of(handle).output == ["time", "a", "b"]


def test_a_signal_given_to_a_promise_nobody_awaits_yet_waits_there(stage: Stage) -> None:
    source = """
    let later = Signal.next("go")
    await Task.run("hold", "door")
    return await later
    """
    handle = stage.start_script(source)
    stage.until_comers(handle, "door")
    handle.signal("go", "kept")
    stage.door("door").open()
    assert stage.end_of(handle).output == "kept"


def test_a_signal_wait_with_limit_may_be_tried_again(stage: Stage) -> None:
    source = """
    for (let i = 0; i < 3; i++) {
      try { return [i, await Signal.when("go", {timeout: "1m"})] } catch (e) { log(e.message) }
    }
    return "never"
    """
    handle = stage.start_script(source)
    for number in range(2):
        stage.until_event(handle, "Suspended", "signal go", number + 1)
        stage.pass_time(61)
    stage.until_event(handle, "Suspended", "signal go", 3)
    handle.signal("go", "at last")
    assert stage.end_of(handle).output == [2, "at last"]
