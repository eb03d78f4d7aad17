"""Workflows whose stored programs and snapshots lie in ``golden/``. Change nothing here that those files name."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import decimal
import enum
from typing import Any

from dalsegno.lang.python import gather, signal, sleep, timeout
from tests.python.tasks import Refused, double, echo, refuse


class Level(enum.Enum):
    HIGH = "high"


@dataclasses.dataclass(frozen=True)
class Key:
    name: str


@dataclasses.dataclass
class Box:
    value: Any
    items: list[Any] = dataclasses.field(default_factory=list)


async def straight(x):
    first = await double(x)
    second = await double(first) + first
    return [first, second]


async def values(x):
    box = Box(
        decimal.Decimal("1.5"), [dt.date(2024, 1, 2), Level.HIGH, {Key("k"): {1, 2}}, (b"x", None, 2**70)]
    )
    box.items.append(box)
    when = dt.datetime(2024, 5, 6, 7, 8, tzinfo=dt.UTC)
    await echo(x)
    return [
        str(box.value),
        box.items[0].isoformat(),
        box.items[1] is Level.HIGH,
        box.items[2] == {Key("k"): {1, 2}},
        box.items[3] == (b"x", None, 2**70),
        box.items[4] is box,
        when.isoformat(),
    ]


async def loops(x):
    found = []
    for index, (key, value) in enumerate({"a": 1, "b": 2, "c": 3}.items()):
        for letter in reversed("xy"):
            if await echo(letter) == "y" and index == 1:
                continue
            found.append([index, key, value, letter])
    return found


async def closures(x):
    count = 0

    def increase(by=2):
        nonlocal count
        count += by
        return count

    async def step(n):
        nonlocal count
        count += await double(n)
        return lambda: count * 100

    read = await step(x)
    increase()
    await echo(1)
    return [increase(by=10), read(), [await step(n) is None for n in range(2)], count]


async def failing(x):
    found = []
    for n in range(2):
        try:
            try:
                await refuse(f"o-{n}")
            except Refused as error:
                found.append(await echo(error.order))
                if n:
                    raise RuntimeError("gave up") from error
            finally:
                found.append(await echo(f"finally {n}"))
        except RuntimeError as error:
            await echo(1)
            found.append([str(error), str(error.__cause__)])
    return found


async def waiting(x):
    promises = [double(n) for n in range(100)]
    with contextlib.suppress(TimeoutError), timeout(30):
        found = await signal("go")
    async with timeout("1m"):
        results = await gather(*promises, sleep(5))
    return [found, sum(results[:-1])]


async def expressions(x):
    items: list[Any] = []
    items.append([await echo(1), *[await double(n) for n in range(2)]])
    return [
        items,
        {"k": await echo(2), **await echo({"z": 3})},
        f"{await echo(x):>3}|",
        x < await double(x) < 100,
    ]


WORKFLOWS = [straight, values, loops, closures, failing, waiting, expressions]
