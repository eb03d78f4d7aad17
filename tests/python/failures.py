"""Workflows in which something goes wrong: ``try``, exceptions of tasks and of their own."""

# ruff: noqa: ASYNC230, B018, B030, B904, E722, F841, PLE0704, PTH123, RUF059, SIM105, SIM115 - odd on purpose

from __future__ import annotations

import sys
import traceback

from tests.python.tasks import Lost, Refused, echo, fail, lose, refuse


class Own(Exception):
    def __init__(self, message, extra=None):
        super().__init__(message)
        self.extra = extra


async def uncaught(x):
    await fail("of a task")


async def uncaught_own(x):
    await echo(1)
    raise Own("mine")


async def uncaught_native(x):
    await echo(1)
    return {}["missing"]


async def caught(x):
    try:
        await fail("a")
    except ValueError as error:
        return [str(error), error.args]


async def caught_by_a_base_class(x):
    try:
        await lose("key")
    except LookupError as error:
        return [type(error).__name__, isinstance(error, Lost), error.args]


async def caught_by_a_tuple(x):
    try:
        await refuse("o-1")
    except (KeyError, Refused) as error:
        return [str(error), error.order, error.amount]


async def first_clause_that_fits(x):
    found = []
    for action in (fail, lose, refuse, echo):
        try:
            await action("x")
        except KeyError:
            found.append("key")
        except ValueError:
            found.append(await echo("value"))
        except LookupError:
            found.append("lookup")
        except:
            found.append("other")
        else:
            found.append(await echo("fine"))
        finally:
            found.append(await echo("finally"))
    return found


async def not_caught(x):
    try:
        await fail("through")
    except KeyError:
        return "never"


async def name_is_unbound_afterwards(x):
    error = "before"
    try:
        await fail("a")
    except ValueError as error:
        await echo(1)
    try:
        return error
    except UnboundLocalError as problem:
        return str(problem)


async def name_is_unbound_even_after_a_raise(x):
    try:
        try:
            await fail("a")
        except ValueError as error:
            await echo(1)
            raise KeyError("b")
    except KeyError as outer:
        context = outer.__context__
    try:
        error
    except NameError:
        return [str(context), await echo("unbound")]


async def awaits_in_the_handler(x):
    try:
        await fail("a")
    except ValueError as error:
        before = str(error)
        await echo(1)
        after = str(error)
        return [before, after, error.args, type(error).__name__]


async def bare_raise(x):
    try:
        try:
            await fail("again")
        except ValueError:
            await echo(1)
            raise
    except ValueError as error:
        return [str(error), error.__cause__ is None, error.__context__ is None]


async def bare_raise_in_a_function(x):
    def again():
        raise

    try:
        try:
            await fail("again")
        except ValueError:
            await echo(1)
            again()
    except ValueError as error:
        return str(error)


async def bare_raise_without_exception(x):
    await echo(1)
    raise


async def raise_from(x):
    try:
        try:
            await fail("cause")
        except ValueError as error:
            await echo(1)
            raise Own("effect", extra=[1]) from error
    except Own as own:
        await echo(2)
        return [
            str(own),
            own.extra,
            str(own.__cause__),
            own.__suppress_context__,
            type(own.__cause__).__name__,
        ]


async def raise_from_none(x):
    try:
        try:
            await fail("hidden")
        except ValueError:
            raise Own("shown") from None
    except Own as own:
        return [str(own.__context__), own.__cause__, own.__suppress_context__]


async def context_is_kept(x):
    try:
        try:
            await fail("first")
        except ValueError:
            await fail("second")
    except ValueError as error:
        return [str(error), str(error.__context__)]


async def context_of_native_exception(x):
    try:
        try:
            await fail("first")
        except ValueError:
            await echo(1)
            {}["second"]
    except KeyError as error:
        return [str(error), str(error.__context__)]


async def raise_with_await(x):
    try:
        raise Own(await echo("text"), extra=await echo(2)) from KeyError(await echo("k"))
    except Own as own:
        return [str(own), own.extra, repr(own.__cause__)]


async def exception_info_in_handler(x):
    try:
        await fail("info")
    except ValueError:
        await echo(1)
        return [str(sys.exc_info()[1]), "ValueError: info" in traceback.format_exc()]


async def no_exception_info_afterwards(x):
    try:
        await fail("info")
    except ValueError:
        pass
    await echo(1)
    return sys.exc_info()[1]


async def retry_loop(x):
    attempts = 0
    while True:
        try:
            attempts += 1
            if attempts < 4:
                await fail(f"attempt {attempts}")
            return [attempts, await echo("done")]
        except ValueError as error:
            last = str(error)
            await echo(last)


async def exceptions_as_values(x):
    errors = []
    for message in ("a", "b"):
        try:
            await fail(message)
        except ValueError as error:
            errors.append(error)
    await echo(1)
    return [str(errors[0]), errors[1].args, [type(error).__name__ for error in errors]]


async def exception_with_attributes(x):
    error = Own("mine", extra={"a": [1, 2]})
    error.add_note("a note")
    await echo(1)
    try:
        raise error
    except Own as caught:
        return [caught is error, caught.extra, caught.__notes__]


async def exception_groups(x):
    group = ExceptionGroup("several", [ValueError("a"), KeyError("b")])
    await echo(1)
    try:
        raise group
    except ExceptionGroup as caught:
        return [caught.message, [repr(each) for each in caught.exceptions]]


async def os_error(x):
    try:
        open("/does/not/exist", encoding="utf-8")
    except OSError as error:
        await echo(1)
        return [error.errno, error.filename, str(error), type(error).__name__]


async def wrong_class_in_except(x):
    try:
        await fail("a")
    except "text":
        return "never"


async def native_try_around_calls(x):
    await echo(1)
    try:
        int("no number")
    except ValueError as error:
        text = str(error)
    else:
        return "never"
    finally:
        done = True
    return [text, done]


async def not_a_context_manager(x):
    with x:
        await echo(1)


async def awaiting_a_number(x):
    await x


async def awaiting_twice(x):
    async def f():
        return await echo(1)

    call = f()
    await call
    await call


async def iterating_a_number(x):
    for n in x:
        await echo(n)


async def unpacking_too_few(x):
    a, b, c = await echo([1, 2])


async def wrong_arguments_of_a_function(x):
    def f(a):
        return a

    await echo(1)
    f()


async def stop_iteration_leaves(x):
    await echo(1)
    next(iter([]))


async def stop_iteration_leaves_nested(x):
    async def f():
        await echo(1)
        raise StopIteration(5)

    try:
        await f()
    except RuntimeError as error:
        return [str(error), repr(error.__cause__)]


async def stop_iteration_is_caught(x):
    numbers = iter([1])
    while True:
        try:
            await echo(next(numbers))
        except StopIteration:
            return "end"


async def deep_recursion(x):
    def f(n):
        return f(n + 1)

    await echo(1)
    try:
        f(0)
    except RecursionError as error:
        return type(error).__name__


CASES = [
    value
    for value in list(globals().values())
    if getattr(value, "__module__", "") == __name__ and callable(value) and not isinstance(value, type)
]
