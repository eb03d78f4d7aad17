"""Manual settlement of tasks and nodes: complete, fail, skip or requeue those that are pending or running.

A person needs no lease. The step is committed at the fence and attempt that were read; if these have changed
meanwhile, the task is read again. Of a person's answer and that of the program or worker holding the task, one is
applied, and the other is rejected as too late.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, Literal
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from dalsegno.core.graph.complete import Step
from dalsegno.core.graph.step_input import StepInput, decode_body
from dalsegno.core.manual_tasks import (
    Action,
    Hand,
    by_hand,
    cannot_complete,
    is_settleable,
    obstacle,
    requeued,
)
from dalsegno.core.scripts.task_options import task_options
from dalsegno.core.scripts.token_bodies import TaskBody, decode_task
from dalsegno.engine.definitions import Program
from dalsegno.engine.engine import Engine
from dalsegno.engine.executions import all_executions
from dalsegno.engine.remote.answers import commit_step
from dalsegno.engine.remote.declarations import Declaration
from dalsegno.engine.remote.sessions import id_of, lease_of, parts_of, token_in
from dalsegno.engine.remote.task_proxy import RemoteRequest, RemoteSteps
from dalsegno.engine.scripts.failures import Failed, error_value
from dalsegno.engine.scripts.script_step import ScriptStep
from dalsegno.engine.scripts.tasks import TaskRunner
from dalsegno.engine.steps.run_node import Runner
from dalsegno.engine.steps.tasks import Task, fitting_output
from dalsegno.engine.subprocesses.job_pool import output_problems
from dalsegno.engine.worker.directory import lost_workers, remote_worker_of
from dalsegno.errors import Conflict, Finding, InvalidInput, NotFound
from dalsegno.graph.plan import Node
from dalsegno.model.execution import ENDED, UNDER_WAY, ExecutionKind, ExecutionView
from dalsegno.model.failure import NO_RETRY, Failure, RetryPolicy
from dalsegno.model.ids import task_execution_id
from dalsegno.model.inspection import Inspection
from dalsegno.model.token import Lease, TokenView
from dalsegno.model.transition import AlreadyApplied, Applied, Outcome, Refused
from dalsegno.ports.archive import ExecutionFilter
from dalsegno.ports.ledger import WorkerView
from dalsegno.ports.node import NodeError

MOST_LOOKS = 20
"""How often a task is read again after a concurrent change."""
LOOKED_AT = 1000
"""Unfinished executions that one page reads."""
KINDS: tuple[ExecutionKind, ...] = ("graph", "script", "python", "task")
FAILED_BY_HAND = "FAILED_BY_HAND"
TaskState = Literal["queued", "running", "waiting", "paused"]
STATES: dict[str, TaskState] = {
    "ready": "queued",
    "leased": "running",
    "parked": "waiting",
    "held": "paused",
}


class OpenTask(Struct, frozen=True):
    """A task or a node that is pending or running."""

    id: str
    """The id that remote workers use, too."""
    execution: str
    workflow: str
    node: str
    task: str | None
    """Name of the task that it runs; None for a node of another type."""
    state: TaskState
    """queued · running · waiting: asleep until its due time, its retry, or an external event · paused: its execution
    is paused.
    """
    queue: str
    attempt: int
    due: float | None
    holder: str | None
    """The worker or remote program that holds it."""
    is_remote: bool
    """Whether remote programs run it, not workers of the application."""
    docs: str = ""
    """Documentation in the declaration of a remote task."""
    returns: dict[str, Any] | None = None
    """JSON Schema of the output of a remote task."""
    input: Any = None
    """Only set when a single task is shown."""
    lost: str | None = None
    """Why its holder will not finish it, as a sentence; None while the holder lives."""


class Page(Struct, frozen=True):
    tasks: list[OpenTask]
    after: str | None
    """The execution after which the next page begins; None after the last page."""


class _Found(Struct, frozen=True):
    id: str
    inspection: Inspection
    token: TokenView
    lease: Lease
    node: Node | None
    """The node of a graph."""
    task: str | None

    @property
    def is_scripted(self) -> bool:
        return self.token.kind == "task"


class Answer(Struct, frozen=True):
    action: Action
    output: Any = None
    failure: Failure | None = None


class ByHand:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.client = engine.client
        self.ledger = engine.stack.ledger

    # -- queries ----------------------------------------------------------------------------------------------

    async def page(
        self,
        execution: str | None = None,
        queue: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        """Return open tasks and nodes, those of the newest execution first. A page reads a bounded number of
        executions, so it may be short or empty before the end of the list.
        """
        if execution is not None:
            view = await self.client.outline(execution)
            return Page(await self._open(view, queue, await self.ledger.workers()), None)
        found: list[OpenTask] = []
        workers = await self.ledger.workers()
        looked = 0
        where = ExecutionFilter(None, UNDER_WAY, kinds=KINDS)
        async for view in all_executions(self.client.stack.archive, where, after):
            found += await self._open(view, queue, workers)
            looked += 1
            if len(found) >= limit or looked >= LOOKED_AT:
                return Page(found, view.id)
        return Page(found, None)

    async def _open(
        self, view: ExecutionView, queue: str | None, workers: Sequence[WorkerView]
    ) -> list[OpenTask]:
        inspection = await self.ledger.inspect(view.id) if view.state not in ENDED else None
        tokens = inspection.tokens if inspection is not None else ()
        return [
            await self._shown(await self._known(inspection, token), workers)
            for token in tokens
            if inspection is not None and is_settleable(token) and queue in (None, token.queue)
        ]

    async def show(self, id: str) -> OpenTask:
        """Return a task with its input, if that can be determined without running anything."""
        found = await self._find(id)
        shown = await self._shown(found, await self.ledger.workers())
        return replace(shown, input=await self._input(found))

    async def _shown(self, found: _Found, workers: Sequence[WorkerView] = ()) -> OpenTask:
        """Describe a task. ``workers``: all of the store, to tell whether its holder lives."""
        token = found.token
        declared = await self._declared(found.task)
        owner = token.owner if token.state == "leased" else None
        lost = lost_workers(workers, found.inspection, self.ledger.now()).get(owner) if owner else None
        return OpenTask(
            id=found.id,
            execution=found.lease.execution,
            workflow=found.inspection.execution.workflow,
            node=token.node,
            task=found.task,
            state=STATES[token.state],
            queue=token.queue,
            attempt=token.attempt,
            due=token.due if token.state == "parked" else None,
            holder=remote_worker_of(owner) or owner,
            is_remote=declared is not None,
            docs=declared.docs if declared is not None else "",
            returns=declared.returns if declared is not None else None,
            lost=lost.sentence if lost is not None else None,
        )

    async def _input(self, found: _Found) -> Any:
        if found.is_scripted:
            return await self.engine.scripts.tasks.input_of(found.lease, decode_task(found.lease.data))
        if found.task is None:
            return None
        asked = await RemoteSteps(self.engine.steps, self.engine.scripts, self.engine.tasks).ask(found.lease)
        return asked.input if isinstance(asked, RemoteRequest) else None

    async def _declared(self, task: str | None) -> Declaration | None:
        return await self.engine.declarations.of(task) if task is not None else None

    # -- settling ---------------------------------------------------------------------------------------------

    async def complete(
        self, id: str, output: Any = None, by: str | None = None, reason: str | None = None
    ) -> OpenTask:
        """Complete a task with an output. Raises InvalidInput if the output does not match the declared return
        type.
        """
        return await self._settle(id, Answer("complete", output), Hand("complete", by, reason))

    async def fail(
        self,
        id: str,
        message: str,
        *,
        retry: bool = False,
        by: str | None = None,
        reason: str | None = None,
    ) -> OpenTask:
        """Fail a task. With ``retry`` its retry policy applies, as after a failure of its own."""
        failure = Failure(message, FAILED_BY_HAND, "FailedByHand", retryable=retry)
        return await self._settle(id, Answer("fail", failure=failure), Hand("fail", by, reason))

    async def skip(self, id: str, by: str | None = None, reason: str | None = None) -> OpenTask:
        """Skip a task. A node of a graph is SKIPPED, with the nodes that only it leads to; a script or Python
        workflow receives null.
        """
        return await self._settle(id, Answer("skip"), Hand("skip", by, reason))

    async def requeue(self, id: str, by: str | None = None, reason: str | None = None) -> OpenTask:
        """Take a task from its holder and offer it again as the same attempt."""
        return await self._settle(id, Answer("requeue"), Hand("requeue", by, reason))

    async def _settle(self, id: str, answer: Answer, hand: Hand) -> OpenTask:
        """Apply an answer and return the task as it was before. Raises Conflict, without a change, if the task is
        over or does not allow the action.
        """
        decision = f"hand:{uuid4().hex}"
        for _ in range(MOST_LOOKS):
            found = await self._find(id)
            await self._check(found, answer)
            outcome = await self._commit(found, answer, hand, decision)
            if isinstance(outcome, Refused):
                raise InvalidInput(f"cannot {answer.action} {_named(found)}: {outcome.message}")
            if isinstance(outcome, Applied | AlreadyApplied):
                if self.engine.worker is not None:
                    self.engine.worker.cancel_runs(found.lease.execution, (found.token.id,))
                return await self._shown(found)
        raise Conflict(f"task {id} changes again and again; try again")

    async def _find(self, id: str) -> _Found:
        """Find a task by its id. An ended script has handed its tasks over to executions of their own."""
        execution, name = parts_of(id)
        for each in (execution, task_execution_id(name)):
            inspection = await self.ledger.inspect(each)
            token = token_in(inspection, name)
            if inspection is not None and token is not None and inspection.execution.state not in ENDED:
                return await self._known(inspection, token)
        view = await self.engine.stack.archive.outline(execution)
        if view is None:
            raise NotFound(
                f"there is no task {id} in this store; `dalsegno task ls` lists those that are open"
            )
        if view.state in ENDED:
            raise Conflict(f"task {id} has ended with its execution ({view.state}); nothing was changed")
        raise Conflict(f"task {id} has ended: it was already answered or cancelled; nothing was changed")

    async def _known(self, inspection: Inspection, token: TokenView) -> _Found:
        lease = replace(lease_of(inspection, token, self.ledger.now()), losses=0)
        if token.kind == "task":
            return _Found(id_of(lease), inspection, token, lease, None, token.node)
        node = None
        if token.kind in ("node", "join"):
            node = (await self._program(lease)).plan.nodes.get(token.node)
        return _Found(id_of(lease), inspection, token, lease, node, _task_of(node))

    async def _program(self, lease: Lease) -> Program:
        return await self.engine.definitions.by_hash(lease.definition)

    async def _check(self, found: _Found, answer: Answer) -> None:
        problem = obstacle(found.token, answer.action)
        if problem is None and answer.action == "complete" and found.node is not None:
            problem = cannot_complete(found.node)
        if problem is not None:
            raise Conflict(f"cannot {answer.action} task {found.id}: {problem}")
        if answer.action == "complete":
            await self._check_output(found, answer.output)

    async def _check_output(self, found: _Found, output: Any) -> None:
        """Check an output by the type if the declaration is in this process, else by the schema in the store."""
        task = self._own(found.task)
        if task is not None:
            if task.is_remote:
                _check_type(task, output)
            return
        declared = await self._declared(found.task)
        if declared is None or declared.returns is None:
            return
        problems = await output_problems(declared.returns, output, self.client.limits, self.client.offload)
        if problems:
            findings = [Finding(f"/output{pointer}", "returns", message) for pointer, message in problems]
            lines = "\n".join(f"{each.pointer}: {each.message}" for each in findings)
            raise InvalidInput.at(
                f"the output does not fit what remote task '{found.task}' returns:\n{lines}", findings
            )

    def _own(self, task: str | None) -> Task | None:
        tasks = self.engine.tasks
        return tasks.find(task) if tasks is not None and task is not None else None

    async def _retry_of(self, found: _Found) -> RetryPolicy | None:
        """Return the task's retry policy, as registered here or as declared."""
        task = self._own(found.task)
        if task is not None:
            return task.retry
        declared = await self._declared(found.task)
        return declared.retry if declared is not None else None

    async def _commit(self, found: _Found, answer: Answer, hand: Hand, decision: str) -> Outcome:
        lease = found.lease
        if answer.action == "requeue":
            again = requeued(lease, self.ledger.now(), hand, decision)
            return await self.engine.committer.commit(again, wait_for_store=False)
        step = await self._step(found, answer)
        return await commit_step(
            self.engine, lease, step, marked=lambda each: by_hand(each, hand, lease.attempt, decision)
        )

    async def _step(self, found: _Found, answer: Answer) -> Step | ScriptStep:
        lease, retry = found.lease, await self._retry_of(found)
        if found.is_scripted:
            scripts = copy(self.engine.scripts)
            scripts.tasks = _FixedResultTask(scripts.tasks, answer, retry)
            return await scripts.step(lease)
        steps, body = copy(self.engine.steps), decode_body(lease.data)
        if answer.action == "skip":
            return await steps.skip(lease, body)
        steps.runner = _FixedResultRun(steps.runner, answer, retry)
        return await steps.step(lease, replace(body, sleeping=None))


