"""Workflows whose awaits stand in the middle of expressions."""

# ruff: noqa: B008, B023, C416, E731, PIE800, PIE804, PLC3002, SIM222, SIM223 - odd on purpose

from __future__ import annotations

from typing import Any

from tests.python.tasks import add, double, echo

trail: list[Any] = []


def note(value: Any) -> Any:
    """Called natively: shows the order of evaluation."""
    trail.append(value)
    return value


def taken() -> list[Any]:
    found = list(trail)
    trail.clear()
    return found


async def binary_left(x):
    return await double(x) + x


async def binary_right(x):
    return x + await double(x)


async def binary_both(x):
    return await double(x) - await double(x + 1) * 2


async def order_of_operands(x):
    result = note(1) + await echo(note(2)) + note(3) * await echo(note(4)) - note(5)
    return [result, taken()]


async def old_value_is_read_before_the_await(x):
    async def change():
        nonlocal x
        x = 100
        return await double(1)

    return x + await change()


async def unary(x):
    return [-await double(x), not await double(0), ~await double(x)]


async def call_arguments(x):
    return max(x, await double(x), note(1), *[await echo(9)], default_key(await echo(3)))


def default_key(value, *rest, **named):
    return value + len(rest) + len(named)


async def call_keywords(x):
    return default_key(await echo(1), 2, *[3, await echo(4)], a=await echo(5), **{"b": await echo(6)}, c=7)


async def star_arguments_are_unpacked_in_order(x):
    items = [1, 2]

    async def grow():
        items.append(3)
        return await echo(9)

    return [default_list(*items, await grow()), default_list(await grow(), *items)]


def default_list(*values):
    return list(values)


async def called_function_is_awaited(x):
    functions = {"double": double, "plain": default_key}
    return [await functions["double"](x), functions[await echo("plain")](await echo(1), 2)]


async def method_of_a_list(x):
    results = []
    results.append(await double(x))
    results.extend([await double(x), note(3)])
    results.insert(await echo(0), await echo("first"))
    return [results, taken()]


async def method_of_a_text(x):
    return "-".join([await echo("a"), "b", await echo("c")]).upper().replace("A", await echo("z"))


async def attributes_and_indexes(x):
    data = {"a": [1, 2, {"b": 3}]}
    return [
        data["a"][await echo(2)]["b"],
        (await echo(data))["a"][await echo(0)],
        (await echo("abc")).upper(),
    ]


async def slices(x):
    items = list(range(10))
    return [
        items[await echo(1) : await echo(8) : await echo(2)],
        items[: await echo(3)],
        items[await echo(-2) :],
        (await echo(items))[1:3],
    ]


async def displays(x):
    return [
        [1, await double(x), *[3, await echo(4)]],
        (await echo(1), 2),
        sorted({await echo(3), 1, *await echo([5, 6])}),
        {"a": await echo(1), await echo("k"): note(2), **await echo({"z": 1}), **{"y": await echo(0)}},
        taken(),
    ]


async def dict_order(x):
    result = {note("k1"): await echo(note("v1")), note("k2"): note("v2"), await echo(note("k3")): note("v3")}
    return [result, taken()]


async def boolean_operators(x):
    return [
        await echo(0) or await echo("") or "last",
        await echo(1) and await echo(2) and note(3),
        x and await echo(x),
        0 and await echo(x),
        1 or await echo(x),
        not (await echo(0) and note("never")),
        taken(),
    ]


async def conditional(x):
    return [
        await echo("yes") if await echo(x) else await echo("no"),
        1 if x > 100 else await echo("small"),
        await echo("big") if x > 100 else 2,
    ]


async def comparison(x):
    return [
        await echo(1) == 1,
        1 < await echo(2) < 3,
        1 < await echo(2) < await echo(2) < note("never"),
        await echo(3) in [1, await echo(3)],
        note(1) <= await echo(note(5)) != note(6) > await echo(note(2)),
        taken(),
    ]


async def f_strings(x):
    name, width = "ann", 8
    return [
        f"{await echo(x)}",
        f"{name!r:>{width}}|{await echo(x)!s:<{await echo(5)}}|{note('n')}",
        f"{await echo(1.5):.{await echo(2)}f}",
        f"a{{b}}{await echo('c')}" + f"{taken()}",
        f"{(await echo(x)) + 1=}",
    ]


async def walrus(x):
    if (y := await double(x)) > 3:
        z = (w := await echo(y + 1)) + w
    return [y, z, w, (v := 5, v + await echo(v))]


async def walrus_in_comprehension(x):
    items = [last := await double(i) for i in range(3)]
    plain = [other := i for i in items]
    return [items, last, plain, other]


async def lambdas(x):
    add_x = lambda y, z=await echo(10): x + y + z
    x = await echo(x + 1)
    return [add_x(1), add_x(1, 2), (lambda: x)()]


