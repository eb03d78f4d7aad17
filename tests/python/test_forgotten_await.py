"""An expression that wants a value and gets a promise fails with a message that asks for the await."""

from __future__ import annotations

import pytest

from dalsegno import gather
from tests.python.driving import drive
from tests.python.tasks import echo

HINT = "is an await missing?"


async def added(x):
    promise = echo(x)
    return promise + 1


async def added_to(x):
    promise = echo(x)
    return 1 + promise


async def compared(x):
    promise = echo(x)
    return promise < 1


async def attribute(x):
    promise = echo(x)
    return promise.total


async def method(x):
    promise = echo(x)
    return promise.upper()


async def indexed(x):
    promise = echo(x)
    return promise["a"]


async def looped(x):
    promise = echo(x)
    return [item for item in promise]  # noqa: C416 - iterating is the point


async def looped_with_awaits(x):
    promise = echo(x)
    for item in promise:
        await echo(item)


async def measured(x):
    promise = echo(x)
    return len(promise)


async def joined(x):
    promise = echo("a")
    parts = [promise]
    return ",".join(parts)


async def gathered(x):
    results = gather(echo(1), echo(2))
    return results[0]


@pytest.mark.parametrize(
    "function",
    [
        added,
        added_to,
        compared,
        attribute,
        method,
        indexed,
        looped,
        looped_with_awaits,
        measured,
        joined,
        gathered,
    ],
)
def test_message_asks_for_the_await(function):
    machine = drive(function, 1, "hot")
    assert machine.status == "failed"
    assert HINT in machine.error.message


async def unfit(x):
    return x + "text"


async def missing(x):
    return x.total


@pytest.mark.parametrize("function", [unfit, missing])
def test_other_mistakes_are_told_as_python_tells_them(function):
    machine = drive(function, 1, "hot")
    assert machine.status == "failed"
    assert HINT not in machine.error.message
