"""The application: tasks, node types and workflows of a Python program, and the store they run on."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

from dalsegno.engine.client import Client, StartOptions
from dalsegno.engine.engine import Engine
from dalsegno.engine.settings import EngineSettings
from dalsegno.engine.tasks import Task, Tasks, make_task
from dalsegno.errors import InternalError, UsageError
from dalsegno.graph.duration import parse_duration
from dalsegno.handle import Handle
from dalsegno.hosting import Host
from dalsegno.model.definition import Definition
from dalsegno.model.retry import RetryPolicy
from dalsegno.nodes.builder import node_type
from dalsegno.nodes.egress import ALLOW_EVERYTHING, EgressPolicy
from dalsegno.nodes.http_service import HttpService
from dalsegno.nodes.registry import NodeRegistry, builtin_registry
from dalsegno.ports.archive import ExecutionFilter
from dalsegno.ports.clock import Clock
from dalsegno.wiring import open_stack

DEFAULT_STORE = "sqlite:///dalsegno.db"

Function = TypeVar("Function", bound=Callable[..., Any])


class App:
    """Tasks and node types by name, on the store behind ``url`` (default: ``DALSEGNO_STORE``, else a local file).

    Outside ``running()`` the application can deploy, start and look; inside, its own worker and timers run.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        settings: EngineSettings | None = None,
        egress: EgressPolicy | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.url = url if url is not None else os.environ.get("DALSEGNO_STORE", DEFAULT_STORE)
        self.settings = settings or EngineSettings()
        self.registry: NodeRegistry = builtin_registry()
        self.tasks = Tasks(self.settings.threads)
        self._clock = clock
        self.egress = egress
        """Where HTTP nodes may go; None: everywhere (``dalsegno worker`` puts its own policy there)."""
        self._host: Host | None = None
        self._options = StartOptions()

    # -- what the program offers ------------------------------------------------------------------------------

    @overload
    def task(self, function: Function, /) -> Function: ...

    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,
        retries: int | RetryPolicy = 0,
        timeout: float | str | None = None,
        queue: str | None = None,
        heartbeat: float | str | None = None,
    ) -> Callable[[Function], Function]: ...

    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        retries: int | RetryPolicy = 0,
        timeout: float | str | None = None,
        queue: str | None = None,
        heartbeat: float | str | None = None,
    ) -> Any:
        """Registers a function, async or not, that ``task`` nodes run by name. It stays an ordinary function."""

        def register(function: Function) -> Function:
            policy = retries if isinstance(retries, RetryPolicy) else RetryPolicy(max_attempts=retries + 1)
            task = make_task(
                function,
                name=name,
                retry=policy,
                timeout=_seconds(timeout),
                queue=queue,
                heartbeat=_seconds(heartbeat),
            )
            self.tasks.register(task)
            return function

        return register(function) if function is not None else register

    def node(self, type: str, **options: Any) -> Callable[[Function], Function]:
        """Registers ``f(ctx, parameters) -> output`` as a node type of this application."""

        def register(function: Function) -> Function:
            self.registry.register(node_type(type, **options)(function))
            return function

        return register

    # -- running ----------------------------------------------------------------------------------------------

    def running(self, *, worker: bool = True, scheduler: bool = True) -> Running:
        """``with`` or ``async with``: the worker and timers of this process run inside the block."""
        return Running(self, worker=worker, scheduler=scheduler)

    def with_options(
        self,
        *,
        idempotency_key: str | None = None,
        tags: Mapping[str, str] | None = None,
        version: int | None = None,
        priority: int = 0,
    ) -> Starter:
        """Options for the next start: ``app.with_options(idempotency_key="o-1").start("checkout", …)``."""
        return Starter(self, StartOptions(version, idempotency_key, dict(tags or {}), priority))

    def deploy(self, document: str | bytes | Mapping[str, Any], name: str | None = None) -> Definition:
        """Checks and stores a graph document; the same content again is the same version."""
        return self.host.call(self._deploy(document, name))

    async def adeploy(self, document: str | bytes | Mapping[str, Any], name: str | None = None) -> Definition:
        return await self.host.acall(self._deploy(document, name))

    def start(self, workflow: str, payload: Any = None, /, **fields: Any) -> Handle:
        """Starts a deployed workflow. Its input is one value, or keywords that make an object."""
        return Starter(self, self._options).start(workflow, payload, **fields)

    async def astart(self, workflow: str, payload: Any = None, /, **fields: Any) -> Handle:
        return await Starter(self, self._options).astart(workflow, payload, **fields)

    def handle(self, execution: str) -> Handle:
        return Handle(self, execution)

    def executions(
        self, workflow: str | None = None, *, tags: Mapping[str, str] | None = None, limit: int = 50
    ) -> list[Handle]:
        """Newest first."""
        return self.host.call(self._executions(workflow, tags or {}, limit))

    async def aexecutions(
        self, workflow: str | None = None, *, tags: Mapping[str, str] | None = None, limit: int = 50
    ) -> list[Handle]:
        return await self.host.acall(self._executions(workflow, tags or {}, limit))

    def close(self) -> None:
        """Closes the store. Leaving ``running()`` does so too."""
        if self._host is not None:
            host, self._host = self._host, None
            host.close()

    async def aclose(self) -> None:
        if self._host is not None:
            host, self._host = self._host, None
            await host.aclose()

    # -- inside -----------------------------------------------------------------------------------------------

    @property
    def host(self) -> Host:
        """Opened on first use, in a thread of its own."""
        if self._host is None:
            host = Host(self._open_engine)
            host.open_in_thread()
            self._host = host
        return self._host

    async def host_here(self) -> Host:
        """Opens on the caller's loop, for ``async with app.running()``."""
        if self._host is None:
            host = Host(self._open_engine)
            await host.open_here()
            self._host = host
        return self._host

    @property
    def client(self) -> Client:
        return self.engine.client

    @property
    def engine(self) -> Engine:
        engine = self.host.engine
        if engine is None:
            raise InternalError("the application's engine went away")
        return engine

    async def _open_engine(self) -> Engine:
        stack = await open_stack(self.url, self._clock)
        services = {
            "tasks": self.tasks,
            "http": HttpService(self.egress or ALLOW_EVERYTHING),
        }
        return Engine(stack, self.registry, services, self.settings)

    async def _deploy(self, document: str | bytes | Mapping[str, Any], name: str | None) -> Definition:
        definition, _ = await self.client.deploy(document, name, self.task_queue)
        return definition

    def task_queue(self, task: str) -> str | None:
        """The queue a task registered here asks for."""
        found: Task | None = self.tasks.find(task)
        return found.queue if found is not None else None

    async def _executions(self, workflow: str | None, tags: Mapping[str, str], limit: int) -> list[Handle]:
        where = ExecutionFilter(workflow, tags=tuple(sorted(tags.items())))
        return [Handle(self, view.id) for view in await self.client.executions(where, limit=limit)]


