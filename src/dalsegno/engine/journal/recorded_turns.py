"""The recorded turns of a script or Python workflow: a list of them, and one in full.

The journal has the machine after each turn, and what the turn received. The turn that ended the execution left no
machine, and a turn that is not in the journal yet has no record of what it received: there the history says it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from dalsegno.core.scripts.journal import Entry
from dalsegno.core.scripts.source_text import SourceText, source_text
from dalsegno.core.scripts.turn import leaf_ids
from dalsegno.core.scripts.turn_view import (
    MadePromise,
    TurnPage,
    TurnState,
    TurnSummary,
    TurnView,
    bounded,
    by_number,
    error_view,
    made_numbers,
    settled_views,
    turn_view,
    unchanged_views,
)
from dalsegno.core.values import decode_value
from dalsegno.engine.definitions import Definitions
from dalsegno.engine.executions import no_execution
from dalsegno.engine.journal.received_outcomes import (
    Received,
    ReceivedOutcomes,
    error_of_object,
    events_between,
    started_child,
)
from dalsegno.engine.journal.turn_history import TurnHistory
from dalsegno.engine.scripts.advance import ResumeInputs
from dalsegno.engine.scripts.inspection import inspect_state
from dalsegno.engine.scripts.turns import InThread
from dalsegno.engine.secrets.snapshot_seals import content
from dalsegno.errors import BadConfiguration, NotFound, UsageError
from dalsegno.lang import SnapshotError
from dalsegno.lang.runtime.effects import LeafKind, promise_id
from dalsegno.lang.runtime.machine_state import MachineState, PromiseState
from dalsegno.model.execution import SCRIPTED, ExecutionView
from dalsegno.model.ids import child_execution_id, promise_token_id
from dalsegno.ports.archive import Archive
from dalsegno.ports.records import Blobs

MOST_MADE = 1_000
"""Promises of one turn that are looked up in the history."""
MOST_KEPT = 4 * 1024 * 1024
"""Bytes of machines up to which a recording is kept in memory for the next question."""
AFTERWARDS = 3600.0
"""Seconds after a turn in which the tasks are looked for that it asked for and its machine has forgotten."""


class Recording(Struct, frozen=True):
    """What is kept of one execution's turns."""

    view: ExecutionView
    entries: Mapping[int, Entry]
    """By the number of the turn: the machine after it, and what it received."""
    ending: Entry | None
    """What the turn received that ended the execution, if the history does not show it."""
    turns: tuple[TurnSummary, ...]
    text: SourceText