async def list_comprehension(x):
    return [await double(i) + x for i in range(5) if i % 2 == 0]


async def defaults_and_shadows_in_comprehensions(x):
    made = [(lambda i=i, *, k=i * 2: (i, k, x))() for i in [await echo(1), 2]]
    inner = [[i for i in range(await echo(i))] + [j for j in [i]] for i in [1, 2]]
    sets = [{i: {i + j for j in range(2)} for i in [await echo(i)]} for i in range(2)]
    return [made, inner, [sorted(s[k]) for k, s in enumerate(sets)]]


async def starred_and_double_starred(x):
    values, named = [1, 2], {"a": 1}
    return [
        default_list(*values, *await echo([3]), *values),
        default_key(0, **named, **await echo({"b": 2}), c=await echo(3), **{"d": 4}),
        [*values, *await echo([5]), *range(2)],
        {**named, **await echo({"z": 26}), "y": 25, **{}},
        {*values, *await echo([9])} == {1, 2, 9},
        (*values, await echo(3)),
    ]


async def nested_comprehension(x):
    return [[await add(left=i, right=j) for j in range(i)] for i in await echo([1, 2, 3])]


async def two_generators(x):
    return [
        (i, j, await echo(i * j)) for i in range(3) if await echo(i) for j in range(i) if j != await echo(1)
    ]


async def set_and_dict_comprehension(x):
    return [
        sorted({await double(i) % 3 for i in range(5)}),
        {str(i): await double(i) for i in range(3)},
        {await echo(f"k{i}"): i for i in range(3)},
    ]


async def comprehension_variables_are_their_own(x):
    i = "outer"
    doubled = [await double(i) for i in range(3)]
    functions = [lambda: i for i in [await echo(1), await echo(2)]]
    more = [(lambda: (i, j)) for i in range(2) for j in [await echo(5 + i)]]
    return [i, doubled, [f() for f in functions], [f() for f in more]]


async def comprehension_in_a_loop_has_fresh_variables(x):
    functions = []
    for start in (0, 10):
        functions += [lambda: n for n in [await echo(start), await echo(start + 1)]]
    return [f() for f in functions]


async def awaited_iterable_only(x):
    return [
        [i * x for i in await echo([1, 2])],
        sum(i for i in await echo([3, 4])),
        {k for k in await echo([5])}.pop(),
    ]


async def native_comprehensions_see_variables(x):
    factor = await double(x)
    grid = [[row * factor + column for column in range(2)] for row in range(2)]
    total = sum(value for line in grid for value in line if value != x)
    return [grid, total, {value: (lambda: value * factor)() for value in range(2)}]


async def subscript_of_await(x):
    return (await echo({"a": [1, 2, 3]}))["a"][await echo(1) :]


async def starred_tuple(x):
    first, *rest = await echo([1, 2, 3])
    a, (b, *c), d = await echo([1, [2, 3, 4], 5])
    return [first, rest, a, b, c, d, (*rest, await echo(0))]


async def deep_nesting(x):
    return [{"a": [(await echo(1), [{"b": await echo({"c": [await echo(2)]})}])]}, (await echo(3))]


async def large_integers_and_floats(x):
    big = 2**80 + await echo(1)
    await echo(0)
    return [str(big), str(float("inf")), big % 7, -0.0 + await echo(0)]


async def text_with_odd_characters(x):
    odd = "\ud800" + "é" + "\x00"
    await echo(1)
    return [len(odd), odd == "\ud800é\x00", odd.encode("utf-16", "surrogatepass").hex()]


async def default_arguments_of_calls(x):
    return [await add(x), await add(x, 5), await add(right=2, left=x), await add(left=await add(1))]


CASES = [
    binary_left,
    binary_right,
    binary_both,
    order_of_operands,
    old_value_is_read_before_the_await,
    unary,
    call_arguments,
    call_keywords,
    star_arguments_are_unpacked_in_order,
    called_function_is_awaited,
    method_of_a_list,
    method_of_a_text,
    attributes_and_indexes,
    slices,
    displays,
    dict_order,
    boolean_operators,
    conditional,
    comparison,
    f_strings,
    walrus,
    walrus_in_comprehension,
    lambdas,
    list_comprehension,
    defaults_and_shadows_in_comprehensions,
    starred_and_double_starred,
    nested_comprehension,
    two_generators,
    set_and_dict_comprehension,
    comprehension_variables_are_their_own,
    comprehension_in_a_loop_has_fresh_variables,
    awaited_iterable_only,
    native_comprehensions_see_variables,
    subscript_of_await,
    starred_tuple,
    deep_nesting,
    large_integers_and_floats,
    text_with_odd_characters,
    default_arguments_of_calls,
]
