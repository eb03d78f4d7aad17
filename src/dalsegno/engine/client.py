"""What users ask of an engine: deploy, start, look, command. Nothing here needs a running worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from dalsegno.core import commands
from dalsegno.core.body import Body, decode_body
from dalsegno.core.context import Context, decode_page
from dalsegno.core.diagnosis import Wait, waits
from dalsegno.core.start import start
from dalsegno.core.summary import NodeSummary, summarise
from dalsegno.core.values import decode_value, encode_value
from dalsegno.engine.committer import Committer
from dalsegno.engine.definitions import Definitions, Program
from dalsegno.engine.endings import Ending, Endings
from dalsegno.engine.loader import Loader
from dalsegno.engine.rerun import plan_rerun
from dalsegno.engine.results import refuse_large
from dalsegno.engine.settings import DEFAULT_LIMITS, EngineLimits
from dalsegno.engine.stack import Stack
from dalsegno.engine.worker import Worker
from dalsegno.errors import Conflict, InvalidInput, NotFound, OperatorError
from dalsegno.graph.build import Compiled
from dalsegno.model.definition import Definition
from dalsegno.model.event import Event
from dalsegno.model.execution import ExecutionView, NewExecution
from dalsegno.model.ids import execution_id_for_key, new_execution_id
from dalsegno.model.token import NewToken
from dalsegno.model.transition import AlreadyApplied, Applied, Refused, Stale, Transition
from dalsegno.ports.archive import ExecutionFilter

TaskQueue: TypeAlias = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class StartOptions:
    version: int | None = None
    idempotency_key: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0


class Client:
    def __init__(
        self,
        stack: Stack,
        definitions: Definitions,
        committer: Committer,
        endings: Endings,
        loader: Loader,
        limits: EngineLimits = DEFAULT_LIMITS,
    ) -> None:
        self.stack = stack
        self.limits = limits
        self.definitions = definitions
        self.committer = committer
        self.endings = endings
        self.loader = loader
        self.worker: Worker | None = None
        """This process's own worker, if one runs: it goes on with what is started here."""

    # -- definitions ------------------------------------------------------------------------------------------

    async def deploy(
        self,
        document: str | bytes | Mapping[str, Any],
        default_name: str | None = None,
        task_queue: TaskQueue | None = None,
    ) -> tuple[Definition, Compiled]:
        """Checks and stores a document. ``task_queue`` names the queue a task asks for, where it is known here:
        it becomes part of the stored definition, so that every process agrees on it."""
        compiled = self.definitions.load(document, default_name)
        if task_queue is not None:
            compiled = self._with_queues(compiled, task_queue)
        definition = await self.stack.archive.put_definition(
            compiled.plan.name, compiled.hash, "graph", compiled.definition_source
        )
        self.definitions.forget(definition.name)
        return definition, compiled

    def _with_queues(self, compiled: Compiled, task_queue: TaskQueue) -> Compiled:
        document = msgspec.json.decode(compiled.definition_source)
        changed = False
        for node in document.get("nodes", ()):
            parameters = node.get("parameters") or {}
            name = parameters.get("task", parameters.get("name"))
            queue = task_queue(name) if node.get("type") == "task" and isinstance(name, str) else None
            if queue is not None and "queue" not in node:
                node["queue"] = queue
                changed = True
        return self.definitions.load(document) if changed else compiled

    # -- executions -------------------------------------------------------------------------------------------

    async def start(self, workflow: str, payload: Any = None, options: StartOptions | None = None) -> str:
        """The id of a new execution, or of the one that was started with the same idempotency key."""
        options = options or StartOptions()
        program = await self.definitions.by_name(workflow, options.version)
        new = self._new_execution(program, payload, options)
        await self._create(new, start(program.plan, new, self.stack.ledger.now()))
        return new.id

    async def _create(self, new: NewExecution, transition: Transition) -> None:
        worker = self.worker
        kept: list[NewToken] = []
        if worker is not None:
            transition, kept = worker.offer(transition)
        self.endings.started(new.id)
        try:
            outcome = await self.committer.commit(transition, patient=False)
        except OperatorError:
            if worker is not None and kept:
                worker.doubt()
            raise
        if isinstance(outcome, Refused):
            raise InvalidInput(f"the execution was not started: {outcome.message}")
        if worker is not None and kept and isinstance(outcome, Applied):
            worker.accept(new, kept, outcome)

    def _new_execution(self, program: Program, payload: Any, options: StartOptions) -> NewExecution:
        raw = encode_value(payload if payload is not None else {}, "the input")
        refuse_large(raw, "the input", self.limits)
        if program.plan.input_schema is not None:
            from dalsegno.graph.input_schema import check_input  # noqa: PLC0415 - only documents with one need it

            problems = check_input(program.plan.input_schema, decode_value(raw))
            if problems:
                lines = [f"{problem.pointer or '/'}: {problem.message}" for problem in problems]
                raise InvalidInput("the input does not fit the workflow's input_schema:\n" + "\n".join(lines))
        now = self.stack.ledger.now()
        key = options.idempotency_key
        name = program.definition.name
        return NewExecution(
            id=execution_id_for_key(name, key) if key is not None else new_execution_id(now),
            workflow=name,
            version=program.definition.version,
            definition=program.definition.hash,
            input=raw,
            created_at=now,
            priority=options.priority,
            tags=tuple(sorted((str(name), str(tag)) for name, tag in options.tags.items())),
            idempotency_key=key,
        )

    async def cancel(self, execution: str, reason: str | None = None) -> None:
        await self._command(commands.cancel(execution, self.stack.ledger.now(), reason), "cancel")

    async def pause(self, execution: str) -> None:
        await self._command(commands.pause(execution, self.stack.ledger.now()), "pause")

    async def resume(self, execution: str) -> None:
        await self._command(commands.resume(execution, self.stack.ledger.now()), "resume")

    async def _command(self, transition: Transition, verb: str) -> None:
        outcome = await self.committer.commit(transition, patient=False)
        if isinstance(outcome, Applied | AlreadyApplied):
            return
        if isinstance(outcome, Stale) and outcome.reason == "finished":
            view = await self.status(transition.execution)
            raise Conflict(f"cannot {verb} execution {transition.execution}: it has ended ({view.state})")
        raise _no_execution(transition.execution)

    async def rerun(
        self,
        execution: str,
        nodes: Sequence[str] | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> str:
        """A new execution that runs from ``nodes`` (or, without them, from everything that failed)."""
        view = await self.status(execution)
        program = await self.definitions.by_hash(view.definition)
        new, transition = await plan_rerun(self, program, view, nodes, context or {})
        await self._create(new, transition)
        return new.id

    # -- looking ----------------------------------------------------------------------------------------------

    async def status(self, execution: str) -> ExecutionView:
        view = await self.stack.archive.execution(execution)
        if view is None:
            raise _no_execution(execution)
        return view

    async def wait(self, execution: str, timeout: float | None = None) -> ExecutionView:  # noqa: ASYNC109 - as users know it
        return await self.endings.wait(execution, timeout)

    async def ending(self, execution: str, timeout: float | None = None) -> Ending:  # noqa: ASYNC109 - as users know it
        return await self.endings.ending(execution, timeout)

    async def executions(
        self, where: ExecutionFilter, before: str | None = None, limit: int = 50
    ) -> list[ExecutionView]:
        return await self.stack.archive.executions(where, before, limit)

    async def events(self, execution: str, after: int = 0, limit: int = 1000) -> list[Event]:
        return await self.stack.archive.events(execution, after, limit)

    async def all_events(self, execution: str) -> list[Event]:
        found: list[Event] = []
        while page := await self.events(execution, len(found)):
            found += page
        return found

    async def why(self, execution: str) -> list[Wait]:
        inspection = await self.stack.ledger.inspect(execution)
        if inspection is None:
            raise _no_execution(execution)
        return waits(inspection)

    async def nodes(self, execution: str) -> dict[str, NodeSummary]:
        """State and runs of every node, over all visits and items."""
        view = await self.status(execution)
        program = await self.definitions.by_hash(view.definition)
        inspection = await self.stack.ledger.inspect(execution)
        tokens = inspection.tokens if inspection is not None else ()
        return summarise(program.plan, view, await self.all_events(execution), tokens)

    async def context(self, execution: str) -> dict[str, Any]:
        """The final context of an ended execution (or what its branches have left so far), as plain values."""
        view = await self.status(execution)
        found: dict[str, Any] = {}
        if view.state != "COMPLETED":
            for left in await self.stack.ledger.left(execution, ""):
                found.update(await self._materialise(execution, decode_body(left.data).context))
        if view.context is not None:
            found.update(await self._materialise(execution, decode_body(view.context).context))
        if "$trigger" not in found:
            found = {"$trigger": decode_value(view.input), **found}
        return found

    async def _materialise(self, execution: str, context: Context) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for page in context.pages:
            stored = await self.stack.ledger.outputs(execution, [page])
            if page in stored:
                found.update(await self._materialise(execution, decode_page(stored[page])))
        body = Body(context=context)
        for key, entry in context.entries.items():
            found[key] = decode_value(await self.loader.raw(execution, body, entry))
        return found


def _no_execution(execution: str) -> NotFound:
    return NotFound(f"there is no execution {execution} in this store")
