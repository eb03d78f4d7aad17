"""The user-facing calls of an engine: deploy, start, query, command. None of them needs a running worker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from dalsegno.core import commands
from dalsegno.core.diagnosis import Explanation, Wait
from dalsegno.core.outbox_orders import StartOrder
from dalsegno.core.scripts.turn_view import TurnPage, TurnView
from dalsegno.engine.committer import Committer
from dalsegno.engine.definitions import (
    Definitions,
    keep_text,
    part_hashes,
    store_parts,
    stored_part_hashes,
)
from dalsegno.engine.executions import StoredExecutions, no_execution
from dalsegno.engine.journal.branches import TurnAsked
from dalsegno.engine.journal.recorded_turns import RecordedTurns
from dalsegno.engine.journal.turn_history import JournaledMachine, TurnHistory, TurnRecord
from dalsegno.engine.operations.approvals import Approval, ApprovalPlace, Approvals
from dalsegno.engine.operations.cancellation import Cancellation
from dalsegno.engine.operations.endings import Endings
from dalsegno.engine.operations.moves import CHUNK, Moved, MoveReport, Moves
from dalsegno.engine.operations.requests import Requests, RequestView
from dalsegno.engine.operations.signals import Signals
from dalsegno.engine.operations.why import ScriptSnapshotView, Why
from dalsegno.engine.remote.declarations import RemoteDeclarations
from dalsegno.engine.scripts.programs import definition_hash
from dalsegno.engine.secrets.definition_approvals import STORE, DefinitionApprovals
from dalsegno.engine.settings import DEFAULT_LIMITS, EngineLimits
from dalsegno.engine.starting.moving import RetryPlan
from dalsegno.engine.starting.pending import UNCHANGED, Pending
from dalsegno.engine.starting.rerun import RerunHistory, Reruns
from dalsegno.engine.starting.start import Launcher, StartOptions
from dalsegno.engine.steps.values import Loader
from dalsegno.engine.subprocesses.job_pool import INLINE_BYTES
from dalsegno.errors import LimitExceeded, NotFound
from dalsegno.graph.build import Compiled
from dalsegno.lang import FlowProgram
from dalsegno.lang.python import PythonProgram
from dalsegno.model.definition import Definition, Version, is_part
from dalsegno.ports.stack import Stack

TaskQueue: TypeAlias = Callable[[str], str | None]


class Client(StoredExecutions):
    def __init__(
        self,
        stack: Stack,
        definitions: Definitions,
        committer: Committer,
        endings: Endings,
        loader: Loader,
        limits: EngineLimits = DEFAULT_LIMITS,
    ) -> None:
        super().__init__(stack, definitions, committer, endings, loader, limits)
        self.declarations = RemoteDeclarations(stack.records, stack.clock)
        self.definition_approvals = DefinitionApprovals(stack.records, stack.archive, stack.clock)
        self.launcher = Launcher(self)
        history = RerunHistory(stack.archive, loader)
        self.pending = Pending(self, self.launcher, history)
        self.repetition = Reruns(self, self.launcher, history)
        self.moving = Moves(self)
        self.cancelling = Cancellation(self, self.launcher)
        self.signalling = Signals(self)
        self.asking = Requests(self, self.signalling)
        self.turn_history = TurnHistory(stack.ledger, stack.archive)
        self.explanations = Why(stack.ledger, stack.archive, definitions, stack.blobs, lambda: self.in_thread)
        self.recorded = RecordedTurns(
            stack.archive, definitions, stack.blobs, self.turn_history, lambda: self.in_thread
        )
        self.settle_triggers: Callable[[str], Awaitable[Any]] = _settle_none
        """Applies the schedules and webhooks of a workflow's current version."""

    # -- definitions ------------------------------------------------------------------------------------------

    async def deploy(
        self,
        document: str | bytes | Mapping[str, Any] | Compiled,
        default_name: str | None = None,
        task_queue: TaskQueue | None = None,
        text: str | None = None,
        approved_by: str | None = STORE,
    ) -> tuple[Definition, Compiled]:
        """Check and store a document.

        - A document that is compiled already is not checked again; ``text`` is then its source.
        - ``task_queue`` returns the queue that a task declares, if it is known here. The queue becomes part of the
          stored definition, so that all processes agree on it.
        - ``approved_by`` is None if the caller may not permit the definition to use credentials; see
          `DefinitionApprovals`.
        """
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
        """Return the document as it is stored: with the queues and limits that its tasks declare in this process."""
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

    async def deploy_script(
        self, code: FlowProgram | PythonProgram, approved_by: str | None = STORE
    ) -> Definition:
        """Store a compiled script or Python workflow. The same content is the same version."""
        definition = await self.stack.archive.put_definition(
            code.name, definition_hash(code), code.kind, code.dump()
        )
        if approved_by is not None:
            await self.definition_approvals.approve(definition, (), approved_by)
        self.definitions.forget(definition.name)
        if self.seals is not None and isinstance(code, PythonProgram) and self.seals.keys.is_configured:
            await self.seals.seal_program(definition.hash, code.stored)
        return definition

    async def approve_definition(self, hash: str, by: str = STORE) -> Definition:
        """Let a stored definition use the credentials that list its name."""
        definition = await self._whole_definition(hash)
        await self.definition_approvals.approve(definition, await self._part_hashes(definition), by)
        return definition

    async def withdraw_approval(self, hash: str) -> Definition:
        """Withdraw the approval of a definition and of the scripts inside it, unless another approved version
        contains the same script.
        """
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
        """Return the hashes of the scripts inside a stored graph. A large graph is read in a subprocess."""
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
        """Start an execution and return its id, or the id of the execution that was started with the same idempotency
        key.
        """
        options = options or StartOptions()
        program = await self.definitions.named(workflow, options.version)
        return (await self.launcher.start(program, payload, options)).execution

    async def submit(self, workflow: str, payload: Any = None, options: StartOptions | None = None) -> str:
        """Start in two steps: return the id of an execution that is PENDING until ``trigger`` begins it."""
        return (await self.pending.submit(workflow, payload, options or StartOptions())).execution

    async def trigger(self, execution: str, payload: Any = UNCHANGED) -> None:
        """Begin a submitted or delayed execution, with its input or a new one; see `Pending.trigger`."""
        await self.pending.trigger(execution, payload)

    async def start_task(
        self, name: str, payload: Any, options: StartOptions | None = None, queue: str | None = None
    ) -> str:
        """Start a single task as an execution."""
        return (await self.launcher.start_task(name, payload, options or StartOptions(), queue)).execution

    async def start_ordered(self, order: StartOrder) -> str:
        """Start what another execution has ordered. Idempotent: the id is derived from the order."""
        return (await self.launcher.start_ordered(order)).execution

    async def signal(self, execution: str, name: str, payload: Any = None, id: str | None = None) -> None:
        """Send a signal. Signals are buffered first in, first out per name; sending the same ``id`` again has no
        effect. See `Signals.send`.
        """
        await self.signalling.send(execution, name, payload, id)

    async def ask(
        self,
        execution: str,
        name: str,
        payload: Any = None,
        id: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as users know it
    ) -> Any:
        """Send a request and return the workflow's answer; the same ``id`` again is the same request. See
        `Requests.ask`.
        """
        return await self.asking.ask(execution, name, payload, id, timeout)

    async def request(self, execution: str, id: str) -> RequestView:
        """Return a request with its answer, if it has one."""
        return await self.asking.get(execution, id)

    async def open_requests(self, execution: str) -> list[RequestView]:
        """Return the requests that wait for an answer, oldest first."""
        return await self.asking.open(execution)

    async def cancel(self, execution: str, reason: str | None = None) -> None:
        """Cancel an execution. A graph ends at once; a script cleans up first. A second cancel has no effect."""
        await self.cancelling.cancel(execution, reason)

    async def terminate(self, execution: str, reason: str | None = None) -> None:
        """End an execution at once, without a clean-up; see `Cancellation.terminate`."""
        await self.cancelling.terminate(execution, reason)

    async def has_cleanup_letter(self, execution: str) -> bool:
        """Return True if the execution ended before its clean-up was finished and the dead letter about it is still
        open.
        """
        return await self.cancelling.has_letter(execution)

    async def pause(self, execution: str) -> None:
        await self.command(commands.pause(execution, self.stack.ledger.now()), "pause")

    async def resume(self, execution: str) -> None:
        await self.command(commands.resume(execution, self.stack.ledger.now()), "resume")

    async def rerun(
        self,
        execution: str,
        nodes: Sequence[str] | None = None,
        context: Mapping[str, Any] | None = None,
        key: str | None = None,
        *,
        from_start: bool = False,
        version: Version = None,
        turn: TurnAsked | None = None,
    ) -> str:
        """Start a new execution that runs from ``nodes`` or, without them, from everything that failed. The same
        ``key`` for the same execution returns the same new execution; with a different request it is refused.
        ``from_start``: a script or Python workflow does not go on from its failure. ``version``: of the workflow,
        instead of the one that it ran. ``turn``: start with the machine of a script or Python workflow as it was then.
        """
        again = await self.repetition.rerun(
            execution, nodes, context, key, from_start=from_start, version=version, turn=turn
        )
        return again.execution

    async def preview_retry(
        self,
        execution: str,
        nodes: Sequence[str] | None = None,
        version: Version = None,
        *,
        from_start: bool = False,
        turn: TurnAsked | None = None,
    ) -> RetryPlan:
        """Return what a retry or rerun would do, or raise what it would raise. Nothing is started."""
        return await self.repetition.preview(execution, nodes, version, from_start=from_start, turn=turn)

    async def move(self, execution: str, version: Version, *, dry_run: bool = False) -> Moved:
        """Let an execution that has not ended go on with another version of its workflow; see `Moves.one`."""
        return await self.moving.one(execution, version, dry_run=dry_run)

    async def move_some(
        self,
        workflow: str,
        before: Version,
        version: Version,
        *,
        dry_run: bool = False,
        cursor: str | None = None,
        limit: int = CHUNK,
    ) -> MoveReport:
        """Move a chunk of a workflow's executions to another version; see `Moves.chunk`."""
        return await self.moving.chunk(workflow, before, version, dry_run=dry_run, cursor=cursor, limit=limit)

    # -- queries ----------------------------------------------------------------------------------------------

    async def why(self, execution: str) -> list[Wait]:
        """Return the waits of an execution and, for a child it waits for, those of the child."""
        return list((await self.explain(execution)).waits)

    async def explain(self, execution: str) -> Explanation:
        """Return the waits with the execution and the store's time, all from one moment."""
        found = await self.explanations.explain(execution)
        if found is None:
            raise no_execution(execution)
        return found

    async def picture(self, execution: str, *, variables: bool = True) -> ScriptSnapshotView | None:
        """Return the position of a script, its awaits and its variables; None if it has no machine."""
        return await self.explanations.picture(execution, variables=variables)

    async def turns(self, execution: str) -> list[TurnRecord]:
        """Return the turns of a script or Python workflow that are kept, oldest first."""
        return await self.turn_history.turns(execution)

    async def machine_at(self, execution: str, turn: int | str) -> JournaledMachine:
        """Return the machine after a turn, by its number or the name of a checkpoint."""
        return await self.turn_history.machine_at(execution, turn)

    async def turn_page(
        self, execution: str, first: int | None = None, limit: int = 100, *, newest_first: bool = False
    ) -> TurnPage:
        """Return recorded turns from the number ``first`` on, upwards or, with ``newest_first``, downwards."""
        return await self.recorded.page(execution, first, limit, newest_first=newest_first)

    async def turn_view(self, execution: str, number: int) -> TurnView:
        """Return one recorded turn in full."""
        return await self.recorded.one(execution, number)

    # -- approvals --------------------------------------------------------------------------------------------

    async def approvals(
        self, execution: str, limit: int | None = None, after: ApprovalPlace | None = None
    ) -> list[Approval]:
        """Return the open approvals of an execution, oldest first."""
        return await Approvals(self).of(execution, limit, after)

    async def pending_approvals(
        self, workflow: str | None = None, limit: int = 100, after: ApprovalPlace | None = None
    ) -> list[Approval]:
        """Return the open approvals of all executions, those of the newest execution first."""
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
        """Answer an open approval with ``approved`` or ``rejected``; see `Approvals.decide`."""
        await Approvals(self).decide(execution, node, decision, data, by, index, comment)


async def _settle_none(workflow: str) -> None:
    """Do nothing: the default for a client without an engine, whose definitions have no schedules or webhooks."""
