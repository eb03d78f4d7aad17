"""A stand-in for the tasks of this process while a step of a remote worker's task is taken.

The same step functions run twice for such a task: once to *ask* (the parameters are rendered, the task's name and
input become a `RemoteRequest`, nothing is committed), and once to *answer* (the task returns at once what the remote
worker sent, and the step continues as if the task had run here: retries, error strategies and joins apply).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, NoReturn

from msgspec import Struct

from dalsegno.core.graph.complete import Step
from dalsegno.core.scripts.task_options import task_options
from dalsegno.core.scripts.token_bodies import decode_task
from dalsegno.engine.remote.declarations import Declaration
from dalsegno.engine.scripts.script_step import ScriptStep
from dalsegno.engine.scripts.steps import ScriptSteps
from dalsegno.engine.steps.budget import is_light
from dalsegno.engine.steps.graph import Steps
from dalsegno.engine.steps.run_node import PassesThrough
from dalsegno.engine.steps.tasks import Task, Tasks, fitting_output
from dalsegno.engine.subprocesses.heavy_steps import HeavySteps
from dalsegno.lang.runtime.limits import Heavy
from dalsegno.model.execution import SCRIPTED
from dalsegno.model.failure import Failure
from dalsegno.model.token import Lease
from dalsegno.ports.node import NodeContext, NodeError


class RemoteRequest(Struct, frozen=True):
    """A request to a remote worker."""

    task: str
    input: Any
    key: str
    """Idempotency key, the same for every attempt."""
    workflow: str
    timeout: float | None


class Answer(Struct, frozen=True):
    """The outcome of a remote task: an output or a failure."""

    output: Any = None
    failure: Failure | None = None


class _Asked(PassesThrough):
    """The exception that carries a request out of the step, past everything that turns exceptions into failures of
    the node.
    """

    def __init__(self, question: RemoteRequest) -> None:
        super().__init__(question.task)
        self.question = question


class RemoteSteps:
    """The step functions of one engine, for remote tasks."""

    def __init__(
        self, steps: Steps, scripts: ScriptSteps, tasks: Tasks | None, heavy: HeavySteps | None = None
    ) -> None:
        self.steps = steps
        self.scripts = scripts
        self.tasks = tasks
        self.heavy = heavy if heavy is not None and heavy.are_possible else None

    async def ask(self, lease: Lease) -> RemoteRequest | Step | ScriptStep:
        """Return the request, or the step itself if it needs no task: an expired wait, parameters that cannot be
        rendered, a node of another type. Raises PutOff.
        """
        before = is_light.set(self.heavy is not None)
        try:
            return await self._step(lease, None, None)
        except _Asked as asked:
            return asked.question
        except Heavy:
            is_light.set(False)
            return await self._ask_heavy(lease)
        finally:
            is_light.reset(before)

    async def _ask_heavy(self, lease: Lease) -> RemoteRequest | Step | ScriptStep:
        """Ask for a heavy step. A node without effects is computed in a subprocess; of any other only the parameters
        are needed.
        """
        if self.heavy is not None and await self._is_pure(lease):
            if is_scripted(lease):
                return await self.heavy.script_step(lease)
            return await self.heavy.step(lease, None)
        try:
            return await self._step(lease, None, None)
        except _Asked as asked:
            return asked.question

    async def _is_pure(self, lease: Lease) -> bool:
        if is_scripted(lease):
            return self.scripts.tasks.is_pure(lease.node)
        node = (await self.steps.definitions.by_hash(lease.definition)).plan.nodes.get(lease.node)
        return node is None or not self.steps.runner.has_effects(node)

    async def answer(
        self, lease: Lease, answer: Answer, began: float, declared: Declaration | None = None
    ) -> Step | ScriptStep:
        """Return the step for an answer. ``began``: when the remote worker received the task. ``declared``: the
        task's declaration if it is not registered in this process.
        """
        return await self._step(lease, answer, began, declared)

    async def _step(
        self, lease: Lease, answer: Answer | None, began: float | None, declared: Declaration | None = None
    ) -> Step | ScriptStep:
        proxy_tasks = _ProxyTasks(self.tasks, answer, lambda: self._timeout(lease), declared)
        if is_scripted(lease):
            scripts, runner = copy(self.scripts), copy(self.scripts.tasks)
            runner.services = {**runner.services, "tasks": proxy_tasks}
            runner.needs_input = answer is None
            scripts.tasks = runner
            return await scripts.step(lease, began)
        steps, nodes = copy(self.steps), copy(self.steps.runner)
        nodes.services = {**nodes.services, "tasks": proxy_tasks}
        steps.runner = nodes
        return await steps.step(lease, None, began)

    def _timeout(self, lease: Lease) -> float | None:
        if lease.kind == "task":
            return task_options(decode_task(lease.data).options).timeout
        program = self.steps.definitions.cached(lease.definition)
        node = program.plan.nodes.get(lease.node) if program is not None else None
        return node.timeout if node is not None else None


class _ProxyTasks(Tasks):
    def __init__(
        self,
        known: Tasks | None,
        answer: Answer | None,
        timeout: Callable[[], float | None],
        declared: Declaration | None,
    ) -> None:
        super().__init__()
        self._declared = declared
        self._known = known
        self._answer = answer
        self._timeout = timeout

    def runs(self, name: str) -> bool:
        return True

    async def run(self, name: str, payload: Any, ctx: NodeContext) -> Any:
        task = self._known.find(name) if self._known is not None else None
        use_retry = getattr(ctx, "use_retry", None)
        registered = task or self._declared
        if registered is not None and use_retry is not None:
            use_retry(registered.retry)
        if self._answer is None:
            raise _Asked(self._question(name, payload, ctx, task))
        if self._answer.failure is not None:
            _fail(self._answer.failure)
        output = self._answer.output
        return fitting_output(task, output) if task is not None and task.is_remote else output

    def _question(self, name: str, payload: Any, ctx: NodeContext, task: Task | None) -> RemoteRequest:
        limits = [self._timeout(), task.timeout if task is not None else None]
        timeout = min((limit for limit in limits if limit is not None), default=None)
        return RemoteRequest(name, payload, ctx.idempotency_key, ctx.workflow, timeout)


class RemoteError(NodeError):
    """A failure reported by a remote worker; it keeps the type that it had there."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message, code=failure.code)
        self.failure = failure


def _fail(failure: Failure) -> NoReturn:
    raise RemoteError(failure)


def is_scripted(lease: Lease) -> bool:
    return lease.kind == "task" or lease.execution_kind in SCRIPTED
