"""Starts in two steps: what is submitted waits, and whoever triggers it begins it. Exactly once, whoever asks twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from dalsegno.core.pending import StartToken, as_submitted, begin, decode_start_token, line_up, submit
from dalsegno.core.values import encode_value
from dalsegno.engine.beginning import first_transition
from dalsegno.engine.definitions import Program
from dalsegno.engine.delays import begins_at
from dalsegno.engine.results import refuse_large
from dalsegno.engine.scripting.programs import ScriptProgram
from dalsegno.engine.starting import (
    Ancestry,
    Started,
    StartOptions,
    check_input,
    new_execution,
    workflow_limit,
)
from dalsegno.errors import Conflict, InvalidInput
from dalsegno.model.execution import ExecutionView, NewExecution
from dalsegno.model.limits import Concurrency
from dalsegno.model.transition import Applied, Refused, Transition

if TYPE_CHECKING:
    from dalsegno.engine.client import Client


class Unchanged:
    """Stands for "as submitted": None is an input, too."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged()


class Pending:
    def __init__(self, client: Client) -> None:
        self.client = client

    async def submit(self, workflow: str, payload: Any, options: StartOptions) -> Started:
        """Everything that a start checks is checked now, and the version is the one of now."""
        program = await self.client.named_program(workflow, options)
        return await self.client.launcher.create(*await self.planned(program, payload, options), options)

    async def planned(
        self, program: Program | ScriptProgram, payload: Any, options: StartOptions
    ) -> tuple[NewExecution, Transition]:
        """All those checks, and the commit that they lead to. Nothing is stored."""
        client = self.client
        now = client.stack.ledger.now()
        due = begins_at(options.delay, options.start_at, now)
        new = new_execution(program, payload, options, now, client.limits)
        await check_input(program, new.input, client.limits, client.offload, client.in_thread)
        limit = None
        if due is not None:
            limit = await workflow_limit(program, new, now, client.limits, client.offload)
        return new, submit(new, now, due, limit=limit)

    async def trigger(self, execution: str, payload: Any = UNCHANGED) -> None:
        """Begins it, or lets it stand in line where its workflow has a limit. One that has begun, or was triggered
        before, is left alone, unless another input is asked for now: that is a Conflict, and so is one that was
        cancelled."""
        client = self.client
        view = await client.status(execution)
        if view.state == "PENDING":
            new = await self._with_input(view, payload)
            now = client.stack.ledger.now()
            body = await self._start_token(view)
            started = await first_transition(client.past, client.definitions, new, now, body)
            replaced = new.input if new.input != view.input else None
            limit = await self._limit(new, now)
            first = begin(started, replaced) if limit is None else line_up(new, limit, body, replaced)
            outcome = await client.launcher.commit_first(new, first)
            if isinstance(outcome, Applied):
                return
            if isinstance(outcome, Refused):
                raise InvalidInput(f"the execution was not begun: {outcome.message}")
            view = await client.status(execution)  # somebody else came first
        await self._check_begun(view, payload)

    async def _check_begun(self, view: ExecutionView, payload: Any) -> None:
        if view.state == "CANCELLED":
            raise Conflict(f"cannot trigger execution {view.id}: it was cancelled")
        if (await self._with_input(view, payload)).input != view.input:
            begun = "it was triggered and stands in line" if view.state == "PENDING" else "it has begun"
            raise Conflict(
                f"cannot trigger execution {view.id} with another input: {begun} ({view.state});"
                " submit the workflow again for another run"
            )

    async def _with_input(self, view: ExecutionView, payload: Any) -> NewExecution:
        """What a start with this input would create, checked as a start checks it."""
        submitted = as_submitted(view)
        if isinstance(payload, Unchanged):
            return submitted
        if view.kind == "task":
            raw = encode_value(payload, "the input")
            refuse_large(raw, "the input", self.client.limits)
            return msgspec.structs.replace(submitted, input=raw)
        program = await self.client.definitions.any_by_hash(view.definition)
        same = Ancestry(view.id)
        made = new_execution(program, payload, StartOptions(), view.created_at, self.client.limits, same)
        client = self.client
        await check_input(program, made.input, client.limits, client.offload, client.in_thread)
        return msgspec.structs.replace(submitted, input=made.input)

    async def _limit(self, new: NewExecution, now: float) -> Concurrency | None:
        if new.kind == "task":
            return None
        program = await self.client.definitions.any_by_hash(new.definition)
        return await workflow_limit(program, new, now, self.client.limits, self.client.offload)

    async def _start_token(self, view: ExecutionView) -> StartToken:
        """Where a delayed task is to run, and what limits it; where a rerun starts: only the token knows."""
        if view.kind != "task" and view.relation not in ("retry", "rerun"):
            return StartToken()
        found = await self.client.stack.ledger.inspect(view.id)
        tokens = found.tokens if found is not None else ()
        return next((decode_start_token(each.data) for each in tokens if each.kind == "start"), StartToken())
