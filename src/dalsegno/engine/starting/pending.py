"""Starts in two steps: a submitted execution waits until it is triggered, and begins exactly once however often that
is requested. Also the step of the token that begins it at its time.
"""

from __future__ import annotations

import logging
from typing import Any, Final

import msgspec

from dalsegno.core.pending import (
    Again,
    StartToken,
    as_submitted,
    begin,
    begin_in_time,
    decode_start_token,
    line_up,
    never_begun,
    submit,
)
from dalsegno.core.scripts.branch import start_branch
from dalsegno.core.scripts.kept import asked_again_tasks
from dalsegno.core.scripts.step import continue_script
from dalsegno.core.scripts.tasks import nothing
from dalsegno.core.values import encode_value, refuse_size
from dalsegno.engine.definitions import Definitions, Program
from dalsegno.engine.executions import StoredExecutions
from dalsegno.engine.journal.branched_off import read_branch
from dalsegno.engine.scripts.programs import ScriptProgram
from dalsegno.engine.scripts.retry import machine_to_continue
from dalsegno.engine.starting.rerun import RerunHistory, rerun_transition
from dalsegno.engine.starting.start import (
    Ancestry,
    Launcher,
    Started,
    StartOptions,
    begins_at,
    check_input,
    limited,
    new_execution,
    start_task_transition,
    start_transition,
    workflow_limit,
)
from dalsegno.errors import Conflict, InvalidInput, NotFound
from dalsegno.lang.runtime.effects import ErrorValue
from dalsegno.model.execution import ExecutionView, NewExecution
from dalsegno.model.limits import Concurrency
from dalsegno.model.token import Lease
from dalsegno.model.transition import Applied, Refused, Transition

logger = logging.getLogger("dalsegno.beginning")


async def begin_step(
    rerun_history: RerunHistory, definitions: Definitions, lease: Lease, now: float
) -> Transition:
    """Return the transition of a token of kind ``start``, however often the token was lost before: no user code
    runs.
    """
    view = await rerun_history.archive.execution(lease.execution)
    if view is None:
        return nothing(lease)  # removed meanwhile; the commit will be refused
    new = as_submitted(view)
    try:
        started = await first_transition(rerun_history, definitions, new, now, decode_start_token(lease.data))
    except (NotFound, Conflict) as error:
        logger.error("execution %s cannot begin: %s", lease.execution, error)
        return never_begun(lease, ErrorValue("NOT_FOUND", str(error), "NotFound"), now)
    return begin_in_time(lease, started)


async def first_transition(
    rerun_history: RerunHistory, definitions: Definitions, new: NewExecution, now: float, body: StartToken
) -> Transition:
    """Return the transition that an ordinary start, retry or rerun would have committed."""
    if new.kind == "task":
        return start_task_transition(new, now, body.queue, limited(body.concurrency))
    if body.again is not None and body.again.branch_of is not None:
        return await _branched(rerun_history, definitions, new, now, body.again)
    if body.again is not None and body.again.machine_of is not None:
        return await _continued(rerun_history, definitions, new, now, body.again.machine_of)
    if body.again is not None:
        return await rerun_transition(rerun_history, definitions, new, body.again, now)
    return start_transition(await definitions.any_by_hash(new.definition), new, now)


async def _branched(
    rerun_history: RerunHistory, definitions: Definitions, new: NewExecution, now: float, again: Again
) -> Transition:
    """Return the start of a rerun that begins with the machine of an earlier turn."""
    program = await definitions.any_by_hash(new.definition)
    if again.branch_of is None or not isinstance(program, ScriptProgram):
        raise Conflict(f"execution {new.id} cannot begin: '{new.workflow}' is no script or Python workflow")
    branch = await read_branch(rerun_history.loader.ledger, new.id)
    return start_branch(new, again.branch_of, branch, again.nodes, now, program.timeout)


async def _continued(
    rerun_history: RerunHistory, definitions: Definitions, new: NewExecution, now: float, other: str
) -> Transition:
    """Return the start of a retry that begins with the machine of a failed execution."""
    view = await rerun_history.execution(other, new.id)
    kept = await machine_to_continue(rerun_history.archive, view)
    program = await definitions.any_by_hash(new.definition)
    if kept is None or not isinstance(program, ScriptProgram):
        raise Conflict(f"execution {other} cannot be continued: its machine is no longer kept")
    return continue_script(new, other, kept.line, asked_again_tasks(kept), now, program.timeout)


