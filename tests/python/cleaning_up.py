"""Workflows that clean up: ``finally`` and ``with``, and every way out of them."""

# ruff: noqa: B012, BLE001, F841, RET503, SIM107, SIM117 - odd on purpose

from __future__ import annotations

import contextlib
import dataclasses
import sys

from tests.python.tasks import echo, fail


async def finally_after_success(x):
    found = []
    try:
        found.append(await echo(1))
    finally:
        found.append(await echo(2))
    found.append(3)
    return found


async def finally_after_failure(x):
    found = []
    try:
        try:
            await fail("a")
        finally:
            found.append(await echo("clean"))
    except ValueError as error:
        found.append(str(error))
    return found


async def return_through_finally(x):
    found = []

    async def f():
        try:
            try:
                return await echo("value")
            finally:
                found.append(await echo("inner"))
        finally:
            found.append(await echo("outer"))

    return [await f(), found]


async def return_in_finally_wins(x):
    async def f():
        try:
            await fail("lost")
        finally:
            return await echo("from finally")

    async def g():
        try:
            return await echo("lost")
        finally:
            return "g"

    return [await f(), await g()]


async def break_and_continue_through_finally(x):
    found = []
    for n in range(5):
        try:
            if n == await echo(1):
                continue
            if n == 3:
                break
            found.append(n)
        finally:
            found.append(await echo(f"f{n}"))
    else:
        found.append("never")
    return found


async def break_out_of_try_inside_try(x):
    found = []
    for n in range(4):
        try:
            try:
                await fail(str(n))
                if n == 9:
                    break
            except ValueError as error:
                found.append(str(error))
                if await echo(n) == 2:
                    break
        except Exception:
            found.append("never")
        finally:
            found.append(await echo("finally"))
    return found


async def return_out_of_try_inside_with(x):
    found = []

    async def f(n):
        with contextlib.suppress(KeyError):
            try:
                if n == 1:
                    return await echo("early")
                await fail("caught inside")
            except ValueError as error:
                found.append(str(error))
                if n == 2:
                    return await echo("late")
        return "end"

    return [await f(1), await f(2), await f(3), found]


async def break_in_finally(x):
    found = []
    for n in range(3):
        try:
            await fail("swallowed")
        finally:
            found.append(await echo(n))
            if n == 1:
                break
            continue
    return found


async def exception_in_finally(x):
    try:
        try:
            await fail("first")
        finally:
            await fail("second")
    except ValueError as error:
        return [str(error), str(error.__context__)]


async def exception_in_else_is_not_caught_here(x):
    try:
        try:
            await echo(1)
        except ValueError:
            return "never"
        else:
            await fail("else")
        finally:
            await echo(2)
    except ValueError as error:
        return str(error)


async def return_in_except_and_else(x):
    async def f(action):
        try:
            await action("x")
        except ValueError as error:
            return [str(error), await echo("except")]
        else:
            return await echo("else")
        finally:
            await echo("finally")

    return [await f(fail), await f(echo)]


async def break_in_except(x):
    for n in range(3):
        try:
            await fail(str(n))
        except ValueError as error:
            if n == 1:
                break
            continue
    return n


async def nested_handlers(x):
    found = []
    try:
        await fail("outer")
    except ValueError as outer:
        try:
            await fail("inner")
        except ValueError as inner:
            found += [str(inner), str(inner.__context__)]
            await echo(1)
        await echo(2)
        found.append(str(outer))
        found.append(str(sys.exc_info()[1]))
    found.append(sys.exc_info()[1])
    return found


async def with_suppress(x):
    found = []
    with contextlib.suppress(ValueError):
        found.append(await echo(1))
        await fail("hidden")
        found.append("never")
    with contextlib.suppress(KeyError), contextlib.suppress(ValueError):
        await fail("hidden too")
    return found


async def with_suppress_lets_others_through(x):
    with contextlib.suppress(KeyError):
        await fail("shown")


@dataclasses.dataclass
class Manager:
    log: list
    swallow: bool = False
    fails: str = ""

    def __enter__(self):
        if self.fails == "enter":
            raise RuntimeError("cannot enter")
        self.log.append("in")
        return len(self.log)

    def __exit__(self, kind, error, trace):
        self.log.append([kind and kind.__name__, error and str(error), sys.exc_info()[1] is error])
        if self.fails == "exit":
            raise RuntimeError("cannot leave")
        return self.swallow


async def own_managers(x):
    log = []
    with Manager(log) as first, Manager(log, swallow=True) as second:
        log.append([first, await echo(second)])
        await fail("swallowed")
    for n in range(3):
        with Manager(log):
            if await echo(n) == 0:
                continue
            break
    try:
        with Manager(log):
            await fail("through")
    except ValueError as error:
        log.append(str(error))

    async def f():
        with Manager(log), Manager(log):
            return await echo("value")

    return [log, await f(), len(log)]


async def manager_that_cannot_enter(x):
    log = []
    try:
        with Manager(log), Manager(log, fails="enter"):
            await echo(1)
    except RuntimeError as error:
        return [log, str(error), await echo(1)]


async def manager_that_cannot_leave(x):
    log = []
    try:
        with Manager(log):
            with Manager(log, fails="exit"):
                await fail("first")
    except RuntimeError as error:
        log.append([str(error), str(error.__context__)])
    try:
        with Manager(log):
            with Manager(log, fails="exit"):
                return await echo(1)
    except RuntimeError as error:
        return [log, str(error), error.__context__]


async def native_with(x):
    await echo(1)
    with contextlib.suppress(ZeroDivisionError):
        x / 0
    return "after"


async def return_from_with(x):
    with contextlib.suppress(ValueError):
        for n in range(3):
            with contextlib.suppress(KeyError) as nothing:
                if await echo(n) == 1:
                    return [n, nothing]


async def break_from_with(x):
    found = []
    for n in range(5):
        with contextlib.suppress(ValueError):
            if n == 1:
                continue
            if await echo(n) == 3:
                break
            found.append(n)
            await fail("x")
    return found


CASES = [
    value
    for value in list(globals().values())
    if getattr(value, "__module__", "") == __name__ and callable(value) and not isinstance(value, type)
]
