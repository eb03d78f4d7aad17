"""Retries and reruns: a new execution, linked to the one that it repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from dalsegno.core.pending import StartToken, submit
from dalsegno.core.script_bodies import decode_task
from dalsegno.core.told import read_task
from dalsegno.engine.definitions import Program
from dalsegno.engine.repeats import check_same_rerun
from dalsegno.engine.rerun import plan_rerun, rerun_transition
from dalsegno.engine.scripting.programs import ScriptProgram
from dalsegno.engine.starting import (
    Ancestry,
    Started,
    StartOptions,
    limited,
    new_task,
    start_task_transition,
    workflow_limit,
)
from dalsegno.errors import InvalidInput
from dalsegno.model.definition import parse_target
from dalsegno.model.execution import ExecutionView
from dalsegno.model.ids import repeated_execution_id

if TYPE_CHECKING:
    from dalsegno.engine.client import Client

FIRST_EVENTS = 10
"""Among which an execution tells how it was submitted and started."""


class Repetition:
    def __init__(self, client: Client) -> None:
        self.client = client

    async def rerun(
        self,
        execution: str,
        nodes: Sequence[str] | None,
        context: Mapping[str, Any] | None,
        key: str | None,
        starter: str | None = None,
    ) -> Started:
        """``starter``: the API key for which the new execution counts; that of the first one does not."""
        client = self.client
        view = await client.status(execution)
        if view.kind != "graph":
            return await self._from_the_beginning(view, nodes, key, starter)
        program = await client.definitions.by_hash(view.definition)
        new, again = await plan_rerun(client, program, view, nodes, context or {}, key, starter)
        now = new.created_at
        first = planned = await rerun_transition(client.past, program, new, again, now)
        limit = await workflow_limit(program, new, now, client.limits, client.offload)
        if limit is not None:  # it stands in line, and that is read again when it begins
            first = submit(new, now, body=StartToken(again=again), limit=limit)
        started = await client.launcher.create(new, first)
        if key is not None:
            await check_same_rerun(client, new, again, planned)
        return started

    async def _from_the_beginning(
        self, view: ExecutionView, nodes: Sequence[str] | None, key: str | None, starter: str | None
    ) -> Started:
        """A script or task starts again with the same input and the same version, as a new execution."""
        if view.kind == "schedule":
            raise InvalidInput(f"'{view.workflow}' is a schedule; trigger it to start its workflow now")
        if nodes:
            raise InvalidInput(
                f"a {view.kind} has no nodes to rerun from; retry starts it again with the same input"
            )
        if view.kind == "task":
            return await self._task(view, key, starter)
        options, ancestry = _same_again(view, key, starter)
        program = await self._program_of(view)
        return await self.client.launcher.start(program, Raw(view.input), options, ancestry)

    async def _program_of(self, view: ExecutionView) -> Program | ScriptProgram:
        """The version that it ran. One that failed because nobody had deployed its workflow takes the current one."""
        definitions = self.client.definitions
        if view.definition:
            return await definitions.any_by_hash(view.definition)
        return await definitions.by_name(*parse_target(view.workflow))

    async def _task(self, view: ExecutionView, key: str | None, starter: str | None) -> Started:
        """In the queue and with the options that it had."""
        now = self.client.stack.ledger.now()
        options, ancestry = _same_again(view, key, starter)
        new = new_task(view.workflow, view.input, options, now, ancestry)
        queue, given = await self._as_it_ran(view)
        return await self.client.launcher.create(new, start_task_transition(new, now, queue, given))

    async def _as_it_ran(self, view: ExecutionView) -> tuple[str | None, Mapping[str, Any] | None]:
        """The queue and the options of a task: those that a script gave, if it comes from one."""
        stored = await self.client.stack.archive.execution(view.id)
        if stored is not None and stored.relation == "task":
            return None, decode_task(stored.input).options
        told = read_task(await self.client.events(view.id, 0, FIRST_EVENTS))
        limit = limited(self.client.task_limit(view.workflow))
        return (told.queue, told.options or limit) if told is not None else (None, limit)


def _same_again(view: ExecutionView, key: str | None, starter: str | None) -> tuple[StartOptions, Ancestry]:
    """What a retry of a script or a task keeps, and where it says it comes from."""
    own = repeated_execution_id(view.id, key) if key is not None else None
    options = StartOptions(idempotency_key=key, tags=dict(view.tags), priority=view.priority, starter=starter)
    return options, Ancestry(own, view.id, "retry")
