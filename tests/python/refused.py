"""Functions that cannot be workflows, each with what the refusal must say. Never run."""

from __future__ import annotations

import asyncio
from asyncio import Queue, wait_for
from contextlib import asynccontextmanager

import dalsegno
from dalsegno import first, gather, signal, sleep, timeout
from tests.python import strangers
from tests.python.tasks import double, echo

# ruff: noqa: B007, B030, F841, PLW0602, PLW0603 - odd on purpose


async def tool(x):
    return x


class Resource:
    async def __aenter__(self):
        return self

    async def __aexit__(self, *exception):
        return None


SHARED = Resource()


@asynccontextmanager
async def opened(x):
    yield x


def limit():
    return timeout(5)


async def yields(x):
    await echo(1)
    yield x
    (yield)


async def async_for(x):
    async for item in x:
        await echo(item)


async def async_comprehension(x):
    return [item async for item in x]


async def await_in_generator(x):
    return sum(await double(n) for n in x)


async def uses_global(x):
    global counter
    counter = await echo(1)


async def defines_class(x):
    class Local:
        def method(self):
            yield 1

    return Local


async def decorates(x):
    @asyncio.coroutines
    async def inner():
        return await echo(1)

    return inner


async def except_star(x):
    try:
        await echo(1)
    except* ValueError:
        pass


async def async_in_plain_function(x):
    def outer():
        async def inner():
            return await echo(1)

        return inner

    return outer


async def await_in_except(x):
    try:
        await echo(1)
    except await echo(ValueError):
        pass


async def uses_locals(x):
    await echo(1)
    return [locals(), vars(), dir(), eval("x"), exec("y = 1"), super().x]


async def plain_coroutine(x):
    return await tool(x)


async def nested_yield(x):
    async def inner():
        yield await echo(1)

    async for y in inner():
        pass


async def asyncio_misuse(x):
    task = asyncio.create_task(double(x))
    await asyncio.wait_for(task, 5)
    await wait_for(double(1), 5)
    async with asyncio.TaskGroup() as group:
        group.create_task(double(1))
    queue = Queue()
    await asyncio.wait([task])
    return asyncio.run(double(1))


async def forgets_to_await(x):
    async def step(n):
        return await echo(n)

    step(1)
    await step(2)
    double(3)
    return x


async def forgets_timers(x):
    sleep(5)
    timeout("1s")
    signal("go")
    asyncio.sleep(1)
    dalsegno.sleep(1)
    double(3)
    waiting = sleep(5)
    with timeout(1):
        await waiting


async def gathers_coroutines(x):
    await gather(tool(1), echo(2), *[tool(n) for n in x])
    await asyncio.gather(tool(1))
    pending = tool(1)  # what becomes of it is seen when it runs
    return await first(pending, *(tool(n) for n in x), *[tool(3)])


async def gathers_nested(x):
    async def step(n):
        return await echo(n)

    await gather(echo(1), step(2))
    return await gather(*[step(n) for n in x])


async def forgets_a_coroutine(x):
    tool(1)
    strangers.catches_undeclared(2)
    await strangers.catches_undeclared(3)
    return x


async def foreign_managers(x):
    async with Resource() as one:
        await echo(one)
    async with opened(x) as two, timeout(5):
        await echo(two)
    async with SHARED:
        await echo(1)
    async with asyncio.Condition():
        await echo(1)
    async with asyncio.timeout(5), limit(), x:
        await echo(1)


async def everything_at_once(x, *args):
    global a
    async for y in x:
        yield y

    class Z: ...


def outside_variable():
    count = 0

    async def workflow(x):
        nonlocal count
        count += await echo(1)

    return workflow


def outside_variable_deeper():
    count = 0

    async def workflow(x):
        def increase():
            nonlocal count
            count += 1

        await echo(1)

    return workflow


