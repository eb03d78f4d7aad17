"""The application: tasks, node types and workflows of a Python program, and the store they run on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack, overload

from dalsegno.admin.triggers import settle_when_deployed, triggers_of
from dalsegno.core.scripts.task_options import child_options
from dalsegno.engine.client import Client
from dalsegno.engine.engine import Engine
from dalsegno.engine.executions import ExecutionFilters, filter_of
from dalsegno.engine.operations.moves import MoveReport, move_all
from dalsegno.engine.options import Duration, Moment, read_duration, refuses_unknown_options
from dalsegno.engine.remote.distribution import TaskDistribution
from dalsegno.engine.scripts.programs import compile_checked
from dalsegno.engine.scripts.python_workflows import Workflows
from dalsegno.engine.settings import EngineSettings
from dalsegno.engine.starting.module_import import refuse_during_import
from dalsegno.engine.starting.start import StartOptions
from dalsegno.engine.steps.tasks import Task, Tasks, make_remote_task, make_task
from dalsegno.engine.subprocesses.large_responses import LargeResponses
from dalsegno.errors import InternalError, InvalidInput
from dalsegno.event_loop_host import Host
from dalsegno.graph.documents.header import front_matter_limit
from dalsegno.handle import Handle
from dalsegno.lang.python import (
    DurableRemoteTask,
    DurableTask,
    DurableWorkflow,
    OutsideWorkflow,
    Promised,
    register_type,
)
from dalsegno.model.definition import Definition, Version
from dalsegno.model.failure import RetryPolicy
from dalsegno.model.limits import Concurrency, read_concurrency
from dalsegno.nodes.builder import node_type
from dalsegno.nodes.http.egress import ALLOW_EVERYTHING, EgressPolicy
from dalsegno.nodes.http.service import HttpLimits, HttpService
from dalsegno.nodes.registry import NodeRegistry, builtin_registry
from dalsegno.ports.archive import ExecutionFilter
from dalsegno.ports.clock import Clock
from dalsegno.ports.node import NodeContext
from dalsegno.schedules import Schedules
from dalsegno.starts import StartCalls, Starter
from dalsegno.wiring import (
    adopt_of_environment,
    broker_of_environment,
    default_store,
    open_stack,
    redis_of_environment,
)

Function = TypeVar("Function", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")


class TaskDecorator(Protocol):
    """The type of the decorator ``@app.task(…)`` as a workflow sees it: a call returns a promise, whether the
    function is async or not, and the context that a task may take as its first parameter is not passed by the
    caller."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[NodeContext, P], Coroutine[Any, Any, R]], /
    ) -> DurableTask[P, Promised[R]]: ...

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> DurableTask[P, Promised[R]]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[NodeContext, P], R], /
    ) -> DurableTask[P, Promised[R]]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> DurableTask[P, Promised[R]]: ...


