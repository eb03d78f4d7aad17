"""Values of Python workflows: they are what they were after the store was closed and opened again, on both sides of a
task, and on the way in and out of a workflow."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import uuid
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, Optional, TypeVar
from zoneinfo import ZoneInfo

import pydantic
import pytest

from dalsegno import App, signal
from dalsegno.core.values import decode_value
from dalsegno.errors import NotJson
from tests.scenarios.stage import PATIENCE, Stage

T = TypeVar("T")


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


def _same(found: Any, value: Any) -> None:
    assert found == value
    assert type(found) is type(value)
    if not isinstance(
        value, set | frozenset | pydantic.BaseModel
    ):  # in another order; with zones of Pydantic's own
        assert repr(found) == repr(value)


# -- as locals, across a store that was closed and opened again -----------------------------------------------


@pytest.mark.parametrize("case", [*VALUES, *NOT_BY_ANNOTATION])
def test_a_local_survives_the_end_of_its_process(tmp_path: Path, case: str) -> None:
    value = VALUES[case][0] if case in VALUES else NOT_BY_ANNOTATION[case]
    app = App(f"sqlite:///{tmp_path}/values.db")
    seen: list[Any] = []

    @app.workflow
    async def holding() -> bool:
        local, alias = value, [value]
        await signal("go")
        seen.extend((local, *alias))
        return local == alias[0]

    with app.running():
        handle = app.start(holding)
        _until_suspended(handle)
    assert seen == []
    with app.running():
        handle.signal("go")
        assert handle.result(PATIENCE) is True
    for found in seen:
        _same(found, value)


def _until_suspended(handle: Any) -> None:
    while handle.picture() is None:
        assert handle.status().state == "RUNNING", handle.status().error


def test_a_changed_local_is_the_changed_one(tmp_path: Path) -> None:
    """Fields that were set, removed and added after the object was made."""
    app = App(f"sqlite:///{tmp_path}/values.db")

    @app.workflow
    async def changing() -> list[Any]:
        line = Derived(Point(1))
        line.tags.append("x")
        line._hidden = 8
        line.extra = line.tags  # type: ignore[attr-defined]
        address = Address(street="Elm")
        address.street = "Oak"
        await signal("go")
        line.extra.append("y")  # type: ignore[attr-defined]
        return [line.tags, line._hidden, address.street, sorted(address.model_fields_set)]

    with app.running():
        handle = app.start(changing)
        _until_suspended(handle)
    with app.running():
        handle.signal("go")
        assert handle.result(PATIENCE) == [["x", "y"], 8, "Oak", ["street"]]


def test_a_model_that_a_task_gave_is_held_across_an_await(tmp_path: Path) -> None:
    """Its times have zones of Pydantic's own making."""
    app = App(f"sqlite:///{tmp_path}/values.db")

    @app.task
    async def ann() -> Person:
        return PERSON

    @app.workflow
    async def holding() -> Person:
        person = await ann()
        await signal("go")
        assert person.born is not None
        assert person.born.utcoffset() == OFFSET.utcoffset()
        return person

    with app.running():
        handle = app.start(holding)
        _until_suspended(handle)
    with app.running():
        handle.signal("go")
        _same(handle.result(PATIENCE), PERSON)


class Box(pydantic.BaseModel, Generic[T]):
    content: T


class Cat(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9
    _mood: str = pydantic.PrivateAttr("calm")


class Dog(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    kind: Literal["dog"] = "dog"
    full_name: str = pydantic.Field("Rex", alias="fullName")


class Zoo(pydantic.BaseModel):
    pets: list[Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]]

    @pydantic.computed_field
    @property
    def count(self) -> int:
        return len(self.pets)


def test_richer_models_go_round(tmp_path: Path) -> None:
    """Generic ones, unions, aliases, private and extra fields, computed ones."""
    app = App(f"sqlite:///{tmp_path}/values.db")

    @app.task
    async def grown(zoo: Zoo) -> Zoo:
        return Zoo(pets=[*zoo.pets, Cat(lives=1)])

    @app.task
    async def opened(box: Box[Point]) -> Point:
        return box.content

    @app.workflow
    async def keeping(zoo: Zoo) -> tuple[Zoo, str, Point, Box[Point]]:
        cat, box = Cat(), Box[Point](content=Point(3))
        cat._mood = "cross"
        zoo = await grown(zoo)
        await signal("go")
        return zoo, cat._mood, await opened(box), box

    zoo = Zoo(pets=[Cat(), Dog(fullName="Max", toys=2)])
    with app.running():
        handle = app.start(keeping, zoo)
        _until_suspended(handle)
    with app.running():
        handle.signal("go")
        found, mood, point, box = handle.result(PATIENCE)
    assert found == Zoo(pets=[*zoo.pets, Cat(lives=1)])
    assert (mood, point, box) == ("cross", Point(3), Box[Point](content=Point(3)))


def test_a_model_that_cannot_be_json_is_refused_with_advice(tmp_path: Path) -> None:
    class Raw(pydantic.BaseModel):
        data: bytes

    app = App(f"sqlite:///{tmp_path}/values.db")

    @app.workflow
    async def taking(given: Any) -> None:
        return None

    with pytest.raises(NotJson, match=r"given is a Raw that Pydantic cannot write as JSON.*val_json_bytes"):
        app.start(taking, Raw(data=b"\xff"))
    app.close()


# -- by annotation: tasks, inputs, results --------------------------------------------------------------------


@pytest.mark.parametrize("case", VALUES)
def test_a_task_takes_and_gives_what_its_annotations_say(stage: Stage, case: str) -> None:
    value, kind = VALUES[case]
    seen: list[Any] = []

    async def echoed(given, other=1):  # type: ignore[no-untyped-def]
        seen.append(given)
        return given

    echoed.__annotations__ = {"given": kind, "return": kind}
    several = stage.app.task(name="several")(echoed)

    async def alone(given):  # type: ignore[no-untyped-def]
        seen.append(given)
        return given

    alone.__annotations__ = {"given": kind, "return": kind}
    single = stage.app.task(name="single")(alone)

    @stage.app.workflow
    async def asking() -> None:
        local = value
        seen.append(await several(local, other=2))
        seen.append(await single(local))

    stage.app.start(asking).result(PATIENCE)
    assert len(seen) == 4
    for found in seen:
        _same(found, value)


@pytest.mark.parametrize("case", VALUES)
def test_a_workflow_takes_and_gives_what_its_annotations_say(stage: Stage, case: str) -> None:
    value, kind = VALUES[case]
    seen: list[Any] = []

    async def child(given):  # type: ignore[no-untyped-def]
        seen.append(given)
        return given

    child.__annotations__ = {"given": kind, "return": kind}
    typed = stage.app.workflow(child)

    @stage.app.workflow
    async def parent() -> None:
        seen.append(await typed(value))

    handle = stage.app.start(typed, value)
    _same(handle.result(PATIENCE), value)
    plain = decode_value(handle.status().input)
    _same(stage.app.start("child", plain).result(PATIENCE), decode_value(handle.status().output or b""))
    stage.app.start(parent).result(PATIENCE)
    assert len(seen) == 4
    for found in seen:
        _same(found, value)
