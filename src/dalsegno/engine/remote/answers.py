"""Answers of remote workers, committed as steps of the tokens they hold."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from dalsegno.core.graph.complete import Step
from dalsegno.engine.remote.declarations import Declaration
from dalsegno.engine.remote.sessions import (
    ANYONE,
    Claimant,
    Held,
    RemoteLeases,
    Settled,
    lease_of,
    lost,
    not_storable,
    output_misfit,
    parts_of,
    token_in,
)
from dalsegno.engine.remote.task_proxy import Answer, RemoteRequest, RemoteSteps
from dalsegno.engine.scripts.script_step import ScriptStep
from dalsegno.engine.subprocesses.job_pool import output_problems
from dalsegno.engine.worker.directory import remote_key_of, remote_worker_of
from dalsegno.errors import LeaseLost, NotFound, Unavailable
from dalsegno.model.ids import task_execution_id
from dalsegno.model.token import Lease
from dalsegno.model.transition import AlreadyApplied, Applied, Outcome, Refused, Stale, Transition

if TYPE_CHECKING:
    from dalsegno.engine.engine import Engine

REMEMBERED = 10_000
"""Answers that are recognised when they are repeated."""


class _Answered(NamedTuple):
    settled: Settled
    owner: str
    queue: str


def _unchanged(step: Transition) -> Transition:
    return step


async def commit_step(
    engine: Engine,
    lease: Lease,
    step: Step | ScriptStep,
    *,
    wait_for_store: bool = False,
    marked: Callable[[Transition], Transition] = _unchanged,
) -> Outcome:
    """Commit a step as a local worker does, without keeping tokens. During an outage a commit raises unless
    ``wait_for_store`` is set, so that the remote worker receives an error and retries. ``marked`` replaces each
    transition before it is committed.
    """

    def commit(transition: Transition) -> Awaitable[Outcome]:
        return engine.committer.commit(marked(transition), wait_for_store=wait_for_store)

    outcome = await commit(step.transition)
    if isinstance(step, Step):
        return outcome
    scripts = engine.scripts
    if isinstance(outcome, Applied) and step.cached is not None:
        scripts.hot.keep(lease.execution, step.cached)
    if isinstance(outcome, Stale) and outcome.reason == "version" and step.instead is not None:
        outcome = await commit(step.instead())
    while isinstance(outcome, Stale) and outcome.reason == "version" and step.ends_with is not None:
        step = await scripts.fail(lease, step.ends_with)
        outcome = await commit(step.transition)
    if isinstance(outcome, Applied | AlreadyApplied):
        await scripts.applied(lease, step)
    if isinstance(outcome, Stale) and outcome.reason in ("finished", "unknown"):
        instead = await scripts.handed_over(lease, step)
        if instead is not None:
            outcome = await commit(instead)
    return outcome


class Answers:
    def __init__(self, engine: Engine, remotely: RemoteSteps, remote_leases: RemoteLeases) -> None:
        self.engine = engine
        self.ledger = engine.stack.ledger
        self.sessions = remote_leases.sessions
        self._remotely = remotely
        self._settled: OrderedDict[tuple[str, int], _Answered] = OrderedDict()

    async def settle(self, id: str, fence: int, answer: Answer, by: Claimant = ANYONE) -> Settled:
        """Commit the step with this answer. The same answer again returns the same result. Raises `LeaseLost` if the
        worker no longer holds the task, and `QueueRefused` if ``by`` may not take it.
        """
        execution, token = parts_of(id)
        held = self.sessions.held(token)
        if held is not None and held.settling is not None and held.lease.fence == fence:
            await asyncio.wait({held.settling})
        verb = "complete" if answer.failure is None else "fail"
        known = self._settled.get((token, fence))
        if known is not None:
            by.check_task(id, known.owner, known.queue)
            if known.settled.verb != verb:
                raise LeaseLost(f"task {id} was already answered, with '{known.settled.verb}'")
            return replace(known.settled, repeated=True)
        if held is None or held.lease.fence != fence:
            held = await self.find(id, execution, token, fence)
        by.check_task(id, held.owner, held.lease.queue)
        return await self.settle_held(id, held, answer, verb)

    async def settle_held(self, id: str, held: Held, answer: Answer, verb: str) -> Settled:
        lease = held.lease
        worker = remote_worker_of(held.owner)
        if worker is not None:
            # An answer is accepted from a worker without a session, too.
            with contextlib.suppress(Unavailable):
                self.sessions.of(worker, self.ledger.now(), remote_key_of(held.owner))
        held.confirmed = True
        held.settling = asyncio.get_running_loop().create_future()
        try:
            declared = await self.declared(held.question.task)
            answer = await self._fitting(answer, declared)
            step = await self._remotely.answer(lease, answer, held.since, declared)
            outcome = await self.commit(lease, step)
            if isinstance(outcome, Refused):
                refused = not_storable(outcome.message)
                again = await self._remotely.answer(lease, refused, held.since, declared)
                outcome = await self.commit(lease, again)
            if not isinstance(outcome, Applied | AlreadyApplied):
                raise lost(id, outcome)
            settled = Settled(id, verb, queue=lease.queue)
            self._remember((lease.token, lease.fence), _Answered(settled, held.owner, lease.queue))
            self.sessions.forget(lease.token)
            if self.engine.observer is not None:
                self.engine.observer.remote(held, answer.failure, self.ledger.now())
            return replace(settled, repeated=isinstance(outcome, AlreadyApplied))
        except LeaseLost:
            self.sessions.forget(lease.token)
            raise
        finally:
            held.settling.set_result(None)
            held.settling = None

    async def declared(self, task: str) -> Declaration | None:
        """Return the declaration of a remote task that is not registered in this process."""
        tasks = self.engine.tasks
        if tasks is not None and tasks.find(task) is not None:
            return None
        return await self.engine.declarations.recent(task)

    async def _fitting(self, answer: Answer, declared: Declaration | None) -> Answer:
        """Return the answer, or a failure if its output does not match the declared return type."""
        if declared is None or declared.returns is None or answer.failure is not None:
            return answer
        client = self.engine.client
        problems = await output_problems(declared.returns, answer.output, client.limits, client.offload)
        return Answer(failure=output_misfit(declared.task, problems)) if problems else answer

    async def commit(self, lease: Lease, step: Step | ScriptStep, *, wait_for_store: bool = False) -> Outcome:
        return await commit_step(self.engine, lease, step, wait_for_store=wait_for_store)

    def _remember(self, key: tuple[str, int], answered: _Answered) -> None:
        self._settled[key] = answered
        if len(self._settled) > REMEMBERED:
            self._settled.popitem(last=False)

    async def find(self, id: str, execution: str, token: str, fence: int) -> Held:
        """Find a task that another server process handed out. An ended script has handed its tasks over to executions
        of their own.
        """
        for each in (execution, task_execution_id(token)):
            inspection = await self.ledger.inspect(each)
            view = token_in(inspection, token)
            if inspection is None or view is None:
                continue
            if view.state != "leased" or view.fence != fence or remote_worker_of(view.owner) is None:
                raise LeaseLost(f"task {id} is no longer yours: it was given to another worker, or will be")
            return await self.adopt(lease_of(inspection, view, self.ledger.now()), view.owner or "")
        if await self.engine.stack.archive.execution(execution) is None:
            raise NotFound(f"there is no task {id} in this store")
        raise LeaseLost(f"task {id} has ended: it was answered, it timed out, or its execution has ended")

    async def adopt(self, lease: Lease, owner: str) -> Held:
        """Return a task that another process handed out."""
        asked = await self._remotely.ask(lease)
        now = self.ledger.now()
        question = (
            asked
            if isinstance(asked, RemoteRequest)
            else RemoteRequest(lease.node, None, lease.token, "", None)
        )
        deadline = now + question.timeout if question.timeout is not None else None
        return Held(lease, question, owner, now, deadline, confirmed=True)
