"""Workflows whose statements enclose awaits: assignments, branches, loops, ``match``, nested functions."""

# ruff: noqa: ASYNC230, B023, B905, C901, E731, F821, F841, I001, PERF401, PIE790, PLC0208, PLR0912, PLR1711, PLW0120, PTH123, RET503, UP037 - odd on purpose

from __future__ import annotations

import collections
import dataclasses
import math
import re

from tests.python.tasks import add, double, echo, fail


@dataclasses.dataclass
class Box:
    value: int
    items: list = dataclasses.field(default_factory=list)


async def augmented_assignments(x):
    box, data, items = Box(1), {"k": 1, "deep": {"n": [1, 2]}}, [1, 2, 3, 4]
    x += await double(x)
    box.value *= await echo(5)
    data["k"] -= await echo(3)
    data["deep"]["n"][await echo(1)] **= await echo(3)
    items[await echo(0)] += 10
    items[1:2] += await echo([9, 9])
    text = "a"
    text += await echo("b")
    same = items
    items += await echo([7])
    return [x, box.value, data, items, text, same is items]


async def augmented_reads_before_it_awaits(x):
    async def change():
        nonlocal x
        x = 1000
        return await echo(1)

    x += await change()
    return x


async def chained_and_unpacked(x):
    a = b = c = await echo([1, 2])
    (d, e), f = [await echo(3), await echo(4)], await echo(5)
    box, data = Box(0), {}
    box.value, data["k"], *rest = await echo([1, 2, 3, 4])
    [p, q] = await echo("xy")
    data[await echo("key")] = box.items = await echo([8])
    for data["loop"] in [await echo(1), 2]:
        pass
    return [a, b is c, d, e, f, box.value, box.items, data, rest, p + q]


async def annotated(x):
    y: int = await double(x)
    z: list[int]
    box = Box(1)
    box.value: int = await echo(7)
    w: "undefined_name" = 5
    z = [y]
    return [y, z, w, box.value]


async def delete(x):
    items, data = [1, 2, 3], {"a": 1, "b": 2}
    del items[await echo(0)], data[await echo("b")]
    y = await echo(5)
    del y
    try:
        return y
    except UnboundLocalError as error:
        return [items, data, type(error).__name__, str(error)]


async def if_chain(x):
    found = []
    for n in range(5):
        if n == await echo(0):
            found.append("zero")
        elif n < 2:
            found.append(await echo("small"))
        elif await echo(n) == 3:
            pass
        else:
            found.append(n)
    return found


async def while_loop(x):
    n, seen = 0, []
    while await echo(n) < x:
        n += 1
        if n == 2:
            continue
        seen.append(n)
    else:
        seen.append("else")
    while True:
        n -= 1
        if await echo(n) <= 0:
            break
        seen.append(-n)
    else:
        seen.append("never")
    return seen


async def for_else(x):
    found = []
    for n in range(x):
        await echo(n)
        if n == 99:
            break
    else:
        found.append("done")
    for n in range(10):
        if await echo(n) == 2:
            break
    else:
        found.append("never")
    return [found, n]


async def nested_loops(x):
    found = []
    for i in range(3):
        for j in range(3):
            if j == await echo(1):
                continue
            if i == 2:
                break
            found.append((i, j))
        else:
            found.append("inner done")
            continue
        found.append("broke")
        break
    return found


async def native_loop_with_return(x):
    await echo(1)
    for n in range(100):
        if n * n > x:
            return n
    return -1


async def native_loop_without_match(x):
    await echo(1)
    for n in range(2):
        if n > 50:
            return "never"
    else:
        return "else"


async def native_block_returns_none(x):
    await echo(1)
    if x:
        while True:
            return None
    return 5


async def iteration_of_every_kind(x):
    found = []
    for item in [1, 2]:
        found.append(await echo(item))
    for item in (3, 4):
        found.append(await echo(item))
    for character in "aé":
        found.append(await echo(character))
    for index, item in enumerate(["a", "b"], 5):
        found.append([index, await echo(item)])
    for left, right in zip([1, 2, 3], "xy"):
        found.append([left, await echo(right)])
    for item in reversed([1, 2, 3]):
        found.append(await echo(item))
    for item in reversed((1, 2)):
        found.append(await echo(item))
    for item in range(10, 0, -4):
        found.append(await echo(item))
    for key in {"k": 1, "l": 2}:
        found.append(await echo(key))
    for key, value in {"k": 1, "l": 2}.items():
        found.append([key, await echo(value)])
    for value in {"k": 1, "l": 2}.values():
        found.append(await echo(value))
    for key in reversed({"k": 1, "l": 2}):
        found.append(await echo(key))
    for number in sorted({3, 1, 2}):
        found.append(await echo(number))
    total = 0
    for number in {5, 6, 7}:
        total += await echo(number)
    for item in map(str, [1, 2]):
        found.append(await echo(item))
    for item in filter(None, [0, 1, 2]):
        found.append(await echo(item))
    for byte in b"ab":
        found.append(await echo(byte))
    for index, (left, right) in enumerate(zip(range(2), reversed([5, 6]))):
        found.append(await echo([index, left, right]))
    return [found, total]


