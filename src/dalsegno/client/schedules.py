"""``client.schedules``: the schedules of a server's store, with the calls of ``app.schedules``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias
from urllib.parse import quote

from msgspec import Raw, Struct, structs

from dalsegno.client.schemas import ExecutionReply, seconds, values_of
from dalsegno.client.transport import Transport, own_key
from dalsegno.core.schedules.spec import MissedPolicy, OverlapPolicy, ScheduleSpec
from dalsegno.engine.options import Moment
from dalsegno.engine.schedules import SHOWN_TIMES, NewSchedule, ScheduleView
from dalsegno.handle import Handle, Runtime
from dalsegno.model.definition import Version
from dalsegno.model.execution import ExecutionState
from dalsegno.schedules import ScheduleCalls

Views: TypeAlias = list[ScheduleView]


class ScheduleReply(Struct):
    name: str
    execution: str
    state: ExecutionState
    workflow: str
    created_at: datetime
    version: Version = None
    input: Raw = Raw(b"{}")
    cron: str | None = None
    every: float | None = None
    timezone: str = "UTC"
    missed: MissedPolicy = "skip"
    overlap: OverlapPolicy = "allow"
    grace: float = 60.0
    catch_up: int = 1000
    jitter: float = 0.0
    start: datetime | None = None
    end: datetime | None = None
    tags: dict[str, str] = {}
    priority: int = 0
    next: list[datetime] = []
    last: datetime | None = None
    last_execution: str | None = None
    started: int = 0
    passed: int = 0
    overdue: datetime | None = None
    error: dict[str, object] | None = None

    def view(self) -> ScheduleView:
        fields = {
            **values_of(self),
            "input": Raw(bytes(self.input)),
            "tags": tuple(sorted(self.tags.items())),
            "next": tuple(map(seconds, self.next)),
        }
        spec = ScheduleSpec(**_fields_of(ScheduleSpec, fields))
        return ScheduleView(spec=spec, **_fields_of(ScheduleView, fields))


def _fields_of(kind: type[Struct], fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in fields.items() if name in kind.__struct_fields__}


class SchedulePage(Struct):
    items: list[ScheduleReply]
    next: str | None = None


class ServerSchedules:
    """The calls of the engine's `ScheduleRecords`, sent to a server."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    async def add(
        self, new: NewSchedule, *, replace: bool = False, allow_unknown: bool = False
    ) -> ScheduleView:
        body = {**_body(new), "replace": replace, "allow_unknown": allow_unknown}
        return (await self.transport.send("POST", "schedules", ScheduleReply, body)).view()

    async def list(self) -> Views:
        found: Views = []
        cursor: str | None = None
        while True:
            page = await self.transport.get("schedules", SchedulePage, {"limit": 500, "cursor": cursor})
            found += [each.view() for each in page.items]
            cursor = page.next
            if cursor is None:
                return found

    async def describe(self, name: str, times: int = SHOWN_TIMES) -> ScheduleView:
        """Return a schedule with its next ``times`` times; a server returns at least one."""
        view = (await self.transport.get(_path(name), ScheduleReply, {"times": max(times, 1)})).view()
        return structs.replace(view, next=view.next[:times])

    async def pause(self, name: str) -> None:
        await self.transport.send("POST", f"{_path(name)}/pause", Any, repeatable=True)

    async def resume(self, name: str) -> None:
        await self.transport.send("POST", f"{_path(name)}/resume", Any, repeatable=True)

    async def remove(self, name: str) -> None:
        await self.transport.send("DELETE", _path(name), Any)

    async def trigger(self, name: str, key: str | None = None) -> str:
        """Trigger a schedule; return the execution, which is started once even if the request is repeated."""
        path = f"{_path(name)}/trigger"
        return (await self.transport.send("POST", path, ExecutionReply, key=key or own_key())).id


class ClientSchedules(ScheduleCalls):
    __slots__ = ("_operations_of_server",)

    def __init__(self, runtime: Runtime, operations: Callable[[], ServerSchedules]) -> None:
        super().__init__(runtime)
        self._operations_of_server = operations

    def _operations(self) -> ServerSchedules:
        return self._operations_of_server()

    async def _trigger(self, name: str, key: str | None) -> Handle[Any]:
        return Handle(self._runtime, await self._operations().trigger(name, key))


def _path(name: str) -> str:
    return f"schedules/{quote(name, safe='')}"


def _body(new: NewSchedule) -> dict[str, Any]:
    fields = {
        "name": new.name,
        "timing": new.timing,
        "workflow": new.workflow,
        "input": new.input,
        "timezone": new.timezone,
        "missed": new.missed,
        "overlap": new.overlap,
        "grace": new.grace,
        "catch_up": new.catch_up,
        "jitter": new.jitter,
        "start": _moment(new.start),
        "end": _moment(new.end),
        "tags": dict(new.tags),
        "priority": new.priority,
    }
    return {name: each for name, each in fields.items() if each is not None}


def _moment(given: Moment | None) -> str | None:
    """Return a time as the server expects it. Text is sent unchanged: without an offset it is in the schedule's
    time zone, which the server knows."""
    if given is None or isinstance(given, str):
        return given
    return (datetime.fromtimestamp(given, UTC) if isinstance(given, int | float) else given).isoformat()
