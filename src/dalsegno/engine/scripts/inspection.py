"""Inspection of a stored machine: its await, its variables, its functions. Large ones are read in a subprocess."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from dalsegno.core.values import decode_value
from dalsegno.engine.scripts.programs import ScriptProgram
from dalsegno.engine.scripts.turns import InThread
from dalsegno.engine.subprocesses.job_pool import Offload
from dalsegno.errors import LimitExceeded
from dalsegno.lang import FlowProgram, Machine, SnapshotError
from dalsegno.lang.runtime.effects import Awaitable
from dalsegno.lang.runtime.machine_state import MachineState

SMALL = 64 * 1024
"""Largest bytes of a snapshot with its values that are read in the event loop."""

Seen = tuple[Awaitable | None, dict[str, Any]]


async def inspect(
    program: ScriptProgram,
    snapshot: bytes,
    blobs: Mapping[str, bytes],
    offload: Offload,
    in_thread: InThread[None] | None,
    *,
    variables: bool,
) -> Seen:
    """Return the await and the variables of a stored machine. A Python machine is loaded ``in_thread``: the classes
    of its variables are user code. A large snapshot of a script is read in a subprocess.
    """
    is_small = _is_small(snapshot, blobs)
    if isinstance(program.code, FlowProgram) and not is_small:
        return seen_in_process(await offload.large("look", program.code.dump(), snapshot, variables))
    seen: list[Seen] = []

    def look() -> None:
        machine = program.load(snapshot, blobs)
        seen.append((machine.awaiting, machine.variables() if variables else {}))

    await _run(look, program, offload, in_thread, is_small=is_small)
    return seen[0]


async def inspect_state(
    program: ScriptProgram,
    snapshot: bytes,
    blobs: Mapping[str, bytes],
    offload: Offload,
    in_thread: InThread[None] | None,
) -> MachineState:
    """Return the functions and promises of a stored machine, which is loaded as for `inspect`."""
    is_small = _is_small(snapshot, blobs)
    if isinstance(program.code, FlowProgram) and not is_small:
        reply = await offload.large("state", program.code.dump(), snapshot)
        return _state.decode(_value_of(reply))
    seen: list[MachineState] = []

    def look() -> None:
        seen.append(program.load(snapshot, blobs).state())

    await _run(look, program, offload, in_thread, is_small=is_small)
    return seen[0]


def _is_small(snapshot: bytes, blobs: Mapping[str, bytes]) -> bool:
    return len(snapshot) + sum(map(len, blobs.values())) <= SMALL


async def _run(
    look: Callable[[], None],
    program: ScriptProgram,
    offload: Offload,
    in_thread: InThread[None] | None,
    *,
    is_small: bool,
) -> None:
    if in_thread is not None and program.native:
        await in_thread(look)
    elif is_small:
        look()
    else:
        await offload.load(look)


def look_in_process(code: bytes, snapshot: bytes, variables: bool) -> tuple[bytes, bytes]:
    """Return the same for a script, in the form passed between processes."""
    machine = Machine.loads(FlowProgram.load(code), snapshot)
    found = machine.variables() if variables else {}
    return msgspec.msgpack.encode(machine.awaiting), msgspec.json.encode(found)


def state_in_process(code: bytes, snapshot: bytes) -> bytes:
    """Return the state of a script's machine, in the form passed between processes."""
    return msgspec.json.encode(Machine.loads(FlowProgram.load(code), snapshot).state())


def seen_in_process(reply: Mapping[str, Any]) -> Seen:
    awaiting, variables = _value_of(reply)
    return _awaiting.decode(awaiting), decode_value(variables)


def _value_of(reply: Mapping[str, Any]) -> Any:
    raised = reply.get("raised")
    if raised is not None:
        kind = SnapshotError if raised["class"] == "SnapshotError" else LimitExceeded
        raise kind(raised["message"])
    return reply["value"]


_state = msgspec.json.Decoder(MachineState)
_awaiting = msgspec.msgpack.Decoder(Awaitable | None)
