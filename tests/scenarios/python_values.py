"""Values of every kind that Python workflows hold, take and give."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import uuid
from typing import Annotated, Any, Literal, NamedTuple, Optional
from zoneinfo import ZoneInfo

import pydantic


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Size(str, enum.Enum):  # noqa: UP042 - as people still write it
    SMALL = "s"
    LARGE = "l"


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: int = 0


@dataclasses.dataclass
class Line:
    start: Point
    end: Point = Point(9, 9)
    tags: list[str] = dataclasses.field(default_factory=list)
    colour: Colour = Colour.RED


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    at: dt.datetime
    price: decimal.Decimal = decimal.Decimal("0.10")


@dataclasses.dataclass
class Derived(Line):
    depth: int = 0
    _hidden: int = dataclasses.field(default=3, init=False)


class Address(pydantic.BaseModel):
    street: str
    since: dt.date = dt.date(2020, 1, 1)


class Person(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    name: str
    home: Address
    others: dict[int, Address] = {}
    born: dt.datetime | None = None
    balance: decimal.Decimal = decimal.Decimal(0)
    level: Level = Level.LOW
    id: uuid.UUID = uuid.UUID(int=7)
    point: Point = Point(1)


class Strict(pydantic.BaseModel):
    """Takes dates and the like as they are, or from JSON; and nothing that it does not know, not even its own count."""

    model_config = pydantic.ConfigDict(
        strict=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64"
    )
    day: dt.date
    pair: tuple[int, Colour]
    ids: frozenset[uuid.UUID]
    raw: bytes

    @pydantic.computed_field
    @property
    def count(self) -> int:
        return len(self.ids)


class Renamed(pydantic.BaseModel):
    first: int = pydantic.Field(alias="theFirst")
    second: int = pydantic.Field(validation_alias="in", serialization_alias="out")


@dataclasses.dataclass
class Parcel:
    """A model among fields that JSON knows only as text."""

    to: Address
    label: bytes
    weights: dict[int, decimal.Decimal]
    maybe: Address | None = None


class Pair(NamedTuple):
    left: int
    right: Point


WHEN = dt.datetime(2026, 3, 29, 2, 30, 15, 250_001, tzinfo=ZoneInfo("Europe/Berlin"))
OFFSET = dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.timezone(dt.timedelta(hours=-3, minutes=-30)))
ADDRESS = Address(street="Elm 1", since=dt.date(2024, 2, 29))
PERSON = Person(
    name="Ann",
    home=ADDRESS,
    others={1: Address(street="Oak")},
    born=OFFSET,
    balance=decimal.Decimal("10.50"),
    level=Level.HIGH,
)

VALUES: dict[str, tuple[Any, Any]] = {
    "dataclass": (Line(Point(1)), Line),
    "dataclass with everything given": (Line(Point(1), Point(2, 3), ["a"], Colour.BLUE), Line),
    "frozen dataclass": (Point(1, 2), Point),
    "frozen dataclass with slots": (Slotted(OFFSET), Slotted),
    "derived dataclass": (Derived(Point(1), depth=4), Derived),
    "list of dataclasses": ([Point(1), Point(2)], list[Point]),
    "dict of dataclasses": ({"a": Line(Point(1))}, dict[str, Line]),
    "optional dataclass": (Point(1), Optional[Point]),  # noqa: UP045 - as people still write it
    "no dataclass": (None, Point | None),
    "model": (ADDRESS, Address),
    "frozen model with everything": (PERSON, Person),
    "strict model": (
        Strict(
            day=dt.date(2026, 1, 2), pair=(1, Colour.RED), ids=frozenset((uuid.UUID(int=1),)), raw=b"\xff"
        ),
        Strict,
    ),
    "model with other names in JSON": (Renamed.model_validate({"theFirst": 1, "in": 2}), Renamed),
    "model in a dataclass": (Parcel(ADDRESS, b"\xff\x00", {1: decimal.Decimal("1.5")}, ADDRESS), Parcel),
    "one of two models": (ADDRESS, Strict | Address),
    "model or text": ("Elm", Address | str),
    "models by int": ({1: ADDRESS}, dict[int, Address]),
    "list of models": ([ADDRESS, ADDRESS], list[Address]),
    "datetime with a zone's offset": (OFFSET, dt.datetime),
    "datetime in UTC": (dt.datetime(2026, 1, 2, tzinfo=dt.UTC), dt.datetime),
    "datetime without a zone": (dt.datetime(2026, 1, 2, 3, 4, 5, 6), dt.datetime),  # noqa: DTZ001 - on purpose
    "date": (dt.date(2024, 2, 29), dt.date),
    "time": (dt.time(23, 59, 59, 999_999), dt.time),
    "timedelta": (dt.timedelta(days=2, seconds=3, microseconds=4), dt.timedelta),
    "negative timedelta": (-dt.timedelta(microseconds=1), dt.timedelta),
    "long timedelta": (dt.timedelta(days=999_999, microseconds=1), dt.timedelta),
    "decimal": (decimal.Decimal("0.1000"), decimal.Decimal),
    "large decimal": (decimal.Decimal("123456789012345678901234567890.123"), decimal.Decimal),
    "uuid": (uuid.UUID(int=5), uuid.UUID),
    "enum": (Colour.BLUE, Colour),
    "int enum": (Level.HIGH, Level),
    "text enum": (Size.LARGE, Size),
    "flag": (Access.READ | Access.WRITE, Access),
    "tuple": ((1, "a", Point(3)), tuple[int, str, Point]),
    "tuple of any length": ((Point(1), Point(2)), tuple[Point, ...]),
    "empty tuple": ((), tuple[int, ...]),
    "named tuple": (Pair(1, Point(2)), Pair),
    "set": ({3, 1, 2}, set[int]),
    "frozenset of enums": (frozenset((Colour.RED, Colour.BLUE)), frozenset[Colour]),
    "frozenset of dataclasses": (frozenset((Point(1), Point(2))), frozenset[Point]),
    "bytes": (b"\x00\xff", bytes),
    "empty bytes": (b"", bytes),
    "int keys": ({1: "a", -2: "b"}, dict[int, str]),
    "enum keys": ({Colour.RED: 1}, dict[Colour, int]),
    "int enum keys": ({Level.HIGH: 1}, dict[Level, int]),
    "date keys": ({dt.date(2026, 1, 2): 1}, dict[dt.date, int]),
    "uuid keys": ({uuid.UUID(int=5): 1}, dict[uuid.UUID, int]),
    "decimal keys": ({decimal.Decimal("1.50"): 1}, dict[decimal.Decimal, int]),
    "float keys": ({1.5: 1}, dict[float, int]),
    "large int": (2**80, int),
    "literal": ("a", Literal["a", "b"]),
    "annotated": (5, Annotated[int, "positive"]),
    "nested": ({1: [(Point(1), {Colour.RED})]}, dict[int, list[tuple[Point, set[Colour]]]]),
}

NOT_BY_ANNOTATION: dict[str, Any] = {
    "datetime with a named zone": WHEN,
    "tuple keys": {(1, "a"): Point(1)},
    "dataclass keys": {Point(1): [Point(2)]},
    "bytes keys": {b"a": 1},
    "frozenset in a set": {frozenset((1, 2))},
    "bytearray": bytearray(b"ab"),
    "mixed keys": {1: "int", "1": "text", None: "none", 1.5: "half"},
    "class": Point,
    "range": range(1, 9, 2),
    "complex": 1 + 2j,
}
"""What a workflow may hold across an await, and JSON cannot carry out of it (or only as something else)."""
