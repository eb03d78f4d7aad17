"""Workflows whose statements enclose awaits: assignments, branches, ``match``, names, objects."""

# ruff: noqa: ASYNC230, B905, F821, F841, PIE790, PLR1711, PTH123, RET503, UP037 - odd on purpose

from __future__ import annotations

import collections
import dataclasses
import math
import re

from tests.python.tasks import add, double, echo


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


async def local_imports(x):
    import math as m
    from collections import Counter
    from collections import OrderedDict as Ordered

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
