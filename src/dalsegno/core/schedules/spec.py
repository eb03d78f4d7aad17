"""Schedule specifications and the times at which they start executions. Pure: the time is a parameter.

- A schedule's *times* are the moments its cron line or interval names.
- A time is *missed* if it was not fired within ``grace`` seconds. ``missed`` is the policy for such times:
  ``skip`` drops them, ``once`` makes up for all of them by a single start, that of the newest time, ``all`` makes
  up for each.
- Under every policy at most ``catch_up`` times are made up, the newest.
- ``jitter`` delays each start by a part of it that depends only on the schedule and the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from typing import Literal, get_args

import msgspec
from msgspec import Raw, Struct

from dalsegno.core.schedules.cron import (
    FIELDS_OF_LINE,
    in_cron,
    read_cron,
    read_zone,
    roughly_before,
    upcoming,
)
from dalsegno.errors import InvalidInput
from dalsegno.lang.durations import MAX_SECONDS, BadDuration, parse_duration
from dalsegno.model.definition import VERSION_SIGN, Version, read_version

MissedPolicy = Literal["skip", "once", "all"]
OverlapPolicy = Literal["allow", "skip"]

GRACE = 60.0
CATCH_UP = 1000
MOST_CATCH_UP = 10_000
HIGHEST_PRIORITY = 1_000_000
SHORTEST_INTERVAL = 1.0
LONGEST_JITTER = 86_400.0
LAST_MOMENT = 253_000_000_000.0
"""In the year 9987, in Unix seconds: the limit of calendars."""
EVERY = "every "
_BEFORE = 1e-6
_LONGEST_NAME = 200

Delay = Callable[[float], float]
"""How much later than its time a start is due."""


class ScheduleSpec(Struct, frozen=True, omit_defaults=True):
    """The specification of a schedule, made and checked by :func:`make_spec`.

    Exactly one of ``cron`` and ``every`` is set.
    """

    name: str
    workflow: str
    version: Version = None
    input: Raw = Raw(b"{}")
    cron: str | None = None
    every: float | None = None
    """Seconds from one time to the next, counted from ``anchor``."""
    anchor: float = 0.0
    timezone: str = "UTC"
    missed: MissedPolicy = "skip"
    overlap: OverlapPolicy = "allow"
    """skip: nothing is started while the last start still runs."""
    grace: float = GRACE
    catch_up: int = CATCH_UP
    jitter: float = 0.0
    start: float | None = None
    """No time before this one."""
    end: float | None = None
    """No time after this one."""
    tags: tuple[tuple[str, str], ...] = ()
    priority: int = 0

    @property
    def timing(self) -> str:
        """Return the cron line, or ``every 900s``."""
        return self.cron if self.cron is not None else f"{EVERY}{self.every or 0:g}s"

    def has_same_times(self, other: ScheduleSpec) -> bool:
        return (self.cron, self.every, self.timezone, self.start, self.end) == (
            other.cron,
            other.every,
            other.timezone,
            other.start,
            other.end,
        )


class Due(Struct, frozen=True):
    times: tuple[float, ...]
    """The times to fire now, in order."""
    settled: float
    """Times up to this one are dealt with."""
    next: float | None
    """The first time that is not due yet; None if there is none."""
    passed: int = 0
    """How many times were skipped; at most the catch-up limit is counted."""


def no_delay(_time: float) -> float:
    return 0.0


# -- construction -----------------------------------------------------------------------------------------------


def make_spec(spec: ScheduleSpec, timing: str, now: float) -> ScheduleSpec:
    """Return the spec with its timing (a cron line, or ``every 15m``), checked.

    Raises InvalidInput that names the field.
    """
    _check_name(spec.name)
    _one_of("missed", spec.missed, get_args(MissedPolicy))
    _one_of("overlap", spec.overlap, get_args(OverlapPolicy))
    _between("grace", spec.grace, 0, MAX_SECONDS)
    _between("catch_up", spec.catch_up, 1, MOST_CATCH_UP)
    _between("jitter", spec.jitter, 0, LONGEST_JITTER)
    _between("priority", spec.priority, -HIGHEST_PRIORITY, HIGHEST_PRIORITY)
    for bound in (spec.start, spec.end):
        _between("start or end", bound or 0.0, 0, LAST_MOMENT)
    read_zone(spec.timezone)
    cron, every = _read_timing(timing)
    made = msgspec.structs.replace(
        spec,
        version=read_version(spec.version),
        cron=cron,
        every=every,
        anchor=spec.start if spec.start is not None else float(int(now)),
    )
    if next_after(made, now) is None:
        limit = " before its end" if spec.end is not None else ""
        raise InvalidInput(f"the schedule '{spec.name}' would never start anything: no time is left{limit}")
    return made


def _read_timing(timing: str) -> tuple[str | None, float | None]:
    if not timing.strip().lower().startswith(EVERY):
        return read_cron(timing), None
    text = timing.strip()[len(EVERY) :]
    try:
        seconds = parse_duration(text)
    except BadDuration as error:
        if meant := in_cron(text[:100]):
            said = f"{timing.strip()[:100]!r} is neither a cron line nor an interval; {meant}"
        else:
            said = f"the interval {text[:100]!r} {error}. A cron line has {FIELDS_OF_LINE}"
        raise InvalidInput(said) from None
    if seconds < SHORTEST_INTERVAL:
        raise InvalidInput(f"the interval {text!r} is too short; the shortest is one second")
    return None, seconds


def _check_name(name: str) -> None:
    if not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable() or VERSION_SIGN in name:
        raise InvalidInput(
            f"{name[:_LONGEST_NAME]!r} cannot be the name of a schedule: use 1 to {_LONGEST_NAME} printable"
            f" characters without '{VERSION_SIGN}'"
        )


def _one_of(what: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise InvalidInput(f"'{what}' of a schedule is one of {', '.join(known)}, not {given!r}")


def _between(what: str, given: float, least: float, most: float) -> None:
    if not least <= given <= most:
        raise InvalidInput(f"'{what}' of a schedule must be {least:,.0f} to {most:,.0f}, not {given}")


# -- times ------------------------------------------------------------------------------------------------------


def times_after(spec: ScheduleSpec, moment: float) -> Iterator[float]:
    """Yield the schedule's times after ``moment``, in order."""
    if spec.start is not None and moment < spec.start:
        moment = spec.start - _BEFORE
    for time in _endless(spec, moment):
        if spec.end is not None and time > spec.end:
            return
        yield time


