"""``dalsegno.Client``: deploys, starts, watches and controls the workflows of a server."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from typing import Any, Self, TypeVar, Unpack

import httpx

from dalsegno.client.admin.access import (
    ClientCredentials,
    ClientDefinitions,
    ClientKeys,
    ClientProtectedNames,
)
from dalsegno.client.admin.operations import ClientDeadLetters, ClientLimits, unfinished_versions, worker_list
from dalsegno.client.admin.webhooks import ClientAlerts, ClientWebhooks
from dalsegno.client.archive import Checked, ServerArchive, Source
from dalsegno.client.executions import ServerCalls
from dalsegno.client.group import ServerRuntime
from dalsegno.client.schedules import ClientSchedules, ServerSchedules
from dalsegno.client.tasks import ClientTasks
from dalsegno.client.transport import Transport, checked_url
from dalsegno.client.waits import stream_events
from dalsegno.engine.executions import ExecutionFilters, filter_of
from dalsegno.engine.operations.approvals import Approval
from dalsegno.engine.operations.moves import MoveReport, move_all
from dalsegno.engine.operations.unfinished_versions import UnfinishedVersion
from dalsegno.engine.options import Duration, Moment
from dalsegno.engine.starting.module_import import refuse_during_import
from dalsegno.engine.starting.start import StartOptions
from dalsegno.engine.worker.directory import WorkerSeen
from dalsegno.errors import InvalidInput, UsageError
from dalsegno.event_loop_host import LoopHost
from dalsegno.handle import Handle
from dalsegno.lang.python import DurableWorkflow
from dalsegno.model.definition import Definition, Version
from dalsegno.model.event import Event
from dalsegno.model.execution import ExecutionView
from dalsegno.starts import WorkflowStarts

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:8700"


class Client(WorkflowStarts):
    """A client of the server at ``url`` (default: ``DALSEGNO_SERVER``, or this machine's), authenticated with ``key``
    (default: ``DALSEGNO_KEY``).

    Every call has an async twin with the prefix ``a``. Connections stay open until ``close``, or until a ``with``
    or ``async with`` block ends.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        patience: float = 30.0,
        restart_patience: float = 0.0,
        wire: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """``patience``: seconds for which calls are retried while the server is unreachable; ``restart_patience``:
        the same, if longer, once it has answered a call. ``wire``: a transport that replaces the network."""
        self.url = url if url is not None else os.environ.get("DALSEGNO_SERVER", DEFAULT_URL)
        self._key = key if key is not None else os.environ.get("DALSEGNO_KEY") or None
        self._patience = patience
        self._restart_patience = restart_patience
        self._wire = wire
        self._host: LoopHost | None = None
        self._calls: ServerCalls | None = None
        self._opening = threading.RLock()
        """Several threads may make the first call at the same time."""
        self.schedules = ClientSchedules(self, lambda: ServerSchedules(self._open()))
        """Schedules in the server's store."""
        self.tasks = ClientTasks(self)
        """Pending and running tasks, to be settled by hand."""
        self.definitions = ClientDefinitions(self)
        """Deployed workflows and their versions."""
        self.keys = ClientKeys(self)
        """API keys."""
        self.limits = ClientLimits(self)
        """Concurrency and rate limits by key."""
        self.credentials = ClientCredentials(self)
        """Secrets that workflows use by name."""
        self.protected_names = ClientProtectedNames(self)
        """Names under which only admins deploy."""
        self.webhooks = ClientWebhooks(self)
        """Workflows that other systems start."""
        self.alerts = ClientAlerts(self)
        """Alerts about failed executions."""
        self.dead_letters = ClientDeadLetters(self)
        """Work that cannot continue without intervention."""
        checked_url(self.url)

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    # -- definitions ------------------------------------------------------------------------------------------

    def deploy(self, document: Source, name: str | None = None) -> Definition:
        """Checks and stores a graph document on the server; the same content is the same version."""
        return self._call(self._archive().deploy(document, name))

    async def adeploy(self, document: Source, name: str | None = None) -> Definition:
        return await self._acall(self._archive().deploy(document, name))

    def deploy_script(self, source: str, name: str | None = None) -> Definition:
        """Compiles and stores a ``.flow`` script on the server; ``name`` is for scripts without a name of their
        own."""
        return self._call(self._archive().deploy(source, name, script=True))

    async def adeploy_script(self, source: str, name: str | None = None) -> Definition:
        return await self._acall(self._archive().deploy(source, name, script=True))

    def validate(self, source: Source, name: str | None = None, *, script: bool = False) -> Checked:
        """Returns all problems of a document or script at once; nothing is stored."""
        return self._call(self._archive().validate(source, name, script=script))

    async def avalidate(self, source: Source, name: str | None = None, *, script: bool = False) -> Checked:
        return await self._acall(self._archive().validate(source, name, script=script))

    # -- executions -------------------------------------------------------------------------------------------

    def with_options(
        self,
        *,
        idempotency_key: str | None = None,
        tags: Mapping[str, str] | None = None,
        version: int | str | None = None,
        priority: int = 0,
        delay: Duration | None = None,
        start_at: Moment | None = None,
    ) -> Starter:
        """Sets options for the next start: ``client.with_options(idempotency_key="o-1").start("checkout", …)``.
        With ``delay`` or ``start_at`` the execution is PENDING until then; ``handle.trigger()`` starts it
        earlier."""
        key = idempotency_key
        return Starter(self, StartOptions(version, key, dict(tags or {}), priority, delay, start_at))

    def handle(self, execution: str) -> Handle[Any]:
        """Returns the handle of an execution. Creating a handle sends no request and checks nothing."""
        return Handle(self, execution)

    def executions(
        self, workflow: str | None = None, *, page: int = 100, **filters: Unpack[ExecutionFilters]
    ) -> Iterator[ExecutionView]:
        """Yields executions, newest first, without inputs and outputs; fetches ``page`` of them at a time, on
        demand."""
        return self.host.iterate(self.client.all_executions(filter_of(workflow, filters), page))

    def aexecutions(
        self, workflow: str | None = None, *, page: int = 100, **filters: Unpack[ExecutionFilters]
    ) -> AsyncIterator[ExecutionView]:
        return self.host.aiterate(self.client.all_executions(filter_of(workflow, filters), page))

    def move_executions(
        self, workflow: str, before: Version, version: Version, *, dry_run: bool = False
    ) -> MoveReport:
        """Lets all executions of a workflow's version ``before`` that have not ended go on with another version, each
        under its own id. Those that cannot are in ``refusals``, with the reasons; ``dry_run`` only checks."""
        return self._call(self._move_executions(workflow, before, version, dry_run))

    async def amove_executions(
        self, workflow: str, before: Version, version: Version, *, dry_run: bool = False
    ) -> MoveReport:
        return await self._acall(self._move_executions(workflow, before, version, dry_run))

    async def _move_executions(
        self, workflow: str, before: Version, version: Version, dry_run: bool
    ) -> MoveReport:
        calls = self.client
        return await move_all(
            lambda cursor: calls.move_some(workflow, before, version, dry_run=dry_run, cursor=cursor)
        )

    def stream(self, execution: str | Handle[Any], after: int = 0) -> Iterator[Event]:
        """Yields events as they happen, each once and in order, until the execution has ended. A broken connection
        is resumed where it broke. ``after``: only events with a higher number."""
        return self.host.iterate(stream_events(self._open(), _id(execution), after))

    def astream(self, execution: str | Handle[Any], after: int = 0) -> AsyncIterator[Event]:
        return self.host.aiterate(stream_events(self._open(), _id(execution), after))

    def approvals(self, workflow: str | None = None, limit: int = 100) -> list[Approval]:
        """Returns open approvals, of one workflow or of all; ``handle(approval.execution).decide(…)`` decides."""
        return self._call(self.client.pending_approvals(workflow, limit))

    async def aapprovals(self, workflow: str | None = None, limit: int = 100) -> list[Approval]:
        return await self._acall(self.client.pending_approvals(workflow, limit))

    # -- workers ----------------------------------------------------------------------------------------------

    def workers(self) -> list[WorkerSeen]:
        """Returns processes and remote workers of the server's store, also those that died recently."""
        return self._call(worker_list(self._open()))

    async def aworkers(self) -> list[WorkerSeen]:
        return await self._acall(worker_list(self._open()))

    def unfinished_versions(self) -> list[UnfinishedVersion]:
        """Returns the versions that unfinished executions run, with the tasks that they need."""
        return self._call(unfinished_versions(self._open()))

    async def aunfinished_versions(self) -> list[UnfinishedVersion]:
        return await self._acall(unfinished_versions(self._open()))

    # -- life cycle -------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes its connections; waiting calls fail. A later call opens new ones."""
        host, calls = self._detach()
        if host is not None and calls is not None:
            host.call(calls.transport.close())
        if host is not None:
            host.end_thread()

    async def aclose(self) -> None:
        host, calls = self._detach()
        if host is not None and calls is not None:
            await host.acall(calls.transport.close())
        if host is not None:
            host.end_thread()

    def _detach(self) -> tuple[LoopHost | None, ServerCalls | None]:
        with self._opening:
            detached = self._host, self._calls
            self._host = self._calls = None
            return detached

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        """Inside the block, everything runs on the caller's event loop."""
        if self._host is None:
            self._host = LoopHost()
            self._host.begin_here()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # -- internal ---------------------------------------------------------------------------------------------

    @property
    def host(self) -> LoopHost:
        """The event loop of its requests: in a thread of its own, or the caller's with ``async with``."""
        with self._opening:
            if self._host is None:
                self._host = LoopHost()
                self._host.begin_thread()
            return self._host

    @property
    def client(self) -> ServerCalls:
        """The calls that handles use."""
        with self._opening:
            if self._calls is None:
                transport = Transport(
                    self.url,
                    self._key,
                    patience=self._patience,
                    restart_patience=self._restart_patience,
                    wire=self._wire,
                )
                self._calls = ServerCalls(transport)
            return self._calls

    def _archive(self) -> ServerArchive:
        return ServerArchive(self._open())

    def _starter(self) -> Starter:
        return Starter(self, StartOptions())

    def _open(self) -> Transport:
        return self.client.transport

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self.host.call(work)

    async def _acall(self, work: Coroutine[Any, Any, T]) -> T:
        return await self.host.acall(work)


class Starter(WorkflowStarts):
    """Starts with preset options."""

    __slots__ = ("_client", "_options")

    def __init__(self, client: ServerRuntime, options: StartOptions) -> None:
        self._client = client
        self._options = options

    def _starter(self) -> Starter:
        return self

    def start_now(
        self, workflow: object, args: tuple[Any, ...], fields: Mapping[str, Any], *, pending: bool = False
    ) -> Handle[Any]:
        self._refuse_during_import()
        return self._client.host.call(self._start(workflow, args, fields, pending))

    async def astart_now(
        self, workflow: object, args: tuple[Any, ...], fields: Mapping[str, Any], *, pending: bool = False
    ) -> Handle[Any]:
        self._refuse_during_import()
        return await self._client.host.acall(self._start(workflow, args, fields, pending))

    def _refuse_during_import(self) -> None:
        if self._options.idempotency_key is None:  # with a key, the next import starts nothing new
            refuse_during_import("starts an execution")

    async def _start(
        self, workflow: object, args: tuple[Any, ...], fields: Mapping[str, Any], pending: bool
    ) -> Handle[Any]:
        name, payload, decode = _named(workflow, args, fields)
        calls = self._client.client
        create = calls.submit if pending else calls.start
        return Handle(self._client, await create(name, payload, self._options), decode)


def _named(
    workflow: object, args: tuple[Any, ...], fields: Mapping[str, Any]
) -> tuple[str, Any, Callable[[Any], Any] | None]:
    """Return the workflow's name, its input, and the conversion of its result where its function is known."""
    if isinstance(workflow, DurableWorkflow):
        try:
            return workflow.name, workflow.bind(*args, **fields), workflow.decode_result
        except TypeError as error:
            raise InvalidInput(str(error)) from None
    if not isinstance(workflow, str):
        raise UsageError(
            "a server starts deployed workflows, by their name or by the workflow function; other functions and tasks "
            "of this program run with App"
        )
    if len(args) > 1:
        raise UsageError(
            f"a workflow by name takes one value as its input, or keywords; {len(args)} values were given"
        )
    if fields and args and args[0] is not None:
        raise UsageError("give the input either as one value or as keywords, not both")
    return workflow, dict(fields) or (args[0] if args else None), None


def _id(execution: str | Handle[Any]) -> str:
    return execution.id if isinstance(execution, Handle) else execution
