"""Starts of workflows and tasks by an application. Every call has an async twin with the prefix ``a``.

The arguments of a function of the program are those of its signature, for type checkers too, and its handle has the
type of its result. Options are never among the arguments: ``with_options`` takes them.
"""

from __future__ import annotations

import dataclasses
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping
from typing import Any, ParamSpec, Protocol, TypeAlias, TypeVar, overload

from msgspec import Raw

from dalsegno.core.values import encode_value
from dalsegno.engine.client import Client
from dalsegno.engine.scripts.python_workflows import Workflows
from dalsegno.engine.starting.caller_connections import async_connection, plain_connection
from dalsegno.engine.starting.module_import import refuse_during_import
from dalsegno.engine.starting.start import StartOptions
from dalsegno.errors import InvalidInput, UsageError
from dalsegno.handle import Handle, Runtime
from dalsegno.lang.python import Durable, DurableTask, DurableWorkflow

P = ParamSpec("P")
R = TypeVar("R")

Target: TypeAlias = str | DurableTask[..., Any] | DurableWorkflow[..., Any]


class Program(Runtime, Protocol):
    """The application of a start."""

    @property
    def client(self) -> Client: ...

    @property
    def workflows(self) -> Workflows: ...

    def task_queue(self, task: str) -> str | None: ...


class Starting(Protocol):
    """Starts with their options."""

    def start_now(
        self, workflow: Any, args: tuple[Any, ...], fields: Mapping[str, Any], *, pending: bool = False
    ) -> Handle[Any]: ...

    async def astart_now(
        self, workflow: Any, args: tuple[Any, ...], fields: Mapping[str, Any], *, pending: bool = False
    ) -> Handle[Any]: ...


class WorkflowStarts(ABC):
    """The calls that start workflows."""

    __slots__ = ()

    @overload
    def start(self, workflow: DurableWorkflow[P, R], /, *args: P.args, **fields: P.kwargs) -> Handle[R]: ...

    @overload
    def start(self, workflow: str, /, *args: Any, **fields: Any) -> Handle[Any]: ...

    def start(self, workflow: Any, /, *args: Any, **fields: Any) -> Handle[Any]:
        """Starts a deployed workflow (``"checkout"``, ``"checkout@stable"``) with one value, or with keywords that
        form an object; or the deployed workflow of a function that this program has, with the function's own
        arguments. A start that gets no answer is repeated and takes effect once."""
        return self._starter().start_now(workflow, args, fields)

    @overload
    async def astart(
        self, workflow: DurableWorkflow[P, R], /, *args: P.args, **fields: P.kwargs
    ) -> Handle[R]: ...

    @overload
    async def astart(self, workflow: str, /, *args: Any, **fields: Any) -> Handle[Any]: ...

    async def astart(self, workflow: Any, /, *args: Any, **fields: Any) -> Handle[Any]:
        return await self._starter().astart_now(workflow, args, fields)

    @overload
    def submit(self, workflow: DurableWorkflow[P, R], /, *args: P.args, **fields: P.kwargs) -> Handle[R]: ...

    @overload
    def submit(self, workflow: str, /, *args: Any, **fields: Any) -> Handle[Any]: ...

    def submit(self, workflow: Any, /, *args: Any, **fields: Any) -> Handle[Any]:
        """Submits a start in two steps: the input is checked, and the execution is PENDING until
        ``handle.trigger()`` starts it, with this input or with another one."""
        return self._starter().start_now(workflow, args, fields, pending=True)

    @overload
    async def asubmit(
        self, workflow: DurableWorkflow[P, R], /, *args: P.args, **fields: P.kwargs
    ) -> Handle[R]: ...

    @overload
    async def asubmit(self, workflow: str, /, *args: Any, **fields: Any) -> Handle[Any]: ...

    async def asubmit(self, workflow: Any, /, *args: Any, **fields: Any) -> Handle[Any]:
        return await self._starter().astart_now(workflow, args, fields, pending=True)

    @abstractmethod
    def _starter(self) -> Starting:
        """Return the options of its starts."""


class StartCalls(WorkflowStarts):
    """The calls that start workflows and single tasks of a program."""

    __slots__ = ()

    @overload
    def start(
        self, workflow: Durable[P, Awaitable[R]], /, *args: P.args, **fields: P.kwargs
    ) -> Handle[R]: ...

    @overload
    def start(self, workflow: str, /, *args: Any, **fields: Any) -> Handle[Any]: ...

    def start(self, workflow: Any, /, *args: Any, **fields: Any) -> Handle[Any]:
        """Starts a workflow. A Python workflow or task of this program takes its own arguments; a deployed workflow
        is named (``"checkout"``, ``"checkout@stable"``) and takes one value, or keywords that form an object."""
        return self._starter().start_now(workflow, args, fields)

    @overload
    async def astart(
        self, workflow: Durable[P, Awaitable[R]], /, *args: P.args, **fields: P.kwargs
    ) -> Handle[R]: ...

    @overload
    async def astart(self, workflow: str, /, *args: Any, **fields: Any) -> Handle[Any]: ...

    async def astart(self, workflow: Any, /, *args: Any, **fields: Any) -> Handle[Any]:
        return await self._starter().astart_now(workflow, args, fields)


