"""A machine's state, unpacked from a snapshot and checked against its program.

Whatever the bytes say, the outcome is a machine or a `SnapshotError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from dalsegno.lang.effects import Effect, ErrorValue
from dalsegno.lang.flow.packing import Packed
from dalsegno.lang.flow.snapshot import STATUSES, State
from dalsegno.lang.flow.storing import EFFECTS
from dalsegno.lang.flow.unpacking import Unpacker
from dalsegno.lang.frames import CallbackFrame, Frame
from dalsegno.lang.opcodes import Op
from dalsegno.lang.promises import Group, Promise
from dalsegno.lang.requests import Requests
from dalsegno.lang.snapshots import SnapshotError
from dalsegno.lang.stdlib.callbacks import CALLBACK_METHODS
from dalsegno.lang.values import Cell, Vacant

if TYPE_CHECKING:
    from dalsegno.lang.flow.machine import Machine


def restore(machine: Machine, state: State) -> Unpacker:
    """Fill a new machine; returns who knows what else there was."""
    try:
        return _restore(machine, state)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as problem:
        message = f"the snapshot is damaged: {type(problem).__name__} while it was read: {problem}"
        raise SnapshotError(message) from None


def _restore(machine: Machine, state: State) -> Unpacker:
    unpacker = Unpacker(machine.unit.functions, state.heap, state.values)
    machine.status = STATUSES[state.status] if state.status >= 0 else "failed"
    machine.frames = [_frame(machine, unpacker, packed) for packed in state.frames]
    variables = machine.globals = {}
    for name, packed in state.globals.items():
        variables[name] = unpacker.variable(variables, name, packed)
    machine.requests = Requests(state.execution, state.made)
    machine.requests.effects = [_effect(packed) for packed in state.effects]
    machine.requests.logs = state.logs
    machine.result = unpacker.value(state.result)
    machine.error = unpacker.value(state.error)
    machine.finished = True
    if state.meter is not None:
        meter = machine.host.meter
        instructions, work, meter.bytes_left = state.meter
        meter.work_left = min(instructions, work)
    machine.needed = tuple(unpacker.needed)
    _check(machine)
    return unpacker


def _check(machine: Machine) -> None:
    if machine.status == "failed" and type(machine.error) is not ErrorValue:
        raise SnapshotError("the snapshot is damaged: it failed without an error")
    if machine.status == "paused" and not machine.frames:
        raise SnapshotError("the snapshot is damaged: there is nothing to go on with")
    if machine.status == "suspended":
        frame = machine.frames[-1]
        if (
            not isinstance(frame, Frame)
            or frame.function.instructions[frame.position][0] != Op.AWAIT
            or type(frame.stack[-1]) not in (Promise, Group)
        ):
            raise SnapshotError("the snapshot is damaged: it does not wait for anything")


def _frame(machine: Machine, unpacker: Unpacker, packed: list[Packed]) -> Frame | CallbackFrame:
    if len(packed) == 2:
        return _callback_frame(unpacker, *packed)
    number, position, argument_count, stack, variables, cells = packed
    function = machine.unit.functions[number] if number >= 0 else None
    if function is None or not 0 <= position < len(function.instructions):
        raise SnapshotError("the snapshot does not fit its program: it stands where there is no instruction")
    live = machine.program.live_slots(function, position)
    if len(live) != len(variables) or len(cells) != len(function.captures):
        raise SnapshotError("the snapshot does not fit its program: it has other variables")
    frame = Frame(function, [None] * function.variables, (), argument_count)
    frame.position = position
    frame.stack = unpacker.stack(stack)
    for slot, value in zip(live, variables, strict=True):
        frame.slots[slot] = unpacker.variable(frame.slots, slot, value)
        if (type(frame.slots[slot]) is Cell) != (slot in function.boxed):
            raise SnapshotError("the snapshot does not fit its program: a variable is shared by no function")
    if cells:
        frame.cells = tuple([unpacker.cell(cell) for cell in cells])
    return frame


def _callback_frame(unpacker: Unpacker, name: str, state: list[Packed]) -> CallbackFrame:
    kind: Any = CALLBACK_METHODS[name]
    frame: CallbackFrame = kind.__new__(kind)
    values = unpacker.stack(state)
    for field, value in zip(kind.state, values, strict=True):
        setattr(frame, field, value)
        unpacker.need(frame, field, value)
    return frame


def _effect(packed: list[Any]) -> Effect:
    made: Effect = EFFECTS[packed[0]](*packed[1:])
    return made


def load_blob(data: bytes) -> Any:
    """A value that was stored apart."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as problem:
        raise SnapshotError(f"a stored value cannot be read: {problem}") from None


def fill(holder: Any, key: Any, vacancy: Vacant, value: Any) -> None:
    """Put a loaded value where its vacancy still is."""
    if isinstance(holder, list | dict | Cell):
        if holder[key] is vacancy:
            holder[key] = value
    elif getattr(holder, key) is vacancy:
        setattr(holder, key, value)
