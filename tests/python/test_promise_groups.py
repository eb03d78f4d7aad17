"""Promises that are awaited together, kept, returned, forgotten: ``gather``, ``first``, ``race``."""

from __future__ import annotations

import asyncio

import pytest

from dalsegno.lang.python import compile_workflow, first, gather, race, sleep
from dalsegno.lang.runtime.effects import StartTask
from tests.python.driving import MODES, Driver, drive
from tests.python.tasks import Lost, Refused, double, echo, fail, lose, nothing, refuse


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
    assert number == "gather(): argument 2 is not a promise of a task, workflow, timer or signal, but int"
    assert "unpack it: gather(*promises)" in listed
    assert "'nested' is a nested async function" in nested
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
    assert error.message.startswith("'fetch' is a coroutine function but not a task")
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
