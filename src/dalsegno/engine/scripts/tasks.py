"""Running one task of a script: the attempt and its failure, and the question of a task that waits for a person."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from dalsegno.core.graph.external_waits import for_program, signal_of
from dalsegno.core.graph.fail import worker_lost
from dalsegno.core.graph.step_input import Awaiting
from dalsegno.core.scripts.task_options import TaskOptions, task_options
from dalsegno.core.scripts.tasks import TaskDone, await_decision, nothing
from dalsegno.core.scripts.token_bodies import TaskBody
from dalsegno.core.settlement.signals import SIGNAL
from dalsegno.core.values import decode_value, encode_value, refuse_size
from dalsegno.engine.scripts.failures import Failed, error_value
from dalsegno.engine.scripts.task_inputs import TaskInputs, input_size
from dalsegno.engine.secrets.vault import NODE_PREFIX
from dalsegno.engine.settings import EngineLimits
from dalsegno.engine.steps.budget import Meters, is_light, refuse_if_light
from dalsegno.engine.steps.contexts import LogSink, RunContext
from dalsegno.engine.steps.external_waits import arrival_of, passed_over, useless_signal
from dalsegno.engine.steps.library_nodes import run_library_node
from dalsegno.engine.steps.run_node import is_failure, logged_traceback, storable_failure
from dalsegno.engine.steps.tasks import LookForTask, Tasks, TaskTimedOut
from dalsegno.engine.steps.values import Results
from dalsegno.errors import NotFound
from dalsegno.lang.durations import duration_text
from dalsegno.lang.runtime.effects import APPROVAL, ErrorValue
from dalsegno.model.failure import NO_RETRY, Failure
from dalsegno.model.token import Lease
from dalsegno.model.transition import Transition
from dalsegno.ports.ledger import Ledger
from dalsegno.ports.node import AwaitSignal, NodeError, NodeTypes, Unacceptable
from dalsegno.ports.records import Blobs
from dalsegno.ports.transactions import TransactionLost

logger = logging.getLogger("dalsegno.steps")


class TaskRunner:
    def __init__(
        self,
        types: NodeTypes,
        services: Mapping[str, Any],
        log: LogSink,
        limits: EngineLimits,
        inputs: TaskInputs,
    ) -> None:
        self.types = types
        self.inputs = inputs
        self.needs_input = True
        """Unset for a run whose outcome is known."""
        self.services = services
        self.log = log
        self.limits = limits
        self._meters = Meters(limits)
        self.look_for_node_type: LookForTask | None = None
        """Called for node types that are missing here."""

    async def run(self, lease: Lease, body: TaskBody, workflow: str, now: float) -> Any | Failed:
        """Run the task. Return its output, or its failure."""
        options = task_options(body.options)
        is_pure = lease.node.startswith(NODE_PREFIX) and self.is_pure(lease.node)
        if is_pure:
            refuse_if_light(input_size(body))
        payload = None
        if self.needs_input:
            if body.stored is None:
                payload = decode_value(body.input)
            elif self._runs_here(lease.node):
                payload = await self.inputs.value(lease.execution, body)
        ctx = RunContext.of_task(
            lease,
            body.promise,
            payload,
            options.key,
            self.services,
            self.log,
            self._meters,
            now,
            workflow,
        )
        if lease.losses >= self.limits.losses:
            return self._failed(ctx, options, worker_lost(lease.node, lease.losses), None)
        limit: asyncio.Timeout | None = None
        try:
            if options.timeout is None:
                returned = await self._execute(lease.node, payload, ctx, is_pure)
            else:
                async with asyncio.timeout(options.timeout) as limit:
                    returned = await self._execute(lease.node, payload, ctx, is_pure)
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

    def _runs_here(self, name: str) -> bool:
        """Return False for a task or node that this process leaves to others, or fails: its input is not read."""
        if name.startswith(NODE_PREFIX):
            return self.types.find(name[len(NODE_PREFIX) :]) is not None
        tasks = self.services.get("tasks")
        return isinstance(tasks, Tasks) and tasks.runs(name)

    async def input_of(self, lease: Lease, body: TaskBody) -> Any:
        return await self.inputs.value(lease.execution, body)

    async def _execute(self, name: str, payload: Any, ctx: RunContext, is_pure: bool) -> Any:
        if is_pure:
            return await run_library_node(self.types, name[len(NODE_PREFIX) :], ctx, self._meters)
        before = is_light.set(False)  # code with effects must run only once
        try:
            if name.startswith(NODE_PREFIX):
                return await self._execute_node(name[len(NODE_PREFIX) :], ctx)
            return await self._tasks_for(name).run(name, payload, ctx)
        except NotFound as error:
            if name.startswith(NODE_PREFIX):
                raise
            raise _not_found(name, str(error)) from error
        finally:
            is_light.reset(before)

    async def _execute_node(self, name: str, ctx: RunContext) -> Any:
        if self.look_for_node_type is not None and self.types.find(name) is None:
            await self.look_for_node_type(name, ctx)
        return await run_library_node(self.types, name, ctx, self._meters)

    def _tasks_for(self, name: str) -> Tasks:
        tasks = self.services.get("tasks")
        if not isinstance(tasks, Tasks):
            raise _not_found(name, "this worker has no tasks registered")
        return tasks

    def is_pure(self, name: str) -> bool:
        """Return True for a library node without effects."""
        if not name.startswith(NODE_PREFIX):
            return False
        found = name[len(NODE_PREFIX) :]
        return bool(found) and self.types.find(found) is not None and self.types.get(found).pure

    def _failed(
        self, ctx: RunContext, options: TaskOptions, failure: Failure, error: BaseException | None
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


# -- questions to people ---------------------------------------------------------------------------------------


class Questions:
    """A task that is parked until a person has decided, like an approval node of a graph. Lists, decisions, links and
    signals treat the parked token like a node's.
    """

    def __init__(
        self,
        ledger: Ledger,
        blobs: Blobs,
        types: NodeTypes,
        results: Results,
        inputs: TaskInputs,
        log: LogSink,
    ) -> None:
        self.ledger = ledger
        self.blobs = blobs
        self.types = types
        self.results = results
        self.inputs = inputs
        self._log = log

    def ask(self, lease: Lease, body: TaskBody, asked: AwaitSignal, began: float) -> Transition:
        """Park the token until a decision or its timeout. It uses no slot meanwhile."""
        question = dict(asked.question or {})
        what = f"what '{lease.node}' asks"
        refuse_size(len(encode_value(question, what)), what, self.results.limits.value_bytes)
        now = self.ledger.now()
        due = now + asked.timeout if asked.timeout is not None else None
        return await_decision(lease, body, Awaiting(SIGNAL + asked.name, now, due, question), began, now)

    async def answered(
        self, lease: Lease, body: TaskBody, awaiting: Awaiting, began: float
    ) -> TaskDone | Transition:
        """Return the result of the question, or a transition that keeps waiting because what arrived was no valid
        decision.
        """
        if lease.reason != "arrival":
            return TaskDone(began, body.line, error=_too_late(awaiting))
        raw = await arrival_of(lease, self.ledger, self.blobs)
        if raw is None:
            return nothing(lease)  # the execution has ended and was swept
        receive = self.types.get(lease.node.removeprefix(NODE_PREFIX)).receive
        payload: Any = decode_value(raw)
        try:
            received = payload
            if receive is not None:
                received = receive(await self.inputs.value(lease.execution, body), payload)
        except Unacceptable as error:
            self._log(lease.execution, lease.node, "warning", passed_over(error))
            problem = useless_signal(error, lease.node)
            return await_decision(lease, body, awaiting, began, self.ledger.now(), problem)
        if lease.node == APPROVAL:
            received = for_program(received)
        result = await self.results.of(lease.execution, received, f"the output of '{lease.node}'")
        return TaskDone(began, body.line, result)


def _too_late(awaiting: Awaiting) -> ErrorValue:
    waited = max((awaiting.due or awaiting.since) - awaiting.since, 0.0)
    message = (awaiting.question or {}).get("message") or signal_of(awaiting)
    return ErrorValue("TimeoutError", f"no decision was made within {duration_text(waited)}: {message}")
