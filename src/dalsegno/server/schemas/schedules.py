"""Schemas of schedules: settings and state."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any

import msgspec
from pydantic import BaseModel, ConfigDict, Field, model_validator

from dalsegno.core.schedules.spec import (
    CATCH_UP,
    GRACE,
    HIGHEST_PRIORITY,
    LAST_MOMENT,
    MOST_CATCH_UP,
    MissedPolicy,
    OverlapPolicy,
)
from dalsegno.engine.schedules import NewSchedule, ScheduleView
from dalsegno.errors import InvalidInput
from dalsegno.model.definition import format_target, parse_target, read_version
from dalsegno.model.execution import ExecutionState
from dalsegno.server.schemas.executions import EXAMPLE_ID
from dalsegno.server.schemas.values import Asked, Delay, Input, Tags, maybe_moment, moment, shown

When = Annotated[str, Field(max_length=50)] | Annotated[float, Field(ge=0, le=LAST_MOMENT)]
"""ISO 8601 text, in the schedule's time zone if it has no offset; or Unix seconds."""

EXAMPLE: dict[str, Any] = {
    "timing": "0 2 * * *",
    "workflow": "report@stable",
    "input": {"shops": ["Bern", "Rome"]},
    "timezone": "Europe/Berlin",
}


TIMING_WANTED = (
    "'timing' is a cron line of five fields such as '0 2 * * *', '@daily', or an interval such as 'every 15m'"
)
READ_ONLY_FIELDS = frozenset(
    (
        "execution",
        "state",
        "created_at",
        "next",
        "last",
        "last_execution",
        "started",
        "passed",
        "overdue",
        "error",
    )
)
"""Read-only fields of `ScheduleInfo`."""
NOT_ASKED = ("allow_unknown", "replace", "cron", "every", "version")
"""Fields of requests that are not settings of the schedule itself, or that are aliases for its timing and workflow."""


class ScheduleSetting(Asked, BaseModel):
    """The settings of a schedule. A reply of `GET` may be sent back: its read-only fields are ignored."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": EXAMPLE})

    name: str | None = Field(default=None, max_length=200, description="Optional; the same as in the path.")
    timing: str | None = Field(
        default=None,
        max_length=500,
        description="A cron line of five fields, `@daily` and similar names, or `every 15m`.",
    )
    cron: str | None = Field(
        default=None, max_length=500, description="A cron line, as `GET` shows it, instead of `timing`."
    )
    every: Delay | None = Field(
        default=None, description="An interval, as `GET` shows it, instead of `timing`."
    )
    workflow: str = Field(max_length=300, description="`report`, `report@3` or `report@stable`.")
    version: int | str | None = Field(
        default=None, description="A number or an alias, if `workflow` names none."
    )
    input: Input = Field(default=None, description="Input of every start.")
    timezone: str = Field(default="UTC", max_length=100, description="An IANA name.")
    missed: MissedPolicy = Field(
        default="skip",
        description="Policy for times that were not fired within `grace`: they are skipped, made up by one start, "
        "or by one each.",
    )
    overlap: OverlapPolicy = Field(
        default="allow",
        description="`skip`: nothing is started while the previous execution runs.",
    )
    grace: Delay = Field(default=GRACE, description="Seconds, or text such as `5m`.")
    catch_up: int = Field(
        default=CATCH_UP,
        ge=1,
        le=MOST_CATCH_UP,
        description="Maximum number of missed times to make up, the newest.",
    )
    jitter: Delay = Field(default=0.0, description="Each start is delayed by a random part of this.")
    start: When | None = Field(default=None, description="No time before this one.")
    end: When | None = Field(default=None, description="No time after this one.")
    tags: Tags = {}
    priority: int = Field(default=0, ge=-HIGHEST_PRIORITY, le=HIGHEST_PRIORITY)
    allow_unknown: bool = Field(default=False, description="Accept a workflow that is not deployed yet.")

    @model_validator(mode="before")
    @classmethod
    def _without_its_state(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        return {name: value for name, value in given.items() if name not in READ_ONLY_FIELDS}

    def named(self, name: str) -> NewSchedule:
        if self.name not in (None, name):
            raise InvalidInput(f"/body/name: it says {self.name!r}, and the path {name!r}; omit it there")
        fields = self.model_dump(exclude={*NOT_ASKED, "name", "timing", "workflow"})
        return NewSchedule(name=name, timing=self._timing(), workflow=self._workflow(), **fields)

    def _timing(self) -> str:
        given = {"timing": self.timing, "cron": self.cron, "every": self.every}
        said = [name for name, value in given.items() if value is not None]
        if not said:
            raise InvalidInput(f"/body/timing: say when it starts its workflow: {TIMING_WANTED}")
        if len(said) > 1:
            raise InvalidInput(
                f"/body/{said[0]}: '{said[1]}' says it, too; give one of them: {TIMING_WANTED}"
            )
        if self.every is None:
            return self.timing or self.cron or ""
        return f"every {self.every}" if isinstance(self.every, str) else f"every {self.every:f}s"

    def _workflow(self) -> str:
        if self.version is None:
            return self.workflow
        name, version = parse_target(self.workflow)
        if version is not None and version != read_version(self.version):
            raise InvalidInput(
                f"/body/version: 'workflow' names {self.workflow!r}, and 'version' {self.version!r};"
                " name the version in one of them"
            )
        return format_target(name, self.version)


class ScheduleRequest(ScheduleSetting):
    """A new schedule."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"name": "nightly", **EXAMPLE}})

    name: str = Field(max_length=200)
    replace: bool = Field(default=False, description="Changes the schedule of that name, if there is one.")


class ScheduleInfo(BaseModel):
    """A schedule and its current state."""

    name: str = Field(examples=["nightly"])
    execution: str = Field(description="The execution behind it: its history has every time that fired.")
    state: ExecutionState
    workflow: str
    version: int | str | None = Field(default=None, description="A number or an alias, if it names one.")
    input: Any = None
    cron: str | None = None
    every: float | None = Field(default=None, description="Seconds, of a schedule without a cron line.")
    timezone: str
    missed: MissedPolicy
    overlap: OverlapPolicy
    grace: float
    catch_up: int
    jitter: float
    start: datetime | None = None
    end: datetime | None = None
    tags: dict[str, str] = {}
    priority: int = 0
    created_at: datetime
    next: list[datetime] = Field(
        default=[], description="Its next times; none while it is paused or has ended."
    )
    last: datetime | None = Field(default=None, description="The last time that fired.")
    last_execution: str | None = Field(default=None, examples=[EXAMPLE_ID])
    started: int = 0
    passed: int = Field(default=0, description="Times that were missed or would have overlapped.")
    overdue: datetime | None = Field(default=None, description="A time that is due and was not fired yet.")
    error: dict[str, Any] | None = Field(default=None, description="Why it failed.")

    @classmethod
    def of(cls, view: ScheduleView) -> ScheduleInfo:
        spec = view.spec
        fields = {
            **msgspec.structs.asdict(spec),
            "input": msgspec.json.decode(spec.input),
            "start": maybe_moment(spec.start),
            "end": maybe_moment(spec.end),
            "tags": dict(spec.tags),
            "next": _on_calendars(view.next),
        }
        return shown(cls, view, **fields)


def _on_calendars(times: Iterable[float]) -> list[datetime]:
    """Convert the times that calendars can represent: a long interval soon passes their last year."""
    return [moment(time) for time in times if time <= LAST_MOMENT]
