"""``signal(name, type=…)``: payloads become typed values, in this process and in the one that loads the machine."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest

import tests.python.signal_answers as answers
from dalsegno.errors import InvalidInput
from dalsegno.lang.errors import NameMissing, SnapshotError
from dalsegno.lang.python import PythonMachine, compile_workflow, first, gather, race, signal, sleep
from dalsegno.lang.python.snapshot.format import sealed, unsealed
from dalsegno.lang.runtime.effects import Ok
from tests.python.driving import MODES, Mode, drive, started
from tests.python.tasks import echo
from tests.rows import rows


@dataclasses.dataclass
class Item:
    sku: str
    due: dt.date | None = None


class Decision(pydantic.BaseModel):
    approved: bool
    by: str = "nobody"


class Note(msgspec.Struct):
    text: str


async def every_kind(x: Any) -> list[Any]:
    item = await signal("item", type=Item)
    decision = await signal("decision", timeout="7d", type=Decision)
    await echo(1)
    return [type(item).__name__, item.due, decision.approved, decision.by]


@pytest.mark.parametrize("mode", MODES)
def test_a_payload_becomes_an_instance_of_its_class(mode: Mode) -> None:
    sent = {"item": [{"sku": "a", "due": "2030-01-02"}], "decision": [{"approved": True}]}
    machine = drive(every_kind, 1, mode, signals=sent)
    assert machine.result == ["Item", "2030-01-02", True, "nobody"]


async def noted(x: Any) -> str:
    note = await signal("note", "7d", type=Note)
    await echo(1)
    return note.text


@pytest.mark.parametrize("mode", MODES)
def test_a_payload_becomes_a_structure(mode: Mode) -> None:
    assert drive(noted, 1, mode, signals={"note": [{"text": "hi"}]}).result == "hi"


async def composed(x: Any) -> list[Any]:
    items = await signal("a", type=list[Item])
    by_name = await signal("a", type=dict[str, Item | None])
    word = await signal("a", type=Literal["yes", "no", 3] | None)
    number = await signal("a", type=int | None)
    pair = await signal("a", type=tuple[int, ...])
    anything = await signal("a", type=Any)
    moment = await signal("a", type=dt.datetime)
    return [items[0].sku, by_name["x"].sku, by_name["y"], word, number, pair, anything, moment.year]


@pytest.mark.parametrize("mode", MODES)
def test_types_made_of_several_survive_the_snapshot(mode: Mode) -> None:
    sent = [[{"sku": "a"}], {"x": {"sku": "b"}, "y": None}, 3, None, [1, 2], {"a": 1}, "2030-01-01T00:00:00Z"]
    machine = drive(composed, 1, mode, signals={"a": sent})
    assert machine.error is None
    assert machine.result == ["a", "b", None, 3, None, [1, 2], {"a": 1}, 2030]


async def joined(x: Any) -> list[Any]:
    both = await gather(signal("item", type=Item), signal("plain"))
    name, winner = await race(item=signal("item", type=Item), late=sleep("1h"))
    again = await first(signal("item", type=Item), sleep("2h"))
    return [both[0].sku, both[1], name, winner.sku, again.sku]


@pytest.mark.parametrize("mode", MODES)
def test_joined_signals_have_their_types(mode: Mode) -> None:
    sent = {"item": [{"sku": "a"}, {"sku": "b"}, {"sku": "c"}], "plain": [{"sku": "d"}]}
    machine = drive(joined, 1, mode, signals=sent)
    assert machine.result == ["a", {"sku": "d"}, "item", "b", "c"]


async def of_another_module(x: Any) -> list[Any]:
    note = await signal("note", type=answers.Remark)
    answer = await signal("answer", type=answers.Answer)
    return [answer.text, note.text]


@pytest.mark.parametrize("mode", MODES)
def test_a_class_may_be_named_through_its_module(mode: Mode) -> None:
    machine = drive(of_another_module, 1, mode, signals={"answer": [{"text": "a"}], "note": [{"text": "b"}]})
    assert machine.error is None
    assert machine.result == ["a", "b"]


# -- payloads that do not fit --------------------------------------------------------------------------------------


async def strict(x: Any) -> str:
    return (await signal("decision", type=Decision)).by


@pytest.mark.parametrize("mode", MODES)
def test_a_payload_that_does_not_fit_is_an_error_at_the_await(mode: Mode) -> None:
    machine = drive(strict, 1, mode, signals={"decision": [{"approved": "perhaps"}]})
    assert machine.error is not None
    assert machine.error.code == "InvalidInput"
    assert machine.error.message.startswith("the payload of signal 'decision' does not fit Decision: ")
    assert "approved" in machine.error.message
    assert "strict (" in machine.error.stack[0]


async def patient(x: Any) -> list[Any]:
    refused = []
    while True:
        try:
            decision = await signal("decision", type=Decision)
        except InvalidInput as error:
            refused.append(str(error).partition(":")[0])
        else:
            return [decision.by, refused]


@pytest.mark.parametrize("mode", MODES)
def test_a_workflow_may_wait_for_one_that_fits(mode: Mode) -> None:
    sent = {"decision": [5, {"approved": True, "by": "ann"}]}
    machine = drive(patient, 1, mode, signals=sent, lossy=True)
    assert machine.result == ["ann", ["the payload of signal 'decision' does not fit Decision"]]


# -- types that cannot be ------------------------------------------------------------------------------------------


class Opaque:
    pass


def _hidden() -> type:
    @dataclasses.dataclass
    class Hidden:
        a: int

    return Hidden


async def hides(x: Any) -> None:
    await signal("a", type=_hidden())


@rows(
    ("kind", "said"),
    [
        (5, "'type' is what the payload becomes (a dataclass, a Pydantic model, list[int] …), not 5"),
        ("Item", "'type' is what the payload becomes"),
        (Opaque, "'type' is what the payload becomes"),
        (list[Opaque], "'type' is what the payload becomes"),
        ({"a": int}, "'type' is what the payload becomes"),
        (Annotated[int, msgspec.Meta(ge=0)], "cannot be stored with the wait"),
    ],
)
def test_other_types_are_refused_where_the_workflow_asks(kind: Any, said: str) -> None:
    async def asks(x: Any) -> None:
        await signal("a", type=kind)

    machine = started(asks, 1)
    assert machine.status == "failed"
    assert machine.error is not None
    assert machine.error.type == "TypeError"
    assert said in machine.error.message
    assert not machine.take_effects()


def test_a_class_without_a_name_is_refused() -> None:
    machine = started(hides, 1)
    assert machine.error is not None
    assert (
        "the class Hidden cannot be found again by its name; define it at the top of the"
        in machine.error.message
    )


# -- snapshots -----------------------------------------------------------------------------------------------------


def test_an_untyped_signal_is_stored_as_before() -> None:
    async def untyped(x: Any) -> Any:
        return await signal("a", timeout=5)

    assert ["pd", "signal", "a", 105.0] in _rows(started(untyped, 1))
    assert ["pd", "signal", "decision", None, f"{__name__}.Decision"] in _rows(started(strict, 1))


def _rows(machine: PythonMachine) -> list[Any]:
    return list(json.loads(unsealed(machine.dumps()))["rows"])


@pytest.mark.parametrize(
    ("written", "error"),
    [
        (f"{__name__}.Renamed", NameMissing),
        ("subprocess.Popen", NameMissing),
        ('["builtins.list","tests.Renamed"]', NameMissing),
        (5, SnapshotError),
        ("[", SnapshotError),
        ('["builtins.int","builtins.int"]', SnapshotError),
        ("[]", SnapshotError),
        ('[["|"]]', SnapshotError),
        ("[" * 5000, SnapshotError),
    ],
)
def test_a_stored_type_that_is_not_there_is_not_guessed(written: Any, error: type[Exception]) -> None:
    machine = started(strict, 1)
    stored = json.loads(unsealed(machine.dumps()))
    [row] = [row for row in stored["rows"] if row[0] == "pd"]
    row[4] = written
    with pytest.raises(error):
        PythonMachine.loads(compile_workflow(strict), sealed(json.dumps(stored).encode()))


def test_a_loaded_machine_takes_the_payload() -> None:
    machine = PythonMachine.loads(compile_workflow(strict), started(strict, 1).dumps())
    [waiting] = machine.waiting_signals()
    assert waiting.name == "decision"
    machine.resume({waiting.id: Ok({"approved": False, "by": "bob"})})
    assert machine.result == "bob"