async def explicit_iterator(x):
    numbers = iter([1, 2, 3, 4])
    first = next(numbers)
    await echo(0)
    rest = []
    for number in numbers:
        rest.append(await echo(number))
        if number == 2:
            break
    await echo(0)
    return [first, rest, list(numbers), next(numbers, "end")]


async def list_grows_while_iterated(x):
    items = [1]
    for item in items:
        if await echo(item) < 4:
            items.append(item + 1)
    return items


async def iterators_of_dicts_and_sets(x):
    data, numbers = {"a": 1, "b": 2, "c": 3}, {1, 2, 3}
    keys, values, items = iter(data), iter(data.values()), iter(data.items())
    members, done, empty = iter(numbers), iter({"z": 1}), iter({5})
    found = [next(keys), next(values), next(items), len(list(done)), len(list(empty))]
    first = next(members)
    await echo(1)
    found += [next(keys), next(values), next(items), list(done), list(empty)]
    await echo(2)
    return [found, list(keys), list(values), list(items), sorted([first, *members]), next(keys, "end")]


async def dict_changed_before_the_await(x):
    data = {"a": 1, "b": 2}
    keys = iter(data)
    next(keys)
    data["c"] = 3
    await echo(1)
    return next(keys)


async def set_changed_before_the_await(x):
    numbers = {1, 2}
    members = iter(numbers)
    next(members)
    numbers.add(3)
    await echo(1)
    return next(members)


async def dict_changed_after_the_await(x):
    data = {"a": 1, "b": 2}
    keys = iter(data)
    next(keys)
    await echo(1)
    del data["a"]
    return next(keys)


async def set_changed_after_the_await(x):
    numbers = {1, 2}
    members = iter(numbers)
    next(members)
    await echo(1)
    numbers.add(3)
    return next(members)


async def views(x):
    data = {"a": 1}
    keys, values, items = data.keys(), data.values(), data.items()
    await echo(1)
    data["b"] = 2
    return [list(keys), list(values), list(items)]


async def places_with_awaits(x):
    items, data, box = [0, 0, 0, 0], {}, Box(1)
    items[await echo(0)], data["k"], (box.value, [*rest]) = 1, 2, (3, [4, 5])
    items[await echo(1)], *data[await echo("rest")] = [7, 8, 9]
    (await echo(1) and box).items, [items[await echo(2)]] = [1], [6]
    items[await echo(3) :] = data["more"] = [5, await echo(5)]
    for items[await echo(0)], data["n"] in zip([10, 20], "ab"):
        pass
    del data["rest"][await echo(0)], (data["more"][0], items[await echo(0)])
    return [items, data, box.value, box.items, rest]


class Grid:
    def __getitem__(self, key):
        return str(key)

    def __setitem__(self, key, value):
        self.last = (str(key), value)


GRID = Grid()


async def slices_in_tuples(x):
    GRID[1 : await echo(2), await echo(3), ::4] = await echo("v")
    return [GRID[await echo(1), 2 : await echo(3)], GRID[1:2, await echo(0)], GRID.last]


async def values_change_while_iterated(x):
    data, seen = {"a": 1, "b": 2, "c": 3}, []
    for key, value in data.items():
        seen.append([key, await echo(value)])
        data["c"] = 30
    return seen


async def dict_changes_size_while_iterated(x):
    data = {"a": 1, "b": 2}
    for key in data:
        await echo(key)
        data["c"] = 3
    return "never"


async def set_changes_size_while_iterated(x):
    data = {1, 2, 3}
    for key in data:
        await echo(key)
        data.add(key + 100)
    return "never"


async def match_literals(x):
    found = []
    for value in [0, 1, "a", None, True, 2.5, -1]:
        match value:
            case 0 | -1:
                found.append(await echo("zero"))
            case None:
                found.append("none")
            case True:
                found.append(await echo("true or one"))
            case str() as text:
                found.append(await echo(text + "!"))
            case float(number) if number > await echo(2):
                found.append(await echo(number))
            case _:
                found.append("other")
    return found


