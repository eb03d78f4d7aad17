"""What remote workers report: committed as the steps of the tokens that they were given."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from dalsegno.core.complete import Step
from dalsegno.engine.remote_custody import Custody
from dalsegno.engine.remote_sessions import ANYONE, Claimant, Held, remote_key_of, remote_worker_of
from dalsegno.engine.remote_tasks import Settled, lease_of, lost, not_storable, parts_of, token_in
from dalsegno.engine.scripting.steps import ScriptStep
from dalsegno.engine.standin import Answer, Question, Remotely
from dalsegno.errors import LeaseLost, NotFound, Unavailable
from dalsegno.model.ids import task_execution_id
from dalsegno.model.token import Lease
from dalsegno.model.transition import AlreadyApplied, Applied, Outcome, Refused, Stale

if TYPE_CHECKING:
    from dalsegno.engine.engine import Engine

REMEMBERED = 10_000
"""Answers that are recognised when they come again."""


class _Answered(NamedTuple):
    settled: Settled
    owner: str
    queue: str


class Answers:
    def __init__(self, engine: Engine, remotely: Remotely, custody: Custody) -> None:
        self.engine = engine
        self.ledger = engine.stack.ledger
        self.sessions = custody.sessions
        self._remotely = remotely
        self._settled: OrderedDict[tuple[str, int], _Answered] = OrderedDict()

    async def settle(self, id: str, fence: int, answer: Answer, by: Claimant = ANYONE) -> Settled:
        """Commits the step with this answer. The same answer again is answered the same; one for a task that is not
        the worker's own any more is `LeaseLost`; for a task that ``by`` may not have, `QueueRefused`."""
        execution, token = parts_of(id)
        held = self.sessions.held(token)
        if held is not None and held.settling is not None and held.lease.fence == fence:
            await asyncio.wait({held.settling})
        verb = "complete" if answer.failure is None else "fail"
        known = self._settled.get((token, fence))
        if known is not None:
            by.check_task(id, known.owner, known.queue)
            if known.settled.verb != verb:
                raise LeaseLost(f"task {id} was answered before, with '{known.settled.verb}'")
            return replace(known.settled, repeated=True)
        if held is None or held.lease.fence != fence:
            held = await self.find(id, execution, token, fence)
        by.check_task(id, held.owner, held.lease.queue)
        return await self.settle_held(id, held, answer, verb)

    async def settle_held(self, id: str, held: Held, answer: Answer, verb: str) -> Settled:
        lease = held.lease
        worker = remote_worker_of(held.owner)
        if worker is not None:
            with contextlib.suppress(
                Unavailable
            ):  # an answer is taken from a worker that is not remembered, too
                self.sessions.of(worker, self.ledger.now(), remote_key_of(held.owner))
        held.confirmed = True
        held.settling = asyncio.get_running_loop().create_future()
        try:
            step = await self._remotely.answer(lease, answer, held.since)
            outcome = await self.commit(lease, step)
            if isinstance(outcome, Refused):
                again = await self._remotely.answer(lease, not_storable(outcome.message), held.since)
                outcome = await self.commit(lease, again)
            if not isinstance(outcome, Applied | AlreadyApplied):
                raise lost(id, outcome)
            settled = Settled(id, verb)
            self._remember((lease.token, lease.fence), _Answered(settled, held.owner, lease.queue))
            self.sessions.let_go(lease.token)
            if self.engine.observer is not None:
                self.engine.observer.remote(held, answer.failure, self.ledger.now())
            return replace(settled, repeated=isinstance(outcome, AlreadyApplied))
        except LeaseLost:
            self.sessions.let_go(lease.token)
            raise
        finally:
            held.settling.set_result(None)
            held.settling = None

    async def commit(self, lease: Lease, step: Step | ScriptStep, *, patient: bool = False) -> Outcome:
        """As a local worker does, without keeping anything for itself. A worker that waits for its reply is told when
        the store is out of order, and comes again."""
        commit = self.engine.committer.commit
        outcome = await commit(step.transition, patient=patient)
        if isinstance(step, Step):
            return outcome
        scripts = self.engine.scripts
        if isinstance(outcome, Applied) and step.warm is not None:
            scripts.hot.keep(lease.execution, step.warm)
        if isinstance(outcome, Stale) and outcome.reason == "version" and step.instead is not None:
            outcome = await commit(step.instead(), patient=patient)
        if isinstance(outcome, Stale) and outcome.reason in ("finished", "unknown"):
            instead = scripts.handed_over(lease, step)
            if instead is not None:
                outcome = await commit(instead, patient=patient)
        return outcome

    def _remember(self, key: tuple[str, int], answered: _Answered) -> None:
        self._settled[key] = answered
        if len(self._settled) > REMEMBERED:
            self._settled.popitem(last=False)

    async def find(self, id: str, execution: str, token: str, fence: int) -> Held:
        """A task that another server process handed out. A script that ended has left it to an execution of its own."""
        for each in (execution, task_execution_id(token)):
            inspection = await self.ledger.inspect(each)
            view = token_in(inspection, token)
            if inspection is None or view is None:
                continue
            if view.state != "leased" or view.fence != fence or remote_worker_of(view.owner) is None:
                raise LeaseLost(
                    f"task {id} is not yours any more: it was given to another worker, or will be"
                )
            return await self._adopt(lease_of(inspection, view, self.ledger.now()), view.owner or "")
        if await self.engine.stack.archive.execution(execution) is None:
            raise NotFound(f"there is no task {id} in this store")
        raise LeaseLost(f"task {id} is over: it was answered, timed out, or its execution has ended")

    async def _adopt(self, lease: Lease, owner: str) -> Held:
        asked = await self._remotely.ask(lease)
        now = self.ledger.now()
        question = asked if isinstance(asked, Question) else Question(lease.node, None, lease.token, "", None)
        deadline = now + question.timeout if question.timeout is not None else None
        return Held(lease, question, owner, now, deadline, confirmed=True)