class RecordedTurns:
    def __init__(
        self,
        archive: Archive,
        definitions: Definitions,
        blobs: Blobs,
        history: TurnHistory,
        in_thread: Callable[[], InThread[None] | None],
    ) -> None:
        """Python machines are loaded ``in_thread``: the classes of their variables are user code."""
        self.archive = archive
        self.definitions = definitions
        self.blobs = blobs
        self._history = history
        self._in_thread = in_thread
        self._reading = ResumeInputs(archive, blobs)
        self._latest: tuple[tuple[str, int, str], Recording] | None = None

    async def page(
        self, execution: str, first: int | None = None, limit: int = 100, *, newest_first: bool = False
    ) -> TurnPage:
        """Return turns from the number ``first`` on, upwards or, with ``newest_first``, downwards."""
        turns = list((await self.recording(execution)).turns)
        total = len(turns)
        if newest_first:
            turns.reverse()
        if first is not None:
            turns = [one for one in turns if (one.number <= first if newest_first else one.number >= first)]
        more = turns[limit].number if len(turns) > limit else None
        return TurnPage(tuple(turns[:limit]), more, total)

    async def one(self, execution: str, number: int) -> TurnView:
        """Return one turn in full."""
        recording = await self.recording(execution)
        summary = summary_of(recording, number)
        if summary.state != "suspended":
            return await self._ending(recording, summary)
        before, after = recording.entries.get(number - 1), recording.entries[number]
        try:
            later = await self.state(recording.view, after)
            earlier = await self.state(recording.view, before) if before is not None else None
        except UNREADABLE as error:
            return _without_machine(summary, str(error))
        received: Sequence[Received] = ()
        if before is not None and earlier is not None:
            received = _used(await self.received(recording, summary, before, earlier), earlier, later)
        made: Sequence[MadePromise] = ()
        if number == 1 or earlier is not None:
            made = await self._made(recording.view, earlier, later, after)
        outcomes = [(one.number, one.outcome) for one in received]
        return turn_view(summary, earlier, later, recording.text.line, outcomes, made)

    # -- the list ---------------------------------------------------------------------------------------------

    async def recording(self, execution: str) -> Recording:
        """Read what is kept of an execution's turns: the list has those of the journal, and the one that ended it.
        The last one that was read is kept, because people go from turn to turn.
        """
        outline = await self.archive.outline(execution)
        if outline is None:
            raise no_execution(execution)
        key = (execution, outline.seq, outline.state)
        if self._latest is None or self._latest[0] != key:
            found = await self._read(execution)
            size = sum(len(entry.snapshot) for entry in found.entries.values())
            if size > MOST_KEPT:
                return found
            self._latest = (key, found)
        return self._latest[1]

    async def _read(self, execution: str) -> Recording:
        view = await self.archive.execution(execution)
        if view is None:
            raise no_execution(execution)
        text = await self._text(view.definition)
        entries = {each.turn: each for each in await self._history.entries(view)}
        turns = [
            TurnSummary(
                each.turn, each.at, each.line, text.line(each.line).strip(), each.awaits, each.checkpoint
            )
            for each in entries.values()
        ]
        ending = None
        if view.ended_at is not None and view.kind in SCRIPTED:
            stored = await self._history.stored(execution)
            ending = next((each for each in stored if not each.snapshot), None)
            if turns or ending is not None:
                number = ending.turn if ending is not None else turns[-1].number + 1
                turns.append(TurnSummary(number, view.ended_at, 0, state=_ENDINGS[view.state]))
        return Recording(view, entries, ending, tuple(turns), text)

    async def _text(self, definition: str) -> SourceText:
        stored = await self.archive.definition_by_hash(definition)
        found = source_text(stored) if stored is not None else None
        return found if found is not None else SourceText("", 1, ())

    # -- one turn ---------------------------------------------------------------------------------------------

    async def state(self, view: ExecutionView, entry: Entry) -> MachineState:
        """Return the functions and promises of a kept machine."""
        program = await self.definitions.script(view.definition)
        # A snapshot that is only inspected needs no verification: nothing of it is executed.
        snapshot = content(entry.snapshot)
        blobs = await program.read_blobs(snapshot, partial(self.blobs.get, view.id))
        return await inspect_state(program, snapshot, blobs, self.definitions.offload, self._in_thread())

    async def _ending(self, recording: Recording, summary: TurnSummary) -> TurnView:
        """Return the turn that ended the program, with the functions as they were before it."""
        view, text = recording.view, recording.text
        error = error_of_object(decode_value(view.error)) if view.error is not None else None
        line = _line_of(error.stack) if error is not None else 0
        seen = TurnView(
            summary.number,
            summary.at,
            summary.state,
            line,
            text.line(line).strip(),
            output=bounded(decode_value(view.output)) if view.output is not None else None,
            error=error_view(error) if error is not None else None,
            is_before=True,
        )
        before = recording.entries.get(summary.number - 1)
        if before is None:
            return seen
        try:
            earlier = await self.state(view, before)
        except UNREADABLE as problem:
            return replace(seen, missing=str(problem))
        received = _used(await self.received(recording, summary, before, earlier), earlier, None)
        outcomes = [(one.number, one.outcome) for one in received]
        return replace(
            seen,
            functions=unchanged_views(earlier, text.line),
            received=settled_views(earlier, outcomes),
            received_count=len(outcomes),
        )

    async def received(
        self, recording: Recording, turn: TurnSummary, before: Entry, state: MachineState
    ) -> list[Received]:
        """Return the outcomes that a turn knew. ``before``: what is kept of the turn before, ``state``: its machine.
        What the journal lacks is looked up in the history.
        """
        own = recording.entries.get(turn.number) if turn.state == "suspended" else recording.ending
        arrived = own.arrived if own is not None else ()
        finder = ReceivedOutcomes(self.archive, self._reading, recording.view.id)
        if arrived:
            return await finder.find(state, before.known, arrived, (), (), turn.at)
        view = recording.view
        events = await events_between(self.archive, view.id, view.seq, before.at, turn.at)
        return await finder.find(state, before.known, (), before.signals, events, turn.at)

    async def _made(
        self, outline: ExecutionView, before: MachineState | None, after: MachineState, entry: Entry
    ) -> list[MadePromise]:
        """Return what the turn asked for. The machine forgets what nothing waits for; the history may know it."""
        numbers = made_numbers(before, after)
        reachable = by_number(after)
        known = {number: reachable[number] for number in numbers if number in reachable}
        if len(known) < len(numbers):
            forgotten = [number for number in numbers if number not in known][:MOST_MADE]
            known |= await self._from_history(outline, forgotten, entry.at)
        inputs = {task.promise: task.asked().body.input for task in entry.tasks}
        found = []
        for number in sorted(known):
            one = known[number]
            child = child_execution_id(outline.id, promise_id(number)) if one.kind == "workflow" else ""
            given = inputs.get(number)
            shown = bounded(decode_value(given)) if given else None
            found.append(MadePromise(number, one.kind, one.name or "", one.due, child, shown))
        return found

    async def _from_history(
        self, outline: ExecutionView, numbers: Sequence[int], at: float
    ) -> dict[int, PromiseState]:
        tokens = {promise_token_id(outline.id, number): number for number in numbers}
        children = {child_execution_id(outline.id, promise_id(number)): number for number in numbers}
        found: dict[int, PromiseState] = {}
        for event in await events_between(self.archive, outline.id, outline.seq, at - 1.0, at + AFTERWARDS):
            number = tokens.get(event.token or "")
            if number is not None:
                kind: LeafKind = "timer" if event.kind == "TimerFired" else "task"
                found.setdefault(number, PromiseState(number, kind, event.node or None))
            elif event.kind == "ChildStarted" and (child := children.get(started_child(event))) is not None:
                found.setdefault(child, PromiseState(child, "workflow", event.node))
        return found


