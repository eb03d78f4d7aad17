"""The application: tasks, node types and workflows of a Python program, and the store they run on."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack, overload

from dalsegno.core.task_options import child_options
from dalsegno.engine.client import Client
from dalsegno.engine.delays import Duration, Moment
from dalsegno.engine.engine import Engine
from dalsegno.engine.filters import ExecutionFilters, filter_of
from dalsegno.engine.scripting.sources import compile_checked
from dalsegno.engine.settings import EngineSettings
from dalsegno.engine.starting import StartOptions
from dalsegno.engine.tasks import Task, Tasks, make_task
from dalsegno.engine.workflows import Workflows
from dalsegno.errors import InternalError, InvalidInput
from dalsegno.graph.workflow_limit import front_matter_limit
from dalsegno.handle import Handle
from dalsegno.hosting import Host
from dalsegno.lang.durations import parse_duration
from dalsegno.lang.python import DurableTask, DurableWorkflow, OutsideWorkflow, register_type
from dalsegno.model.definition import Definition
from dalsegno.model.limits import Concurrency, read_concurrency
from dalsegno.model.retry import RetryPolicy
from dalsegno.nodes.builder import node_type
from dalsegno.nodes.egress import ALLOW_EVERYTHING, EgressPolicy
from dalsegno.nodes.http_service import HttpLimits, HttpService
from dalsegno.nodes.registry import NodeRegistry, builtin_registry
from dalsegno.ports.archive import ExecutionFilter
from dalsegno.ports.clock import Clock
from dalsegno.ports.node import NodeContext
from dalsegno.schedules import Schedules
from dalsegno.starter import Starter, Target
from dalsegno.wiring import default_store, open_stack

Function = TypeVar("Function", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")


class TaskDecorator(Protocol):
    """What ``@app.task(…)`` does to a function, as a workflow sees it: a call gives a promise, whether the function is
    async or not, and the context that a task may take first is not the caller's to give."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[NodeContext, P], Coroutine[Any, Any, R]], /
    ) -> DurableTask[P, Awaitable[R]]: ...

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> DurableTask[P, Awaitable[R]]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[NodeContext, P], R], /
    ) -> DurableTask[P, Awaitable[R]]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> DurableTask[P, Awaitable[R]]: ...


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
        self.url = url if url is not None else default_store()
        self.settings = settings or EngineSettings()
        self.registry: NodeRegistry = builtin_registry()
        self.tasks = Tasks(self.settings.threads)
        self.workflows = Workflows()
        self.schedules = Schedules(self)
        """Cron in this application's store."""
        self._clock = clock
        self.egress = egress
        """Where HTTP nodes may go; None: everywhere (``dalsegno worker`` puts its own policy there)."""
        self.makes_secret_key = False
        """Whether the first credential may make a key file beside the store; ``dalsegno dev`` allows it."""
        self._host: Host | None = None
        self._guest_of: Host | None = None
        self._options = StartOptions()

    # -- what the program offers ------------------------------------------------------------------------------

    @overload
    def task(
        self, function: Callable[Concatenate[NodeContext, P], Coroutine[Any, Any, R]], /
    ) -> DurableTask[P, Awaitable[R]]: ...

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> DurableTask[P, Awaitable[R]]: ...

    @overload
    def task(self, function: Callable[Concatenate[NodeContext, P], R], /) -> DurableTask[P, Awaitable[R]]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> DurableTask[P, Awaitable[R]]: ...

    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,
        retries: int | RetryPolicy = 0,
        timeout: float | str | None = None,
        queue: str | None = None,
        concurrency: int | str | Mapping[str, Any] | None = None,
        heartbeat: float | str | None = None,
        raises: tuple[type[BaseException], ...] = (),
    ) -> TaskDecorator: ...

    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        retries: int | RetryPolicy = 0,
        timeout: float | str | None = None,
        queue: str | None = None,
        concurrency: int | str | Mapping[str, Any] | None = None,
        heartbeat: float | str | None = None,
        raises: tuple[type[BaseException], ...] = (),
    ) -> Any:
        """Registers a function, async or not, that workflows run by name. Called outside of a workflow, it is the
        ordinary function it was. ``concurrency``: how many run at once, over all processes; or a key that tasks
        share; or ``{"key": …, "limit": …, "rate": "10/s"}``. ``raises``: exceptions that a workflow gets back as what
        they are, even if its own module does not name them."""

        def register(function: Callable[P, R]) -> DurableTask[P, R]:
            policy = retries if isinstance(retries, RetryPolicy) else RetryPolicy(max_attempts=retries + 1)
            task = make_task(
                function,
                name=name,
                retry=policy,
                timeout=_seconds(timeout),
                queue=queue,
                concurrency=_concurrency(concurrency),
                heartbeat=_seconds(heartbeat),
            )
            self.tasks.register(task)
            return DurableTask(function, task.name, context_parameter=task.context_parameter, raises=raises)

        return register(function) if function is not None else register

    @overload
    def workflow(self, function: Callable[P, Awaitable[R]], /) -> DurableWorkflow[P, R]: ...

    @overload
    def workflow(
        self,
        /,
        *,
        name: str | None = None,
        timeout: float | str | None = None,
        concurrency: int | str | Mapping[str, Any] | None = None,
        cancel_grace: float | str | None = None,
    ) -> Callable[[Callable[P, Awaitable[R]]], DurableWorkflow[P, R]]: ...

    def workflow(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        timeout: float | str | None = None,
        concurrency: int | str | Mapping[str, Any] | None = None,
        cancel_grace: float | str | None = None,
    ) -> Any:
        """Compiles an ``async def`` to a durable workflow. What cannot be made durable is refused here, with file and
        line and what to write instead. ``concurrency``: how many executions run at once, or ``{"key":
        "$trigger.customer", "limit": 1}`` for so many per value of the input; the others are PENDING.
        ``cancel_grace``: how long it may clean up after a cancel or its timeout; without one, until it is done.

        In a workflow, a call is a child. Elsewhere ``await order(2)`` starts an execution and gives its result, as long
        as the application runs in this process; where it does not, the call raises OutsideWorkflow."""

        def register(function: Callable[..., Any]) -> DurableWorkflow[..., Any]:
            said = {"timeout": timeout, "concurrency": concurrency, "cancel_grace": cancel_grace}
            front_matter = {option: value for option, value in said.items() if value is not None}
            durable = DurableWorkflow(function, name, front_matter=front_matter)
            front_matter_limit(front_matter, durable.program.name)  # here, and not only at a start
            self.workflows.register(durable.program, function)
            durable.run_outside = self._run_outside
            return durable

        return register(function) if function is not None else register

    def node(self, type: str, **options: Any) -> Callable[[Function], Function]:
        """Registers ``f(ctx, parameters) -> output`` as a node type of this application."""

        def register(function: Function) -> Function:
            self.registry.register(node_type(type, **options)(function))
            return function

        return register

    def register_type(self, kind: type[R], dump: Callable[[R], Any], load: Callable[[Any], R]) -> None:
        """Objects of this class may live across an ``await`` of a Python workflow: stored as what ``dump`` gives, made
        again by ``load``. It holds for the whole process; every worker registers what its workflows keep."""
        register_type(kind, dump, load)

    # -- running ----------------------------------------------------------------------------------------------

    def running(self, *, worker: bool = True, scheduler: bool = True) -> Running:
        """``with`` or ``async with``: the worker and timers of this process run inside the block. Leaving it raises
        StoreLost where the store's file was deleted or replaced meanwhile."""
        return Running(self, worker=worker, scheduler=scheduler)

    def with_options(
        self,
        *,
        idempotency_key: str | None = None,
        tags: Mapping[str, str] | None = None,
        version: int | str | None = None,
        priority: int = 0,
        delay: Duration | None = None,
        start_at: Moment | None = None,
        connection: Any = None,
    ) -> Starter:
        """Options for the next start: ``app.with_options(idempotency_key="o-1").start("checkout", …)``. With ``delay``
        or ``start_at`` it is PENDING until then; ``handle.trigger()`` begins it before. ``connection`` starts it inside
        the transaction that you have begun there, in the database of the store: it exists once you commit."""
        key = idempotency_key
        return Starter(
            self, StartOptions(version, key, dict(tags or {}), priority, delay, start_at, connection)
        )

    def deploy(self, document: str | bytes | Mapping[str, Any], name: str | None = None) -> Definition:
        """Checks and stores a graph document; the same content again is the same version."""
        return self.host.call(self._deploy(document, name))

    async def adeploy(self, document: str | bytes | Mapping[str, Any], name: str | None = None) -> Definition:
        return await self.host.acall(self._deploy(document, name))

    def deploy_script(self, source: str, name: str | None = None) -> Definition:
        """Compiles and stores a ``.flow`` script; ``name`` is for those that have none."""
        return self.host.call(self._deploy_script(source, name))

    async def adeploy_script(self, source: str, name: str | None = None) -> Definition:
        return await self.host.acall(self._deploy_script(source, name))

    def start(self, workflow: Target, /, *args: Any, **fields: Any) -> Handle:
        """Starts a workflow. A Python workflow or task of this program takes its own arguments; a deployed one is named
        (``"checkout"``, ``"checkout@stable"``) and takes one value, or keywords that make an object."""
        return Starter(self, self._options).start(workflow, *args, **fields)

    async def astart(self, workflow: Target, /, *args: Any, **fields: Any) -> Handle:
        return await Starter(self, self._options).astart(workflow, *args, **fields)

    def submit(self, workflow: Target, /, *args: Any, **fields: Any) -> Handle:
        """A start in two steps: everything is checked, and the execution is PENDING until ``handle.trigger()`` begins
        it, with this input or with another one."""
        return Starter(self, self._options).submit(workflow, *args, **fields)

    async def asubmit(self, workflow: Target, /, *args: Any, **fields: Any) -> Handle:
        return await Starter(self, self._options).asubmit(workflow, *args, **fields)

    def handle(self, execution: str) -> Handle:
        return Handle(self, execution)

    def executions(
        self, workflow: str | None = None, *, limit: int = 50, **filters: Unpack[ExecutionFilters]
    ) -> list[Handle]:
        """Newest first; the filters are those of ``Client.executions``: states, tags, times …"""
        return self.host.call(self._executions(filter_of(workflow, filters), limit))

    async def aexecutions(
        self, workflow: str | None = None, *, limit: int = 50, **filters: Unpack[ExecutionFilters]
    ) -> list[Handle]:
        return await self.host.acall(self._executions(filter_of(workflow, filters), limit))

    def close(self) -> None:
        """Closes the store. Leaving ``running()`` does so too."""
        if self._guest_of is None and self._host is not None:
            host, self._host = self._host, None
            host.close()

    async def aclose(self) -> None:
        if self._guest_of is None and self._host is not None:
            host, self._host = self._host, None
            await host.aclose()

    # -- inside -----------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether its worker or its timers run in this process, in ``running()`` or under a command."""
        host = self._guest_of or self._host
        return (
            host is not None
            and host.engine is not None
            and (host is self._guest_of or host.engine.is_running)
        )

    def _run_outside(
        self, workflow: DurableWorkflow[..., Any], args: tuple[Any, ...], fields: Mapping[str, Any]
    ) -> Coroutine[Any, Any, Any]:
        """A call of a workflow by ordinary code."""
        if not self.is_running:
            raise OutsideWorkflow(
                f"workflow '{workflow.name}' is called where no workflow runs, and its application does not run in "
                f"this process, so nothing would make it durable. Start it: app.start({workflow.name}, …), or 'await "
                f"app.astart(…)' in async code; or await it inside 'async with app.running():'. In a test, use the "
                f"fixture 'workflows' or {workflow.name}.function(…), the plain coroutine"
            )
        return self._started_result(workflow, args, fields)

    async def _started_result(
        self, workflow: DurableWorkflow[..., Any], args: tuple[Any, ...], fields: Mapping[str, Any]
    ) -> Any:
        options = child_options(workflow.options)
        chosen = StartOptions(options.version, tags=options.tags, priority=options.priority)
        handle = await Starter(self, chosen).astart(workflow, *args, **fields)
        return await handle.aresult()

    @contextlib.contextmanager
    def guest_of(self, host: Host) -> Iterator[None]:
        """For tests: inside the block everything goes to that host, and the application's own store is left alone."""
        before, self._guest_of = self._guest_of, host
        try:
            yield
        finally:
            self._guest_of = before

    @property
    def host(self) -> Host:
        """Opened on first use, in a thread of its own."""
        if self._guest_of is not None:
            return self._guest_of
        if self._host is None:
            host = Host(self._open_engine)
            host.open_in_thread()
            self._host = host
        return self._host

    async def host_here(self) -> Host:
        """Opens on the caller's loop, for ``async with app.running()``."""
        if self._guest_of is not None:
            return self._guest_of
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

    def services(self) -> dict[str, Any]:
        """What nodes and tasks find in their context."""
        limits = self.settings.limits
        allowed = HttpLimits(limits.http_timeout, limits.http_response_bytes)
        http = HttpService(self.egress or ALLOW_EVERYTHING, limits=allowed)
        return {"tasks": self.tasks, "http": http}

    async def _open_engine(self) -> Engine:
        stack = await open_stack(self.url, self._clock)
        engine = Engine(stack, self.registry, self.services(), self.settings, self.workflows)
        engine.vault.keys.may_make = self.makes_secret_key
        return engine

    async def _deploy(self, document: str | bytes | Mapping[str, Any], name: str | None) -> Definition:
        client = self.client
        compiled = client.with_queues(client.definitions.load(document, name), self.task_queue)
        text = document if isinstance(document, str) else None
        text = bytes(document).decode() if isinstance(document, bytes) else text

        async def store() -> Definition:
            return (await client.deploy(compiled, text=text))[0]

        source = compiled.definition_source
        return await self.engine.triggers.deploy(compiled.plan.name, "graph", source, store)

    async def _deploy_script(self, source: str, name: str | None) -> Definition:
        code = compile_checked(source, name)
        return await self.engine.triggers.deploy(
            code.name, code.kind, b"", lambda: self.client.deploy_script(code)
        )

    def task_queue(self, task: str) -> str | None:
        """The queue a task registered here asks for."""
        found: Task | None = self.tasks.find(task)
        return found.queue if found is not None else None

    async def _executions(self, where: ExecutionFilter, limit: int) -> list[Handle]:
        return [Handle(self, view.id) for view in await self.client.executions(where, limit=limit)]


class Running:
    """The block in which an application's worker runs; both ``with`` and ``async with``."""

    def __init__(self, app: App, *, worker: bool, scheduler: bool) -> None:
        self._app = app
        self._worker = worker
        self._scheduler = scheduler

    def __enter__(self) -> App:
        self._app.host.call(self._app.engine.start(worker=self._worker, scheduler=self._scheduler))
        return self._app

    def __exit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        loss = self._app.engine.loss
        self._app.close()
        if loss is not None and kind is None:
            raise loss

    async def __aenter__(self) -> App:
        host = await self._app.host_here()
        await host.acall(self._app.engine.start(worker=self._worker, scheduler=self._scheduler))
        return self._app

    async def __aexit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        loss = self._app.engine.loss
        await self._app.aclose()
        if loss is not None and kind is None:
            raise loss


def _seconds(duration: float | str | None) -> float | None:
    return parse_duration(duration) if duration is not None else None


def _concurrency(given: int | str | Mapping[str, Any] | None) -> Concurrency | None:
    try:
        return read_concurrency(given) if given is not None else None
    except ValueError as error:
        raise InvalidInput(f"the option 'concurrency' makes no sense: {error}") from None
