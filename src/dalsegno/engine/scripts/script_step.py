"""A step of a script as a worker takes it: the transition, and what stays in memory once it is applied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dalsegno.core.scripts.earlier_calls import find_begun
from dalsegno.core.scripts.journal import Turned, ends_chunk
from dalsegno.core.scripts.step import commit_turn
from dalsegno.core.scripts.tasks import INLINE_OUTPUT, TaskDone
from dalsegno.core.scripts.token_bodies import blob_of
from dalsegno.core.scripts.turn import Turn
from dalsegno.engine.journal.writing import (
    MOST_GATHERED,
    Journals,
    OpenJournal,
    gathered,
    waits_long,
    written,
)
from dalsegno.engine.scripts.advance import Job, lost_timers
from dalsegno.engine.scripts.machine_cache import LARGEST, CachedMachine
from dalsegno.engine.scripts.programs import RunningMachine
from dalsegno.engine.scripts.readiness import Readiness
from dalsegno.engine.steps.budget import LIGHT_BYTES
from dalsegno.engine.steps.values import SMALL
from dalsegno.lang.python import PythonMachine
from dalsegno.lang.runtime.effects import Awaitable as Awaits
from dalsegno.lang.runtime.effects import ErrorValue, Outcome, promise_number
from dalsegno.model.event import NewEvent
from dalsegno.model.machine import numbers_in, reaches
from dalsegno.model.token import Lease
from dalsegno.model.transition import Transition


class ScriptStep(Struct, gc=False):
    """A transition, its replacement if it is refused because the machine has advanced, and the machine to cache once
    it is applied.
    """

    transition: Transition
    instead: Callable[[], Transition] | None = None
    cached: CachedMachine | None = None
    done: TaskDone | None = None
    """Result of a task, in case its script has ended before it."""
    ends_with: ErrorValue | None = None
    """The error with which the step ends its execution without another turn, computed for the machine as it was."""
    freed: int = 0
    """Bytes in rows that the step removes, counting only values that count towards the limit."""
    spent: str | None = None
    """The blob of the task's input, to be removed once the step is applied."""
    size: int | None = None
    """Bytes of the transition's effects, once they are measured."""


def step_of_turn(
    lease: Lease,
    job: Job,
    turn: Turn,
    machine: Any,
    now: float,
    readiness: Readiness,
    events: tuple[NewEvent, ...] = (),
    *,
    is_cached: bool = True,
) -> ScriptStep:
    """Return the step that commits a turn."""
    turn.dropped = lost_timers(lease.execution, job.before, turn.reachable)
    is_native = type(machine) is PythonMachine
    if is_native and turn.snapshot:
        turn.snapshot = readiness.seals.sealed(turn.snapshot, lease.execution, lease.definition)
    transition = commit_turn(lease, turn, now, events)
    cached = None
    is_kept = is_cached and machine is not None and (turn.weight <= LIGHT_BYTES or is_native)
    if job.signals and find_begun(job.execution, job.signals) is not None:
        is_kept = False  # a fused turn would not find them
    if is_kept and turn.status == "suspended" and job.awaiting is not None:
        cached = _cached(lease.definition, job, turn, machine, job.awaiting)
    freed = _freed(job, turn) if sum(job.sizes.values()) > SMALL else 0
    if job.journal is not None:
        transition, journal, replaced = _journaled(
            job, job.journal, turn, transition, now, cached, lease.definition
        )
        freed += replaced
        if cached is not None:
            cached.journal = journal
    return ScriptStep(transition, cached=cached, freed=freed)


def _freed(job: Job, turn: Turn) -> int:
    """Return the bytes of completions that leave the inbox; those in blobs remain."""
    freed = 0
    for name, size in job.sizes.items():
        if SMALL < size <= LARGEST and not reaches(turn.reachable, promise_number(name)):
            freed += size
    return freed


def _cached(
    definition: str, job: Job, turn: Turn, machine: RunningMachine, awaiting: Awaits
) -> CachedMachine:
    """Return the suspended machine as its next turn will find it, with the outcomes that it can still reach."""
    known: dict[str, Outcome] = {}
    sizes: dict[str, int] = {}
    weight = turn.weight
    for name, outcome in job.known.items():
        if reaches(turn.reachable, promise_number(name)):
            known[name] = outcome
            size = sizes[name] = job.sizes.get(name, 0)
            weight += size
    return CachedMachine(
        machine,
        turn.version + 1,
        turn.read + (turn.settled is not None),
        turn.wake,
        known,
        awaiting,
        turn.cancel if turn.interrupted else "",
        sizes,
        weight,
        turn.blobs,
        definition,
    )


# -- the journal ------------------------------------------------------------------------------------------------


async def open_journal(journals: Journals, job: Job, turn: Turn) -> None:
    """Open the journal for a turn of a machine that was loaded."""
    if job.setting.turns == 0:
        return
    if job.journal is None:
        job.journal = journals.known(job.execution, turn.version)
    if job.journal is None and (turn.status == "suspended" or _is_only_here(job, turn)):
        job.journal = await journals.opened(job.execution, job.setting, turn.version)
        job.is_opened = turn.version > 0
        if job.is_opened and job.journal.last is None and _is_unknown(job, turn):
            job.pending = await journals.pending(job.execution)


def _is_unknown(job: Job, turn: Turn) -> bool:
    """Return True if something was called before the turn, and has not completed: only the store knows what it is."""
    known = {promise_number(request.id) for request, _ in turn.requests if hasattr(request, "id")}
    known.update(taken.promise for taken in turn.taken)
    if job.received is not None:
        known.update(each.promise for each in job.received.completions)
    return any(promise not in known for promise in numbers_in(turn.reachable))


def _is_only_here(job: Job, turn: Turn) -> bool:
    """Return True if a last turn has received what the history does not show, and a rerun from before it needs."""
    if turn.taken:
        return True
    found = (
        [each for each in job.received.completions if each.number > job.received.read] if job.received else []
    )
    if turn.settled is not None:
        found.append(turn.settled)
    return any(each.ok and blob_of(each) is None and len(each.data) > INLINE_OUTPUT for each in found)


def _journaled(
    job: Job,
    journal: OpenJournal,
    turn: Turn,
    transition: Transition,
    now: float,
    cached: CachedMachine | None,
    definition: str,
) -> tuple[Transition, OpenJournal, int]:
    """Add a turn to the journal. Return its transition, with what it stores of the journal, the journal for the next
    turn, and the bytes of the rows that are replaced.
    """
    is_due = bool(journal.gathered)
    if turn.status == "suspended" or _is_only_here(job, turn):
        turned = Turned(
            now,
            turn.awaited,
            turn.checkpoint,
            turn.cancel,
            transition.effects,
            job.received,
            job.pending,
            turn.blobs,
            definition,
        )
        journal = gathered(journal, turn.version + 1, turned, len(turn.snapshot))
        is_due = (
            ends_chunk(journal.turn)
            or cached is None
            or job.is_opened
            or job.setting.is_written_each_turn
            or journal.size > MOST_GATHERED
            or turn.status != "suspended"
            or bool(turn.checkpoint or turn.blobs)
            or waits_long(job.awaiting)
        )
    if not is_due:
        return transition, journal, 0
    done = written(journal)
    return replace(transition, effects=(*done.effects, *transition.effects)), done.journal, done.freed
