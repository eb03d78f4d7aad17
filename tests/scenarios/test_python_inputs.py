"""Input that the parameters of a Python workflow cannot take: refused where it is given, and nothing is stored."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import pydantic
import pytest

from dalsegno import run
from dalsegno.engine.definitions import Kept
from dalsegno.errors import InvalidInput
from tests.scenarios.conftest import ONE_STACK
from tests.scenarios.stage import Stage

pytestmark = ONE_STACK


@dataclasses.dataclass
class Order:
    sku: str
    amount: int


class Address(pydantic.BaseModel):
    street: str


@dataclasses.dataclass
class Moody:
    n: int

    def __post_init__(self) -> None:
        raise LookupError("not today")


@dataclasses.dataclass
class Watched:
    n: int

    def __post_init__(self) -> None:
        BUILT_IN.append(threading.current_thread().name)


@dataclasses.dataclass(frozen=True)
class Key:
    name: str

    def __hash__(self) -> int:
        BUILT_IN.append(threading.current_thread().name)
        return hash(self.name)


BUILT_IN: list[str] = []


def _workflows(stage: Stage) -> dict[str, Any]:
    @stage.app.workflow
    async def one(order: Order) -> str:
        return order.sku

    @stage.app.workflow
    async def several(order: Order, address: Address, limit: int = 3) -> str:
        return f"{order.sku} {address.street} {limit}"

    @stage.app.workflow
    async def nothing() -> int:
        return 1

    @stage.app.workflow
    async def moody(given: Moody) -> int:
        return given.n

    return {"one": one, "several": several, "nothing": nothing, "moody": moody}


GOOD = {"order": {"sku": "tea", "amount": 1}, "address": {"street": "Elm"}}
WRONG: dict[str, tuple[str, Any, str]] = {
    "a field is missing": ("one", {"sku": "tea"}, "'order' does not fit Order"),
    "a field has another type": ("one", {"sku": "tea", "amount": "many"}, "'order' does not fit Order"),
    "a value of another type": ("one", 7, "'order' does not fit Order"),
    "no input at all": ("one", None, "'order' does not fit Order"),
    "a missing argument": ("several", {"order": GOOD["order"]}, "needs 'address'"),
    "an unknown argument": ("several", {**GOOD, "colour": "red"}, "not 'colour'"),
    "no object": ("several", [1], "give an object"),
    "a model that refuses": ("several", {**GOOD, "address": {"street": 5}}, "'address' does not fit Address"),
    "a plain annotation": ("several", {**GOOD, "limit": "high"}, "'limit' does not fit int"),
    "something for nothing": ("nothing", {"n": 1}, "not 'n'"),
    "a class that raises something of its own": ("moody", {"n": 1}, "LookupError: not today"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_start_by_name_is_refused_and_leaves_nothing(stage: Stage, case: str) -> None:
    name, payload, said = WRONG[case]
    _workflows(stage)
    stage.app.host.call(stage.app.workflows.ensure_all(stage.app.client))
    with pytest.raises(InvalidInput, match=said):
        stage.app.start(name, payload)
    assert stage.app.executions() == []


def test_a_start_by_function_is_refused_and_leaves_nothing(stage: Stage) -> None:
    known = _workflows(stage)
    with pytest.raises(InvalidInput, match="'order' does not fit Order"):
        stage.app.start(known["one"], {"sku": "tea"})
    with pytest.raises(InvalidInput, match="'address'"):
        stage.app.start(known["several"], GOOD["order"])
    with pytest.raises(InvalidInput, match="'colour'"):
        stage.app.start(known["several"], **GOOD, colour="red")
    assert stage.app.executions() == []


def test_input_that_fits_is_taken_however_it_is_given(stage: Stage) -> None:
    known = _workflows(stage)
    assert stage.app.start(known["several"], Order("tea", 1), Address(street="Elm")).result(10) == "tea Elm 3"
    assert stage.app.start("several", **GOOD, limit=4).result(10) == "tea Elm 4"
    assert stage.app.start("nothing").result(10) == 1


def test_a_default_is_used_where_no_input_is_given_by_name(stage: Stage) -> None:
    @stage.app.workflow
    async def counted(n: int = 5) -> int:
        return n

    assert stage.app.start(counted).result(10) == 5
    assert stage.app.start("counted").result(10) == 5


@pytest.mark.parametrize("case", WRONG)
def test_a_child_that_cannot_take_its_input_throws_in_its_parent(stage: Stage, case: str) -> None:
    name, payload, said = WRONG[case]
    _workflows(stage)

    @stage.app.workflow
    async def parent(child: str, payload: Any) -> str:
        try:
            await run(child, payload)
        except Exception as error:  # noqa: BLE001 - whatever it is, its message is looked at
            return str(error)
        return "nothing was raised"

    stage.app.host.call(stage.app.workflows.ensure_all(stage.app.client))
    message = stage.app.start(parent, name, payload).result(10)
    assert said in message
    assert len(stage.app.executions()) == 1


def test_a_process_without_the_function_takes_what_it_is_given(stage: Stage) -> None:
    """It cannot know: the worker that has the code decides."""
    _workflows(stage)
    stage.app.host.call(stage.app.workflows.ensure_all(stage.app.client))
    client = stage.app.client
    stage.app.workflows._functions.clear()
    client.definitions._scripts = Kept(1)
    client.definitions.forget("one")
    program = stage.app.host.call(client.definitions.by_name("one"))
    assert not program.code.surroundings.has_function
    stage.app.start("one", {"sku": "tea"})
    assert len(stage.app.executions()) == 1


# -- the user's own code runs beside the event loop -----------------------------------------------------------


def test_classes_of_parameters_are_built_where_turns_run(stage: Stage) -> None:
    @stage.app.workflow
    async def watched(given: Watched) -> int:
        return given.n

    BUILT_IN.clear()
    assert stage.app.start(watched, {"n": 4}).result(10) == 4
    assert len(BUILT_IN) == 2, "once to check it, once to run"
    assert all(name.startswith("dalsegno-turn") for name in BUILT_IN)


def test_a_picture_of_a_machine_is_taken_where_turns_run(stage: Stage) -> None:
    @stage.app.workflow
    async def holding() -> int:
        table = {Key("a"): 1}
        await run("nobody-awaits-this-forever")
        return table[Key("a")]

    stage.app.deploy_script('await Signal.next("never")', "nobody-awaits-this-forever")
    handle = stage.app.start(holding)
    stage.until_event(handle, "Suspended", "workflow nobody-awaits-this-forever")
    BUILT_IN.clear()
    seen = handle.picture()
    assert seen is not None
    assert list(seen.variables) == ["table"]
    assert BUILT_IN
    assert all(name.startswith("dalsegno-turn") for name in BUILT_IN)
