"""What may live across an await comes back as it was: equal, of the same type, and shared where it was shared."""

# ruff: noqa: DTZ001, PLR1711, RET501, RUF012 - values of every kind

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import functools
import math
import operator
import os.path
import pathlib
import re
import types
import uuid
import zoneinfo
from typing import Any, NamedTuple

import pydantic
import pytest

from dalsegno.lang.effects import Ok
from dalsegno.lang.python import DurableWorkflow, PythonMachine, compile_workflow
from tests.python import tasks
from tests.python.driving import Driver, drive
from tests.python.tasks import double, echo


class Colour(enum.Enum):
    RED = "red"
    BLUE = {"deep": True}


class Size(enum.IntEnum):
    SMALL = 1


class Kind(enum.StrEnum):
    A = "a"


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    y: int = 0


Pair = collections.namedtuple("Pair", "left right")  # noqa: PYI024


@dataclasses.dataclass
class Line:
    start: Point
    points: list[Point] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Key:
    name: str
    parts: tuple[int, ...] = ()


@dataclasses.dataclass(slots=True)
class Slim:
    a: int
    b: Any = None


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenSlim(Key):
    extra: int = 0


@dataclasses.dataclass
class Cached:
    n: int

    @functools.cached_property
    def lock(self) -> Any:
        return iter(lambda: 1, 2)  # something that could never be stored


class Model(pydantic.BaseModel):
    name: str
    tags: list[str] = []
    when: dt.datetime | None = None
    _secret: int = pydantic.PrivateAttr(default=5)


class Open(pydantic.BaseModel, extra="allow", frozen=True):
    a: int


class Outer:
    @dataclasses.dataclass
    class Inner:
        n: int

        def twice(self) -> int:
            return self.n * 2


def module_function(x: int) -> int:
    return x + 1


module_lambda = lambda x: x + 2  # noqa: E731
other_lambda = lambda x: x + 3  # noqa: E731


def _cached() -> Cached:
    made = Cached(1)
    _ = made.lock
    return made


def _model() -> Model:
    made = Model(name="a", when=dt.datetime(2024, 1, 2, tzinfo=dt.UTC))
    made._secret = 9
    return made


BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")

VALUES: dict[str, Any] = {
    "none": None,
    "booleans": [True, False],
    "integers": [0, -1, 2**53 - 1, 2**53, -(2**53), 2**63, 2**200, -(2**200)],
    "floats": [0.1, -0.0, 1e300, float("inf"), float("-inf"), 5e-324, 1.0],
    "complex": 1 + 2j,
    "texts": ["", "ä", "\x00", "\ud800", "😀", "a" * 40_000],
    "bytes": [b"", b"\x00\xff", bytearray(b"abc"), b"z" * 40_000],
    "nested": {"a": [1, {"b": (1, 2, [3])}], 1: "one", None: 0, (1, 2): {3}, 2.5: b"x", True and "t": 1},
    "tuples": ((), (1,), (1, (2, (3,)))),
    "sets": [set(), {1, "a", (2, 3)}, frozenset({frozenset({1}), Key("k", (1, 2))})],
    "dates": [
        dt.datetime(2024, 5, 6, 7, 8, 9, 123456),
        dt.datetime(2024, 5, 6, tzinfo=dt.UTC),
        dt.datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=BERLIN),
        dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=30), "IST")),
        dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=-3))),
        dt.date(1, 1, 1),
        dt.time(23, 59, 59, 999999, fold=1),
        dt.time(1, tzinfo=dt.UTC),
        dt.timedelta(days=-1, microseconds=1),
        dt.timedelta.max,
        BERLIN,
        dt.UTC,
    ],
    "numbers": [
        decimal.Decimal("1.10"),
        decimal.Decimal("NaN"),
        decimal.Decimal("-0E+7"),
        fractions.Fraction(-1, 3),
    ],
    "uuid": uuid.UUID(int=5),
    "enums": [
        Colour.RED,
        Colour.BLUE,
        Size.SMALL,
        Kind.A,
        Access.READ,
        Access.READ | Access.WRITE,
        Access(0),
    ],
    "named tuples": [Point(1), Pair(1, [2])],
    "dataclasses": [
        Line(Point(1, 2), [Point(3)]),
        Key("a", (1,)),
        Slim(1, [2]),
        FrozenSlim("n", (), 4),
        Outer.Inner(3),
    ],
    "models": [_model(), Open(a=1, b=2)],
    "paths": [pathlib.PurePosixPath("/a/b"), pathlib.Path("x")],
    "patterns": [re.compile(r"a+", re.IGNORECASE), re.compile(rb"b")],
    "ranges": [range(3), range(10, 0, -3), range(2**70), slice(1, None, 2)],
    "deque": [collections.deque([1, 2], maxlen=2), collections.deque()],
    "dicts": [
        collections.OrderedDict(b=1, a=2),
        collections.Counter("aab"),
        collections.defaultdict(list, {"a": [1]}),
        collections.defaultdict(None, {}),
    ],
    "namespace": types.SimpleNamespace(a=1, b=[2]),
    "constants": [..., NotImplemented],
    "functions": [
        module_function,
        module_lambda,
        other_lambda,
        len,
        math.floor,
        os.path.join,
        operator.itemgetter,
    ],
    "classes": [int, Line, Outer.Inner, Colour, dict, ValueError, dt.datetime, re.Pattern],
    "modules": [math, collections, os.path],
    "methods": [Outer.Inner.twice, str.upper, dict.fromkeys, dt.datetime.now],
    "tasks": [double, echo],
}


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


@pytest.mark.parametrize("name", VALUES)
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
    value = _cached()
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

    NewLine.__qualname__, NewLine.__module__ = "Line", __name__
    monkeypatch.setitem(globals(), "Line", NewLine)
    program = compile_workflow(changes)
    machine = PythonMachine.loads(program, data)
    machine.resume({"p0": Ok(1)})
    assert machine.result == [[1, 2], [], 7]
