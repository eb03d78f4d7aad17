"""Starting executions: of workflows, of single tasks, and of what other executions have ordered."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from dalsegno.core.begun import begun
from dalsegno.core.orders import StartOrder, encode_notice
from dalsegno.core.pending import StartToken, submit
from dalsegno.core.values import encode_value
from dalsegno.engine.definitions import Program
from dalsegno.engine.delays import begins_at
from dalsegno.engine.results import refuse_large
from dalsegno.engine.scripting.programs import ScriptProgram
from dalsegno.engine.starting import (
    NO_ANCESTRY,
    Ancestry,
    Started,
    StartOptions,
    check_input,
    limited,
    new_execution,
    new_task,
    start_task_transition,
    start_transition,
    workflow_limit,
)
from dalsegno.errors import InvalidInput, UsageError
from dalsegno.lang.requests import OTHER_LIMIT
from dalsegno.model.execution import NewExecution
from dalsegno.model.limits import read_concurrency
from dalsegno.model.token import NewToken
from dalsegno.model.transition import Applied, Outcome, Refused, Transition

if TYPE_CHECKING:
    from dalsegno.engine.client import Client
    from dalsegno.engine.worker import Worker


class Launcher:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.announce: Callable[[str], None] = lambda execution: None
        """Called with the id of every execution that is about to be made."""

    async def start(
        self,
        program: Program | ScriptProgram,
        payload: Any,
        options: StartOptions,
        ancestry: Ancestry = NO_ANCESTRY,
    ) -> Started:
        return await self.create(*await self.planned(program, payload, options, ancestry), options)

    async def planned(
        self,
        program: Program | ScriptProgram,
        payload: Any,
        options: StartOptions,
        ancestry: Ancestry = NO_ANCESTRY,
    ) -> tuple[NewExecution, Transition]:
        """Everything that a start checks, and the commit it would lead to. Nothing is stored."""
        client = self.client
        now = client.stack.ledger.now()
        due = begins_at(options.delay, options.start_at, now)
        new = new_execution(program, payload, options, now, client.limits, ancestry)
        await check_input(program, new.input, client.limits, client.offload, client.in_thread)
        limit = await workflow_limit(program, new, now, client.limits, client.offload)
        if options.limit is not None:
            if limit is not None:
                raise InvalidInput(f"the workflow '{new.workflow}' {OTHER_LIMIT}")
            limit = options.limit
        waits = due is not None or limit is not None
        return new, submit(new, now, due, limit=limit) if waits else start_transition(program, new, now)

    async def start_task(self, name: str, payload: Any, options: StartOptions, queue: str | None) -> str:
        client = self.client
        raw = encode_value(payload, "the input")
        refuse_large(raw, "the input", client.limits)
        now = client.stack.ledger.now()
        due = begins_at(options.delay, options.start_at, now)
        new = new_task(name, raw, options, now, NO_ANCESTRY)
        limit = client.task_limit(name)
        delayed = submit(new, now, due, StartToken(queue, limit)) if due is not None else None
        first = delayed or start_task_transition(new, now, queue, limited(limit))
        return (await self.create(new, first, options)).execution

    async def start_ordered(self, order: StartOrder, starter: str | None = None) -> Started:
        notify = encode_notice(order.notify) if order.notify is not None else None
        ancestry = Ancestry(order.execution, order.parent, order.relation, notify)
        program = await self.client.ordered_program(order)
        limit = read_concurrency(order.concurrency) if order.concurrency is not None else None
        options = StartOptions(
            None, order.idempotency_key, order.tags, order.priority, starter=starter, limit=limit
        )
        return await self.start(program, order.input, options, ancestry)

    # -- the first commit -------------------------------------------------------------------------------------

    async def create(
        self, new: NewExecution, transition: Transition, options: StartOptions | None = None
    ) -> Started:
        outcome = await self.commit_first(new, transition, options)
        if isinstance(outcome, Refused):
            raise InvalidInput(f"the execution was not started: {outcome.message}")
        if not isinstance(outcome, Applied):
            return Started(new.id, is_new=False)
        return Started(new.id, is_new=True, begun=begun(transition, outcome))

    async def commit_first(
        self, new: NewExecution, transition: Transition, options: StartOptions | None = None
    ) -> Outcome:
        """Commits what creates or begins an execution; this process's worker keeps its first tokens, if it can."""
        if options is not None and options.connection is not None:
            return await self._commit_with_the_caller(options.connection, transition)
        self.announce(new.id)
        worker = self.client.worker
        kept: list[NewToken] = []
        if worker is not None:
            transition, kept = worker.offer(transition)
        self.client.endings.started(new.id)
        # A caller that goes away does not take the commit with it: what that keeps is run all the same.
        then = (
            partial(_take_up, worker, new, kept, transition.worker) if worker is not None and kept else None
        )
        return await self.client.committer.commit(transition, patient=False, then=then, workflow=new.workflow)

    async def _commit_with_the_caller(self, connection: Any, transition: Transition) -> Outcome:
        """In the caller's own transaction: nobody sees the execution before that ends, or ever if it is undone."""
        transactions = self.client.stack.transactions
        if transactions is None:
            raise UsageError("a start in your own transaction needs a store on SQLite or PostgreSQL")
        outcome = await transactions.start(connection, transition)
        if isinstance(outcome, Applied) and outcome.next_due is not None:
            self.client.notice_due(outcome.next_due)
        return outcome


def _take_up(
    worker: Worker, new: NewExecution, kept: list[NewToken], name: str, outcome: Outcome | None
) -> None:
    """What the first commit has left to the worker, under the name that it was offered for."""
    if outcome is None:
        worker.doubt(name)
    elif isinstance(outcome, Applied):
        worker.accept(new, kept, outcome, name)