class App(StartCalls):
    """Tasks, node types and workflows by name, on the store behind ``url`` (default: ``DALSEGNO_STORE``, else a local
    file).

    Outside ``running()`` the application can deploy, start and query; inside, its own worker and timers run.
    """

    @refuses_unknown_options("App")
    def __init__(
        self,
        url: str | None = None,
        *,
        settings: EngineSettings | None = None,
        egress: EgressPolicy | None = None,
        clock: Clock | None = None,
        broker: str | None = None,
        redis: str | None = None,
    ) -> None:
        """``broker``: the URL of Redis or RabbitMQ (default: ``DALSEGNO_BROKER``, else the store is its own broker).
        ``redis``: where other programs find timers and tasks (default: ``DALSEGNO_REDIS``, else the broker, if it is
        Redis)."""
        self.url = url if url is not None else default_store()
        self.broker = broker if broker is not None else broker_of_environment()
        self.redis = redis if redis is not None else redis_of_environment()
        self.settings = settings or EngineSettings()
        self.registry: NodeRegistry = builtin_registry()
        self.tasks = Tasks(self.settings.threads)
        self.workflows = Workflows()
        self.schedules = Schedules(self)
        """Schedules in this application's store."""
        self._clock = clock
        self.egress = egress
        """Hosts that HTTP nodes may call; None: all (``dalsegno worker`` sets its own policy)."""
        self.makes_secret_key = False
        """Whether storing the first credential may create a key file next to the store; ``dalsegno dev`` allows it.
        """
        self._host: Host | None = None
        self._guest_of: Host | None = None
        self._options = StartOptions()

    # -- registration -----------------------------------------------------------------------------------------

    @overload
    def task(
        self, function: Callable[Concatenate[NodeContext, P], Coroutine[Any, Any, R]], /
    ) -> DurableTask[P, Promised[R]]: ...

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> DurableTask[P, Promised[R]]: ...

    @overload
    def task(self, function: Callable[Concatenate[NodeContext, P], R], /) -> DurableTask[P, Promised[R]]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> DurableTask[P, Promised[R]]: ...

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

    @refuses_unknown_options("@app.task")
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
        """Registers a function, async or not, that workflows run by name. Outside of a workflow, a call runs the
        function as usual. ``concurrency``: the number of concurrent runs over all processes; or a key that tasks
        share; or ``{"key": …, "limit": …, "rate": "10/s"}``. ``raises``: exceptions that a workflow receives
        with their own class, even if its module does not name them."""

        def register(function: Callable[P, R]) -> DurableTask[P, R]:
            _refuse_no_function(function, "@app.task")
            task = make_task(
                function,
                name=name,
                retry=_policy(retries),
                timeout=_seconds(timeout, "timeout"),
                queue=queue,
                concurrency=_concurrency(concurrency),
                heartbeat=_seconds(heartbeat, "heartbeat"),
            )
            self.tasks.register(task)
            return DurableTask(function, task.name, context_parameter=task.context_parameter, raises=raises)

        return register(function) if function is not None else register

    @overload
    def remote_task(
        self,
        name: str,
        /,
        *,
        queue: str,
        returns: type[R],
        retries: int | RetryPolicy = 0,
        timeout: float | str | None = None,
        concurrency: int | str | Mapping[str, Any] | None = None,
        raises: tuple[type[BaseException], ...] = (),
        docs: str = "",
    ) -> DurableTask[..., Promised[R]]: ...

    @overload
    def remote_task(
        self,
        name: str,
        /,
        *,
        queue: str,
        returns: Any = None,
        retries: int | RetryPolicy = 0,
        timeout: float | str | None = None,
        concurrency: int | str | Mapping[str, Any] | None = None,
        raises: tuple[type[BaseException], ...] = (),
        docs: str = "",
    ) -> DurableTask[..., Promised[Any]]: ...

    @refuses_unknown_options("app.remote_task")
    def remote_task(
        self,
        name: str,
        /,
        *,
        queue: str,
        returns: Any = None,
        retries: int | RetryPolicy = 0,
        timeout: float | str | None = None,
        concurrency: int | str | Mapping[str, Any] | None = None,
        raises: tuple[type[BaseException], ...] = (),
        docs: str = "",
    ) -> Any:
        """Declares a task that other programs run: those that claim ``queue`` from a server (``/v1/tasks/claim``).
        No worker of this application runs it. A call takes one value, or fields by name. An output that does not
        match ``returns`` (a dataclass, a model, ``list[int]`` …; None: anything) fails the task. ``docs``
        describes the task for authors of the program. The other options are those of ``task``."""
        expected = Any if returns is None else returns
        durable: DurableRemoteTask[..., Any] = DurableRemoteTask(
            name, expected, queue=queue, docs=docs, raises=raises
        )
        task = make_remote_task(
            durable,
            queue,
            docs,
            retry=_policy(retries),
            timeout=_seconds(timeout, "timeout"),
            concurrency=_concurrency(concurrency),
        )
        self.tasks.register(task)
        return durable

    @overload
    def workflow(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> DurableWorkflow[P, R]: ...

    @overload
    def workflow(
        self,
        /,
        *,
        name: str | None = None,
        timeout: float | str | None = None,
        concurrency: int | str | Mapping[str, Any] | None = None,
        cancel_grace: float | str | None = None,
        journal: int | str | None = None,
    ) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], DurableWorkflow[P, R]]: ...

    @refuses_unknown_options("@app.workflow")
    def workflow(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        timeout: float | str | None = None,
        concurrency: int | str | Mapping[str, Any] | None = None,
        cancel_grace: float | str | None = None,
        journal: int | str | None = None,
    ) -> Any:
        """Compiles an ``async def`` to a durable workflow. Code that cannot be made durable is refused here, with
        file, line and a replacement. ``concurrency``: the number of concurrent executions, or ``{"key":
        "$trigger.customer", "limit": 1}`` for a limit per value of the input; further executions are PENDING.
        ``cancel_grace``: the time limit of the clean-up after a cancel or timeout; unlimited by default.
        ``journal``: which turns are kept to rerun from: "off", "failures" (the default: the one before a failure, and
        the last twenty), the number of the last turns, or "all".

        In a workflow, a call starts a child. Elsewhere ``await order(2)`` starts an execution and returns its
        result while the application runs in this process; otherwise the call raises OutsideWorkflow.
        """

        def register(function: Callable[..., Any]) -> DurableWorkflow[..., Any]:
            _refuse_no_function(function, "@app.workflow")
            said = {
                "timeout": timeout,
                "concurrency": concurrency,
                "cancel_grace": cancel_grace,
                "journal": journal,
            }
            front_matter = {option: value for option, value in said.items() if value is not None}
            durable = DurableWorkflow(function, name, front_matter=front_matter)
            front_matter_limit(front_matter, durable.program.name)  # checked here, and not only at a start
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
        """Allows objects of this class to live across an ``await`` of a Python workflow: they are stored as the
        result of ``dump`` and restored by ``load``. It applies to the whole process; every worker must register
        the classes that its workflows use."""
        register_type(kind, dump, load)

    # -- running ----------------------------------------------------------------------------------------------

    def running(self, *, worker: bool = True, scheduler: bool = True) -> Running:
        """Returns a context manager (``with`` or ``async with``) inside which the worker and timers of this process
        run. Leaving it raises StoreLost if the store's file was deleted or replaced meanwhile."""
        return Running(self, worker=worker, scheduler=scheduler)

    @refuses_unknown_options("app.with_options")
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
        """Sets options for the next start: ``app.with_options(idempotency_key="o-1").start("checkout", …)``. With
        ``delay`` or ``start_at`` the execution is PENDING until then; ``handle.trigger()`` starts it earlier.
        ``connection`` starts it inside the caller's open transaction in the store's database: the execution
        exists after the caller's commit."""
        key = idempotency_key
        return Starter(
            self, StartOptions(version, key, dict(tags or {}), priority, delay, start_at, connection)
        )

    def deploy(self, document: str | bytes | Mapping[str, Any], name: str | None = None) -> Definition:
        """Checks and stores a graph document; the same content is the same version."""
        return self.host.call(self._deploy(document, name))

    async def adeploy(self, document: str | bytes | Mapping[str, Any], name: str | None = None) -> Definition:
        return await self.host.acall(self._deploy(document, name))

    def deploy_script(self, source: str, name: str | None = None) -> Definition:
        """Compiles and stores a ``.flow`` script; ``name`` is for scripts without a name of their own."""
        return self.host.call(self._deploy_script(source, name))

    async def adeploy_script(self, source: str, name: str | None = None) -> Definition:
        return await self.host.acall(self._deploy_script(source, name))

    def handle(self, execution: str) -> Handle[Any]:
        return Handle(self, execution)

    def executions(
        self, workflow: str | None = None, *, limit: int = 50, **filters: Unpack[ExecutionFilters]
    ) -> list[Handle[Any]]:
        """Returns executions, newest first; the filters are those of ``Client.executions``: states, tags, times …"""
        return self.host.call(self._executions(filter_of(workflow, filters), limit))

    async def aexecutions(
        self, workflow: str | None = None, *, limit: int = 50, **filters: Unpack[ExecutionFilters]
    ) -> list[Handle[Any]]:
        return await self.host.acall(self._executions(filter_of(workflow, filters), limit))

    def move_executions(
        self, workflow: str, before: Version, version: Version, *, dry_run: bool = False
    ) -> MoveReport:
        """Lets all executions of a workflow's version ``before`` that have not ended go on with another version, each
        under its own id. Those that cannot are in ``refusals``, with the reasons; ``dry_run`` only checks."""
        return self.host.call(self._move_executions(workflow, before, version, dry_run))

    async def amove_executions(
        self, workflow: str, before: Version, version: Version, *, dry_run: bool = False
    ) -> MoveReport:
        return await self.host.acall(self._move_executions(workflow, before, version, dry_run))

    async def _move_executions(
        self, workflow: str, before: Version, version: Version, dry_run: bool
    ) -> MoveReport:
        client = self.client
        return await move_all(
            lambda cursor: client.move_some(workflow, before, version, dry_run=dry_run, cursor=cursor)
        )

    def close(self) -> None:
        """Closes the store. Leaving ``running()`` does so too."""
        if self._guest_of is None and self._host is not None:
            host, self._host = self._host, None
            host.close()

    async def aclose(self) -> None:
        if self._guest_of is None and self._host is not None:
            host, self._host = self._host, None
            await host.aclose()

    # -- internal ---------------------------------------------------------------------------------------------

    def _starter(self) -> Starter:
        return Starter(self, self._options)

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
        """Run a workflow that is called by ordinary code."""
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
        """Redirect everything inside the block to another host, for tests; the application's own store is not
        opened."""
        before, self._guest_of = self._guest_of, host
        try:
            yield
        finally:
            self._guest_of = before

    @property
    def host(self) -> Host:
        """The host, opened on first use, in a thread of its own."""
        if self._guest_of is not None:
            return self._guest_of
        if self._host is None:
            host = Host(self._open_engine)
            host.open_in_thread()
            self._host = host
        return self._host

    async def host_here(self) -> Host:
        """Open the host on the caller's event loop, for ``async with app.running()``."""
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
            raise InternalError("the application's engine was stopped")
        return engine

    def services(self) -> dict[str, Any]:
        """The services that nodes and tasks find in their context."""
        limits = self.settings.limits
        allowed = HttpLimits(limits.http_timeout, limits.http_response_bytes)
        http = HttpService(self.egress or ALLOW_EVERYTHING, limits=allowed, large=LargeResponses())
        return {"tasks": self.tasks, "http": http}

    async def _open_engine(self) -> Engine:
        settings = self.settings
        if settings.adopt is None:
            settings = replace(settings, adopt=adopt_of_environment())
        stack = await open_stack(self.url, self._clock, self.broker, self.redis)
        engine = Engine(stack, self.registry, self.services(), settings, self.workflows)
        if stack.task_transports:
            engine.distribution = TaskDistribution(engine, stack.task_transports)
        engine.vault.keys.may_make = self.makes_secret_key
        settle_when_deployed(engine)
        return engine

    async def _deploy(self, document: str | bytes | Mapping[str, Any], name: str | None) -> Definition:
        client = self.client
        compiled = client.with_queues(client.definitions.load(document, name), self.task_queue)
        text = document if isinstance(document, str) else None
        text = bytes(document).decode() if isinstance(document, bytes) else text

        async def store() -> Definition:
            return (await client.deploy(compiled, text=text))[0]

        source = compiled.definition_source
        return await triggers_of(self.engine).deploy(compiled.plan.name, "graph", source, store)

    async def _deploy_script(self, source: str, name: str | None) -> Definition:
        code = compile_checked(source, name)
        return await triggers_of(self.engine).deploy(
            code.name, code.kind, b"", lambda: self.client.deploy_script(code)
        )

    def task_queue(self, task: str) -> str | None:
        """Return the queue of a task registered here."""
        found: Task | None = self.tasks.find(task)
        return found.queue if found is not None else None

    async def _executions(self, where: ExecutionFilter, limit: int) -> list[Handle[Any]]:
        return [Handle(self, view.id) for view in await self.client.executions(where, limit=limit)]


