"""What a workflow says besides calling tasks: timers, signals, groups, time limits, children."""

# ruff: noqa: PLW0108, RET504 - said as a user would

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from dalsegno.lang.effects import (
    AwaitSignal,
    Cancel,
    Err,
    ErrorValue,
    Ok,
    StartTask,
    StartTimer,
    StartWorkflow,
)
from dalsegno.lang.python import (
    DurableTask,
    DurableWorkflow,
    OutsideWorkflow,
    PythonMachine,
    compile_workflow,
    first,
    gather,
    log,
    race,
    run,
    signal,
    sleep,
    start,
    timeout,
)
from dalsegno.model.ids import child_execution_id
from tests.python import spellings
from tests.python.driving import MODES, Driver, drive
from tests.python.tasks import Lost, Refused, add, double, echo, fail, lose, nothing, refuse


def started(function, inputs=None, **options):
    return PythonMachine.start(
        compile_workflow(function), inputs, {"executionId": "e1"}, now=100.0, **options
    )


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


async def gathers(x):
    doubled = await gather(*[double(n) for n in range(x)])
    empty = await gather()
    mixed = await gather(double(1), gather(double(2), echo("a")), first(fail("no"), echo("won")))
    spelled = await asyncio.gather(echo(1), asyncio.sleep(1), echo(2))
    return [doubled, empty, mixed, spelled]


@pytest.mark.parametrize("mode", MODES)
def test_gather_gives_all_results_in_order(mode):
    assert drive(gathers, 3, mode).result == [[0, 2, 4], [], [2, [4, "a"], "won"], [1, None, 2]]


async def gather_fails(x):
    try:
        await gather(sleep(10), refuse("o-1"), fail("later"))
    except Refused as error:
        return [error.order, error.amount]


def test_gather_raises_the_first_failure_at_once():
    driver = Driver(compile_workflow(gather_fails))
    assert driver.run(1).result == ["o-1", 7]
    assert driver.now == 1_000.0


async def gather_settles(x):
    found = await gather(echo(1), fail("a"), lose("b"), return_exceptions=True)
    await echo(0)
    return [found[0], repr(found[1]), repr(found[2]), isinstance(found[2], Lost)]


@pytest.mark.parametrize("mode", MODES)
def test_gather_can_give_failures_as_values(mode):
    assert drive(gather_settles, 1, mode).result == [1, "ValueError('a')", "Lost('b')", True]


async def firsts(x):
    promises = [sleep(3), sleep(1), fail("never first")]
    await first(*promises)
    return 1


def test_first_takes_the_first_success_in_time_order():
    driver = Driver(compile_workflow(firsts))
    driver.run(1)
    assert driver.now == 1_001.0


async def all_fail(x):
    try:
        await first(fail("a"), lose("b"))
    except ExceptionGroup as group:
        await echo(1)
        return [group.message, [repr(each) for each in group.exceptions]]


def test_first_of_failures_raises_all_of_them():
    assert drive(all_fail, 1).result == ["all 2 promises failed", ["ValueError('a')", "Lost('b')"]]


async def caught_message(x):
    async def attempt(promise):
        try:
            return await promise
        except ValueError as error:
            return str(error)

    return [await race(sleep(5), echo("fast")), await attempt(race(sleep(5), fail("faster")))]


def test_race_takes_whatever_is_settled_first():
    assert drive(caught_message, 1).result == ["fast", "faster"]


async def no_promises(x):
    found = []
    for verb in (first, race):
        try:
            await verb()
        except ValueError as error:
            found.append(str(error))
    return found


def test_first_and_race_of_nothing_are_mistakes():
    assert drive(no_promises, 1).result == [
        "first() needs at least one promise: among none there is no first",
        "race() needs at least one promise: among none there is no race",
    ]


def plain_coroutine():
    async def plain():
        return 1

    return plain()


async def gathers_what(x):
    async def nested():
        return await echo(1)

    found = []
    for wrong in (5, [echo(1)], nested(), plain_coroutine()):
        try:
            await gather(echo(0), wrong)
        except TypeError as error:
            found.append(str(error))
    return found


def test_gather_says_what_is_no_promise():
    number, listed, nested, coroutine = drive(gathers_what, 1, "hot").result
    assert number == "gather(): argument 2 is no promise of a task, workflow, timer or signal, but int"
    assert "unpack it: gather(*promises)" in listed
    assert "nested function 'nested'" in nested
    assert "Make it a task (@app.task)" in coroutine


class Service:
    async def fetch(self):
        return 1


SERVICE = Service()


async def awaits_a_method(x):
    await SERVICE.fetch()


def test_awaiting_a_coroutine_is_refused_with_the_advice_to_make_it_a_task():
    error = drive(awaits_a_method, 1, "hot").error
    assert error.type == "TypeError"
    assert error.message.startswith("'fetch' is a coroutine function but no task")
    assert "Make it a task (@app.task), or define it inside the workflow" in error.message


async def uses_async_with(x):
    async with SERVICE:
        await echo(1)


def test_async_with_is_for_time_limits_alone():
    assert "'async with' in a workflow is for timeout() alone" in drive(uses_async_with, 1).error.message


async def stored_promises(x):
    promises = {"a": double(1), "b": [double(2), double(3)]}
    await sleep(1)
    later = promises["b"]
    return [await promises["a"], [await each for each in later], await promises["a"]]


@pytest.mark.parametrize("mode", MODES)
def test_promises_may_be_kept_and_awaited_later_and_again(mode):
    assert drive(stored_promises, 1, mode).result == [2, [4, 6], 2]


async def fire_and_forget(x):
    echo("forgotten")
    await nothing()
    return "done"