async def match_structures(x):
    found = []
    for value in [
        {"kind": "order", "items": [1, 2, 3], "more": 4},
        {"kind": "refund"},
        [1, [2, 3]],
        (1, 2, 3, 4),
        [],
        Box(5, [1]),
        Box(6),
        "text",
    ]:
        match await echo(1) and value:
            case {"kind": "order", "items": [first, *others], **rest}:
                found.append([first, others, rest, await echo(1)])
            case {"kind": kind}:
                found.append(await echo(kind))
            case [one, [two, three]]:
                found.append([one, two, await echo(three)])
            case (first, *_, last):
                found.append([first, await echo(last)])
            case []:
                found.append("empty")
            case Box(value=5, items=[item]):
                found.append(await echo(item))
            case Box(value=n) if n == 6:
                found.append(n)
            case other:
                found.append(await echo(other))
    return found


async def match_without_await_returns(x):
    await echo(1)
    match x:
        case 3:
            return "three"
        case _:
            return "other"


async def match_nothing_fits(x):
    match await echo(x):
        case 99:
            return await echo("never")
    return "after"


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


async def local_imports(x):
    import math as m
    from collections import Counter, OrderedDict as Ordered

    await echo(1)
    counted = Counter("hello")
    await echo(2)
    return [m.floor(2.5), counted.most_common(1), list(Ordered(a=1)), math.pi > 3]


async def dead_objects_need_not_be_stored(x):
    found = re.match(r"(\d+)-(\w+)", "12-ab")
    number, word = int(found[1]), found[2]
    generator = (n for n in range(3))
    total = sum(generator)
    await echo(1)
    with open(__file__, encoding="utf-8") as file:
        line = file.readline()
    await echo(2)
    return [number, word, total, len(line) > 5]


async def assertions(x):
    assert x == 3, "not reached"
    assert await echo(True), "not reached"
    try:
        assert await echo(0), f"was {await echo(0)}"
    except AssertionError as error:
        return str(error)


async def assertion_without_message(x):
    assert await echo(0)


async def unbound_variable(x):
    if x > 100:
        y = 1
    await echo(1)
    return y + 1


async def unbound_variable_on_the_stack(x):
    return y + await echo(1)
    y = 1


async def unknown_name(x):
    await echo(1)
    return undefined_thing + 1


async def containers_keep_identity(x):
    shared = [1]
    data = {"a": shared, "b": shared, "t": (shared, {1: shared})}
    shared.append(data["a"] is data["b"])
    await echo(1)
    data["a"].append(2)
    await echo(2)
    return [data["b"], data["t"][0], data["t"][1][1] is shared, shared is data["b"]]


async def cycles(x):
    loop = []
    loop.append(loop)
    data = {"me": None, "pair": ()}
    data["me"] = data
    data["pair"] = (data, loop)
    box = Box(1)
    box.items.append(box)
    await echo(1)
    return [loop[0] is loop, data["me"] is data, data["pair"][0] is data, box.items[0] is box]


async def standard_containers(x):
    deque = collections.deque([1, 2, 3], maxlen=3)
    default = collections.defaultdict(list)
    default["a"].append(1)
    counter = collections.Counter("abca")
    ordered = collections.OrderedDict([("z", 1), ("a", 2)])
    await echo(1)
    deque.append(4)
    default["b"].append(2)
    counter.update("aa")
    ordered.move_to_end("z")
    return [list(deque), default, counter["a"], list(ordered)]


async def fifty_awaits(x):
    total = 0
    for n in range(50):
        total += await add(n, n)
    return total


async def empty(x):
    pass


async def only_a_docstring(x):
    """Says something."""


async def returns_nothing(x):
    await echo(1)
    return


async def code_after_return(x):
    return await echo(x)
    return "never"


async def pass_and_ellipsis(x):
    ...
    await echo(1)
    pass
    ...


async def global_functions_as_values(x):
    functions = [len, str.upper, math.floor, sorted, int, Box, "x".join, [3, 1].index]
    await echo(1)
    return [
        functions[0]("abc"),
        functions[1]("a"),
        functions[2](2.5),
        functions[3]([2, 1]),
        functions[4]("7"),
        functions[5](1).value,
        functions[6](["a", "b"]),
        functions[7](1),
    ]


CASES = [
    value
    for value in list(globals().values())
    if getattr(value, "__module__", "") == __name__ and callable(value) and not isinstance(value, type)
]