class Starter:
    """Starts with options chosen beforehand."""

    __slots__ = ("_app", "_options")

    def __init__(self, app: App, options: StartOptions) -> None:
        self._app = app
        self._options = options

    def start(self, workflow: str, payload: Any = None, /, **fields: Any) -> Handle:
        return self._app.host.call(self._start(workflow, payload, fields))

    async def astart(self, workflow: str, payload: Any = None, /, **fields: Any) -> Handle:
        return await self._app.host.acall(self._start(workflow, payload, fields))

    async def _start(self, workflow: str, payload: Any, fields: Mapping[str, Any]) -> Handle:
        if fields and payload is not None:
            raise UsageError("give the input either as one value or as keywords, not both")
        execution = await self._app.client.start(workflow, fields or payload, self._options)
        return Handle(self._app, execution)


class Running:
    """The block in which an application's worker runs; both ``with`` and ``async with``."""

    def __init__(self, app: App, *, worker: bool, scheduler: bool) -> None:
        self._app = app
        self._worker = worker
        self._scheduler = scheduler

    def __enter__(self) -> App:
        self._app.host.call(self._app.engine.start(worker=self._worker, scheduler=self._scheduler))
        return self._app

    def __exit__(self, *_: object) -> None:
        self._app.close()

    async def __aenter__(self) -> App:
        host = await self._app.host_here()
        await host.acall(self._app.engine.start(worker=self._worker, scheduler=self._scheduler))
        return self._app

    async def __aexit__(self, *_: object) -> None:
        await self._app.aclose()


def _seconds(duration: float | str | None) -> float | None:
    return parse_duration(duration) if duration is not None else None
