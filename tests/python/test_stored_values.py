"""What may live across an await comes back as it was: equal, of the same type, and shared where it was shared."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import functools
import math
import operator
import os.path
from typing import Any

from dalsegno.lang.python import DurableWorkflow, PythonMachine, compile_workflow
from dalsegno.lang.runtime.effects import Ok
from tests.python import tasks, values
from tests.python.driving import Driver, drive
from tests.python.tasks import double, echo
from tests.python.values import VALUES as OF_OTHERS
from tests.python.values import Key, Line, Model, Outer, Point, Slim, with_a_lock
from tests.rows import rows

# ruff: noqa: PLR1711, RET501 - values of every kind


def module_function(x: int) -> int:
    return x + 1


module_lambda = lambda x: x + 2  # noqa: E731
other_lambda = lambda x: x + 3  # noqa: E731

VALUES: dict[str, Any] = {
    **OF_OTHERS,
    "functions": [
        module_function,
        module_lambda,
        other_lambda,
        len,
        math.floor,
        os.path.join,
        operator.itemgetter,
    ],
}
"""Lambdas are known by their place in the module of the workflow that holds them."""


def current_values() -> dict[str, Any]:
    return VALUES


async def keeps(name):
    value = current_values()[name]
    await echo(1)
    remember(value)
    return None


_remembered: list[Any] = []


def remember(value: Any) -> None:
    _remembered.append(value)


def same(left: Any, right: Any) -> bool:
    """Equal in value and in type, all the way down; NaN equals itself."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, decimal.Decimal | complex | float):
        return repr(left) == repr(right)
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, dt.datetime | dt.time):
        return (
            left == right
            and left.fold == right.fold
            and left.tzinfo == right.tzinfo
            and left.tzname() == right.tzname()
        )
    if isinstance(left, Model):
        return (
            left == right
            and left._secret == right._secret
            and left.model_fields_set == right.model_fields_set
        )
    return left == right


@rows("name", VALUES)
def test_value_comes_back_as_it_was(name):
    _remembered.clear()
    machine = drive(keeps, name, "stored")
    assert machine.status == "completed", machine.error
    [value] = _remembered
    assert same(value, VALUES[name])


async def bound_methods(x):
    line, inner, items = Line(Point(1)), Outer.Inner(4), [3, 1]
    methods = [
        line.points.append,
        inner.twice,
        items.sort,
        "a,b".split,
        {"k": 1}.get,
        dt.datetime.fromisoformat,
    ]
    partial = functools.partial(pow, 2, mod=5)
    await echo(1)
    methods[0](Point(9))
    methods[2]()
    return [
        line.points[0].x,
        methods[1](),
        items,
        methods[3](","),
        methods[4]("k"),
        methods[5]("2024-01-01").year,
        partial(3),
    ]


def test_bound_methods_keep_their_object():
    assert drive(bound_methods).result == [9, 8, [1, 3], ["a", "b"], 1, 2024, 3]


async def identity(x):
    key = Key("k")
    shared = {"list": [key], "set": {key}, "dict": {key: key}, "again": None}
    shared["again"] = shared["list"]
    model = Model(name="m")
    pair = Slim(model, model)
    loop = Slim(1)
    loop.b = {"loop": loop, "tuple": (loop,)}
    first = (1, [2])
    nested = (first, [first])
    await echo(1)
    return [
        shared["again"] is shared["list"],
        shared["list"][0] is next(iter(shared["set"])),
        shared["dict"][key] is key,
        key is shared["list"][0],
        pair.a is pair.b and pair.a is model,
        loop.b["loop"] is loop and loop.b["tuple"][0] is loop,
        nested[1][0] is first,
    ]


def test_aliases_and_cycles_survive():
    assert drive(identity).result == [True] * 7


async def tuple_in_a_ring(x):
    items: list[Any] = []
    ring = (items, "end")
    items.append(ring)
    chain: Any = None
    for n in range(3000):
        chain = Slim(n, chain)
    await echo(1)
    depth = 0
    while chain is not None:
        chain, depth = chain.b, depth + 1
    return [ring[0][0] is ring, depth]


def test_rings_through_tuples_and_long_chains():
    assert drive(tuple_in_a_ring).result == [True, 3000]


async def cached(x):
    value = with_a_lock()
    await echo(1)
    return [value.n, "lock" in vars(value)]


def test_cached_properties_are_left_out():
    assert drive(cached).result == [1, False]


async def tasks_with_options(x):
    slow = double.with_options(queue="slow", retries=3)
    plain = [double, tasks.echo]
    await echo(1)
    return [await slow(2), plain[0] is double, plain[1] is tasks.echo, slow.options, await plain[1]("a")]


def test_tasks_keep_their_options():
    driver = Driver(compile_workflow(tasks_with_options))
    assert driver.run(1).result == [4, True, True, {"queue": "slow", "retries": 3}, "a"]
    assert driver.effects[1].options == {"queue": "slow", "retries": 3}


async def many_promises(x):
    promises = [double(n) for n in range(10_000)]
    kept = {"some": promises[:3], "one": promises[5]}
    await echo(0)
    total = sum([await promise for promise in promises])
    return [total, await kept["one"]]


def test_ten_thousand_promises_make_a_small_snapshot():
    program = compile_workflow(many_promises)
    machine = PythonMachine.start(program, 1)
    assert len(machine.take_effects()) == 10_001
    data = machine.dumps()
    assert len(data) < 1_000
    assert machine.reachable() == ((0, 10_001),)
    machine = PythonMachine.loads(program, data)
    outcomes = {f"p{n}": Ok(n * 2) for n in range(10_001)}
    while machine.status == "suspended":
        machine.resume(outcomes)
    assert machine.result == [99_990_000, 10]


def in_a_function() -> DurableWorkflow[Any, Any]:
    """Everything around the workflow is local here: tasks, classes, functions, plain values."""
    factor = 3

    @dataclasses.dataclass
    class Local:
        n: int

    def tool(local: Local) -> int:
        return local.n * factor

    async def workflow(x):
        local = Local(await echo(x))
        tools = [tool, Local]
        await echo(1)
        return [tools[0](local), isinstance(local, tools[1]), factor]

    return DurableWorkflow(workflow)


def test_workflow_defined_in_a_function_sees_what_is_around_it():
    assert drive(in_a_function(), 5).result == [15, True, 3]


async def changes(x):
    line = Line(Point(1, 2), [])
    await echo(1)
    return [line.start, line.points, getattr(line, "added", "none")]


def test_fields_that_a_class_gained_have_their_default(monkeypatch):
    program = compile_workflow(changes)
    machine = PythonMachine.start(program, 1)
    data = machine.dumps()

    @dataclasses.dataclass
    class NewLine:
        start: Any
        added: int = 7
        more: list[int] = dataclasses.field(default_factory=lambda: [1])

    NewLine.__qualname__, NewLine.__module__ = "Line", Line.__module__
    monkeypatch.setattr(values, "Line", NewLine)
    monkeypatch.setitem(globals(), "Line", NewLine)
    program = compile_workflow(changes)
    machine = PythonMachine.loads(program, data)
    machine.resume({"p0": Ok(1)})
    assert machine.result == [[1, 2], [], 7]
