"""New schedules as programs and the command line describe them, and the step of a schedule's token: it reads what the
pure rules need and applies them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any

from msgspec import Raw

from dalsegno.core.schedules.cron import read_zone
from dalsegno.core.schedules.spec import (
    CATCH_UP,
    GRACE,
    MissedPolicy,
    OverlapPolicy,
    ScheduleSpec,
    make_spec,
    next_after,
)
from dalsegno.core.schedules.step import ScheduleState, decode_state, fire, give_up
from dalsegno.core.values import encode_value
from dalsegno.engine.options import Duration, Moment, read_duration, read_moment
from dalsegno.errors import DalSegnoError, InvalidInput, LimitExceeded
from dalsegno.model.definition import parse_target
from dalsegno.model.execution import ENDED
from dalsegno.model.failure import Failure
from dalsegno.model.token import Lease
from dalsegno.model.transition import Transition
from dalsegno.ports.archive import Archive

LARGEST_INPUT = 256 * 1024


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """A request for a schedule. ``timing`` is a cron line or ``every 15m``; ``workflow`` may include a version:
    ``report@stable``.
    """

    name: str
    timing: str
    workflow: str
    input: Any = None
    timezone: str = "UTC"
    missed: MissedPolicy = "skip"
    overlap: OverlapPolicy = "allow"
    grace: Duration = GRACE
    catch_up: int = CATCH_UP
    jitter: Duration = 0.0
    start: Moment | None = None
    end: Moment | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0

    def spec(self, now: float) -> ScheduleSpec:
        """Return the spec, after all checks that need no store. Raises InvalidInput, NotJson or LimitExceeded."""
        self._check_types()
        workflow, version = parse_target(self.workflow)
        zone = read_zone(self.timezone)
        draft = ScheduleSpec(
            name=self.name,
            workflow=workflow,
            version=version,
            input=_input(self.input),
            timezone=self.timezone,
            missed=self.missed,
            overlap=self.overlap,
            grace=read_duration(self.grace, "'grace' of a schedule"),
            catch_up=self.catch_up,
            jitter=read_duration(self.jitter, "'jitter' of a schedule"),
            start=_moment("start", self.start, zone),
            end=_moment("end", self.end, zone),
            tags=tuple(sorted(self.tags.items())),
            priority=self.priority,
        )
        return make_spec(draft, self.timing, now)

    def _check_types(self) -> None:
        for what in ("name", "timing", "workflow", "timezone", "missed", "overlap"):
            _check_text(f"'{what}' of a schedule", getattr(self, what))
        for what in ("catch_up", "priority"):
            number = getattr(self, what)
            if isinstance(number, bool) or not isinstance(number, int):
                raise InvalidInput(f"'{what}' of a schedule must be a whole number, not {number!r}")
        if not isinstance(self.tags, Mapping):
            raise InvalidInput(f"'tags' of a schedule must map names to texts, not {self.tags!r}")
        for name, tag in self.tags.items():
            _check_text("a tag of a schedule", name)
            _check_text(f"the tag {name!r} of a schedule", tag)


def _check_text(what: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidInput(f"{what} must be text, not {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{what} is not valid Unicode: {value[:100]!r}") from None


def _input(value: Any) -> Raw:
    raw = encode_value(value if value is not None else {}, "the input")
    if len(raw) > LARGEST_INPUT:
        raise LimitExceeded(
            f"the input of a schedule is {len(raw):,} bytes of JSON, more than {LARGEST_INPUT:,}: it is written again"
            " with every start; keep large data elsewhere and pass a reference to it"
        )
    return Raw(raw)


def _moment(what: str, given: Moment | None, zone: tzinfo) -> float | None:
    return None if given is None else read_moment(given, f"'{what}' of a schedule", zone)


NOT_THERE_YET = 60.0
"""Seconds during which an ordered execution that does not exist yet counts as still being started."""


async def schedule_step(archive: Archive, lease: Lease, now: float) -> Transition:
    """Return the transition of a token of kind ``schedule``. Idempotent, however often the token was lost before."""
    try:
        state = decode_state(lease.data)
        next_after(state.spec, now)  # its time zone may no longer exist
    except DalSegnoError as error:
        return give_up(lease, now, Failure(str(error), error.code, type(error).__name__))
    return fire(state, lease, now, busy=await _busy(archive, state, now))


async def _busy(archive: Archive, state: ScheduleState, now: float) -> bool:
    """Return True if the execution started last still runs, or is about to."""
    if state.spec.overlap == "allow" or state.execution is None:
        return False
    found = (await archive.states([state.execution])).get(state.execution)
    if found is None:
        return state.fired_at is not None and now - state.fired_at < NOT_THERE_YET
    return found not in ENDED
