"""Values of every kind that may live across an await."""

# ruff: noqa: DTZ001, RUF012 - values of every kind

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import functools
import math
import os.path
import pathlib
import re
import types
import uuid
import zoneinfo
from typing import Any, NamedTuple

import pydantic

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


def with_a_lock() -> Cached:
    made = Cached(1)
    _ = made.lock
    return made


def with_a_secret() -> Model:
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
    "models": [with_a_secret(), Open(a=1, b=2)],
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
    "classes": [int, Line, Outer.Inner, Colour, dict, ValueError, dt.datetime, re.Pattern],
    "modules": [math, collections, os.path],
    "methods": [Outer.Inner.twice, str.upper, dict.fromkeys, dt.datetime.now],
    "tasks": [double, echo],
}
