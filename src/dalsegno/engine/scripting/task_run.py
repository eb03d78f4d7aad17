"""Running one task of a script: the attempt, and the failure it may come to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from dalsegno.core.fail import worker_lost
from dalsegno.core.script_bodies import TaskBody
from dalsegno.core.task_options import TaskOptions, task_options
from dalsegno.core.values import decode_value
from dalsegno.engine.budget import Meters, is_light, refuse_if_light
from dalsegno.engine.library_node import run_library_node
from dalsegno.engine.raised import is_failure
from dalsegno.engine.run_context import LogSink
from dalsegno.engine.runner import logged_traceback, storable_failure
from dalsegno.engine.scripting.failures import Failed, error_value
from dalsegno.engine.scripting.task_context import TaskRunContext
from dalsegno.engine.secrets.vault import NODE_PREFIX
from dalsegno.engine.settings import EngineLimits
from dalsegno.engine.tasks import Tasks, TaskTimedOut
from dalsegno.errors import NotFound
from dalsegno.model.failure import Failure
from dalsegno.model.retry import NO_RETRY
from dalsegno.model.token import Lease
from dalsegno.ports.node import NodeError, NodeTypes
from dalsegno.ports.transactions import TransactionLost

logger = logging.getLogger("dalsegno.steps")


class TaskRunner:
    def __init__(
        self, types: NodeTypes, services: Mapping[str, Any], log: LogSink, limits: EngineLimits
    ) -> None:
        self.types = types
        self.services = services
        self.log = log
        self.limits = limits
        self._meters = Meters(limits)

    async def run(self, lease: Lease, body: TaskBody, workflow: str, now: float) -> Any | Failed:
        """What the task returned, or how it failed."""
        options = task_options(body.options)
        if self.is_pure(lease.node):
            refuse_if_light(len(bytes(body.input)))
        ctx = TaskRunContext(
            lease, decode_value(body.input), options.key, self.services, self.log, now, workflow
        )
        if lease.losses >= self.limits.losses:
            return self._failed(ctx, options, worker_lost(lease.node, lease.losses), None)
        limit: asyncio.Timeout | None = None
        try:
            if options.timeout is None:
                returned = await self._execute(lease.node, ctx)
            else:
                async with asyncio.timeout(options.timeout) as limit:
                    returned = await self._execute(lease.node, ctx)
            if ctx.secrets is None:
                return returned
            return await ctx.secrets.returned(returned, f"the output of task '{lease.node}'")
        except TransactionLost:
            raise
        except BaseException as error:
            if not is_failure(error):
                raise
            if limit is not None and limit.expired() and isinstance(error, TimeoutError):
                return self._failed(ctx, options, _timed_out(lease.node, options), error)
            if isinstance(error, TaskTimedOut):
                late = replace(error.failure, code="TimeoutError")
                return self._failed(ctx, options, late, TimeoutError())
            return self._failed(ctx, options, storable_failure(error, lease.node, ctx.secrets), error)

    async def _execute(self, name: str, ctx: TaskRunContext) -> Any:
        if self.is_pure(name):
            return await run_library_node(self.types, name[len(NODE_PREFIX) :], ctx, self._meters)
        before = is_light.set(False)  # what has effects is done once
        try:
            return await self._execute_once(name, ctx)
        finally:
            is_light.reset(before)

    async def _execute_once(self, name: str, ctx: TaskRunContext) -> Any:
        if name.startswith(NODE_PREFIX):
            return await run_library_node(self.types, name[len(NODE_PREFIX) :], ctx, self._meters)
        tasks = self.services.get("tasks")
        if not isinstance(tasks, Tasks):
            raise _not_found(name, "this worker has no tasks registered")
        try:
            return await tasks.run(name, ctx.payload, ctx)
        except NotFound as error:
            raise _not_found(name, str(error)) from error

    def is_pure(self, name: str) -> bool:
        """Whether it is a node of the library that has no effects."""
        found = name[len(NODE_PREFIX) :] if name.startswith(NODE_PREFIX) else ""
        return bool(found) and self.types.find(found) is not None and self.types.get(found).pure

    def _failed(
        self, ctx: TaskRunContext, options: TaskOptions, failure: Failure, error: BaseException | None
    ) -> Failed:
        lease = ctx.lease
        logger.info(
            "task '%s' of execution %s failed (attempt %d): %s: %s%s",
            lease.node,
            lease.execution,
            lease.attempt,
            failure.type,
            failure.message,
            logged_traceback(failure),
        )
        value = error_value(failure, error)
        if ctx.secrets is not None:
            value = ctx.secrets.error(value)
        return Failed(failure, value, options.retry or ctx.retry or NO_RETRY)


def _not_found(name: str, reason: str) -> NodeError:
    return NodeError(
        f"task '{name}' cannot be run: {reason}",
        code="TASK_NOT_FOUND",
        details={"task": name},
        retryable=False,
    )


def _timed_out(name: str, options: TaskOptions) -> Failure:
    return Failure(
        f"task '{name}' did not end within its timeout of {options.timeout:g} s",
        code="TimeoutError",
        type="TimeoutError",
    )