def test_a_task_that_is_not_awaited_is_started_all_the_same():
    driver = Driver(compile_workflow(fire_and_forget))
    assert driver.run(1).result == "done"
    assert [effect.name for effect in driver.effects if isinstance(effect, StartTask)] == ["echo", "nothing"]


async def returns_a_promise(x):
    return double(x)


async def returns_a_group(x):
    return gather(double(x), double(1))


@pytest.mark.parametrize("mode", MODES)
def test_a_promise_that_is_returned_is_awaited(mode):
    assert drive(returns_a_promise, 4, mode).result == 8
    assert drive(returns_a_group, 4, mode).result == [8, 2]


async def returns_nested_promise(x):
    return {"items": [1, double(2)]}


def test_a_promise_inside_a_result_is_an_error_that_names_its_place():
    machine = drive(returns_nested_promise, 1)
    assert machine.error.message == "the result.items[1] is a promise: await it first"


async def promise_as_input(x):
    await echo({"deep": [double(1)]})


def test_a_promise_inside_an_input_is_an_error_that_names_its_place():
    machine = drive(promise_as_input, 1)
    assert machine.error.message == "task 'echo': value.deep[0] is a promise: await it first"


# -- time limits ------------------------------------------------------------------------------------------------


async def in_time(x):
    with timeout(10) as limit:
        result = await echo(x)
    return [result, limit.expired()]


@pytest.mark.parametrize("mode", MODES)
def test_a_limit_that_is_kept_cancels_its_timer(mode):
    driver = Driver(compile_workflow(in_time), mode)
    assert driver.run(5).result == [5, False]
    assert [type(effect).__name__ for effect in driver.effects] == ["StartTimer", "StartTask", "Cancel"]
    assert isinstance(driver.effects[-1], Cancel)
    assert driver.effects[-1].id == "p0"


async def too_late(x):
    found = []
    try:
        async with timeout("10s") as limit:
            found.append(await echo(1))
            await sleep(60)
            found.append("never")
    except TimeoutError as error:
        found.append(str(error))
    return [found, limit.expired()]


@pytest.mark.parametrize("mode", MODES)
def test_a_limit_raises_at_the_await(mode):
    driver = Driver(compile_workflow(too_late), mode)
    assert driver.run(1).result == [[1, "not done within 10 s"], True]
    assert driver.now == 1_010.0


async def nested_limits(inner, outer):
    found = []
    try:
        with timeout(outer):
            try:
                with timeout(inner):
                    await sleep(100)
            except TimeoutError:
                found.append("inner")
                await sleep(1)
                found.append("went on")
    except TimeoutError:
        found.append("outer")
    return found


@pytest.mark.parametrize("mode", MODES)
def test_nested_limits(mode):
    program = compile_workflow(nested_limits)
    assert Driver(program, mode).run({"inner": 5, "outer": 50}).result == ["inner", "went on"]
    assert Driver(program, mode).run({"inner": 5, "outer": 5.5}).result == ["inner", "outer"]
    # The outer one expires first: the inner handler sees it too, and is free to await.
    assert Driver(program, mode).run({"inner": 50, "outer": 5}).result == ["inner", "went on"]


async def limit_across_functions(x):
    async def slow():
        try:
            await sleep(100)
        finally:
            await echo("cleaned up")

    try:
        with timeout(5):
            await slow()
    except TimeoutError:
        return "late"


@pytest.mark.parametrize("mode", MODES)
def test_a_limit_reaches_into_nested_functions_and_lets_them_clean_up(mode):
    driver = Driver(compile_workflow(limit_across_functions), mode)
    assert driver.run(1).result == "late"
    assert [effect.name for effect in driver.effects if isinstance(effect, StartTask)] == ["echo"]


async def no_limit(x):
    with timeout(None):
        await sleep(1_000)
    return "fine"


def test_a_limit_of_none_is_none():
    driver = Driver(compile_workflow(no_limit))
    assert driver.run(1).result == "fine"
    assert len(driver.effects) == 1


async def left_early(x):
    for n in range(3):
        with timeout(10):
            if await echo(n) == 1:
                break
    with timeout(10):
        return await echo(n)


def test_leaving_a_limit_by_break_or_return_cancels_it():
    driver = Driver(compile_workflow(left_early))
    assert driver.run(1).result == 1
    cancelled = [effect.id for effect in driver.effects if isinstance(effect, Cancel)]
    made = [effect.id for effect in driver.effects if isinstance(effect, StartTimer)]
    assert cancelled == made
    assert len(made) == 3


async def asyncio_limit(x):
    try:
        async with asyncio.timeout(5):
            await asyncio.sleep(10)
    except TimeoutError:
        return "late"


def test_asyncio_timeout_means_ours():
    assert drive(asyncio_limit, 1).result == "late"


async def limit_without_await(x):
    with timeout(5):
        y = x + 1
    return y


def test_a_limit_without_await_does_nothing():
    driver = Driver(compile_workflow(limit_without_await))
    assert driver.run(1).result == 2
    assert driver.effects == []


async def waits_with_a_limit(x):
    with timeout(5):
        return await gather(echo(1), signal("go"))


def test_what_is_awaited_includes_the_limit():
    machine = started(waits_with_a_limit, 1)
    awaited = machine.awaiting
    assert awaited.kind == "race"
    assert [item.kind for item in awaited.items] == ["all", "timer"]
    assert awaited.items[1].due == 105.0


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


def test_interrupting_what_does_not_wait_does_nothing():
    machine = drive(in_time, 1)
    assert not machine.interrupt(ErrorValue("CancelledError", "late"))
    assert machine.result == [1, False]


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
