"""A machine's state, packed for a snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dalsegno.lang.effects import AwaitSignal, Cancel, Effect, SetTags, StartTask, StartTimer, StartWorkflow
from dalsegno.lang.flow.packing import Packed, Packer
from dalsegno.lang.flow.snapshot import STATUSES, State
from dalsegno.lang.frames import Frame

if TYPE_CHECKING:
    from dalsegno.lang.flow.machine import Machine

EFFECTS: dict[str, type[Any]] = {
    "task": StartTask,
    "workflow": StartWorkflow,
    "timer": StartTimer,
    "signal": AwaitSignal,
    "cancel": Cancel,
    "tags": SetTags,
}
_EFFECT_NAMES = {kind: name for name, kind in EFFECTS.items()}


def pack_machine(machine: Machine, packer: Packer) -> State:
    """Everything that the machine needs to go on; of one that has ended only how."""
    ended = machine.status in ("completed", "failed")
    frames = [] if ended else [_frame(machine, packer, frame) for frame in machine.frames]
    variables = (
        {} if ended else {name: packer.value(value, stays=True) for name, value in machine.globals.items()}
    )
    requests = machine.requests
    result = packer.whole(machine.result) if ended else None
    error = packer.value(machine.error) if ended else None
    return State(
        STATUSES.index(machine.status),
        requests.made,
        requests.execution,
        frames,
        variables,
        packer.finish(),
        packer.values,
        [_effect(effect) for effect in requests.effects] if requests.effects else [],
        requests.logs,
        result,
        error,
        _meter(machine) if machine.status == "paused" else None,
    )


def _meter(machine: Machine) -> tuple[int, int, int]:
    """Instructions and the work of library functions were counted apart once, so there are two places for what is
    left of them."""
    meter = machine.host.meter
    return meter.work_left, meter.limits.instructions, meter.bytes_left


def _frame(machine: Machine, packer: Packer, frame: Any) -> list[Packed]:
    if type(frame) is not Frame:
        return [frame.name, [packer.value(getattr(frame, field)) for field in frame.state]]
    slots = frame.slots
    live = machine.program.live_slots(frame.function, frame.position)
    return [
        frame.function.number,
        frame.position,
        frame.argument_count,
        [packer.value(value) for value in frame.stack],
        [packer.value(slots[slot], stays=True) for slot in live],
        [packer.number(cell) for cell in frame.cells] if frame.cells else [],
    ]


def _effect(effect: Effect) -> list[Any]:
    return [_EFFECT_NAMES[type(effect)], *[getattr(effect, field) for field in effect.__struct_fields__]]
