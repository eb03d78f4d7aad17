"""A machine at its stops: what is known is handed over until it ends, pauses, or awaits what nobody knows yet.

Nothing here does I/O, so that it can run in a thread beside the event loop, where the program's own code belongs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from msgspec import Struct

from dalsegno.core.wake import decided, leaf_ids, leaves_of
from dalsegno.engine.scripting.programs import RunningMachine
from dalsegno.errors import LimitExceeded
from dalsegno.lang.effects import Awaitable, Err, ErrorValue, Ok, Outcome, asks_people, promise_number
from dalsegno.model.ids import promise_token_id
from dalsegno.model.machine import CancelReason, Completion, Ranges, SignalView, TakenSignal, reaches

MOST_STOPS = 20_000
"""Stops at settled promises in one turn: a loop over timers that are due would otherwise never end."""
STOPS_AT_ONCE = 200
"""Stops after which others get their turn."""
WORTH_OF_A_STOP = 50
"""Outcomes that can be handed over in the time that a stop takes."""

LAST = float("inf")
"""The place of what nobody has recorded yet."""

TIMELESS = frozenset(("task", "workflow"))
"""Kinds of promises that no clock settles."""


class Job(Struct):
    """A machine about to run, and everything known that may concern it."""

    execution: str
    version: int
    read: int
    now: float
    known: dict[str, Outcome]
    """In the order of completion."""
    places: dict[str, int] = {}
    """Where in that order each stored completion and each signal stands."""
    sizes: dict[str, int] = {}
    """Bytes of what is known, where it is stored."""
    signals: Sequence[SignalView] = ()
    payloads: Mapping[str, Outcome] = {}
    """What each signal brings."""
    cancel: CancelReason = ""
    interrupted: bool = False
    reason: str | None = None
    """Why it was asked to end, if somebody said so."""
    settled: Completion | None = None
    taken: list[TakenSignal] = []
    stops: int = 0
    saved: int = 0
    """Outcomes that may be handed over for the stops since everything was."""
    disorder: bool = False
    """Whether timers were seen that are recorded in another order than that of their times."""
    before: Awaitable | None = None
    """What the machine awaited before it ran."""
    awaiting: Awaitable | None = None
    """What it awaits, where that is known; in the end it is."""
    blobs: frozenset[str] = frozenset()
    """Names of blobs in the snapshot that it was loaded from."""


def follow(machine: RunningMachine, job: Job, budget: int | None) -> bool:
    """Whether there is more to do: it has stopped often, and others want to go on, too."""
    if job.cancel and not job.interrupted and machine.status == "suspended":
        job.interrupted, job.awaiting = True, None
        machine.interrupt(interruption(job.cancel, job.reason), now=job.now, budget=budget)
    while machine.status == "suspended":
        awaiting = job.awaiting = job.awaiting or machine.awaiting
        if awaiting is None:
            return False
        if job.signals:
            _give_signals(machine, job)
        timers = _expire_timers(awaiting, job)
        if decided(awaiting, job.known) is None:
            return False
        job.stops += 1
        machine.resume(_told(awaiting, job, timers), now=job.now, budget=budget)
        job.awaiting = None
        if job.stops > MOST_STOPS:
            raise LimitExceeded(
                f"it awaited what was settled already more than {MOST_STOPS:,} times in one go"
            )
        if job.stops % STOPS_AT_ONCE == 0:
            return True
    return False


def _told(awaiting: Awaitable, job: Job, timers: Mapping[str, tuple[float, int]]) -> Mapping[str, Outcome]:
    """What is known of the leaves, in the order of completion. A machine that goes from one settled promise to the next
    is told everything now and then, so that it need not stop at each; but signals are given away, and timers put in
    order, stop by stop."""
    known = _in_time_order(job.known, timers) if len(timers) > 1 else job.known
    job.disorder = job.disorder or known is not job.known
    if job.stops > 1 and not job.signals and not job.disorder:
        job.saved += WORTH_OF_A_STOP
        if job.saved >= len(job.known):
            job.saved = 0
            return job.known
    if awaiting.id:
        return {awaiting.id: job.known[awaiting.id]}
    leaves = leaf_ids(awaiting)
    return {name: outcome for name, outcome in known.items() if name in leaves}


def interruption(cancel: CancelReason, reason: str | None = None) -> ErrorValue:
    """What is thrown at the await."""
    because = f": {reason}" if reason else ""
    if cancel == "timeout":
        return ErrorValue("TimeoutError", f"the execution did not end within its timeout{because}")
    return ErrorValue("CancelledError", f"the execution was cancelled{because}")


# -- signals --------------------------------------------------------------------------------------------------


def _give_signals(machine: RunningMachine, job: Job) -> None:
    """Oldest signal to the oldest promise of its name that can still be reached; it counts from when it came."""
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
    """A timer whose time has passed has fired, whether or not its token still exists. All of them, the earliest one
    first, with what orders them."""
    if awaiting.kind in TIMELESS:
        return {}
    leaves = [leaf for leaf in ((awaiting,) if awaiting.id else leaves_of(awaiting)) if leaf.due is not None]
    job.now = max(
        [job.now, *(leaf.due for leaf in leaves if leaf.due is not None and _is_over(leaf, job.known))]
    )
    past = [
        ((leaf.due, promise_number(leaf.id)), leaf.id)
        for leaf in leaves
        if leaf.kind == "timer" and leaf.due is not None and leaf.due <= job.now
    ]
    past.sort()
    for _, name in past:
        job.known.setdefault(name, Ok(None))
    return {name: when for when, name in past}


def _is_over(leaf: Awaitable, known: Mapping[str, Outcome]) -> bool:
    """Whether its time was over on the clock of the process that settled it, which may be ahead of the one here: the
    program must not see a time before that."""
    match known.get(leaf.id):
        case Ok():
            return leaf.kind == "timer"
        case Err(error=error):
            return leaf.kind == "signal" and error.code == "TimeoutError"
    return False


def _in_time_order(known: dict[str, Outcome], past: Mapping[str, tuple[float, int]]) -> dict[str, Outcome]:
    """As recorded, but with timers before those that came due later: if no worker was there when they did, they are
    recorded in any order, and still a race between them is decided by their times. Holds for this await only, so
    that it does not matter what was awaited before."""
    if [name for name in known if name in past] == list(past):
        return known
    earliest_first = deque(past)
    names: list[str] = []
    for name in known:
        if name not in past:
            names.append(name)
            continue
        while earliest_first and past[earliest_first[0]] <= past[name]:
            names.append(earliest_first.popleft())
    return {name: known[name] for name in names}


def lost_timers(execution: str, before: Awaitable | None, reachable: Ranges) -> tuple[str, ...]:
    """Tokens of timers and of questions that were awaited before a turn and cannot be reached after it."""
    if before is None or (before.kind in TIMELESS and not asks_people(before.name)):
        return ()
    numbers = [
        promise_number(leaf.id)
        for leaf in ((before,) if before.id else leaves_of(before))
        if (leaf.kind in ("timer", "signal") and leaf.due is not None)
        or (leaf.kind == "task" and asks_people(leaf.name))
    ]
    return tuple(promise_token_id(execution, number) for number in numbers if not reaches(reachable, number))