UNREADABLE = (UsageError, SnapshotError, BadConfiguration)
"""Errors of a machine that cannot be loaded here: most often a Python workflow whose module this process lacks."""

_ENDINGS: Mapping[str, TurnState] = {"COMPLETED": "completed", "FAILED": "failed", "CANCELLED": "cancelled"}
_PLACE = re.compile(r".* \(.*:(?P<line>\d+)\)", re.DOTALL)


def _used(received: Sequence[Received], before: MachineState, after: MachineState | None) -> list[Received]:
    """Return the outcomes that the turn waited for, that were news to it, or that it has used up."""
    awaited = leaf_ids(before.awaiting) if before.awaiting is not None else set()
    left = by_number(after) if after is not None else {}
    return [
        one for one in received if one.is_new or promise_id(one.number) in awaited or one.number not in left
    ]


def _line_of(stack: Sequence[str]) -> int:
    found = _PLACE.fullmatch(stack[0]) if stack else None
    return int(found["line"]) if found else 0


def _without_machine(summary: TurnSummary, why: str) -> TurnView:
    return TurnView(
        summary.number,
        summary.at,
        summary.state,
        summary.line,
        summary.source,
        summary.awaits,
        summary.checkpoint,
        missing=why,
    )


def summary_of(recording: Recording, number: int | None) -> TurnSummary:
    """Return a turn of the list; the last one if ``number`` is None."""
    turns = recording.turns
    found = turns[-1] if number is None and turns else None
    found = next((one for one in turns if one.number == number), found)
    if found is not None:
        return found
    execution = recording.view.id
    if not turns:
        raise NotFound(f"no turn of execution {execution} is kept")
    kept = f"{turns[0].number} to {turns[-1].number}" if len(turns) > 1 else str(turns[0].number)
    raise NotFound(f"turn {number} of execution {execution} is not kept; kept are {kept}")
