"""Kept machines that an execution of another version of their program continues: they are moved to that version.

The move is a pure function of the snapshot and of both programs. It is made twice: before the execution is started (see
`dalsegno.engine.starting.moving`), and in its first turn, which loads what it gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from dalsegno.engine.scripts.programs import ScriptProgram
from dalsegno.engine.steps.budget import is_light
from dalsegno.lang import FlowProgram, FlowSyntaxError, SnapshotError
from dalsegno.lang.flow.snapshot.moving import ScriptMover, ScriptVersion
from dalsegno.lang.python import PythonProgram
from dalsegno.lang.python.snapshot.moving import WorkflowMover, WorkflowVersion
from dalsegno.lang.runtime.limits import Heavy
from dalsegno.lang.runtime.movement import Movement, Reason
from dalsegno.model.definition import Definition

T = TypeVar("T")

MOVE_REFUSED = "MOVE_REFUSED"
FROM_START = "start it again from the beginning (from_start=True, --from-start)"
SMALL = 16 * 1024
"""Bytes of a script's snapshot and both sources up to which it is moved without a subprocess."""


class MoveRefused(SnapshotError):
    """A stored machine has no place in another version of its program."""


@lru_cache(maxsize=16)
def _script_mover(old: FlowProgram, new: FlowProgram) -> ScriptMover:
    return ScriptMover(ScriptVersion(old), ScriptVersion(new))


@lru_cache(maxsize=16)
def _workflow_mover(old: PythonProgram, new: PythonProgram) -> WorkflowMover:
    return WorkflowMover(WorkflowVersion(old), WorkflowVersion(new))


def movement(old: ScriptProgram, new: ScriptProgram, snapshot: bytes, blobs: Mapping[str, bytes]) -> Movement:
    """Move a snapshot. Of a Python workflow this loads its values, which is user code."""
    check_kind(old.definition, new.definition)
    before, after, version = old.code, new.code, old.definition.version
    if isinstance(before, PythonProgram) and isinstance(after, PythonProgram):
        migration = after.migrations.get(version) or after.migrations.get(None)
        return _compared(_workflow_mover, before, after).move(snapshot, blobs, migration)
    return _compared(_script_mover, before, after).move(snapshot, version)


def _compared(mover: Callable[[Any, Any], T], before: Any, after: Any) -> T:
    try:
        return mover(before, after)
    except (SnapshotError, FlowSyntaxError) as error:
        raise MoveRefused(f"its versions cannot be compared: {error}; {FROM_START}") from None


def check_kind(old: Definition, new: Definition) -> None:
    if old.kind != new.kind:
        raise MoveRefused(f"{named(new)} is a {new.kind}, and it ran a {old.kind}; {FROM_START}")


def moved(old: ScriptProgram, new: ScriptProgram, snapshot: bytes, blobs: Mapping[str, bytes]) -> bytes:
    """Return the moved snapshot, or raise `MoveRefused`. A light step gives up a move that may take long."""
    if is_light.get() and not is_small_move(old, new, snapshot):
        raise Heavy
    found = movement(old, new, snapshot, blobs)
    if not found.maps:
        raise MoveRefused(refusal(old, new, found))
    return found.data


def is_small_move(old: ScriptProgram, new: ScriptProgram, snapshot: bytes) -> bool:
    return len(snapshot) + sum(len(each.definition.source) for each in (old, new)) <= SMALL


def named(definition: Definition) -> str:
    return f"version {definition.version} of '{definition.name}'"


def refusal(old: ScriptProgram, new: ScriptProgram, found: Movement) -> str:
    """Return the reasons against a retry, and what can be done."""
    return f"{reasons(old, new, found)}\nChange that, retry it with the version it ran, or {FROM_START}"


def reasons(old: ScriptProgram, new: ScriptProgram, found: Movement) -> str:
    """Return the reasons with the lines of both versions."""
    head = f"its state of {named(old.definition)} cannot continue in {named(new.definition)}:"
    return "\n".join([head, *[_shown(old, new, reason) for reason in found.reasons]])


def _shown(old: ScriptProgram, new: ScriptProgram, reason: Reason) -> str:
    shown = [f"  {reason}", f"    old, line {reason.old_line}: {old.line(reason.old_line)}"]
    if reason.new_line is not None:
        shown.append(f"    new, line {reason.new_line}: {new.line(reason.new_line)}")
    return "\n".join(shown)


# -- in a subprocess ---------------------------------------------------------------------------------------------


def move_in_process(old: bytes, new: bytes, snapshot: bytes, version: int) -> bytes:
    """Move a script's snapshot in a subprocess; the moved one stays there."""
    before, after = FlowProgram.load(old), FlowProgram.load(new)
    found = _compared(_script_mover, before, after).move(snapshot, version)
    return msgspec.msgpack.encode(msgspec.structs.replace(found, data=b""))


def move_of(reply: Mapping[str, Any]) -> Movement:
    raised = reply.get("raised")
    if raised is not None:
        raise MoveRefused(raised["message"])
    return msgspec.msgpack.decode(reply["value"], type=Movement)
