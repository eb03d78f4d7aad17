"""Typed values at the borders: what goes out is JSON, what comes in is what the annotation says."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import pathlib
import types
import typing
import uuid
from collections import abc
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Optional, TypedDict, TypeVar

import msgspec
import pydantic
import pytest

from dalsegno.errors import InvalidInput, NotJson
from dalsegno.lang.python import DurableTask, DurableWorkflow, arguments_for, from_plain, to_plain
from tests.python.driving import MODES, drive
from tests.python.tasks import echo
from tests.rows import rows


class Colour(enum.Enum):
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


class Point(NamedTuple):
    x: int
    y: int


class Options(TypedDict, total=False):
    limit: int
    when: dt.date


@dataclasses.dataclass
class Item:
    sku: str
    price: decimal.Decimal
    tags: set[str] = dataclasses.field(default_factory=set)


@dataclasses.dataclass
class Order:
    id: uuid.UUID
    items: list[Item]
    placed: dt.datetime
    colour: Colour | None = None


class Address(pydantic.BaseModel):
    street: str
    zip: int = pydantic.Field(ge=0)


@dataclasses.dataclass
class Customer:
    name: str
    address: Address


class Record(msgspec.Struct):
    a: int


class Opaque:
    pass


ID = uuid.UUID(int=7)
PLACED = dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
ORDER = Order(ID, [Item("a", decimal.Decimal("1.50"), {"x"})], PLACED, Colour.RED)
ORDER_JSON = {
    "id": str(ID),
    "items": [{"sku": "a", "price": "1.50", "tags": ["x"]}],
    "placed": "2024-01-02T03:04:05+00:00",
    "colour": "red",
}

ROUND_TRIPS: list[tuple[Any, Any, Any]] = [
    (5, int, 5),
    (5, float, 5),
    (None, Optional[int], None),  # noqa: UP045
    ("a", str, "a"),
    ([1, 2], list[int], [1, 2]),
    ((1, "a"), tuple[int, str], [1, "a"]),
    ({3, 1, 2}, set[int], [1, 2, 3]),
    (frozenset({"a"}), frozenset[str], ["a"]),
    ({"a": 1}, dict[str, int], {"a": 1}),
    ({1: "a"}, dict[int, str], {"1": "a"}),
    ({Colour.RED: 1}, dict[Colour, int], {"red": 1}),
    (dt.date(2024, 1, 2), dt.date, "2024-01-02"),
    (dt.time(1, 2, 3), dt.time, "01:02:03"),
    (dt.timedelta(hours=1, seconds=1), dt.timedelta, "PT3601S"),
    (PLACED, dt.datetime, "2024-01-02T03:04:05+00:00"),
    (decimal.Decimal("1.10"), decimal.Decimal, "1.10"),
    (ID, uuid.UUID, str(ID)),
    (b"\x00\xff", bytes, "AP8="),
    (Colour.RED, Colour, "red"),
    (Number.ONE, Number, 1),
    (Point(1, 2), Point, [1, 2]),
    ({"limit": 3, "when": dt.date(2024, 1, 1)}, Options, {"limit": 3, "when": "2024-01-01"}),
    (pathlib.PurePosixPath("/a"), pathlib.PurePosixPath, "/a"),
    (fractions.Fraction(1, 3), fractions.Fraction, "1/3"),
    (ORDER, Order, ORDER_JSON),
    ([ORDER], list[Order], [ORDER_JSON]),
    (Address(street="s", zip=1), Address, {"street": "s", "zip": 1}),
    ([Address(street="s", zip=1)], list[Address], [{"street": "s", "zip": 1}]),
    (
        Customer("c", Address(street="s", zip=1)),
        Customer,
        {"name": "c", "address": {"street": "s", "zip": 1}},
    ),
    (Record(1), Record, {"a": 1}),
    ("a", Literal["a", "b"], "a"),
    (3, int | str, 3),
    ([1], Sequence[int], [1]),
    ({"a": 1}, Mapping[str, int], {"a": 1}),
    (4, Annotated[int, msgspec.Meta(ge=0)], 4),
    (collections.deque([1, 2]), collections.deque[int], [1, 2]),
    (collections.Counter("aab"), collections.Counter[str], {"a": 2, "b": 1}),
    (collections.OrderedDict(b=1, a=2), collections.OrderedDict[str, int], {"b": 1, "a": 2}),
    (collections.ChainMap({"a": 1}), collections.ChainMap[str, int], {"a": 1}),
]


@rows(("value", "annotation", "plain"), ROUND_TRIPS, ids=[str(each[1]) for each in ROUND_TRIPS])
def test_values_go_out_as_json_and_come_back_by_annotation(value, annotation, plain):
    assert to_plain(value, "value") == plain
    back = from_plain(plain, annotation)
    assert back == value
    assert type(back) is type(value)


# -- abstract collections ----------------------------------------------------------------------------------------

ITEMS = [
    abc.Collection,
    abc.Container,
    abc.Iterable,
    abc.MutableSequence,
    abc.Reversible,
    abc.Sequence,
    abc.ValuesView,
    typing.Collection,
    typing.Container,
    typing.Iterable,
    typing.MutableSequence,
    typing.Reversible,
    typing.Sequence,
]
SETS = [abc.KeysView, abc.MutableSet, abc.Set, typing.AbstractSet, typing.MutableSet]
ENTRIES = [abc.Mapping, abc.MutableMapping, typing.Mapping, typing.MutableMapping]


@rows("kind", ITEMS, ids=str)
def test_an_abstract_collection_is_a_list_whose_items_are_converted(kind):
    assert from_plain(["2024-01-02"], kind[dt.date]) == [dt.date(2024, 1, 2)]
    assert from_plain([[1]], kind[kind[int]]) == [[1]]
    assert from_plain([1, "a"], kind) == [1, "a"]
    assert from_plain(["2024-01-02"], Optional[kind[dt.date]]) == [dt.date(2024, 1, 2)]  # noqa: UP045
    assert from_plain(None, kind[int] | None) is None
    assert from_plain({"a": 1}, kind[int] | dict[str, int]) == {"a": 1}
    with pytest.raises(InvalidInput, match=r"Expected `int`, got `str` - at `\$\[1\]`"):
        from_plain([1, "a"], kind[int])
    with pytest.raises(InvalidInput, match="got `int`"):
        from_plain(5, kind[int])


@pytest.mark.parametrize("kind", SETS, ids=str)
def test_an_abstract_set_is_a_set_whose_items_are_converted(kind):
    assert from_plain(["2024-01-02"], kind[dt.date]) == {dt.date(2024, 1, 2)}
    assert type(from_plain([1], kind)) is set
    assert from_plain([1], kind[int] | None) == {1}


@pytest.mark.parametrize("kind", ENTRIES, ids=str)
def test_an_abstract_mapping_is_a_dict_whose_entries_are_converted(kind):
    assert from_plain({"1": "2024-01-02"}, kind[int, dt.date]) == {1: dt.date(2024, 1, 2)}
    assert from_plain({"a": [1]}, kind) == {"a": [1]}
    assert from_plain({"a": 1}, kind[str, int] | None) == {"a": 1}
    with pytest.raises(InvalidInput, match="Expected `object`, got `array`"):
        from_plain([1], kind[str, int])


@pytest.mark.parametrize("kind", [abc.Iterator, abc.Generator, typing.Iterator])
def test_an_iterator_goes_through_the_converted_items(kind):
    given = kind[dt.date] if kind is not abc.Generator else kind[dt.date, None, None]
    assert next(from_plain(["2024-01-02"], given)) == dt.date(2024, 1, 2)
    assert list(from_plain(["2024-01-02"], given | None)) == [dt.date(2024, 1, 2)]


@pytest.mark.parametrize("kind", [abc.Iterable[str], abc.Sequence[str], abc.Sequence, abc.Collection[Any]])
def test_a_text_is_a_sequence_of_texts(kind):
    assert from_plain("abc", kind) == "abc"


@pytest.mark.parametrize("kind", [abc.Callable[[int], int], abc.Hashable, abc.Sized, typing.SupportsInt])
def test_protocols_say_nothing_about_json(kind):
    assert from_plain(1, kind) == 1


def test_a_default_dict_makes_missing_values_as_its_annotation_says():
    found = from_plain({"a": [1]}, collections.defaultdict[str, list[int]])
    assert (found["a"], found["b"]) == ([1], [])


def test_sequences_and_views_go_out_as_lists():
    assert to_plain([range(3), collections.deque("ab"), {"a": 1}.values(), {"a": 1}.keys()], "x") == [
        [0, 1, 2],
        ["a", "b"],
        [1],
        ["a"],
    ]


@dataclasses.dataclass
class Track:
    length: float
    marks: abc.Iterable[float]
    label: abc.Sequence[str] | str = ""
    parts: list[Track] = dataclasses.field(default_factory=list)
    twice: float = dataclasses.field(default=0, init=False)

    def __post_init__(self) -> None:
        self.twice = self.length * 2


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenTrack:
    length: float = 1


class Place(NamedTuple):
    x: float
    y: float = 2


class Settings(TypedDict):
    ratio: float
    inner: NotRequired[list[Settings]]


def test_fields_of_classes_are_converted_by_the_same_rules():
    found = from_plain({"length": 6, "marks": [1, 2.0], "parts": [{"length": 1.0, "marks": []}]}, Track)
    assert repr(found) == (
        "Track(length=6, marks=[1, 2.0], label='', "
        "parts=[Track(length=1.0, marks=[], label='', parts=[], twice=2.0)], twice=12)"
    )
    assert repr(from_plain([{"length": 6}, {}], list[FrozenTrack])) == (
        "[FrozenTrack(length=6), FrozenTrack(length=1)]"
    )
    assert repr(from_plain([6], Place)) == "Place(x=6, y=2)"
    assert repr(from_plain({"ratio": 6, "inner": [{"ratio": 6.0}]}, Settings)) == (
        "{'ratio': 6, 'inner': [{'ratio': 6.0}]}"
    )
    with pytest.raises(
        InvalidInput, match=r"Expected `float`, got `str` - at `\$\[0\]\.parts\[0\]\.marks\[1\]`"
    ):
        from_plain([{"length": 1, "marks": [], "parts": [{"length": 1, "marks": [1, "a"]}]}], list[Track])
    with pytest.raises(InvalidInput, match="missing required field `length`"):
        from_plain({}, Track)


# -- numbers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "annotation", [float, float | None, Annotated[float, msgspec.Meta(ge=0)], float | str]
)
def test_a_float_takes_integers_as_they_are(annotation):
    assert repr(from_plain(6, annotation)) == "6"
    assert repr(from_plain(6.0, annotation)) == "6.0"
    assert repr(from_plain(10**400, annotation)) == repr(10**400)


def test_numbers_inside_collections_stay_what_they_are():
    assert repr(from_plain([6, 6.0], list[float])) == "[6, 6.0]"
    assert repr(from_plain([6, 6.0], tuple[float, float])) == "(6, 6.0)"
    assert repr(from_plain({"a": 6}, dict[str, float])) == "{'a': 6}"
    assert repr(from_plain([6], set[float])) == "{6}"


@pytest.mark.parametrize("value", ["a", True])
def test_a_float_takes_nothing_but_numbers(value):
    with pytest.raises(InvalidInput, match="does not fit float: Expected `float`, got `"):
        from_plain(value, float)


@pytest.mark.parametrize(
    "annotation", [Any, object, None, TypeVar("T"), Opaque, list[Opaque], "Unresolved", types.FunctionType]
)
def test_annotations_that_say_nothing_leave_values_alone(annotation):
    value = [{"a": 1}]
    assert from_plain(value, annotation) is value


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (float("nan"), "x is nan, which JSON cannot represent"),
        ([1, {"a": [float("inf")]}], "x[1].a[0] is inf"),
        ({"k": object()}, "x.k is of type builtins.object, which JSON cannot represent: give plain data"),
        ({1: 1, "1": 2}, "x has two keys that read '1'"),
        ({(1, 2): 1}, "x has a key of type tuple"),
        ({None: 1}, "x has the key None"),
        ("\ud800", "x holds half of a character"),
        (Opaque(), "test_typed.Opaque, which JSON cannot represent"),
    ],
)
def test_what_json_cannot_carry_is_named_with_its_path(value, said):
    with pytest.raises(NotJson) as caught:
        to_plain(value, "x")
    assert said in str(caught.value)


def test_rings_and_deep_nesting_are_refused():
    ring: list[Any] = []
    ring.append(ring)
    with pytest.raises(NotJson, match="nested deeper than 200 levels, or contains itself"):
        to_plain(ring, "x")


@pytest.mark.parametrize(
    ("value", "annotation", "said"),
    [
        ("a", int, "the value does not fit int: Expected `int`, got `str`"),
        ({"id": "x"}, Order, "Invalid UUID - at `$.id`"),
        ({**ORDER_JSON, "items": [{"sku": 1}]}, Order, "$.items[0].sku"),
        ({"street": "s", "zip": -1}, Address, "zip"),
        ("green", Colour, "Colour"),
    ],
)
def test_what_does_not_fit_is_named_with_its_path(value, annotation, said):
    with pytest.raises(InvalidInput) as caught:
        from_plain(value, annotation)
    assert said in str(caught.value)


# -- tasks and workflows ----------------------------------------------------------------------------------------


@DurableTask
async def price(order: Order, factor: decimal.Decimal = decimal.Decimal(1)) -> Item:
    raise AssertionError("only its annotations matter here")


@DurableTask
async def find(name: str) -> Customer | None:
    raise AssertionError("only its annotations matter here")


@DurableWorkflow
async def typed(order: Order, at: dt.datetime | None = None, *, limit: int = 5) -> Customer:
    item = await price(order, factor=decimal.Decimal("2.0"))
    assert isinstance(order, Order)
    assert isinstance(order.items[0].price, decimal.Decimal)
    assert isinstance(item, Item)
    customer = await find(item.sku)
    await echo(1)
    assert isinstance(customer, Customer)
    assert isinstance(customer.address, Address)
    assert at is None or isinstance(at, dt.datetime)
    customer.address.zip += limit + int(item.price)
    return customer


def priced(order: Any, factor: Any) -> Any:
    assert order == ORDER_JSON
    assert factor == "2.0"
    return {"sku": "b", "price": "3.5", "tags": []}


@pytest.mark.parametrize("mode", MODES)
def test_a_typed_workflow_works_on_typed_values(mode):
    customer = {"name": "ann", "address": {"street": "s", "zip": 1}}
    machine = drive(
        typed,
        {"order": ORDER_JSON, "at": "2024-01-01T00:00:00Z", "limit": 7},
        mode,
        tasks={"price": priced, "find": lambda name: customer},
    )
    assert machine.result == {"name": "ann", "address": {"street": "s", "zip": 11}}


def test_a_result_that_does_not_fit_is_an_error_at_the_await():
    machine = drive(typed, {"order": ORDER_JSON}, tasks={"price": lambda order, factor: {"sku": 1}})
    assert machine.error.code == "InvalidInput"
    assert machine.error.message.startswith("the result of task 'price' does not fit Item: ")


def test_binding_makes_inputs_and_inputs_make_arguments():
    assert typed.bind(ORDER, limit=1) == {"order": ORDER_JSON, "limit": 1}
    assert arguments_for(typed.program, {"order": ORDER_JSON}) == [ORDER, None, 5]
    with pytest.raises(TypeError, match="workflow 'typed': missing a required argument: 'order'"):
        typed.bind()


@DurableWorkflow
async def one_parameter(order: Order):
    return order.id


@DurableWorkflow
async def one_default(count: int = 3):
    return count


@DurableWorkflow
async def no_parameters():
    return "nothing"


def test_one_parameter_takes_the_whole_input():
    assert one_parameter.bind(ORDER) == ORDER_JSON
    assert drive(one_parameter, ORDER_JSON).result == str(ID)
    assert drive(one_default, None).result == 3
    assert drive(one_default, 5).result == 5
    assert drive(no_parameters, None).result == "nothing"
    assert no_parameters.bind() is None


@DurableWorkflow
async def many(*numbers: float):
    await echo(1)
    return [type(numbers).__name__, *numbers]


@DurableWorkflow
async def settings(**named: dt.date):
    await echo(1)
    return {name: value.year for name, value in named.items()}


@DurableWorkflow
async def all_kinds(
    first: int, second: dt.date | None = None, /, *rest: dt.date, flag: bool = False, **named: int
):
    await echo(1)
    return [first, second, [each.year for each in rest], flag, named]


def test_star_parameters_take_what_is_left():
    assert many.bind(1, 2.0) == [1, 2.0]
    assert many.bind() is None
    assert repr(drive(many, [1, 2.0]).result) == "['tuple', 1, 2.0]"
    assert drive(many, None).result == ["tuple"]
    assert settings.bind(start=dt.date(2024, 1, 2)) == {"start": "2024-01-02"}
    assert drive(settings, {"start": "2024-01-02", "named": "2025-01-01"}).result == {
        "start": 2024,
        "named": 2025,
    }
    assert drive(settings, None).result == {}


def test_star_parameters_stand_beside_others():
    inputs = all_kinds.bind(
        1, dt.date(2023, 1, 1), dt.date(2024, 1, 2), dt.date(2025, 1, 2), flag=True, more=3
    )
    assert inputs == {
        "first": 1,
        "second": "2023-01-01",
        "rest": ["2024-01-02", "2025-01-02"],
        "flag": True,
        "more": 3,
    }
    assert drive(all_kinds, inputs).result == [1, "2023-01-01", [2024, 2025], True, {"more": 3}]
    assert drive(all_kinds, {"first": 1}).result == [1, None, [], False, {}]
    with pytest.raises(TypeError, match=r"'rest' in '\*\*named' is the name of another parameter"):
        all_kinds.bind(1, rest=2)


@pytest.mark.parametrize(
    ("workflow", "inputs", "said"),
    [
        (many, 5, "workflow 'many': 'numbers' does not fit list[float]: Expected `array`, got `int`"),
        (many, [1, "a"], "Expected `float`, got `str` - at `$[1]`"),
        (settings, [1], "workflow 'settings': 'named' does not fit"),
        (all_kinds, {"first": 1, "more": "a"}, "workflow 'all_kinds': 'named' does not fit"),
        (typed, [1], "workflow 'typed' takes 'order', 'at', 'limit': give an object with these fields"),
        (typed, {"limit": 1}, "workflow 'typed' needs 'order', which is not in its input"),
        (typed, {"order": ORDER_JSON, "speed": 1}, "takes 'order', 'at', 'limit', not 'speed'"),
        (typed, {"order": {}}, "workflow 'typed': 'order' does not fit Order: Object missing required field"),
        (one_parameter, 5, "workflow 'one_parameter': 'order' does not fit Order"),
        (
            one_parameter,
            {"order": ORDER_JSON},
            "the whole input is 'order': give the value itself, not an object that holds it",
        ),
        (no_parameters, {"a": 1}, "workflow 'no_parameters' takes no input, not 'a'"),
    ],
)
def test_inputs_that_do_not_fit_fail_the_execution(workflow, inputs, said):
    machine = drive(workflow, inputs)
    assert machine.status == "failed"
    assert machine.error.code == "InvalidInput"
    assert said in machine.error.message


async def changes_its_input(order):
    order["items"].append(1)
    result = await echo(order)
    result["items"].append(2)
    again = await echo({"items": []})
    return [order, result, again]


def test_a_workflow_may_change_what_it_was_given():
    inputs = {"items": []}
    assert drive(changes_its_input, inputs, "hot").result == [
        {"items": [1]},
        {"items": [1, 2]},
        {"items": []},
    ]
    assert inputs == {"items": []}
