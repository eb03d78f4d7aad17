"""What a workflow says besides calling tasks: timers, signals, children, logs, options."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from dalsegno.lang.python import (
    DurableTask,
    DurableWorkflow,
    OutsideWorkflow,
    PythonMachine,
    compile_workflow,
    gather,
    log,
    race,
    run,
    signal,
    sleep,
    start,
    timeout,
)
from dalsegno.lang.runtime.effects import (
    AwaitSignal,
    Err,
    ErrorValue,
    Ok,
    StartTask,
    StartTimer,
    StartWorkflow,
)
from dalsegno.model.ids import child_execution_id
from tests.python import spellings
from tests.python.driving import MODES, Driver, drive, started
from tests.python.tasks import add, double, echo, fail

# ruff: noqa: PLW0108 - said as a user would


# -- timers -----------------------------------------------------------------------------------------------------


async def sleeps(x):
    await sleep(5)
    await sleep("1h30m")
    await sleep(dt.timedelta(minutes=2))
    await sleep(dt.datetime(2030, 1, 1, tzinfo=dt.UTC))
    await asyncio.sleep(0.5)
    return "awake"


@pytest.mark.parametrize("mode", MODES)
def test_sleeping_starts_a_timer_at_the_right_time(mode):
    driver = Driver(compile_workflow(sleeps), mode)
    assert driver.run(1).result == "awake"
    new_year = dt.datetime(2030, 1, 1, tzinfo=dt.UTC).timestamp()
    dues = [effect.due for effect in driver.effects if isinstance(effect, StartTimer)]
    assert dues == [1_005.0, 6_405.0, 6_525.0, new_year, new_year + 0.5]


async def clock_starts_at_the_call(x):
    timer = sleep(60)
    await sleep(50)
    await timer
    return "awake"


def test_a_timer_runs_from_its_making():
    driver = Driver(compile_workflow(clock_starts_at_the_call))
    assert driver.run(1).result == "awake"
    assert driver.now == 1_060.0


async def naive_moment(x):
    await sleep(dt.datetime(1970, 1, 1, 0, 2))  # noqa: DTZ001


def test_a_moment_without_zone_is_utc():
    assert started(naive_moment, 1).take_effects() == [StartTimer("p0", 120.0)]


async def bad_sleep(value):
    try:
        await sleep(value)
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (-1, "sleep(): -1 is negative"),
        ("soon", "sleep(): 'soon' is not a duration"),
        (True, "is not a duration"),
    ],
)
def test_bad_durations_say_what_to_write(value, said):
    assert said in drive(bad_sleep, value).result


# -- signals ----------------------------------------------------------------------------------------------------


async def waits_for_signals(x):
    first_one = await signal("approved")
    second = await signal("approved", timeout="1m")
    try:
        await signal("approved", timeout=5)
    except TimeoutError as error:
        return [first_one, second, str(error)]


@pytest.mark.parametrize("mode", MODES)
def test_signals_come_in_order_and_time_out(mode):
    machine = drive(waits_for_signals, 1, mode, signals={"approved": [{"by": "ann"}, 2]})
    assert machine.result == [{"by": "ann"}, 2, "no signal in time"]


async def waits_for_one(x):
    return await signal("go", timeout=dt.timedelta(seconds=30))


def test_a_suspended_machine_says_which_signals_it_can_reach():
    machine = started(waits_for_one, 1)
    [effect] = machine.take_effects()
    assert effect == AwaitSignal("p0", "go", 130.0)
    [waiting] = machine.waiting_signals()
    assert (waiting.id, waiting.name, waiting.due) == ("p0", "go", 130.0)
    assert machine.awaiting.kind == "signal"
    assert machine.awaiting.due == 130.0


async def drops_a_signal(x):
    await race(signal("lost"), echo(1))
    kept = [signal("kept"), signal("also")]
    await sleep(1)
    return [await each for each in kept]


def test_an_abandoned_wait_is_no_longer_reachable():
    machine = started(drops_a_signal, 1)
    assert [each.name for each in machine.waiting_signals()] == ["lost"]
    machine.resume({"p1": Ok(1)}, now=101.0)
    assert [each.name for each in machine.waiting_signals()] == ["kept", "also"]
    assert machine.reachable() == ((2, 5),)


# -- groups -----------------------------------------------------------------------------------------------------
# -- time limits ------------------------------------------------------------------------------------------------
# -- children ---------------------------------------------------------------------------------------------------


@DurableWorkflow
async def child(order, amount=1):
    return [order, await double(amount)]


async def parent(x):
    direct = await child("o-1", amount=x)
    named = await run("some-graph", {"a": 1})
    keywords = await run("some-graph", a=2)
    same = await run(child, "o-2")
    detached = start(child, "o-3", amount=4)
    other = start("some-graph", {"b": 2})
    options = await child.with_options(queue="slow", key="k")("o-4")
    return [direct, named, keywords, same, detached, other, options]


def test_children_by_call_and_by_name():
    def finished(order, amount=1):
        return [order, amount]

    driver = Driver(compile_workflow(parent), tasks={"child": finished, "some-graph": lambda data: data})
    machine = driver.run(7)
    detached = [child_execution_id("e1", "p4"), child_execution_id("e1", "p5")]
    assert machine.result == [["o-1", 7], {"a": 1}, {"a": 2}, ["o-2", 1], *detached, ["o-4", 1]]
    children = [effect for effect in driver.effects if isinstance(effect, StartWorkflow)]
    assert children[0] == StartWorkflow("p0", "child", {"order": "o-1", "amount": 7})
    assert children[4] == StartWorkflow("p4", "child", {"order": "o-3", "amount": 4}, detached=True)
    assert children[6].options == {"queue": "slow", "key": "k"}


async def awaits_a_start(x):
    await start(child, "o")


async def starts_a_task(x):
    start(echo, 1)


def test_misused_start_says_so():
    assert "start() gives the execution id at once" in drive(awaits_a_start, 1).error.message
    assert "'echo' is a task: call it" in drive(starts_a_task, 1).error.message


async def logs(x):
    log("started")
    await echo(1)
    log(f"got {x}", level="warning")


def test_log_lines_are_handed_over_once():
    machine = started(logs, 3)
    assert machine.take_logs() == [("info", "started")]
    machine.resume({"p0": Ok(1)})
    assert machine.take_logs() == [("warning", "got 3")]
    assert machine.take_logs() == []


# -- outside of workflows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "verb",
    [
        lambda: sleep(1),
        lambda: signal("a"),
        lambda: gather(),
        lambda: timeout(1),
        lambda: start("x"),
        lambda: run("x"),
    ],
)
def test_verbs_outside_a_workflow_say_so(verb):
    with pytest.raises(OutsideWorkflow, match="only inside a running workflow"):
        verb()


async def test_a_task_outside_a_workflow_is_an_ordinary_function():
    assert await double(4) == 8
    assert await add(1, right=5) == 6
    assert double.__name__ == "double"
    assert double.__doc__ is None
    assert repr(double) == "<task 'double'>"


async def calls_with_options(x):
    return await double.with_options(queue="fast", priority=3)(x)


def test_options_of_a_call_are_part_of_its_effect():
    [effect] = started(calls_with_options, 2).take_effects()
    assert effect == StartTask("p0", "double", 2, {"queue": "fast", "priority": 3})


@DurableTask
def plain_function(a, b):
    return a + b


async def calls_a_plain_function(x):
    return await plain_function(1, b=x)


def test_ordinary_functions_are_tasks_too():
    assert drive(calls_a_plain_function, 5).result == 6
    assert plain_function(1, 2) == 3


async def wrong_call(x):
    await add()


def test_wrong_arguments_of_a_task_are_a_type_error():
    assert drive(wrong_call, 1).error.message == "task 'add': missing a required argument: 'left'"


async def interrupted(x):
    try:
        await sleep(100)
    except asyncio.CancelledError:
        await echo("cleaned")
        raise


def test_interrupting_raises_at_the_await_and_lets_it_clean_up():
    machine = started(interrupted, 1)
    assert machine.interrupt(ErrorValue("CancelledError", "cancelled by ann"), now=101.0)
    assert machine.status == "suspended"
    machine.resume({"p1": Ok(None)}, now=102.0)
    assert machine.status == "failed"
    assert (machine.error.code, machine.error.message) == ("CancelledError", "cancelled by ann")


async def swallows_everything(x):
    try:
        await sleep(100)
    except Exception:  # noqa: BLE001
        return "swallowed"


def test_cancellation_is_no_ordinary_exception():
    machine = started(swallows_everything, 1)
    machine.interrupt(ErrorValue("CancelledError", "stop"))
    assert machine.status == "failed"


async def times_out(x):
    try:
        await sleep(100)
    except TimeoutError as error:
        return str(error)


def test_an_execution_timeout_is_a_timeout_error():
    machine = started(times_out, 1)
    machine.interrupt(ErrorValue("TimeoutError", "the execution took too long"))
    assert machine.result == "the execution took too long"


async def two_ways_to_fail(x):
    try:
        await gather(echo(1), fail("x"))
    except ValueError as error:
        return str(error)


def test_outcomes_may_come_in_any_order_repeated_and_unknown():
    program = compile_workflow(two_ways_to_fail)
    machine = PythonMachine.start(program, 1)
    machine.resume({"p9": Ok(1), "nonsense": Ok(2), "p0": Ok(1)})
    assert machine.status == "suspended"
    error = ErrorValue("ValueError", "x", classes=("builtins.ValueError",), args=("x",))
    machine.resume({"p1": Err(error), "p0": Ok(1)})
    assert machine.result == "x"
    assert not machine.resume({"p0": Ok(1)})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("function", "result", "seconds"),
    [
        (spellings.aliased_module, [2, 6], 1.0),
        (spellings.imported_names, [2, 6], 2.0),
        (spellings.imported_inside, [2, 6], 2.0),
        (spellings.in_nested_functions, 6, 2.5),
        (spellings.own_names_win, 2, 0.0),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_spellings_of_asyncio(function, result, seconds, mode):
    driver = Driver(compile_workflow(function), mode)
    assert driver.run(3).result == result
    assert driver.now == 1_000.0 + seconds
