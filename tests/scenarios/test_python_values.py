"""Values of Python workflows: they are what they were after the store was closed and opened again, on both sides of a
task, and on the way in and out of a workflow."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
import pydantic
import pytest

from dalsegno import App, WorkflowFailed, gather, signal
from dalsegno.core.values import decode_value
from dalsegno.errors import NotJson
from tests.scenarios import python_values
from tests.scenarios.conftest import ONE_STACK
from tests.scenarios.python_values import NOT_BY_ANNOTATION, PERSON, VALUES, Address, Derived, Person, Point
from tests.scenarios.stage import PATIENCE, Stage

T = TypeVar("T")


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


class Note(msgspec.Struct):
    text: str


def test_signals_keep_their_types_across_the_end_of_their_process(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/values.db")

    @app.workflow
    async def waiting() -> list[str]:
        address, notes, point = await gather(
            signal("address", type=Address), signal("notes", type=list[Note]), signal("point", type=Point)
        )
        await signal("go")
        return [address.street, notes[0].text, str(point.x)]

    with app.running():
        handle = app.start(waiting)
        handle.signal("address", {"street": "Elm"})
        _until_suspended(handle)
    with app.running():
        handle.signal("notes", [{"text": "ring twice"}])
        handle.signal("point", {"x": 3})
        handle.signal("go")
        assert handle.result(PATIENCE) == ["Elm", "ring twice", "3"]


def test_a_payload_that_does_not_fit_fails_the_workflow_at_its_line(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/values.db")

    @app.workflow
    async def waiting() -> Point:
        return await signal("point", type=Point)

    with app.running():
        handle = app.start(waiting)
        handle.signal("point", {"x": "three"})
        with pytest.raises(WorkflowFailed) as caught:
            handle.result(PATIENCE)
    said = str(caught.value)
    assert "the payload of signal 'point' does not fit Point: Expected `int`, got `str` - at `$.x`" in said
    assert 'return await signal("point", type=Point)' in said


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
        assert person.born.utcoffset() == python_values.OFFSET.utcoffset()
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


@ONE_STACK
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


@ONE_STACK
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
