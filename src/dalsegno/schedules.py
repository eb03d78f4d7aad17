"""``app.schedules``: workflows that start at set times. Every call has an async twin with the prefix ``a``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol, TypeAlias, TypedDict, TypeVar, Unpack

from dalsegno.core.schedules.spec import MissedPolicy, OverlapPolicy
from dalsegno.engine.client import Client
from dalsegno.engine.options import Duration, Moment
from dalsegno.engine.schedules import SHOWN_TIMES, NewSchedule, ScheduleRecords, ScheduleView
from dalsegno.engine.scripts.python_workflows import Workflows
from dalsegno.errors import UsageError
from dalsegno.handle import Handle, Runtime, host_of
from dalsegno.lang.python import DurableWorkflow

T = TypeVar("T")
Views: TypeAlias = list[ScheduleView]
Target: TypeAlias = str | DurableWorkflow[..., Any]


class SchedulingRuntime(Runtime, Protocol):
    """The application of schedules."""

    @property
    def client(self) -> Client: ...

    @property
    def workflows(self) -> Workflows: ...


class ScheduleOptions(TypedDict, total=False):
    """The keyword options of ``add``."""

    input: Any
    timezone: str
    """An IANA name; default: UTC."""
    missed: MissedPolicy
    """What happens to times that did not fire within ``grace``: they are skipped (``skip``, the default), made up
    by one start (``once``), or by one start each (``all``)."""
    grace: Duration
    catch_up: int
    """The maximum number of missed times that are made up: the newest ones."""
    overlap: OverlapPolicy
    """``skip``: nothing is started while the previous execution still runs. Default: ``allow``."""
    jitter: Duration
    """Each start is delayed by a random part of this."""
    start: Moment | None
    end: Moment | None
    tags: Mapping[str, str]
    priority: int
    replace: bool
    """Changes the schedule of that name, if there is one."""
    allow_unknown: bool
    """Accepts a workflow that is not deployed yet."""


class ScheduleOperations(Protocol):
    """What can be done with schedules, whether their store is opened here or behind a server."""

    async def add(
        self, new: NewSchedule, *, replace: bool = False, allow_unknown: bool = False
    ) -> ScheduleView: ...

    async def list(self) -> Views: ...

    async def describe(self, name: str, times: int = SHOWN_TIMES) -> ScheduleView: ...

    async def pause(self, name: str) -> None: ...

    async def resume(self, name: str) -> None: ...

    async def remove(self, name: str) -> None: ...


class ScheduleCalls(ABC):
    """The schedules of a store, opened here or behind a server. They fire wherever a scheduler and a worker run,
    once each."""

    __slots__ = ("_runtime",)

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def add(self, name: str, cron: str, workflow: Target, **options: Unpack[ScheduleOptions]) -> ScheduleView:
        """Adds a schedule: ``cron`` is a cron line or ``"every 15m"``, ``workflow`` a name (``"report"``,
        ``"report@stable"``) or a Python workflow of this program.

        A name in use raises Conflict, unless ``replace`` is true.
        """
        return self._call(self._add(name, cron, workflow, options))

    async def aadd(
        self, name: str, cron: str, workflow: Target, **options: Unpack[ScheduleOptions]
    ) -> ScheduleView:
        return await self._acall(self._add(name, cron, workflow, options))

    def list(self) -> Views:
        """Returns all schedules that have not ended, and those that failed, by name."""
        return self._call(self._list())

    async def alist(self) -> Views:
        return await self._acall(self._list())

    def get(self, name: str, times: int = SHOWN_TIMES) -> ScheduleView:
        """Returns one schedule with its next ``times`` times."""
        return self._call(self._get(name, times))

    async def aget(self, name: str, times: int = SHOWN_TIMES) -> ScheduleView:
        return await self._acall(self._get(name, times))

    def pause(self, name: str) -> None:
        """Pauses a schedule: no time fires until ``resume``; times that passed meanwhile then count as missed."""
        self._call(self._pause(name))

    async def apause(self, name: str) -> None:
        await self._acall(self._pause(name))

    def resume(self, name: str) -> None:
        self._call(self._resume(name))

    async def aresume(self, name: str) -> None:
        await self._acall(self._resume(name))

    def remove(self, name: str) -> None:
        """Removes a schedule. Executions it started continue."""
        self._call(self._remove(name))

    async def aremove(self, name: str) -> None:
        await self._acall(self._remove(name))

    def trigger(self, name: str, *, idempotency_key: str | None = None) -> Handle[Any]:
        """Starts its workflow now, in addition to its times. The same key again is the same start."""
        return self._call(self._trigger(name, idempotency_key))

    async def atrigger(self, name: str, *, idempotency_key: str | None = None) -> Handle[Any]:
        return await self._acall(self._trigger(name, idempotency_key))

    # -- internal ---------------------------------------------------------------------------------------------

    @abstractmethod
    def _operations(self) -> ScheduleOperations:
        """Return the operations of the store, or of the server."""

    async def _add(self, name: str, cron: str, workflow: Target, options: ScheduleOptions) -> ScheduleView:
        new, replace, allow_unknown = read_request(name, cron, workflow, options)
        return await self._operations().add(new, replace=replace, allow_unknown=allow_unknown)

    async def _list(self) -> Views:
        return await self._operations().list()

    async def _get(self, name: str, times: int) -> ScheduleView:
        return await self._operations().describe(name, times)

    async def _pause(self, name: str) -> None:
        await self._operations().pause(name)

    async def _resume(self, name: str) -> None:
        await self._operations().resume(name)

    async def _remove(self, name: str) -> None:
        await self._operations().remove(name)

    @abstractmethod
    async def _trigger(self, name: str, key: str | None) -> Handle[Any]: ...

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return host_of(self._runtime, work).call(work)

    async def _acall(self, work: Coroutine[Any, Any, T]) -> T:
        return await host_of(self._runtime, work).acall(work)


class Schedules(ScheduleCalls):
    """The schedules of an application's own store."""

    __slots__ = ("_app",)

    def __init__(self, app: SchedulingRuntime) -> None:
        super().__init__(app)
        self._app = app

    def _operations(self) -> ScheduleRecords:
        client = self._app.client
        return ScheduleRecords(client.stack, client.committer, client.definitions)

    async def _add(self, name: str, cron: str, workflow: Target, options: ScheduleOptions) -> ScheduleView:
        await self._app.workflows.ensure_all(self._app.client)
        return await super()._add(name, cron, workflow, options)

    async def _trigger(self, name: str, key: str | None) -> Handle[Any]:
        order = await self._operations().trigger(name, key)
        return Handle(self._app, await self._app.client.start_ordered(order))


def read_request(
    name: str, cron: str, workflow: Target, options: ScheduleOptions
) -> tuple[NewSchedule, bool, bool]:
    """Return the requested schedule, and whether it may replace another one or name an unknown workflow."""
    given: dict[str, Any] = dict(options)
    target = workflow.name if isinstance(workflow, DurableWorkflow) else workflow
    replace, allow_unknown = given.pop("replace", False), given.pop("allow_unknown", False)
    try:
        return NewSchedule(name, cron, target, **given), replace, allow_unknown
    except TypeError as error:
        said = str(error).removeprefix("NewSchedule.__init__() ")
        raise UsageError(f"schedules.add: {said}") from None