class Unchanged:
    """Placeholder for "as submitted", because None is a valid input."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged()


class Pending:
    def __init__(self, stored: StoredExecutions, launcher: Launcher, history: RerunHistory) -> None:
        self.stored = stored
        self.launcher = launcher
        self.history = history

    async def submit(self, workflow: str, payload: Any, options: StartOptions) -> Started:
        """Submit a workflow, with all checks of a start, in its current version."""
        program = await self.stored.definitions.named(workflow, options.version)
        return await self.launcher.create(*await self.planned(program, payload, options), options)

    async def planned(
        self, program: Program | ScriptProgram, payload: Any, options: StartOptions
    ) -> tuple[NewExecution, Transition]:
        """Run all checks of a submission and return the commit it would make. Nothing is stored."""
        stored = self.stored
        now = stored.stack.ledger.now()
        due = begins_at(options.delay, options.start_at, now)
        new = new_execution(program, payload, options, now, stored.limits)
        await check_input(program, new.input, stored.limits, stored.offload, stored.in_thread)
        limit = None
        if due is not None:
            limit = await workflow_limit(program, new, now, stored.limits, stored.offload)
        return new, submit(new, now, due, limit=limit)

    async def trigger(self, execution: str, payload: Any = UNCHANGED) -> None:
        """Begin an execution, or queue it if its workflow has a limit. No effect on one that has begun or was
        triggered before. Raises Conflict if that one was given another input, or if it was cancelled.
        """
        stored = self.stored
        view = await stored.status(execution)
        if view.state == "PENDING":
            new = await self._with_input(view, payload)
            now = stored.stack.ledger.now()
            body = await self._start_token(view)
            started = await first_transition(self.history, stored.definitions, new, now, body)
            replaced = new.input if new.input != view.input else None
            limit = await self._limit(new, now)
            first = begin(started, replaced) if limit is None else line_up(new, limit, body, replaced)
            outcome = await self.launcher.commit_first(new, first)
            if isinstance(outcome, Applied):
                return
            if isinstance(outcome, Refused):
                raise InvalidInput(f"the execution was not begun: {outcome.message}")
            view = await stored.status(execution)  # another process came first
        await self._check_begun(view, payload)

    async def _check_begun(self, view: ExecutionView, payload: Any) -> None:
        if view.state == "CANCELLED":
            raise Conflict(f"cannot trigger execution {view.id}: it was cancelled")
        if (await self._with_input(view, payload)).input != view.input:
            begun = "it was triggered and waits in the queue" if view.state == "PENDING" else "it has begun"
            raise Conflict(
                f"cannot trigger execution {view.id} with another input: {begun} ({view.state});"
                " submit the workflow again for another run"
            )

    async def _with_input(self, view: ExecutionView, payload: Any) -> NewExecution:
        """Return the execution that a start with this input would create, with the checks of a start."""
        submitted = as_submitted(view)
        if isinstance(payload, Unchanged):
            return submitted
        if view.kind == "task":
            raw = encode_value(payload, "the input")
            refuse_size(len(raw), "the input", self.stored.limits.value_bytes)
            return msgspec.structs.replace(submitted, input=raw)
        program = await self.stored.definitions.any_by_hash(view.definition)
        same = Ancestry(view.id)
        made = new_execution(program, payload, StartOptions(), view.created_at, self.stored.limits, same)
        stored = self.stored
        await check_input(program, made.input, stored.limits, stored.offload, stored.in_thread)
        return msgspec.structs.replace(submitted, input=made.input)

    async def _limit(self, new: NewExecution, now: float) -> Concurrency | None:
        if new.kind == "task":
            return None
        program = await self.stored.definitions.any_by_hash(new.definition)
        return await workflow_limit(program, new, now, self.stored.limits, self.stored.offload)

    async def _start_token(self, view: ExecutionView) -> StartToken:
        """Return the start token's data: queue and limit of a delayed task, or the start of a rerun, which only the
        token contains.
        """
        if view.kind != "task" and view.relation not in ("retry", "rerun"):
            return StartToken()
        found = await self.stored.stack.ledger.inspect(view.id)
        tokens = found.tokens if found is not None else ()
        return next((decode_start_token(each.data) for each in tokens if each.kind == "start"), StartToken())
