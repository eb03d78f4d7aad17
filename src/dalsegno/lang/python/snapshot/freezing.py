"""From a machine to its stored form. Fails with `NotStorable`, naming the variable, when something cannot be kept."""

from __future__ import annotations

from collections.abc import Callable
from types import CellType
from typing import TYPE_CHECKING, Any

import msgspec

from dalsegno.lang.effects import WaitingSignal
from dalsegno.lang.promises import Promise
from dalsegno.lang.python.frames import Frame
from dalsegno.lang.python.snapshot.complaints import role_of
from dalsegno.lang.python.snapshot.stored import (
    CONTENT,
    DEAD,
    FORMAT,
    Row,
    StoredFrame,
    StoredMachine,
    Tag,
    Written,
    sealed,
)
from dalsegno.lang.python.snapshot.writing import Writer
from dalsegno.lang.requests import Requests

if TYPE_CHECKING:
    from dalsegno.lang.python.machine import PythonMachine

BLOB_BYTES = 32 * 1024


class Frozen:
    """A stored machine before it becomes bytes, and the promises it reaches."""

    __slots__ = ("machine", "promises", "size")

    def __init__(self, machine: StoredMachine, promises: dict[int, Promise], size: int) -> None:
        self.machine = machine
        self.promises = promises
        self.size = size
        """Roughly its bytes."""

    def update(self, requests: Requests) -> None:
        """The driver has taken what it was asked for."""
        self.machine = msgspec.structs.replace(self.machine, **_requested(requests))

    def signals(self) -> tuple[WaitingSignal, ...]:
        waiting = [promise for _, promise in sorted(self.promises.items()) if promise.kind == "signal"]
        return tuple(WaitingSignal(promise.id, promise.name or "", promise.due) for promise in waiting)

    def to_bytes(self, put: Callable[[bytes], str] | None) -> bytes:
        """``put`` keeps what is longer than 32 KiB elsewhere and gives its name."""
        if put is None or self.size <= BLOB_BYTES:
            return sealed(msgspec.json.encode(self.machine))
        rows = _paged([_externalised(row, put) for row in self.machine.rows], put)
        return sealed(msgspec.json.encode(msgspec.structs.replace(self.machine, rows=rows)))


def _externalised(row: Row, put: Callable[[bytes], str]) -> Row:
    if row[0] in (Tag.BYTES, Tag.LONG_TEXT) and len(row[1]) > BLOB_BYTES:
        return [Tag.BLOB, row[0], put(row[1].encode())]
    return row


def _paged(rows: list[Row], put: Callable[[bytes], str]) -> list[Row]:
    """Runs of rows that fill a page go out together; what does not fill one stays."""
    found: list[Row] = []
    page: list[Row] = []
    size = 0
    for row in rows:
        page.append(row)
        size += len(msgspec.json.encode(row)) + 1
        if size > BLOB_BYTES:
            found.append([Tag.BLOB, Tag.ROWS, put(msgspec.json.encode(page))])
            page, size = [], 0
    return [*found, *page]


def freeze(machine: PythonMachine) -> Frozen:
    """The machine as it stands between two instructions; raises `NotStorable`."""
    writer = Writer(machine.program, _outside(machine), machine.line)
    weak: list[tuple[list[Written], int, CellType]] = []
    frames = [_frame(machine, frame, writer, weak) for frame in machine.frames]
    timeouts = [writer.write(timeout, "a timeout") for timeout in machine.timeouts]
    for variables, index, cell in weak:  # only now is it known who else holds them
        variables[index] = writer.reference(cell)
    for frame in frames:
        while frame.variables and frame.variables[-1] == DEAD:
            frame.variables.pop()
    stored = StoredMachine(
        format=FORMAT,
        program=machine.program.hash,
        status=machine.status,
        made=machine.requests.made,
        line=machine.line,
        execution=machine.requests.execution,
        context=machine.context,
        frames=frames,
        timeouts=timeouts,
        rows=writer.rows,
        result=machine.result,
        error=machine.error,
        **_requested(machine.requests),
    )
    return Frozen(stored, writer.promises, writer.size)


def _requested(requests: Requests) -> dict[str, Any]:
    return {
        "effects": [(type(effect).__name__, effect) for effect in requests.effects],
        "logs": list(requests.logs),
    }


def _outside(machine: PythonMachine) -> dict[int, str]:
    """Cells that belong to the surroundings, by identity: nested functions hold them too."""
    return {id(machine.outside_cell(name)): name for name in machine.program.outside}


def _frame(
    machine: PythonMachine, frame: Frame, writer: Writer, weak: list[tuple[list[Written], int, CellType]]
) -> StoredFrame:
    stack = [writer.write(value, role_of(frame, index)) for index, value in enumerate(frame.stack)]
    live, shared = machine.program.masks[frame.number]
    alive = live[frame.position] if frame.position < len(live) else 0
    variables: list[Written] = [DEAD] * (frame.code.own + len(frame.code.captured))
    for index, cell in enumerate(frame.cells[: len(variables)]):
        name = f"variable '{frame.code.variables[index].partition('@')[0]}'"
        if not alive >> index & 1:
            if shared >> index & 1:
                weak.append((variables, index, cell))
        elif shared >> index & 1:
            variables[index] = writer.write(cell, name)
        elif is_bound(cell):
            variables[index] = [CONTENT, writer.write(cell.cell_contents, name)]
    handled = [writer.write(error, "the exception being handled") for error in frame.handled]
    return StoredFrame(frame.number, frame.position, stack, variables, handled)


def is_bound(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - asking is the test
    except ValueError:
        return False
    return True
