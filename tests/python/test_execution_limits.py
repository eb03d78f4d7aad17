"""State and work of one execution are bounded, and nothing catches the bounds."""

from __future__ import annotations

import pytest

from dalsegno.errors import LimitExceeded
from dalsegno.lang.python import PythonMachine, compile_workflow
from dalsegno.lang.runtime.limits import Limits
from tests.python.driving import drive
from tests.python.tasks import double, echo

# ruff: noqa: F841 - variables and values that only have to be alive


async def large(x):
    data = ["x" * 1_000 for _ in range(20_000)]
    await echo(1)
    return len(data)


def test_too_much_state_fails_the_execution():
    machine = drive(large, 1, "hot")
    assert machine.error.code == LimitExceeded.__name__
    assert "the limit is 16,777,216" in machine.error.message


async def endless(x):
    while True:
        pass


async def endless_with_work(x):
    n = 0
    while True:
        n += 1
        if n < 0:
            break
    await echo(n)


async def endless_caught(x):
    while True:
        try:
            while True:
                n = x
        except BaseException:  # noqa: BLE001
            n = x


async def endless_for(x):
    import itertools

    for n in itertools.count():
        x = n


async def endless_function(x):
    def forever():
        while True:
            pass

    await echo(1)
    forever()


async def endless_machine(x):
    promise = echo(1)
    await promise
    while True:
        await promise


@pytest.mark.parametrize(
    "function", [endless, endless_with_work, endless_caught, endless_for, endless_function, endless_machine]
)
def test_endless_loops_reach_the_limit(function):
    machine = drive(function, 1, "hot", limits=Limits(instructions=20_000))
    assert machine.status == "failed"
    assert machine.error.code == "LimitExceeded"
    assert "more than 20,000 instructions" in machine.error.message


async def counts(x):
    total = 0
    for n in range(x):
        total += n
    for n in range(3):
        total += await double(n)
    return total


def test_a_budget_pauses_and_goes_on():
    program = compile_workflow(counts)
    machine = PythonMachine.start(program, 10, budget=2)
    assert machine.status == "paused"
    assert machine.awaiting is None
    pauses = 0
    while machine.status == "paused":
        assert machine.resume({}, budget=2)
        pauses += 1
    assert machine.status == "suspended"
    assert pauses > 1


async def deep_nested(x):
    async def deeper(n):
        return await deeper(n + 1)

    try:
        await deeper(0)
    except BaseException as error:  # noqa: BLE001 - it must not come here
        return str(error)
    finally:
        await echo("clean-up")


def test_endless_recursion_of_async_functions_is_a_limit_that_nothing_catches():
    machine = drive(deep_nested, 1, "hot")
    assert machine.status == "failed"
    assert machine.error.code == "LimitExceeded"
    assert machine.error.message.startswith("more than 500 calls of async functions inside each other")
    assert "write it as a loop, or raise Limits(stack_depth=…)" in machine.error.message
    assert machine.error.stack[0].startswith("deeper (")
    assert machine.error.stack[30:] == ("… and 470 more",)
