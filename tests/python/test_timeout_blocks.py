"""``async with timeout``: limits around awaits, in each other, across functions."""

from __future__ import annotations

import asyncio

import pytest

from dalsegno.lang.python import compile_workflow, gather, signal, sleep, timeout
from dalsegno.lang.runtime.effects import Cancel, ErrorValue, StartTask, StartTimer
from tests.python.driving import MODES, Driver, drive, started
from tests.python.tasks import echo

# ruff: noqa: RET504 - said as a user would


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


def test_interrupting_what_does_not_wait_does_nothing():
    machine = drive(in_time, 1)
    assert not machine.interrupt(ErrorValue("CancelledError", "late"))
    assert machine.result == [1, False]
