"""What users ask of an engine: deploy, start, look, command. Nothing here needs a running worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw

from dalsegno.core import commands
from dalsegno.core.body import Body, decode_body
from dalsegno.core.context import Context, decode_page
from dalsegno.core.diagnosis import Wait, waits
from dalsegno.core.orders import StartOrder, encode_notice
from dalsegno.core.pending import StartToken, submit
from dalsegno.core.script_bodies import decode_task, succeeded, with_own_input
from dalsegno.core.script_ending import CANCEL_GRACE, cancel_script
from dalsegno.core.script_summary import TaskTally
from dalsegno.core.summary import NodeSummary, summarise
from dalsegno.core.values import decode_value, encode_value
from dalsegno.engine.approvals import Approval, ApprovalPlace, Approvals
from dalsegno.engine.committer import Committer
from dalsegno.engine.definitions import Definitions, Program
from dalsegno.engine.delays import begins_at
from dalsegno.engine.endings import Ending, Endings
from dalsegno.engine.lineage import Past
from dalsegno.engine.loader import Loader
from dalsegno.engine.open_slots import open_slots
from dalsegno.engine.parts import store_parts
from dalsegno.engine.pending import UNCHANGED, Pending
from dalsegno.engine.repeats import check_same_rerun
from dalsegno.engine.rerun import plan_rerun, rerun_transition
from dalsegno.engine.results import Results, refuse_large
from dalsegno.engine.scripting.looking import Picture, picture, script_waits
from dalsegno.engine.scripting.programs import ScriptProgram
from dalsegno.engine.scripting.turns import InThread
from dalsegno.engine.serving import naming_the_unserved
from dalsegno.engine.settings import DEFAULT_LIMITS, EngineLimits
from dalsegno.engine.stack import Stack
from dalsegno.engine.starting import (
    NO_ANCESTRY,
    Ancestry,
    StartOptions,
    check_arguments,
    limited,
    new_execution,
    new_task,
    start_task_transition,
    start_transition,
    workflow_limit,
)
from dalsegno.engine.worker import Worker
from dalsegno.errors import BadConfiguration, Conflict, InvalidInput, NotFound, OperatorError, UsageError
from dalsegno.graph.build import Compiled
from dalsegno.lang import FlowProgram
from dalsegno.lang.python import PythonProgram
from dalsegno.model.definition import Definition, parse_target
from dalsegno.model.effect import PostSignal
from dalsegno.model.event import Event, NewEvent
from dalsegno.model.execution import ENDED, SCRIPTED, ExecutionView, NewExecution
from dalsegno.model.ids import new_execution_id, repeated_execution_id
from dalsegno.model.inspection import Inspection
from dalsegno.model.token import NewToken
from dalsegno.model.transition import AlreadyApplied, Applied, Outcome, Refused, Stale, Transition
from dalsegno.ports.archive import ExecutionFilter, Place

LONGEST_SIGNAL_NAME = 500

TaskQueue: TypeAlias = Callable[[str], str | None]


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
        self.results = Results(stack.blobs, limits)
        self.past = Past(stack.archive, loader)
        self.pending = Pending(self)
        self.cancel_grace = CANCEL_GRACE
        self.in_thread: InThread[None] | None = None
        """Runs what may be the user's own code where turns of Python workflows run; None: here."""
        self.task_limit: Callable[[str], Mapping[str, Any] | None] = lambda name: None
        """The ``concurrency`` that a task registered in this process asks for."""
        self.worker: Worker | None = None
        """This process's own worker, if one runs: it goes on with what is started here."""

    # -- definitions ------------------------------------------------------------------------------------------

    async def deploy(
        self,
        document: str | bytes | Mapping[str, Any] | Compiled,
        default_name: str | None = None,
        task_queue: TaskQueue | None = None,
    ) -> tuple[Definition, Compiled]:
        """Checks and stores a document; one that was compiled is not checked again. ``task_queue`` names the queue a
        task asks for, where it is known here: it becomes part of the stored definition, so that every process agrees
        on it."""
        compiled = (
            document if isinstance(document, Compiled) else self.definitions.load(document, default_name)
        )
        if task_queue is not None:
            compiled = self._with_queues(compiled, task_queue)
        await store_parts(self.stack.archive, compiled.plan)
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
            limit = self.task_limit(name) if node.get("type") == "task" and isinstance(name, str) else None
            if limit is not None and "concurrency" not in node:
                node["concurrency"] = {"key": f"task:{name}", **limit}
                changed = True
        return self.definitions.load(document) if changed else compiled

    # -- executions -------------------------------------------------------------------------------------------

    async def start(self, workflow: str, payload: Any = None, options: StartOptions | None = None) -> str:
        """The id of a new execution, or of the one that was started with the same idempotency key."""
        options = options or StartOptions()
        return await self._start(await self.named_program(workflow, options), payload, options)

    async def named_program(self, workflow: str, options: StartOptions) -> Program | ScriptProgram:
        """What a name with or without a version means."""
        name, version = parse_target(workflow)
        return await self.definitions.by_name(name, options.version if version is None else version)

    async def _start(
        self,
        program: Program | ScriptProgram,
        payload: Any,
        options: StartOptions,
        ancestry: Ancestry = NO_ANCESTRY,
    ) -> str:
        now = self.stack.ledger.now()
        due = begins_at(options.delay, options.start_at, now)
        new = new_execution(program, payload, options, now, self.limits, ancestry)
        await check_arguments(program, new.input, self.in_thread)
        limit = workflow_limit(program, new, now, self.limits)
        waits = due is not None or limit is not None
        first = submit(new, now, due, limit=limit) if waits else start_transition(program, new, now)
        await self._create(new, first, options)
        return new.id

    async def submit(self, workflow: str, payload: Any = None, options: StartOptions | None = None) -> str:
        """A start in two steps: the id of an execution that is PENDING until ``trigger`` begins it."""
        return await self.pending.submit(workflow, payload, options or StartOptions())

    async def trigger(self, execution: str, payload: Any = UNCHANGED) -> None:
        """Begins what was submitted or is delayed, with its input or with another one; see `Pending.trigger`."""
        await self.pending.trigger(execution, payload)

    async def start_task(
        self, name: str, payload: Any, options: StartOptions | None = None, queue: str | None = None
    ) -> str:
        """One task on its own, as an execution."""
        raw = encode_value(payload, "the input")
        refuse_large(raw, "the input", self.limits)
        now = self.stack.ledger.now()
        options = options or StartOptions()
        due = begins_at(options.delay, options.start_at, now)
        new = new_task(name, raw, options, now, NO_ANCESTRY)
        limit = self.task_limit(name)
        delayed = submit(new, now, due, StartToken(queue, limit)) if due is not None else None
        first = delayed or start_task_transition(new, now, queue, limited(limit))
        await self._create(new, first, options)
        return new.id

    async def start_ordered(self, order: StartOrder) -> str:
        """What another execution has ordered. Doing it twice is harmless: the id is derived."""
        notify = encode_notice(order.notify) if order.notify is not None else None
        ancestry = Ancestry(order.execution, order.parent, order.relation, notify)
        program = await self.ordered_program(order)
        options = StartOptions(None, order.idempotency_key, order.tags, order.priority)
        return await self._start(program, order.input, options, ancestry)

    async def ordered_program(self, order: StartOrder) -> Program | ScriptProgram:
        """What an order means to start; NotFound where nobody has deployed that."""
        if order.definition is not None:
            return await self.definitions.any_by_hash(order.definition)
        name, version = parse_target(order.workflow)
        return await self.definitions.by_name(name, order.version if order.version is not None else version)

    async def signal(self, execution: str, name: str, payload: Any = None, id: str | None = None) -> None:
        """Buffered, first in first out per name; the same ``id`` again changes nothing."""
        if not 0 < len(name) <= LONGEST_SIGNAL_NAME:
            raise InvalidInput(f"a signal's name has 1 to {LONGEST_SIGNAL_NAME} characters")
        if "\0" in name:
            raise InvalidInput("a signal's name holds a NUL character, which not every store can hold")
        kind = (await self.status(execution)).kind
        if kind in ("task", "schedule"):
            raise Conflict(f"execution {execution} is a {kind}: it takes no signals; send it to its workflow")
        raw = encode_value(payload, "the signal's payload")
        result = await self.results.of_raw(execution, raw, "the signal's payload")
        now = self.stack.ledger.now()
        data = succeeded(0, result).data
        event = NewEvent(
            "SignalReceived", name, "", now, b'{"payload":%b}' % raw if result.blob is None else None
        )
        effect = PostSignal(id or new_execution_id(now), name, data, event)
        await self._command(Transition(execution, (effect,)), "signal")

    async def _create(
        self, new: NewExecution, transition: Transition, options: StartOptions | None = None
    ) -> None:
        outcome = await self.commit_first(new, transition, options)
        if isinstance(outcome, Refused):
            raise InvalidInput(f"the execution was not started: {outcome.message}")

    async def _commit_with_the_caller(self, connection: Any, transition: Transition) -> Outcome:
        """In the caller's own transaction: nobody sees the execution before that ends, or ever if it is undone."""
        transactions = self.stack.transactions
        if transactions is None:
            raise UsageError("a start in your own transaction needs a store on SQLite or PostgreSQL")
        return await transactions.start(connection, transition)

    async def commit_first(
        self, new: NewExecution, transition: Transition, options: StartOptions | None = None
    ) -> Outcome:
        """Commits what creates or begins an execution; this process's worker keeps its first tokens, if it can."""
        if options is not None and options.connection is not None:
            return await self._commit_with_the_caller(options.connection, transition)
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
        if worker is not None and kept and isinstance(outcome, Applied):
            worker.accept(new, kept, outcome)
        return outcome

    async def cancel(self, execution: str, reason: str | None = None, *, ordered: bool = False) -> None:
        """Graphs end at once; a script may clean up first. A second cancel ends it, unless it is ``ordered`` by another
        execution: such an order may come twice."""
        now = self.stack.ledger.now()
        view = await self.status(execution)
        if view.kind in SCRIPTED:
            transition = cancel_script(execution, now, reason, self.cancel_grace, repeatable=ordered)
        else:
            transition = commands.cancel(execution, now, reason, children=self._may_have_children(view))
        await self._command(transition, "cancel")

    def _may_have_children(self, view: ExecutionView) -> bool:
        """Whether a graph has nodes that wait for executions; one that is not at hand may."""
        program = self.definitions.cached(view.definition)
        return view.kind == "graph" and (program is None or bool(program.plan.children))

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
        if isinstance(outcome, Stale) and outcome.reason == "pending":
            raise Conflict(
                f"cannot {verb} execution {transition.execution}: it has not begun (PENDING); trigger or cancel it"
            )
        if isinstance(outcome, Refused):
            raise InvalidInput(f"cannot {verb} execution {transition.execution}: {outcome.message}")
        raise _no_execution(transition.execution)

    async def rerun(
        self,
        execution: str,
        nodes: Sequence[str] | None = None,
        context: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> str:
        """A new execution that runs from ``nodes`` (or, without them, from everything that failed). The same ``key``
        again for the same execution is the same new one; with another request it is refused."""
        view = await self.status(execution)
        if view.kind != "graph":
            return await self._again(view, nodes, key)
        program = await self.definitions.by_hash(view.definition)
        new, again = await plan_rerun(self, program, view, nodes, context or {}, key)
        now = new.created_at
        first = planned = await rerun_transition(self.past, program, new, again, now)
        limit = workflow_limit(program, new, now, self.limits)
        if limit is not None:  # it stands in line, and that is read again when it begins
            first = submit(new, now, body=StartToken(again=again), limit=limit)
        await self._create(new, first)
        if key is not None:
            await check_same_rerun(self, new, again, planned)
        return new.id

    async def _again(self, view: ExecutionView, nodes: Sequence[str] | None, key: str | None) -> str:
        """A script or task starts again with the same input and the same version, as a new execution."""
        if view.kind == "schedule":
            raise InvalidInput(f"'{view.workflow}' is a schedule; trigger it to start its workflow now")
        if nodes:
            raise InvalidInput(
                f"a {view.kind} has no nodes to rerun from; retry starts it again with the same input"
            )
        if view.kind == "task":
            return await self._task_again(view, key)
        program = await self._program_of(view)
        options, ancestry = _same_again(view, key)
        return await self._start(program, Raw(view.input), options, ancestry)

    async def _program_of(self, view: ExecutionView) -> Program | ScriptProgram:
        """The version that it ran. One that failed because nobody had deployed its workflow takes the current one."""
        if view.definition:
            return await self.definitions.any_by_hash(view.definition)
        return await self.definitions.by_name(*parse_target(view.workflow))

    async def _task_again(self, view: ExecutionView, key: str | None) -> str:
        """With the options that a script gave, if it comes from one."""
        stored = await self.stack.archive.execution(view.id)
        handed_over = stored is not None and stored.relation == "task"
        own = limited(self.task_limit(view.workflow))
        given = decode_task(stored.input).options if stored is not None and handed_over else own
        now = self.stack.ledger.now()
        options, ancestry = _same_again(view, key)
        new = new_task(view.workflow, view.input, options, now, ancestry)
        await self._create(new, start_task_transition(new, now, None, given))
        return new.id

    # -- looking ----------------------------------------------------------------------------------------------

    async def status(self, execution: str) -> ExecutionView:
        view = await self.stack.archive.execution(execution)
        if view is None:
            raise _no_execution(execution)
        return with_own_input(view)

    async def wait(self, execution: str, timeout: float | None = None) -> ExecutionView:  # noqa: ASYNC109 - as users know it
        return await self.endings.wait(execution, timeout)

    async def ending(self, execution: str, timeout: float | None = None) -> Ending:  # noqa: ASYNC109 - as users know it
        return await self.endings.ending(execution, timeout)

    async def executions(
        self, where: ExecutionFilter, before: str | Place | None = None, limit: int = 50
    ) -> list[ExecutionView]:
        found = await self.stack.archive.executions(where, before, limit)
        return [with_own_input(view) for view in found]

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
        if inspection.execution.kind not in SCRIPTED or inspection.execution.state == "PENDING":
            return await self._said(waits(inspection, await self._open_slots(inspection)))
        try:
            seen = await self.picture(execution, variables=False)
        except BadConfiguration:
            seen = None
        return await self._said(script_waits(inspection, seen, await self.stack.ledger.machine(execution)))

    async def _said(self, waiting: list[Wait]) -> list[Wait]:
        return await naming_the_unserved(self.stack.ledger, waiting)

    async def _open_slots(self, inspection: Inspection) -> Mapping[str, tuple[str, ...]]:
        if not any(barrier.state == "waiting" for barrier in inspection.barriers):
            return {}
        program = await self.definitions.by_hash(inspection.execution.definition)
        return await open_slots(self.stack.ledger, inspection, program.plan)

    async def picture(self, execution: str, *, variables: bool = True) -> Picture | None:
        """Where a script stands, what it awaits, its variables; None where there is no machine to look at."""
        view = await self.status(execution)
        if view.kind not in SCRIPTED or view.state in ENDED:
            return None
        stack = self.stack
        return await picture(
            view, stack.ledger, self.definitions, stack.blobs, self.in_thread, variables=variables
        )

    async def deploy_script(self, code: FlowProgram | PythonProgram) -> Definition:
        """Stores a compiled script or Python workflow; the same content again is the same version."""
        definition = await self.stack.archive.put_definition(code.name, code.hash, code.kind, code.dump())
        self.definitions.forget(definition.name)
        return definition

    async def approvals(self, execution: str) -> list[Approval]:
        """What an execution waits to have decided."""
        return await Approvals(self).of(execution)

    async def pending_approvals(
        self, workflow: str | None = None, limit: int = 100, after: ApprovalPlace | None = None
    ) -> list[Approval]:
        """Open approvals of all executions, those of the newest first."""
        return await Approvals(self).pending(workflow, limit, after)

    async def decide(
        self,
        execution: str,
        node: str,
        decision: str,
        data: Any = None,
        by: str | None = None,
        index: int | Sequence[int] | None = None,
    ) -> None:
        """Answers an open approval with ``approved`` or ``rejected``; see `Approvals.decide`."""
        await Approvals(self).decide(execution, node, decision, data, by, index)

    async def nodes(self, execution: str) -> dict[str, NodeSummary]:
        """State and runs of every node, over all visits and items; of a script, of every task by its name."""
        view = await self.status(execution)
        if view.kind != "graph":
            return await self._tasks_of(view)
        program = await self.definitions.by_hash(view.definition)
        inspection = await self.stack.ledger.inspect(execution)
        tokens = inspection.tokens if inspection is not None else ()
        return summarise(program.plan, view, await self.all_events(execution), tokens)

    async def _tasks_of(self, view: ExecutionView) -> dict[str, NodeSummary]:
        inspection = await self.stack.ledger.inspect(view.id)
        tally = TaskTally()
        tally.add(await self.all_events(view.id))
        return tally.summaries(view, inspection.tokens if inspection is not None else ())

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


def _same_again(view: ExecutionView, key: str | None) -> tuple[StartOptions, Ancestry]:
    """What a retry of a script or a task keeps, and where it says it comes from."""
    own = repeated_execution_id(view.id, key) if key is not None else None
    options = StartOptions(idempotency_key=key, tags=dict(view.tags), priority=view.priority)
    return options, Ancestry(own, view.id, "retry")


def _no_execution(execution: str) -> NotFound:
    return NotFound(f"there is no execution {execution} in this store")
