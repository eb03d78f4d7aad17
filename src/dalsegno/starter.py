"""Starts of workflows and tasks with options chosen beforehand."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

from msgspec import Raw

from dalsegno.core.values import encode_value
from dalsegno.engine.caller_connections import async_connection, plain_connection
from dalsegno.engine.client import Client
from dalsegno.engine.starting import StartOptions
from dalsegno.engine.workflows import Workflows
from dalsegno.errors import InvalidInput, UsageError
from dalsegno.handle import Handle, Runtime
from dalsegno.lang.python import DurableTask, DurableWorkflow

Target: TypeAlias = str | DurableTask[..., Any] | DurableWorkflow[..., Any]


class Program(Runtime, Protocol):
    """What a start needs of the application it is for."""

    @property
    def client(self) -> Client: ...

    @property
    def workflows(self) -> Workflows: ...

    def task_queue(self, task: str) -> str | None: ...


class Starter:
    """Starts with options chosen beforehand."""

    __slots__ = ("_app", "_options")

    def __init__(self, app: Program, options: StartOptions) -> None:
        self._app = app
        self._options = options

    def start(self, workflow: Target, /, *args: Any, **fields: Any) -> Handle:
        return self._app.host.call(self._start(workflow, args, fields, self._plain_options()))

    async def astart(self, workflow: Target, /, *args: Any, **fields: Any) -> Handle:
        options = await self._async_options()
        return await self._app.host.acall(self._start(workflow, args, fields, options))

    def submit(self, workflow: Target, /, *args: Any, **fields: Any) -> Handle:
        return self._app.host.call(self._start(workflow, args, fields, self._plain_options(), pending=True))

    async def asubmit(self, workflow: Target, /, *args: Any, **fields: Any) -> Handle:
        options = await self._async_options()
        return await self._app.host.acall(self._start(workflow, args, fields, options, pending=True))

    def _plain_options(self) -> StartOptions:
        """With the caller's connection as it is used from the caller's thread."""
        given = self._options.connection
        if given is None:
            return self._options
        return dataclasses.replace(self._options, connection=plain_connection(given))

    async def _async_options(self) -> StartOptions:
        """With the caller's connection as it is used from the caller's event loop."""
        given = self._options.connection
        if given is None:
            return self._options
        return dataclasses.replace(self._options, connection=await async_connection(given))

    async def _start(
        self,
        workflow: Target,
        args: tuple[Any, ...],
        fields: Mapping[str, Any],
        options: StartOptions,
        *,
        pending: bool = False,
    ) -> Handle:
        if not isinstance(workflow, str):
            _refuse_other(workflow)
            return await self._start_own(workflow, args, fields, options, pending=pending)
        if len(args) > 1 or (fields and args and args[0] is not None):
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
    ) -> Handle:
        """A function of this program: its arguments are checked against its signature, its result is decoded."""
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
    """Whatever is neither a name nor one of the application's functions, with what to write instead."""
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