class Starter(StartCalls):
    """Starts with preset options."""

    __slots__ = ("_app", "_options")

    def __init__(self, app: Program, options: StartOptions) -> None:
        self._app = app
        self._options = options

    def _starter(self) -> Starter:
        return self

    def start_now(
        self, workflow: Target, args: tuple[Any, ...], fields: Mapping[str, Any], *, pending: bool = False
    ) -> Handle[Any]:
        options = self._plain_options()
        return self._app.host.call(self._start(workflow, args, fields, options, pending=pending))

    async def astart_now(
        self, workflow: Target, args: tuple[Any, ...], fields: Mapping[str, Any], *, pending: bool = False
    ) -> Handle[Any]:
        options = await self._async_options()
        return await self._app.host.acall(self._start(workflow, args, fields, options, pending=pending))

    def _plain_options(self) -> StartOptions:
        """Return the options, with the caller's connection used from the caller's thread."""
        self._refuse_during_import()
        given = self._options.connection
        if given is None:
            return self._options
        return dataclasses.replace(self._options, connection=plain_connection(given))

    async def _async_options(self) -> StartOptions:
        """Return the options, with the caller's connection used from the caller's event loop."""
        self._refuse_during_import()
        given = self._options.connection
        if given is None:
            return self._options
        return dataclasses.replace(self._options, connection=await async_connection(given))

    def _refuse_during_import(self) -> None:
        if self._options.idempotency_key is None:  # with a key, the next import starts nothing new
            refuse_during_import("starts an execution")

    async def _start(
        self,
        workflow: Target,
        args: tuple[Any, ...],
        fields: Mapping[str, Any],
        options: StartOptions,
        *,
        pending: bool,
    ) -> Handle[Any]:
        if not isinstance(workflow, str):
            _refuse_other(workflow)
            return await self._start_own(workflow, args, fields, options, pending=pending)
        if len(args) > 1:
            raise UsageError(
                f"a workflow by name takes one value as its input, or keywords; {len(args)} values were given"
            )
        if fields and args and args[0] is not None:
            raise UsageError("give the input either as one value or as keywords, not both")
        payload = fields or (args[0] if args else None)
        client = self._app.client
        create = client.submit if pending else client.start
        return Handle(self._app, await create(workflow, payload, options))

    async def _start_own(
        self,
        target: DurableTask[..., Any] | DurableWorkflow[..., Any],
        args: tuple[Any, ...],
        fields: Mapping[str, Any],
        options: StartOptions,
        *,
        pending: bool,
    ) -> Handle[Any]:
        """Start a function of this program: its arguments are checked against its signature, its result is decoded."""
        try:
            payload = target.bind(*args, **fields)
        except TypeError as error:
            raise InvalidInput(str(error)) from None
        client = self._app.client
        if isinstance(target, DurableTask):
            if pending:
                raise UsageError(
                    f"'{target.name}' is a task: only workflows are submitted; start it with a delay instead"
                )
            queue = self._app.task_queue(target.name)
            execution = await client.start_task(target.name, payload, options, queue)
        else:
            await self._app.workflows.ensure_all(client)
            definition = await self._app.workflows.ensure(client, target.name)
            version = options.version if options.version is not None else definition.version
            options = dataclasses.replace(options, version=version)
            raw = Raw(encode_value(payload, "the input"))
            create = client.submit if pending else client.start
            execution = await create(target.name, raw, options)
        return Handle(self._app, execution, target.decode_result)


def _refuse_other(target: object) -> None:
    """Refuse a target that is neither a name nor one of the application's functions; the error names the
    replacement."""
    if isinstance(target, DurableTask | DurableWorkflow):
        return
    name = getattr(target, "__name__", type(target).__name__)
    if inspect.iscoroutine(target):
        target.close()
        advice = (
            f"give the workflow and its arguments apart: app.start({name}, …) instead of app.start({name}(…))"
        )
        raise InvalidInput(f"start() takes a workflow, not a call of '{name}': {advice}")
    if inspect.isfunction(target):
        raise InvalidInput(
            f"'{name}' is an ordinary function, which cannot be started: write @app.workflow above its 'async def' to "
            "make it a workflow, or @app.task to make it a task, and start what the decorator gives"
        )
    raise InvalidInput(
        f"start() takes a workflow or a task of this application, or the name of a deployed workflow, not {name}"
    )
