"""msgspec structures across awaits: of the same class, with the same fields, shared where they were shared."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from dalsegno.lang.errors import NameMissing, SnapshotError
from dalsegno.lang.python import PythonMachine, compile_workflow
from dalsegno.lang.python.snapshot.format import sealed, unsealed
from tests.python.driving import MODES, Mode, drive, started
from tests.python.tasks import echo


class Note(msgspec.Struct):
    text: str
    parts: list[Any] = []
    next: Any = None


class Stamp(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    number: int = 3


class Doubled(msgspec.Struct):
    size: int

    def __post_init__(self) -> None:
        self.size *= 2


class Loose(msgspec.Struct, dict=True):
    a: int


async def keeps(x: Any) -> list[Any]:
    shared = ["p"]
    note = Note("a", shared, Stamp(number=5))
    again = note
    doubled = Doubled(4)
    marks = {Stamp(): "three"}
    shared.append(note)  # a ring through a list
    await echo(1)
    note.text = "b"
    return [
        again.text,
        again is note,
        note.parts is shared,
        note.parts[1] is note,
        note.next.number,
        doubled.size,
        marks[Stamp()],
        type(note.next).__name__,
    ]


@pytest.mark.parametrize("mode", MODES)
def test_structures_live_across_an_await(mode: Mode) -> None:
    machine = drive(keeps, 1, mode)
    assert machine.error is None
    assert machine.result == ["b", True, True, True, 5, 8, "three", "Stamp"]


async def rings(x: Any) -> None:
    note = Note("a")
    note.next = (Note("b", next=note),)
    await echo(note.text)
    note.text = ""


async def further(x: Any) -> None:
    loose = Loose(1)
    loose.b = 2  # type: ignore[attr-defined]
    await echo(1)
    loose.a = 3


@pytest.mark.parametrize("function", [rings, further])
def test_what_cannot_be_built_again_is_refused_at_the_await(function: Any) -> None:
    machine = started(function, 1)
    assert machine.error is not None
    assert machine.error.code == "NotStorable"


def test_a_class_that_has_changed_is_told() -> None:
    machine = started(keeps, 1)
    stored = json.loads(unsealed(machine.dumps()))
    [row] = [row for row in stored["rows"] if row[:2] == ["ms", f"{__name__}.Note"]]

    def load() -> PythonMachine:
        return PythonMachine.loads(compile_workflow(keeps), sealed(json.dumps(stored).encode()))

    row[1] = f"{__name__}.Gone"
    with pytest.raises(NameMissing):
        load()
    row[1] = f"{__name__}.Doubled"
    with pytest.raises(SnapshotError, match="has changed"):
        load()
    row[1] = "tests.python.tasks.Refused"
    with pytest.raises(SnapshotError):
        load()