def _endless(spec: ScheduleSpec, moment: float) -> Iterator[float]:
    if spec.cron is not None:
        return upcoming(spec.cron, read_zone(spec.timezone), moment)
    return _intervals(spec, moment)


def _intervals(spec: ScheduleSpec, moment: float) -> Iterator[float]:
    every = spec.every or SHORTEST_INTERVAL
    first = max(int((moment - spec.anchor) // every), 0 if spec.start is not None else 1)
    for number in count(first):
        time = spec.anchor + number * every
        if time > moment:
            yield time


def next_after(spec: ScheduleSpec, moment: float) -> float | None:
    """Return the schedule's first time after ``moment``; None if there is none."""
    return next(times_after(spec, moment), None)


def due_times(spec: ScheduleSpec, settled: float, now: float, delay: Delay = no_delay) -> Due:
    """Return what to start now, if everything up to ``settled`` is dealt with."""
    first = next_after(spec, settled)
    if first is None or first + delay(first) > now:
        return Due((), settled, first)
    newest, following = _newest_due(spec, settled, now, delay)
    times = _choose(spec, first, newest, now, delay)
    return Due(times, newest[-1], following, len(newest) - len(times))


def _newest_due(
    spec: ScheduleSpec, settled: float, now: float, delay: Delay
) -> tuple[tuple[float, ...], float | None]:
    """Return the newest due times, at most ``catch_up`` of them, and the first that is not due."""
    found: deque[float] = deque(maxlen=spec.catch_up)
    following: float | None = None
    for time in times_after(spec, _first_candidate(spec, settled, now)):
        if time + delay(time) > now:
            following = time
            break
        found.append(time)
    return tuple(found), following


def _first_candidate(spec: ScheduleSpec, settled: float, now: float) -> float:
    """Return where to start looking, so that years of missed times cost no more than a few."""
    for position, time in enumerate(times_after(spec, settled)):
        if time > now:
            break
        if position == spec.catch_up:
            return max(settled, _earlier_time(spec, now))
    return settled


def _earlier_time(spec: ScheduleSpec, now: float) -> float:
    """Return a moment with at least ``catch_up`` times between it and now."""
    latest = now - spec.jitter
    if spec.end is not None:
        latest = min(latest, spec.end)
    wanted = spec.catch_up + 1
    if spec.cron is not None:
        return roughly_before(spec.cron, read_zone(spec.timezone), latest, wanted)
    return latest - wanted * (spec.every or SHORTEST_INTERVAL)


def _choose(
    spec: ScheduleSpec, first: float, due: tuple[float, ...], now: float, delay: Delay
) -> tuple[float, ...]:
    """Apply the policy for missed times to those that are due."""
    in_time = tuple(time for time in due if now - time - delay(time) <= spec.grace)
    if len(in_time) == len(due) and first == due[0]:
        return due
    if spec.missed == "skip":
        return in_time
    return due[-1:] if spec.missed == "once" else due
