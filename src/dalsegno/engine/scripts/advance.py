"""A machine at its stops: known outcomes are passed to it until it ends, pauses, or awaits something unknown.

The inputs of a resume are read from the stores: completions, signals, and the reason of a cancellation. Following the
machine does no I/O, so that it can run in a thread outside the event loop, where the program's own code belongs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from msgspec import Struct

from dalsegno.core.scripts.journal import CalledTask, Received, SetTimer
from dalsegno.core.scripts.token_bodies import blob_of, error_in
from dalsegno.core.scripts.turn import decided, leaf_ids, leaves_of
from dalsegno.core.values import decode_value
from dalsegno.engine.journal.writing import OpenJournal
from dalsegno.engine.scripts.machine_cache import size_of
from dalsegno.engine.scripts.programs import RunningMachine
from dalsegno.engine.steps.budget import is_light
from dalsegno.errors import LimitExceeded
from dalsegno.lang.runtime.effects import (
    Awaitable,
    Err,
    ErrorValue,
    Ok,
    Outcome,
    asks_people,
    promise_id,
    promise_number,
)
from dalsegno.lang.runtime.limits import Heavy
from dalsegno.model.execution import ExecutionView
from dalsegno.model.ids import promise_token_id
from dalsegno.model.machine import (
    OFF,
    CancelReason,
    Completion,
    JournalSetting,
    MachineView,
    Ranges,
    SignalView,
    TakenSignal,
    reaches,
)
from dalsegno.ports.archive import Archive
from dalsegno.ports.records import Blobs

MOST_STOPS = 20_000
"""Stops at settled promises in one turn. Without this limit a loop over due timers would never end."""
STOPS_AT_ONCE = 200
"""Stops after which a turn yields to others."""
SAVED_PER_STOP = 50
"""Outcomes that can be passed in the time that a stop takes."""

LAST = float("inf")
"""Place of an outcome that is not recorded yet."""

TIMELESS = frozenset(("task", "workflow"))
"""Kinds of promises that are not settled by time."""


class Job(Struct):
    """A machine about to run, and all known outcomes for it."""

    execution: str
    version: int
    read: int
    now: float
    known: dict[str, Outcome]
    """Outcomes in the order of completion."""
    places: dict[str, int] = {}
    """Position of each stored completion and each signal in that order."""
    sizes: dict[str, int] = {}
    """Bytes of the stored outcomes."""
    signals: Sequence[SignalView] = ()
    payloads: Mapping[str, Outcome] = {}
    """Outcome of each signal."""
    cancel: CancelReason = ""
    interrupted: bool = False
    reason: str | None = None
    """Reason of the cancellation, if one was given."""
    settled: Completion | None = None
    taken: list[TakenSignal] = []
    stops: int = 0
    saved: int = 0
    """Outcomes that may be passed because of the stops since all were passed last."""
    is_unordered: bool = False
    """Whether a timer was found that is recorded in another order than its due time."""
    before: Awaitable | None = None
    """The await before the machine ran."""
    awaiting: Awaitable | None = None
    """The current await, if known; always known at the end."""
    blobs: frozenset[str] = frozenset()
    """Names of blobs in the snapshot that the machine was loaded from."""
    setting: JournalSetting = OFF
    """Which turns of it are kept."""
    journal: OpenJournal | None = None
    """Its journal, if this process knows it."""
    received: Received | None = None
    """What the store had for it; None if it was cached, and one completion came along."""
    pending: tuple[CalledTask | SetTimer, ...] = ()
    """What was pending before the turn, if its journal does not say so."""
    is_opened: bool = False
    """Whether another process may have run the turn before."""
    is_over: bool = False
    """The program came to its end, and its last turn requested nothing that could be lost."""


def follow(machine: RunningMachine, job: Job, budget: int | None) -> bool:
    """Run the machine as far as known outcomes allow. Return True if it could continue but has stopped so often that
    others should run first.
    """
    if job.cancel and not job.interrupted and machine.status == "suspended":
        job.interrupted, job.awaiting = True, None
        machine.interrupt(interruption(job.cancel, job.reason), now=job.now, budget=budget)
    while machine.status == "suspended":
        awaiting = job.awaiting = job.awaiting or machine.awaiting
        if awaiting is None:
            return False
        if job.signals:
            _give_signals(machine, job)
        timers = {} if awaiting.kind in TIMELESS else _expire_timers(awaiting, job)
        if decided(awaiting, job.known) is None:
            return False
        job.stops += 1
        machine.resume(_outcomes(awaiting, job, timers), now=job.now, budget=budget)
        job.awaiting = None
        if job.stops > MOST_STOPS:
            raise LimitExceeded(
                f"it awaited already settled results more than {MOST_STOPS:,} times in one turn"
            )
        if job.stops % STOPS_AT_ONCE == 0:
            return True
    return False


def _outcomes(
    awaiting: Awaitable, job: Job, timers: Mapping[str, tuple[float, int]]
) -> Mapping[str, Outcome]:
    """Return the known outcomes of the leaves, in the order of completion. A machine that goes from one settled
    promise to the next receives all outcomes at intervals, so that it need not stop at each. Signals are still
    assigned, and timers ordered, at every stop.
    """
    known = job.known
    if len(timers) > 1:
        known = _in_time_order(known, timers)
        job.is_unordered = job.is_unordered or known is not job.known
    if job.stops > 1 and not job.signals and not job.is_unordered:
        job.saved += SAVED_PER_STOP
        if job.saved >= len(job.known):
            job.saved = 0
            return job.known
    if awaiting.id:
        return {awaiting.id: job.known[awaiting.id]}
    leaves = leaf_ids(awaiting)
    return {name: outcome for name, outcome in known.items() if name in leaves}


def interruption(cancel: CancelReason, reason: str | None = None) -> ErrorValue:
    """Return the error that is thrown at the await."""
    suffix = f": {reason}" if reason else ""
    if cancel == "timeout":
        return ErrorValue("TimeoutError", f"the execution did not end within its timeout{suffix}")
    return ErrorValue("CancelledError", f"the execution was cancelled{suffix}")


# -- signals --------------------------------------------------------------------------------------------------


def _give_signals(machine: RunningMachine, job: Job) -> None:
    """Assign the oldest signal to the oldest reachable promise of its name. Its place is that of its arrival."""
    before = len(job.taken)
    given = {taken.signal for taken in job.taken}
    for wait in machine.waiting_signals():
        if wait.id in job.known:
            continue
        signal = next((one for one in job.signals if one.name == wait.name and one.id not in given), None)
        if signal is not None:
            given.add(signal.id)
            job.taken.append(TakenSignal(signal.id, promise_number(wait.id)))
            job.known[wait.id] = job.payloads[signal.id]
            job.places[wait.id] = signal.place
    if len(job.taken) > before:
        job.known = dict(sorted(job.known.items(), key=lambda one: job.places.get(one[0], LAST)))


# -- timers ---------------------------------------------------------------------------------------------------


def _expire_timers(awaiting: Awaitable, job: Job) -> dict[str, tuple[float, int]]:
    """Settle the timers whose time has passed, whether or not their tokens still exist. Return all of them, earliest
    first, with their sort keys.
    """
    leaves = [leaf for leaf in ((awaiting,) if awaiting.id else leaves_of(awaiting)) if leaf.due is not None]
    job.now = max(
        [job.now, *(leaf.due for leaf in leaves if leaf.due is not None and _is_over(leaf, job.known))]
    )
    fired = [
        ((leaf.due, promise_number(leaf.id)), leaf.id)
        for leaf in leaves
        if leaf.kind == "timer" and leaf.due is not None and leaf.due <= job.now
    ]
    fired.sort()
    for _, name in fired:
        job.known.setdefault(name, Ok(None))
    return {name: when for when, name in fired}


def _is_over(leaf: Awaitable, known: Mapping[str, Outcome]) -> bool:
    """Return True if the leaf was over by the clock of the process that settled it, which may be ahead of the local
    one: the program must not see an earlier time.
    """
    match known.get(leaf.id):
        case Ok():
            return leaf.kind == "timer"
        case Err(error=error):
            return leaf.kind == "signal" and error.code == "TimeoutError"
    return False


def _in_time_order(known: dict[str, Outcome], fired: Mapping[str, tuple[float, int]]) -> dict[str, Outcome]:
    """Return the outcomes as recorded, but with each timer before those that were due later. Timers that came due
    without a worker are recorded in any order; a race between them must still be decided by their times. Applies to
    this await only, so that earlier awaits do not matter.
    """
    if [name for name in known if name in fired] == list(fired):
        return known
    by_time = deque(fired)
    names: list[str] = []
    for name in known:
        if name not in fired:
            names.append(name)
            continue
        while by_time and fired[by_time[0]] <= fired[name]:
            names.append(by_time.popleft())
    return {name: known[name] for name in names}


def lost_timers(execution: str, before: Awaitable | None, reachable: Ranges) -> tuple[str, ...]:
    """Return the tokens of timers and questions that were awaited before a turn and cannot be reached after it."""
    if before is None or (before.kind in TIMELESS and not asks_people(before.name)):
        return ()
    numbers = [
        promise_number(leaf.id)
        for leaf in ((before,) if before.id else leaves_of(before))
        if (leaf.kind in ("timer", "signal") and leaf.due is not None)
        or (leaf.kind == "task" and asks_people(leaf.name))
    ]
    return tuple(promise_token_id(execution, number) for number in numbers if not reaches(reachable, number))


MOST_ATTEMPTS = 1000
"""Retries of retries that are counted at most."""
RECENT = 200
"""Latest events that are searched for the request to cancel."""


class ResumeInputs:
    def __init__(self, archive: Archive, blobs: Blobs) -> None:
        self.archive = archive
        self.blobs = blobs

    async def job(self, execution: str, view: MachineView, now: float) -> Job:
        is_news = view.cancel == "cancel" and not view.interrupted
        return Job(
            execution,
            view.version,
            view.inbox,
            now,
            {promise_id(each.promise): await self.outcome(execution, each) for each in view.completions},
            {promise_id(each.promise): each.number for each in view.completions},
            {promise_id(each.promise): size_of(each) for each in view.completions},
            view.signals,
            await self.payloads(execution, view.signals),
            view.cancel,
            view.interrupted,
            await self._reason(execution) if is_news else None,
        )

    async def outcome(self, execution: str, completion: Completion) -> Outcome:
        blob = blob_of(completion) if completion.ok else None
        if blob is None:
            return outcome_of(completion)
        if is_light.get():
            raise Heavy
        return Ok(decode_value(await self.blobs.get(execution, blob)))

    async def payloads(self, execution: str, signals: Sequence[SignalView]) -> dict[str, Outcome]:
        """Return the outcome of each signal."""
        return {
            signal.id: await self.outcome(execution, Completion(0, True, signal.data)) for signal in signals
        }

    async def attempt(self, view: ExecutionView) -> int:
        """Return the attempt number of an execution: one more than that of the execution it retries, if those are
        still stored.
        """
        found = 1
        while view.relation == "retry" and view.parent is not None and found < MOST_ATTEMPTS:
            before = await self.archive.execution(view.parent)
            found += 1
            if before is None:
                return found
            view = before
        return found

    async def _reason(self, execution: str) -> str | None:
        """Return the reason of the cancellation, from the history. The request is recent."""
        view = await self.archive.execution(execution)
        seq = view.seq if view is not None else 0
        for event in reversed(await self.archive.events(execution, max(seq - RECENT, 0), RECENT)):
            if event.kind == "CancelRequested" and event.data is not None:
                reason = decode_value(event.data).get("reason")
                return reason if isinstance(reason, str) else None
        return None


def outcome_of(completion: Completion) -> Outcome:
    """Return the outcome of a completion whose value is not in a blob."""
    return Ok(decode_value(completion.data[1:])) if completion.ok else error_in(completion)
