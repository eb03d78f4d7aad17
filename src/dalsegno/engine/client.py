"""What users ask of an engine: deploy, start, look, command. Nothing here needs a running worker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import msgspec

from dalsegno.core import commands
from dalsegno.core.body import Body, decode_body
from dalsegno.core.context import Context, decode_page
from dalsegno.core.diagnosis import Wait, never_silent, of_child, waits
from dalsegno.core.orders import StartOrder
from dalsegno.core.script_bodies import with_own_input
from dalsegno.core.script_summary import TaskTally
from dalsegno.core.summary import NodeSummary, summarise
from dalsegno.core.values import decode_value
from dalsegno.engine.again import Repetition
from dalsegno.engine.approvals import Approval, ApprovalPlace, Approvals
from dalsegno.engine.cancelling import Cancelling
from dalsegno.engine.committer import Committer
from dalsegno.engine.definitions import Definitions, Program
from dalsegno.engine.endings import Endings
from dalsegno.engine.launcher import Launcher
from dalsegno.engine.lineage import Past
from dalsegno.engine.loader import Loader
from dalsegno.engine.lost_workers import lost_workers
from dalsegno.engine.nesting import below
from dalsegno.engine.open_slots import open_slots
from dalsegno.engine.parts import part_hashes, store_parts, stored_part_hashes
from dalsegno.engine.payload_schema import INLINE_BYTES
from dalsegno.engine.pending import UNCHANGED, Pending
from dalsegno.engine.results import Results
from dalsegno.engine.scripting.looking import Picture, picture, script_waits
from dalsegno.engine.scripting.programs import ScriptProgram
from dalsegno.engine.scripting.sources import definition_hash
from dalsegno.engine.scripting.turns import InThread
from dalsegno.engine.secrets.definition_approvals import STORE, DefinitionApprovals
from dalsegno.engine.secrets.snapshot_seals import SnapshotSeals
from dalsegno.engine.serving import naming_the_unserved
from dalsegno.engine.settings import DEFAULT_LIMITS, EngineLimits
from dalsegno.engine.signalling import Signalling
from dalsegno.engine.stack import Stack
from dalsegno.engine.starting import StartOptions
from dalsegno.engine.storage import Storage
from dalsegno.engine.troubles import troubled
from dalsegno.engine.worker import Worker
from dalsegno.engine.written import keep_text
from dalsegno.errors import (
    BadConfiguration,
    Conflict,
    DalSegnoError,
    InvalidDefinition,
    InvalidInput,
    LimitExceeded,
    NotFound,
)
from dalsegno.graph.build import Compiled
from dalsegno.lang import FlowProgram, SnapshotError
from dalsegno.lang.python import PythonProgram
from dalsegno.model.definition import Definition, is_part, parse_target
from dalsegno.model.event import Event
from dalsegno.model.execution import ENDED, SCRIPTED, Ending, ExecutionState, ExecutionView
from dalsegno.model.inspection import Inspection
from dalsegno.model.transition import AlreadyApplied, Applied, Outcome, Refused, Stale, Transition
from dalsegno.ports.archive import ExecutionFilter, Place

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
        self.definition_approvals = DefinitionApprovals(stack.records, stack.archive, stack.clock)
        self.results = Results(Storage(stack.blobs, limits.stored_bytes), limits)
        self.past = Past(stack.archive, loader)
        self.launcher = Launcher(self)
        self.pending = Pending(self)
        self.repetition = Repetition(self)
        self.cancelling = Cancelling(self)
        self.seals: SnapshotSeals | None = None
        self.offload = definitions.offload
        """Where work on callers' data goes that is too long for the loop."""
        self.in_thread: InThread[None] | None = None
        """Runs what may be the user's own code where turns of Python workflows run; None: here."""
        self.task_limit: Callable[[str], Mapping[str, Any] | None] = lambda name: None
        """The ``concurrency`` that a task registered in this process asks for."""
        self.notice_due: Callable[[float], None] = lambda due: None
        """Hears when something that no commit of this process tells of comes due."""
        self.worker: Worker | None = None
        """This process's own worker, if one runs: it goes on with what is started here."""

    # -- definitions ------------------------------------------------------------------------------------------

    async def deploy(
        self,
        document: str | bytes | Mapping[str, Any] | Compiled,
        default_name: str | None = None,
        task_queue: TaskQueue | None = None,
        text: str | None = None,
        approved_by: str | None = STORE,
    ) -> tuple[Definition, Compiled]:
        """Checks and stores a document; one that was compiled is not checked again, and ``text`` is then what it was
        compiled from. ``task_queue`` names the queue a task asks for, where it is known here: it becomes part of the
        stored definition, so that every process agrees on it. ``approved_by``: None where the caller has no right to
        let it use credentials; see `DefinitionApprovals`."""
        compiled = (
            document if isinstance(document, Compiled) else self.definitions.load(document, default_name)
        )
        if task_queue is not None:
            compiled = self.with_queues(compiled, task_queue)
        await store_parts(self.stack.archive, compiled.plan)
        definition = await self.stack.archive.put_definition(
            compiled.plan.name, compiled.hash, "graph", compiled.definition_source
        )
        if approved_by is not None:
            await self.definition_approvals.approve(definition, part_hashes(compiled.plan), approved_by)
        written = document if isinstance(document, str | bytes) else text
        if written is not None:
            await keep_text(self.stack.records, definition, written)
        self.definitions.forget(definition.name)
        return definition, compiled

    def with_queues(self, compiled: Compiled, task_queue: TaskQueue) -> Compiled:
        """As it is stored: with the queues and limits that its tasks have in this process."""
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

    async def approve_definition(self, hash: str, by: str = STORE) -> Definition:
        """Lets a stored definition use the credentials that list its name."""
        definition = await self._whole_definition(hash)
        await self.definition_approvals.approve(definition, await self._part_hashes(definition), by)
        return definition

    async def withdraw_approval(self, hash: str) -> Definition:
        """Of scripts inside a graph, too, unless another approved version has the same."""
        definition = await self._whole_definition(hash)
        if not await self.definition_approvals.withdraw(hash):
            raise NotFound(f"workflow '{definition.name}' version {definition.version} is not approved")
        kept: set[str] = set()
        parts = await self._part_hashes(definition)
        for other in await self.stack.archive.versions(definition.name) if parts else ():
            if other.hash != hash and await self.definition_approvals.of(other.hash) is not None:
                kept.update(await self._part_hashes(await self._whole_definition(other.hash)))
        for part in set(parts) - kept:
            await self.definition_approvals.withdraw(part)
        return definition

    async def _whole_definition(self, hash: str) -> Definition:
        definition = await self.stack.archive.definition_by_hash(hash)
        if definition is None or is_part(definition):
            raise NotFound(f"no workflow with the content hash {hash[:100]} is deployed here")
        return definition

    async def _part_hashes(self, definition: Definition) -> list[str]:
        """Of the scripts inside a stored graph. A large one is read in a process."""
        if definition.kind != "graph":
            return []
        if len(definition.source) <= INLINE_BYTES:
            return stored_part_hashes(definition.source)
        reply = await self.offload.large("parts", definition.source)
        if "value" not in reply:
            raise LimitExceeded(f"the graph cannot be read: {reply['raised'].get('message', '')}")
        return list(reply["value"])

    # -- executions -------------------------------------------------------------------------------------------

    async def start(self, workflow: str, payload: Any = None, options: StartOptions | None = None) -> str:
        """The id of a new execution, or of the one that was started with the same idempotency key."""
        options = options or StartOptions()
        started = await self.launcher.start(await self.named_program(workflow, options), payload, options)
        return started.execution

    async def named_program(self, workflow: str, options: StartOptions) -> Program | ScriptProgram:
        """What a name with or without a version means."""
        name, version = parse_target(workflow)
        return await self.definitions.by_name(name, options.version if version is None else version)

    async def submit(self, workflow: str, payload: Any = None, options: StartOptions | None = None) -> str:
        """A start in two steps: the id of an execution that is PENDING until ``trigger`` begins it."""
        return (await self.pending.submit(workflow, payload, options or StartOptions())).execution

    async def trigger(self, execution: str, payload: Any = UNCHANGED) -> None:
        """Begins what was submitted or is delayed, with its input or with another one; see `Pending.trigger`."""
        await self.pending.trigger(execution, payload)

    async def start_task(
        self, name: str, payload: Any, options: StartOptions | None = None, queue: str | None = None
    ) -> str:
        """One task on its own, as an execution."""
        return await self.launcher.start_task(name, payload, options or StartOptions(), queue)

    async def start_ordered(self, order: StartOrder) -> str:
        """What another execution has ordered. Doing it twice is harmless: the id is derived."""
        return (await self.launcher.start_ordered(order)).execution

    async def ordered_program(self, order: StartOrder) -> Program | ScriptProgram:
        """What an order means to start; NotFound where nobody has deployed that."""
        if order.definition is not None:
            return await self.definitions.any_by_hash(order.definition)
        name, version = parse_target(order.workflow)
        return await self.definitions.by_name(name, order.version if order.version is not None else version)

    async def signal(self, execution: str, name: str, payload: Any = None, id: str | None = None) -> None:
        """Buffered, first in first out per name; the same ``id`` again changes nothing. See `Signalling.send`."""
        await Signalling(self).send(execution, name, payload, id)

    async def cancel(self, execution: str, reason: str | None = None) -> None:
        """Graphs end at once; a script cleans up first. A second cancel changes nothing."""
        await self.cancelling.cancel(execution, reason)

    async def terminate(self, execution: str, reason: str | None = None) -> None:
        """Ends it at once, without a clean-up; see `Cancelling.terminate`."""
        await self.cancelling.terminate(execution, reason)

    async def pause(self, execution: str) -> None:
        await self._command(commands.pause(execution, self.stack.ledger.now()), "pause")

    async def resume(self, execution: str) -> None:
        await self._command(commands.resume(execution, self.stack.ledger.now()), "resume")

    async def _command(self, transition: Transition, verb: str) -> None:
        outcome = await self.committer.commit(transition, patient=False)
        if not isinstance(outcome, Applied | AlreadyApplied):
            raise await self.refusal(outcome, transition.execution, verb)

    async def refusal(self, outcome: Outcome, execution: str, verb: str) -> DalSegnoError:
        """What to say of a command that the ledger did not take."""
        if isinstance(outcome, Stale) and outcome.reason == "finished":
            view = await self.outline(execution)
            return Conflict(f"cannot {verb} execution {execution}: it has ended ({view.state})")
        if isinstance(outcome, Stale) and outcome.reason == "pending":
            return Conflict(
                f"cannot {verb} execution {execution}: it has not begun (PENDING); trigger or cancel it"
            )
        if isinstance(outcome, Refused):
            return InvalidInput(f"cannot {verb} execution {execution}: {outcome.message}")
        return _no_execution(execution)

    async def rerun(
        self,
        execution: str,
        nodes: Sequence[str] | None = None,
        context: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> str:
        """A new execution that runs from ``nodes`` (or, without them, from everything that failed). The same ``key``
        again for the same execution is the same new one; with another request it is refused."""
        return (await self.repetition.rerun(execution, nodes, context, key)).execution

    # -- looking ----------------------------------------------------------------------------------------------

    async def status(self, execution: str) -> ExecutionView:
        view = await self.stack.archive.execution(execution)
        if view is None:
            raise _no_execution(execution)
        return with_own_input(view)

    async def outline(self, execution: str) -> ExecutionView:
        """The same without input, output and context, however large they are."""
        view = await self.stack.archive.outline(execution)
        if view is None:
            raise _no_execution(execution)
        return view

    async def wait(self, execution: str, timeout: float | None = None) -> ExecutionView:  # noqa: ASYNC109 - as users know it
        return await self.endings.wait(execution, timeout)

    async def ending(self, execution: str, timeout: float | None = None) -> Ending:  # noqa: ASYNC109 - as users know it
        return await self.endings.ending(execution, timeout)

    async def executions(
        self, where: ExecutionFilter, before: str | Place | None = None, limit: int = 50
    ) -> list[ExecutionView]:
        """Outlines, newest first."""
        return await self.stack.archive.executions(where, before, limit)

    async def events(self, execution: str, after: int = 0, limit: int = 1000) -> list[Event]:
        return await self.stack.archive.events(execution, after, limit)

    async def all_events(self, execution: str) -> list[Event]:
        found: list[Event] = []
        while page := await self.events(execution, len(found)):
            found += page
        return found

    async def why(self, execution: str) -> list[Wait]:
        """What it waits for; where that is a child, what the child waits for, too."""
        found = await self._why(execution)
        if any(wait.kind == "child" for wait in found):
            for child in await below(self.executions, execution):
                found += [of_child(wait, child) for wait in await self._why(child.id)]
        return found

    async def _why(self, execution: str) -> list[Wait]:
        inspection = await self.stack.ledger.inspect(execution)
        if inspection is None:
            raise _no_execution(execution)
        lost = await lost_workers(self.stack.ledger, inspection)
        if inspection.execution.kind not in SCRIPTED or inspection.execution.state == "PENDING":
            found = waits(inspection, await self.open_slots(inspection), lost)
            return await self._said(inspection, never_silent(inspection, found))
        try:
            seen = await self.picture(execution, variables=False)
        except (BadConfiguration, SnapshotError, NotFound):
            seen = None  # its code is not here, or its snapshot was changed in the store; troubles say why
        machine = await self.stack.ledger.machine(execution)
        found = script_waits(inspection, seen, machine, lost)
        return await self._said(inspection, never_silent(inspection, found))

    async def _said(self, inspection: Inspection, waiting: list[Wait]) -> list[Wait]:
        return [
            *await troubled(self.stack.records, inspection),
            *await naming_the_unserved(self.stack.ledger, waiting),
        ]

    async def open_slots(self, inspection: Inspection) -> Mapping[str, tuple[str, ...]]:
        """What has not arrived at each barrier, by name; nothing of a graph whose node types are not known here."""
        if not any(barrier.state == "waiting" for barrier in inspection.barriers):
            return {}
        try:
            program = await self.definitions.by_hash(inspection.execution.definition)
        except InvalidDefinition:
            return {}
        return await open_slots(self.stack.ledger, inspection, program.plan)

    async def picture(self, execution: str, *, variables: bool = True) -> Picture | None:
        """Where a script stands, what it awaits, its variables; None where there is no machine to look at."""
        view = await self.outline(execution)
        if view.kind not in SCRIPTED or view.state in ENDED:
            return None
        stack = self.stack
        try:
            return await picture(
                view, stack.ledger, self.definitions, stack.blobs, self.in_thread, variables=variables
            )
        except NotFound:  # its next turn has removed a blob of the snapshot that was read
            return await picture(
                view, stack.ledger, self.definitions, stack.blobs, self.in_thread, variables=variables
            )

    async def deploy_script(
        self, code: FlowProgram | PythonProgram, approved_by: str | None = STORE
    ) -> Definition:
        """Stores a compiled script or Python workflow; the same content again is the same version."""
        definition = await self.stack.archive.put_definition(
            code.name, definition_hash(code), code.kind, code.dump()
        )
        if approved_by is not None:
            await self.definition_approvals.approve(definition, (), approved_by)
        self.definitions.forget(definition.name)
        if self.seals is not None and isinstance(code, PythonProgram) and self.seals.keys.is_configured:
            await self.seals.seal_program(definition.hash, code.stored)
        return definition

    async def approvals(
        self, execution: str, limit: int | None = None, after: ApprovalPlace | None = None
    ) -> list[Approval]:
        """What an execution waits to have decided, oldest first."""
        return await Approvals(self).of(execution, limit, after)

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
        comment: str | None = None,
    ) -> None:
        """Answers an open approval with ``approved`` or ``rejected``; see `Approvals.decide`."""
        await Approvals(self).decide(execution, node, decision, data, by, index, comment)

    async def nodes(self, execution: str) -> dict[str, NodeSummary]:
        """State and runs of every node, over all visits and items; of a script, of every task by its name."""
        view = await self.outline(execution)
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
        return {name: decode_value(raw) for name, raw in (await self.stored_context(execution)).items()}

    async def stored_context(self, execution: str) -> dict[str, msgspec.Raw]:
        """The same as stored JSON."""
        found = await self.context_readers(execution)
        return {name: msgspec.Raw(await read()) for name, read in found.items()}

    async def context_readers(
        self, execution: str
    ) -> dict[str, Callable[[], Awaitable[bytes | msgspec.Raw]]]:
        """What reads each value of the context: all of them together may be large."""
        state, context = await self._kept_context(execution)
        found: dict[str, Callable[[], Awaitable[bytes | msgspec.Raw]]] = {}
        if state != "COMPLETED":
            for left in await self.stack.ledger.left(execution, ""):
                found.update(await self._readers(execution, decode_body(left.data).context))
        if context is not None:
            found.update(await self._readers(execution, decode_body(context).context))
        if "$trigger" not in found:
            found = {"$trigger": partial(self._input, execution), **found}
        return found

    async def _kept_context(self, execution: str) -> tuple[ExecutionState, bytes | None]:
        view = await self.status(execution)
        return view.state, view.context if view.kind == "graph" else None

    async def _input(self, execution: str) -> bytes:
        return (await self.status(execution)).input

    async def _readers(
        self, execution: str, context: Context
    ) -> dict[str, Callable[[], Awaitable[bytes | msgspec.Raw]]]:
        found: dict[str, Callable[[], Awaitable[bytes | msgspec.Raw]]] = {}
        for page in context.pages:
            stored = await self.stack.ledger.outputs(execution, [page])
            if page in stored:
                found.update(await self._readers(execution, decode_page(stored[page])))
        body = Body(context=context)
        for key, entry in context.entries.items():
            found[key] = partial(self.loader.raw, execution, body, entry)
        return found


def _no_execution(execution: str) -> NotFound:
    return NotFound(f"there is no execution {execution} in this store")