class _FixedResultRun(Runner):
    """A runner that returns a given outcome instead of running the node."""

    def __init__(self, known: Runner, answer: Answer, retry: RetryPolicy | None) -> None:
        self.__dict__.update(known.__dict__)
        self._answer = answer
        self._retry = retry

    async def run(self, program: Program, step_input: StepInput, payload: Any = None) -> Any:
        step_input.retry = self._retry
        if self._answer.failure is not None:
            return replace(self._answer.failure, node=step_input.node.id)
        return self._answer.output


class _FixedResultTask(TaskRunner):
    """A runner that returns a given outcome for a task of a script."""

    def __init__(self, known: TaskRunner, answer: Answer, retry: RetryPolicy | None) -> None:
        self.__dict__.update(known.__dict__)
        self._answer = answer
        self._retry = retry

    async def run(self, lease: Lease, body: TaskBody, workflow: str, now: float) -> Any | Failed:
        failure = self._answer.failure
        if failure is None:
            return self._answer.output
        policy = task_options(body.options).retry or self._retry or NO_RETRY
        return Failed(failure, error_value(failure, None), policy)


def _check_type(task: Task, output: Any) -> None:
    try:
        fitting_output(task, output)
    except NodeError as error:
        raise InvalidInput(error.failure.message) from None


def _task_of(node: Node | None) -> str | None:
    """Return the task that a node runs, if its document names it literally."""
    if node is None or node.type not in ("task", "python"):
        return None
    given = node.parameters.template.value
    name = given.get("task", given.get("name")) if isinstance(given, dict) else None
    return name if isinstance(name, str) and "{{" not in name else None


def _named(found: _Found) -> str:
    return f"task {found.id} ('{found.token.node}')"
