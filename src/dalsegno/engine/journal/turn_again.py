"""All that is needed to run one recorded turn again in this process. Nothing is stored, and no task runs.

Unlike an inspection this runs code that a snapshot names, so the snapshot's seal is verified first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from dalsegno.core.scripts.journal import Entry
from dalsegno.core.scripts.turn import decided
from dalsegno.core.scripts.turn_view import TurnSummary
from dalsegno.core.values import decode_value
from dalsegno.engine.journal.received_outcomes import Received, events_between
from dalsegno.engine.journal.recorded_turns import RecordedTurns, Recording, summary_of
from dalsegno.engine.scripts.advance import Job
from dalsegno.engine.scripts.programs import RunningMachine, ScriptProgram
from dalsegno.engine.secrets.snapshot_seals import SnapshotSeals
from dalsegno.errors import Conflict, NotFound
from dalsegno.lang.runtime.effects import Outcome, promise_id
from dalsegno.lang.runtime.machine_state import MachineState, PromiseState
from dalsegno.model.execution import CLEANUP_RELATION, ExecutionView
from dalsegno.model.machine import CancelReason

START_AGAIN = 0
"""Instructions that a start may run before the machine pauses."""


@dataclass(frozen=True, slots=True)
class TurnMaterial:
    """A turn to be run again: ``begin`` returns its machine, paused or suspended, ``job`` holds what it receives."""

    turn: TurnSummary
    program: ScriptProgram
    begin: Callable[[], RunningMachine]
    job: Job
    read_blob: Callable[[str], Awaitable[bytes]]
    """Reads a value that a script's machine finds missing."""


async def prepare(
    turns: RecordedTurns, seals: SnapshotSeals | None, execution: str, number: int | None
) -> TurnMaterial:
    """Return the material of a turn; of the last one if ``number`` is None."""
    recording = await turns.recording(execution)
    turn = summary_of(recording, number)
    before = recording.entries.get(turn.number - 1)
    if before is None:
        return await _first(turns, seals, recording.view, turn)
    program = await turns.definitions.script(recording.view.definition)
    snapshot = await _verified(program, seals, recording.view, before)
    read = partial(turns.blobs.get, execution)
    blobs = await program.read_blobs(snapshot, read)
    state = await turns.state(recording.view, before)
    received = await turns.received(recording, turn, before, state)
    job = _job(execution, turn, {promise_id(one.number): one.outcome for one in received})
    job.interrupted = before.interrupted
    job.cancel, job.reason = await _cancellation(turns, recording, turn, before)
    if not job.cancel or job.interrupted:
        _refuse_unknown(turn, state, received)
    return TurnMaterial(turn, program, lambda: program.load(snapshot, blobs), job, read)


async def _first(
    turns: RecordedTurns, seals: SnapshotSeals | None, view: ExecutionView, turn: TurnSummary
) -> TurnMaterial:
    """Return the first turn: it starts the program with the execution's input."""
    if turn.number != 1:
        raise NotFound(
            f"turn {turn.number} of execution {view.id} cannot be run again: the machine before it is not kept"
        )
    if view.relation in ("retry", "rerun", CLEANUP_RELATION):
        raise Conflict(
            f"turn 1 of execution {view.id} took over the machine of execution {view.parent}; run turn 2 again"
        )
    program = await turns.definitions.script(view.definition)
    if seals is not None and program.native and not program.is_own:
        await seals.prepare()
        await seals.check_program(program.definition)
    inputs = decode_value(view.input)
    context = {
        "executionId": view.id,
        "workflow": view.workflow,
        "version": view.version,
        "startedAt": int(view.created_at * 1000),
        "attempt": 1,
    }
    job = _job(view.id, turn, {})
    return TurnMaterial(
        turn,
        program,
        lambda: program.start(inputs, context, turn.at, START_AGAIN),
        job,
        partial(turns.blobs.get, view.id),
    )


async def _verified(
    program: ScriptProgram, seals: SnapshotSeals | None, view: ExecutionView, before: Entry
) -> bytes:
    if not program.native or seals is None:
        return before.snapshot
    await seals.prepare()
    if not program.is_own:
        await seals.check_program(program.definition)
    return await seals.opened(before.snapshot, view.id, view.definition)


def _job(execution: str, turn: TurnSummary, outcomes: Mapping[str, Outcome | None]) -> Job:
    known = {name: outcome for name, outcome in outcomes.items() if outcome is not None}
    places = {name: place for place, name in enumerate(known, 1)}
    return Job(execution, turn.number - 1, len(known), turn.at, known, places)


async def _cancellation(
    turns: RecordedTurns, recording: Recording, turn: TurnSummary, before: Entry
) -> tuple[CancelReason, str | None]:
    """Return the request to end that was pending in a turn, with its reason."""
    own = recording.entries.get(turn.number, recording.ending)
    view = recording.view
    for event in await events_between(turns.archive, view.id, view.seq, before.at, turn.at):
        if event.kind == "CancelRequested":
            data: Any = decode_value(event.data) if event.data is not None else {}
            return (own.cancel if own is not None and own.cancel else "cancel"), data.get("reason")
    return (own.cancel if own is not None else before.cancel), None


def _refuse_unknown(turn: TurnSummary, state: MachineState, received: Sequence[Received]) -> None:
    """Refuse a turn whose await cannot be decided: what it received is not kept."""
    known = {promise_id(one.number): one.outcome for one in received if one.outcome is not None}
    if state.awaiting is None or decided(state.awaiting, known) is not None:
        return
    lost = {one.number for one in received if one.outcome is None}
    names = ", ".join(_named(one) for one in state.promises if one.number in lost)
    what = f"the result of {names} is not kept" if names else "the history does not say what woke it"
    raise Conflict(f"turn {turn.number} cannot be run again: {what}")


def _named(promise: PromiseState) -> str:
    return f"{promise.kind} {promise.name}" if promise.name else promise.kind
