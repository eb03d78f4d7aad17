"""Workflows with functions of their own: closures, recursion, nested ``async def``."""

# ruff: noqa: B008, B023, E731, F821, UP037 - odd on purpose

from __future__ import annotations

from tests.python.library import scaled
from tests.python.tasks import double, echo, fail


async def closures_share_variables(x):
    counter = 0

    def increase(by=1):
        nonlocal counter
        counter += by
        return counter

    increase()
    await echo(1)
    increase(5)
    counter += await echo(100)
    await echo(2)
    read = lambda: counter
    counter = counter + 1
    await echo(3)
    return [increase(), read(), counter]


async def closures_in_loops_share_one_variable(x):
    functions = []
    for n in range(3):
        functions.append(lambda: n)
        await echo(n)
    return [f() for f in functions]


async def closures_made_by_a_function_do_not(x):
    def make(n):
        def get():
            return n + x

        return get

    functions = [make(n) for n in range(3)]
    await echo(1)
    x = 10
    await echo(2)
    return [f() for f in functions]


async def functions_with_all_parameters(x):
    def f(a, b=2, /, c=3, *rest, d, e=5, **named):
        return [a, b, c, rest, d, e, named]

    f.note = "kept"
    await echo(1)
    return [f(1, d=4), f(1, 2, 3, 4, 5, d=6, z=7), f.note, f.__name__]


async def decorators_that_await(x):
    @scaled(await echo(3))
    @scaled(await double(x))
    def total(*numbers, start=await echo(100), **named):
        """Adds all up."""
        return start + sum(numbers) + sum(named.values())

    await echo(1)
    first = total(1, 2, a=3)
    await echo(2)
    return [first, total.__name__, total.__doc__, total.__wrapped__.__wrapped__(1)]


async def nested_async_with_star_parameters(x):
    async def collect(first, *rest, flag=False, **named):
        await echo(first)
        return [first, rest, flag, named]

    return [await collect(x), await collect(1, 2, 3, flag=True, a=await echo(4))]


async def recursive_function(x):
    def factorial(n):
        return 1 if n < 2 else n * factorial(n - 1)

    await echo(1)
    first = factorial(x)
    await echo(2)
    return [first, factorial(5)]


async def nested_async(x):
    async def twice(value, times=2, *, plus=0):
        for _ in range(times):
            value = await double(value)
        return value + plus

    first = await twice(x)
    second = await twice(first, 1, plus=await twice(1))
    return [first, second, [await twice(n, times=1) for n in range(3)]]


async def nested_async_shares_variables(x):
    log = []
    total = 0

    async def step(n):
        nonlocal total
        log.append(n)
        total += await double(n)
        return len(log)

    results = [await step(n) for n in range(3)]
    total += 1000
    await step(10)
    return [results, log, total]


async def nested_async_recursion(x):
    async def fibonacci(n):
        return n if n < 2 else await fibonacci(n - 1) + await fibonacci(n - 2)

    return await fibonacci(await echo(6))


async def nested_async_in_nested_async(x):
    async def outer(a):
        b = a + 1

        async def inner(c):
            nonlocal b
            b += await echo(c)
            return a + b + c + x

        return [await inner(1), await inner(2), b]

    return await outer(10)


async def nested_async_called_before_it_is_awaited(x):
    async def f(a):
        return await double(a)

    call = f(x)
    x = 100
    await echo(1)
    return await call


async def nested_async_without_await(x):
    async def f():
        return x

    return [await f(), await f()]


async def nested_async_raises(x):
    async def f(a):
        try:
            await fail("inner")
        except ValueError:
            await echo(1)
            raise KeyError(a) from None

    try:
        await f(1)
    except KeyError as error:
        return [repr(error), error.__suppress_context__]


async def wrong_arguments_of_nested_async(x):
    async def f(a, b):
        return await echo(a)

    try:
        await f(1)
    except TypeError as error:
        return str(error).rpartition(".")[2]


async def nested_generator_functions(x):
    def numbers(n):
        for i in range(n):
            yield i * x

    await echo(1)
    first = list(numbers(3))
    await echo(2)
    return [first, sum(numbers(4)), [await double(n) for n in list(numbers(2))]]


async def annotations_of_nested_functions(x):
    def f(a: Unknown, b: "Other" = 1) -> Missing:
        c: Undefined = a + b
        return c

    async def g(a: Unknown) -> Missing:
        return await echo(a)

    await echo(1)
    return [f(1), await g(2)]


CASES = [
    value
    for value in list(globals().values())
    if getattr(value, "__module__", "") == __name__ and callable(value) and not isinstance(value, type)
]