REFUSED = [
    (
        yields,
        [("'yield' is not supported: collect the items in a list", "yield x"), ("'yield' is not", "(yield)")],
    ),
    (async_for, [("'async for' is not supported: let a task collect the items", "async for item in x:")]),
    (
        async_comprehension,
        [("'async for' in a comprehension is not supported", "return [item async for item in x]")],
    ),
    (
        await_in_generator,
        [("'await' inside a generator expression is not supported: write a list", "return sum(")],
    ),
    (uses_global, [("'global' is not supported", "global counter")]),
    (defines_class, [("a class cannot be defined inside a workflow: define it at the top", "class Local:")]),
    (decorates, [("the decorator of the async function 'inner' is not supported", "@asyncio.coroutines")]),
    (except_star, [("'except*' is not supported: use 'except'", "try:")]),
    (
        async_in_plain_function,
        [("the async function 'inner' is inside a plain function", "async def inner():")],
    ),
    (
        await_in_except,
        [("'await' in an 'except' clause is not supported: await before the 'try'", "except await")],
    ),
    (
        uses_locals,
        [
            (f"'{name}()' is not supported", "return [locals()")
            for name in ("locals", "vars", "dir", "eval", "exec", "super")
        ],
    ),
    (plain_coroutine, [("'tool' is a coroutine function but not a task", "return await tool(x)")]),
    (
        nested_yield,
        [("'yield' is not supported", "yield await echo(1)"), ("'async for'", "async for y in inner():")],
    ),
    (
        asyncio_misuse,
        [
            (
                "'asyncio.create_task' cannot be used in a workflow: calling a task starts it already",
                "task = asyncio",
            ),
            (
                "'asyncio.wait_for' cannot be used in a workflow: write 'async with timeout(seconds):'",
                "await asyncio",
            ),
            ("'asyncio.wait_for' cannot be used", "await wait_for(double(1), 5)"),
            (
                "'asyncio.TaskGroup' cannot be used in a workflow: call the tasks and await gather()",
                "async with",
            ),
            ("'asyncio.Queue' cannot be used", "queue = Queue()"),
            (
                "'asyncio.wait' cannot be used in a workflow: use gather(), first() or race()",
                "await asyncio.wait(",
            ),
            ("'asyncio.run' cannot be used", "return asyncio.run"),
        ],
    ),
    (
        forgets_to_await,
        [("'step' is an async function: nothing of it runs unless you 'await step(…)'", "step(1)")],
    ),
    (
        forgets_timers,
        [
            ("nothing waits for this 'sleep()': write 'await sleep(…)'", "sleep(5)"),
            ("'timeout()' limits the awaits of a block: write 'with timeout(…):'", 'timeout("1s")'),
            ("nothing waits for this 'signal()': write 'await signal(…)'", 'signal("go")'),
            ("nothing waits for this 'sleep()'", "asyncio.sleep(1)"),
            ("nothing waits for this 'sleep()'", "dalsegno.sleep(1)"),
        ],
    ),
    (
        gathers_coroutines,
        [
            ("'tool' is a coroutine function but not a task", "await gather(tool(1)"),
            ("'tool' is a coroutine function but not a task", "await gather(tool(1)"),
            ("Make it a task (@app.task)", "await asyncio.gather(tool(1))"),
            ("'tool' is a coroutine function but not a task", "return await first("),
            ("'tool' is a coroutine function but not a task", "return await first("),
        ],
    ),
    (
        gathers_nested,
        [
            ("'step' is a nested async function, which runs in the workflow's own thread", "await gather("),
            ("Await it directly, or make it a task", "return await gather("),
        ],
    ),
    (
        forgets_a_coroutine,
        [
            ("'tool' is a coroutine function but not a task", "tool(1)"),
            (
                "'strangers.catches_undeclared' is a coroutine function but not a task",
                "strangers.catches_undeclared(2)",
            ),
            (
                "'strangers.catches_undeclared' is a coroutine function but not a task",
                "await strangers.catches_undeclared(3)",
            ),
        ],
    ),
    (
        foreign_managers,
        [
            (
                "'async with' in a workflow is for timeout() alone, not for Resource(): use it",
                "async with Res",
            ),
            ("not for opened(x): use it inside a task", "async with opened"),
            ("not for SHARED: use it inside a task", "async with SHARED"),
            ("not for asyncio.Condition(): use it inside a task", "async with asyncio.Condition"),
        ],
    ),
    (
        everything_at_once,
        [
            ("'global' is not supported", "global a"),
            ("'async for' is not supported", "async for y in x:"),
            ("'yield' is not supported", "yield y"),
            ("a class cannot be defined", "class Z"),
        ],
    ),
    (
        outside_variable(),
        [("'nonlocal count' would change a variable outside the workflow", "nonlocal count")],
    ),
    (outside_variable_deeper(), [("'nonlocal count' would change a variable outside", "nonlocal count")]),
]
