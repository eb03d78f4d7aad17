"""Inspection of a stored machine: its await and its variables. Large ones are read in a subprocess."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dalsegno.core.values import decode_value
from dalsegno.engine.scripts.programs import ScriptProgram
from dalsegno.engine.scripts.turns import InThread
from dalsegno.engine.subprocesses.job_pool import Offload
from dalsegno.errors import LimitExceeded
from dalsegno.lang import FlowProgram, Machine, SnapshotError
from dalsegno.lang.runtime.effects import Awaitable

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
    is_small = len(snapshot) + sum(map(len, blobs.values())) <= SMALL
    if isinstance(program.code, FlowProgram) and not is_small:
        return seen_in_process(await offload.large("look", program.code.dump(), snapshot, variables))
    seen: list[Seen] = []

    def look() -> None:
        machine = program.load(snapshot, blobs)
        seen.append((machine.awaiting, machine.variables() if variables else {}))

    if in_thread is not None and program.native:
        await in_thread(look)
    elif is_small:
        look()
    else:
        await offload.load(look)
    return seen[0]


def look_in_process(code: bytes, snapshot: bytes, variables: bool) -> tuple[bytes, bytes]:
    """Return the same for a script, in the form passed between processes."""
    machine = Machine.loads(FlowProgram.load(code), snapshot)
    found = machine.variables() if variables else {}
    return msgspec.msgpack.encode(machine.awaiting), msgspec.json.encode(found)


def seen_in_process(reply: Mapping[str, Any]) -> Seen:
    raised = reply.get("raised")
    if raised is not None:
        kind = SnapshotError if raised["class"] == "SnapshotError" else LimitExceeded
        raise kind(raised["message"])
    awaiting, variables = reply["value"]
    return _awaiting.decode(awaiting), decode_value(variables)


_awaiting = msgspec.msgpack.Decoder(Awaitable | None)