RUNS = "runs its application"


class Running:
    """The block in which an application's worker runs; both ``with`` and ``async with``."""

    def __init__(self, app: App, *, worker: bool, scheduler: bool) -> None:
        self._app = app
        self._worker = worker
        self._scheduler = scheduler

    def __enter__(self) -> App:
        refuse_during_import(RUNS)
        self._app.host.call(self._app.engine.start(worker=self._worker, scheduler=self._scheduler))
        return self._app

    def __exit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        loss = self._app.engine.loss
        self._app.close()
        if loss is not None and kind is None:
            raise loss

    async def __aenter__(self) -> App:
        refuse_during_import(RUNS)
        host = await self._app.host_here()
        await host.acall(self._app.engine.start(worker=self._worker, scheduler=self._scheduler))
        return self._app

    async def __aexit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        loss = self._app.engine.loss
        await self._app.aclose()
        if loss is not None and kind is None:
            raise loss


def _refuse_no_function(given: object, decorator: str) -> None:
    if not callable(given):
        raise InvalidInput(
            f"{decorator} decorates a function, not {given!r}; options have names: {decorator}(name=…)"
        )


def _policy(retries: int | RetryPolicy) -> RetryPolicy:
    if isinstance(retries, bool) or not isinstance(retries, int | RetryPolicy):
        raise InvalidInput(f"the option 'retries' is not valid: {retries!r} is no number of retries")
    return retries if isinstance(retries, RetryPolicy) else RetryPolicy(max_attempts=retries + 1)


def _seconds(duration: float | str | None, option: str) -> float | None:
    return read_duration(duration, f"the option '{option}'") if duration is not None else None


def _concurrency(given: int | str | Mapping[str, Any] | None) -> Concurrency | None:
    try:
        return read_concurrency(given) if given is not None else None
    except ValueError as error:
        raise InvalidInput(f"the option 'concurrency' is not valid: {error}") from None
