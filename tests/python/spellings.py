"""asyncio's names, however they were imported, mean the workflow's own."""

# ruff: noqa: I001 - every way to import

from __future__ import annotations

import asyncio as aio
from asyncio import gather, sleep as pause

from tests.python.tasks import double, echo


async def aliased_module(x):
    await aio.sleep(1)
    return await aio.gather(double(1), double(x))


async def imported_names(x):
    await pause(2)
    return await gather(double(1), double(x))


async def imported_inside(x):
    import asyncio
    from asyncio import gather as together, sleep

    await sleep(1)
    await asyncio.sleep(1)
    await echo(1)
    return await together(double(1), double(x))


async def in_nested_functions(x):
    async def both(n):
        await aio.sleep(1)
        return await gather(double(n), pause(0.5))

    timers = [aio.sleep(n) for n in range(2)]
    await aio.gather(*timers)
    return (await both(x))[0]


async def own_names_win(x):
    def gather(*items):
        return len(items)

    await echo(1)
    return gather(1, 2)
