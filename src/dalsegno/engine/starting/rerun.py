"""Retry and rerun: a new execution, linked to the one it repeats, that starts in the middle.

- Everything downstream of the chosen nodes runs again. Everything else keeps its result: contexts come from the
  record, with the requested edits, and slots of downstream joins whose sources do not run again are resolved as
  before.
- If the execution was itself a retry or rerun, the nodes that it did not run again keep their results from its
  predecessors.
- Scripts start with the machine of the failed execution; without one, and if asked to, from the beginning. Tasks start
  again from the beginning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from dalsegno.core.graph.other_version import obstacles
from dalsegno.core.graph.rerun import Restart, restart
from dalsegno.core.graph.step_input import Body, Entry, key_of
from dalsegno.core.history import RunFacts, read_task, run_facts
from dalsegno.core.pending import Again, StartToken, submit
from dalsegno.core.scripts.kept import KeptMachine, asked_again_tasks
from dalsegno.core.scripts.token_bodies import decode_task
from dalsegno.core.values import encode_value
from dalsegno.engine.definitions import Definitions, Program
from dalsegno.engine.executions import StoredExecutions
from dalsegno.engine.journal.branches import Branches, BranchPlan, TurnAsked
from dalsegno.engine.scripts.moving import FROM_START, named
from dalsegno.engine.scripts.programs import ScriptProgram
from dalsegno.engine.scripts.retry import machine_to_continue
from dalsegno.engine.starting.idempotency import check_same_branch, check_same_rerun, check_same_version
from dalsegno.engine.starting.moving import MoveChecks, RetryPlan
from dalsegno.engine.starting.start import (
    Ancestry,
    Launcher,
    Started,
    StartOptions,
    limited,
    new_task,
    owned_tags,
    start_task_transition,
    workflow_limit,
)
from dalsegno.engine.steps.values import Loader
from dalsegno.errors import Conflict, InvalidInput, NotFound
from dalsegno.graph.plan import Plan
from dalsegno.model.definition import Version, parse_target, read_version
from dalsegno.model.event import Event
from dalsegno.model.execution import CLEANUP_RELATION, ENDED, ExecutionView, NewExecution
from dalsegno.model.ids import new_execution_id, repeated_execution_id
from dalsegno.model.transition import Transition
from dalsegno.ports.archive import Archive

EVENTS_AT_ONCE = 1000


class RerunHistory:
    """The record of executions, for retries and reruns."""

    def __init__(self, archive: Archive, loader: Loader) -> None:
        self.archive = archive
        self.loader = loader

    async def execution(self, execution: str, rerun: str) -> ExecutionView:
        """Return an execution; ``rerun`` is the execution that continues it, for the message."""
        view = await self.archive.execution(execution)
        if view is None:
            raise Conflict(
                f"execution {execution}, from which {rerun} was rerun, has been removed; start the workflow again"
            )
        return view

    async def events(self, execution: str) -> list[Event]:
        found: list[Event] = []
        while page := await self.archive.events(execution, len(found), EVENTS_AT_ONCE):
            found += page
        return found


class Lineage(Struct):
    """The results of every node, from the first execution of the chain to the last."""

    facts: dict[str, RunFacts] = {}
    outputs: dict[str, bytes] = {}
    working: dict[str, bytes] = {}
    edits: dict[str, bytes] = {}

    def forget(self, nodes: frozenset[str]) -> None:
        """Forget the results of nodes that ran again later, or that a later version did not have."""
        for name in nodes:
            self.facts.pop(name, None)
            self.outputs.pop(name, None)
            self.working.pop(name, None)
            self.edits.pop(f"${name}", None)


class _Start(Struct):
    nodes: tuple[str, ...] = ()
    edits: dict[str, Raw] = {}


async def read_lineage(rerun_history: RerunHistory, definitions: Definitions, view: ExecutionView) -> Lineage:
    lineage = Lineage()
    for execution in reversed(await _line(rerun_history, view)):
        plan = (await definitions.by_hash(execution.definition)).plan
        events = await rerun_history.events(execution.id)
        start = _start_of(events)
        again = frozenset(start.nodes).union(*(plan.descendants(name) for name in start.nodes))
        lineage.forget(again | (lineage.facts.keys() - plan.nodes.keys()))
        lineage.edits.update({key: bytes(raw) for key, raw in start.edits.items()})
        facts = run_facts(events)
        lineage.facts.update(facts)
        for name, fact in facts.items():
            await _load(rerun_history, execution.id, name, fact.output, lineage.outputs)
            await _load(rerun_history, execution.id, name, fact.working, lineage.working)
    return lineage


async def _line(rerun_history: RerunHistory, view: ExecutionView) -> list[ExecutionView]:
    """Return the execution and its predecessors, newest first."""
    line = [view]
    while line[-1].relation in ("retry", "rerun") and line[-1].parent is not None:
        line.append(await rerun_history.execution(line[-1].parent, line[-1].id))
    return line


def _start_of(events: list[Event]) -> _Start:
    """Return the data of the start event. It is not always the first event: an execution that waited for its limit
    was submitted before.
    """
    started = next((event for event in events if event.kind == "ExecutionStarted"), None)
    if started is None or started.data is None:
        return _Start()
    return msgspec.json.decode(started.data, type=_Start)


async def _load(
    rerun_history: RerunHistory, execution: str, name: str, entry: Entry | None, into: dict[str, bytes]
) -> None:
    """Load a value as bytes: references resolve only within their own execution, so the values themselves are carried
    over.
    """
    if entry is None:
        into.pop(name, None)
    else:
        into[name] = bytes(await rerun_history.loader.raw(execution, Body(), entry))


async def plan_rerun(
    stored: StoredExecutions,
    old: Program,
    program: Program,
    view: ExecutionView,
    nodes: Sequence[str] | None,
    edits: Mapping[str, Any],
    key: str | None = None,
    starter: str | None = None,
) -> tuple[NewExecution, Again]:
    """Return the new execution and its start, refusing what cannot be rerun. It ran ``old``, and goes on with
    ``program``.
    """
    plan = program.plan
    if view.state not in ENDED:
        raise Conflict(f"execution {view.id} has not ended ({view.state}); cancel it first, or wait")
    if nodes is not None:
        starts = _checked(plan, nodes)
    else:
        starts = _moved_starts(plan, await _failed_nodes(stored, old.plan, view))
    now = stored.stack.ledger.now()
    new = NewExecution(
        id=repeated_execution_id(view.id, key) if key is not None else new_execution_id(now),
        workflow=view.workflow,
        version=program.definition.version,
        definition=program.definition.hash,
        input=view.input,
        created_at=now,
        priority=view.priority,
        tags=owned_tags(view.tags, starter),
        idempotency_key=key,
        parent=view.id,
        relation="retry" if nodes is None else "rerun",
    )
    return new, Again(starts, {key: Raw(raw) for key, raw in _edits(plan, edits).items()})


async def rerun_transition(
    rerun_history: RerunHistory, definitions: Definitions, new: NewExecution, again: Again, now: float
) -> Transition:
    """Return the transition that starts the new execution; its predecessors are read now."""
    program = await definitions.by_hash(new.definition)
    old = await rerun_history.execution(new.parent or "", new.id)
    known = await read_lineage(rerun_history, definitions, old)
    changed = {**known.edits, **{key: bytes(raw) for key, raw in again.edits.items()}}
    record = Restart(again.nodes, known.facts, known.outputs, changed, known.working)
    return restart(program.plan, new, record, now)


def _checked(plan: Plan, nodes: Sequence[str]) -> tuple[str, ...]:
    for name in nodes:
        node = plan.nodes.get(name)
        if node is None:
            raise InvalidInput(f"workflow '{plan.name}' has no node '{name}'")
        if node.split is not None or node.control == "aggregator":
            inside = node.split if node.split is not None else node.collects
            raise InvalidInput(
                f"node '{name}' belongs to split '{inside}'; only the whole split can be rerun: choose '{inside}'"
            )
        if name in plan.triggers:
            raise InvalidInput(f"'{name}' is a trigger and never runs; start the workflow again instead")
    return _earliest(plan, nodes)


def _earliest(plan: Plan, nodes: Sequence[str]) -> tuple[str, ...]:
    """Return the nodes without those that run again anyway because they are downstream of another one."""
    starts = tuple(dict.fromkeys(nodes))
    return tuple(name for name in starts if not any(name in plan.descendants(other) for other in starts))


async def _failed_nodes(stored: StoredExecutions, plan: Plan, view: ExecutionView) -> tuple[str, ...]:
    """Return every node that failed, and every node that was running or waiting when the execution ended."""
    summaries = await stored.nodes(view.id)
    found = []
    for name, summary in summaries.items():
        if summary.state in ("FAILED", "CANCELLED"):
            found.append(_outermost(plan, name))
    starts = _earliest(plan, found)
    if not starts:
        raise Conflict(f"execution {view.id} has no failed or interrupted node to retry ({view.state})")
    return starts


def _moved_starts(plan: Plan, starts: tuple[str, ...]) -> tuple[str, ...]:
    """Return where the nodes of the old version start in the new one. Nodes that it lacks stay: they are refused."""
    if any(name not in plan.nodes for name in starts):
        return starts
    return _earliest(plan, [_outermost(plan, name) for name in starts])


def _outermost(plan: Plan, name: str) -> str:
    """Return the outermost split around a node: inside a split only the whole split can run again."""
    node = plan.nodes[name]
    if node.collects is not None:
        node = plan.nodes[node.collects]
    while node.split is not None:
        node = plan.nodes[node.split]
    return node.id


def _edits(plan: Plan, edits: Mapping[str, Any]) -> dict[str, bytes]:
    """Return context edits by key; a node may be named with or without its dollar sign."""
    changed = {}
    for name, edited in edits.items():
        bare = name.removeprefix("$")
        known = plan.names.get(bare, bare)
        if known not in plan.nodes and bare not in ("trigger", "json"):
            raise InvalidInput(
                f"the edited context names '{name}', which is not a node of workflow '{plan.name}'"
            )
        changed[key_of(known)] = encode_value(edited, f"the edited value of '{name}'")
    return changed


FIRST_EVENTS = 10
"""First events, which contain how an execution was submitted and started."""


class Reruns:
    def __init__(self, stored: StoredExecutions, launcher: Launcher, history: RerunHistory) -> None:
        self.stored = stored
        self.launcher = launcher
        self.history = history
        self.moves = MoveChecks(stored)
        self.branches = Branches(stored)

    async def rerun(
        self,
        execution: str,
        nodes: Sequence[str] | None,
        context: Mapping[str, Any] | None,
        key: str | None,
        starter: str | None = None,
        *,
        from_start: bool = False,
        version: Version = None,
        turn: TurnAsked | None = None,
    ) -> Started:
        """Retry or rerun an execution. ``starter``: the API key that the new execution counts for, instead of the key
        of the first one. ``from_start``: a script or Python workflow does not go on from its failure. ``version``: of
        the workflow, instead of the one that it ran.
        """
        stored = self.stored
        view = await stored.status(execution)
        if turn is not None:
            _check_turn(nodes, context, from_start=from_start)
            return await self._at_a_turn(view, turn, key, starter, version)
        if view.kind != "graph":
            return await self._machine(view, nodes, key, starter, from_start=from_start, version=version)
        if from_start:
            raise InvalidInput(
                f"'{view.workflow}' is a graph: rerun it from its first nodes, or start it again with the same input"
            )
        old = await stored.definitions.by_hash(view.definition)
        made = await self._made(view, key)
        if made is not None:
            check_same_version(made, view.version if version is None else version)
            program = await stored.definitions.by_hash(made.definition)
        else:
            program = _graph(await self._program_of(view, version), view)
        new, again = await plan_rerun(stored, old, program, view, nodes, context or {}, key, starter)
        if made is None and new.definition != view.definition:
            await self._check_graph(old, program, view, again.nodes)
        now = new.created_at
        first = planned = await rerun_transition(self.history, stored.definitions, new, again, now)
        limit = await workflow_limit(program, new, now, stored.limits, stored.offload)
        if limit is not None:  # it waits for its limit, and is planned again when it begins
            first = submit(new, now, body=StartToken(again=again), limit=limit)
        started = await self.launcher.create(new, first)
        if key is not None:
            await check_same_rerun(stored, new, again, planned)
        return started

    async def preview(
        self,
        execution: str,
        nodes: Sequence[str] | None = None,
        version: Version = None,
        *,
        from_start: bool = False,
        turn: TurnAsked | None = None,
    ) -> RetryPlan:
        """Run the checks of a retry or rerun, and return what it would do. Nothing is started."""
        view = await self.stored.status(execution)
        if turn is not None:
            _check_turn(nodes, None, from_start=from_start)
            return (await self._planned(view, turn, version))[2]
        if view.kind == "graph":
            old = await self.stored.definitions.by_hash(view.definition)
            program = _graph(await self._program_of(view, version), view)
            new, again = await plan_rerun(self.stored, old, program, view, nodes, {})
            if new.definition != view.definition:
                await self._check_graph(old, program, view, again.nodes)
            return RetryPlan(new.workflow, new.version, again=again.nodes)
        _check_single(view, nodes, version)
        if view.kind == "task":
            return RetryPlan(view.workflow, 0, starts_over=True)
        kept = None if from_start else await machine_to_continue(self.stored.stack.archive, view)
        target = await self._program_of(view, version)
        known = target.definition
        if kept is None:
            return RetryPlan(known.name, known.version, starts_over=True)
        frames = await self.moves.check(view.id, _machine_program(target, view))
        return RetryPlan(known.name, known.version, again=tuple(asked_again_tasks(kept)), frames=frames)

    async def _machine(
        self,
        view: ExecutionView,
        nodes: Sequence[str] | None,
        key: str | None,
        starter: str | None,
        *,
        from_start: bool,
        version: Version,
    ) -> Started:
        """Start a script, Python workflow or task again."""
        made = await self._made(view, key)
        if made is not None and not nodes:
            ran = view.version if view.definition else None
            check_same_version(made, ran if version is None else version)
            return Started(made.id, is_new=False)
        kept = None
        if not from_start and not nodes and view.relation != CLEANUP_RELATION:
            kept = await machine_to_continue(self.stored.stack.archive, view)
        if kept is None:
            return await self._from_the_beginning(view, nodes, key, starter, version)
        return await self._from_the_failure(view, kept, key, starter, version)

    async def _check_graph(
        self, old: Program, new: Program, view: ExecutionView, starts: Sequence[str]
    ) -> None:
        """Raise Conflict unless what has run is still there in the new version of the graph, as it was."""
        known = await read_lineage(self.history, self.stored.definitions, view)
        if found := obstacles(old.plan, new.plan, starts, known.facts):
            raise Conflict(
                f"execution {view.id} cannot go on with {named(new.definition)}:\n"
                + "\n".join(f"  {each}" for each in found)
                + "\nChange that, choose other nodes (rerun), or keep the version that it ran"
            )

    async def _made(self, view: ExecutionView, key: str | None) -> ExecutionView | None:
        """Return the retry or rerun with this key."""
        if key is None:
            return None
        return await self.stored.stack.archive.outline(repeated_execution_id(view.id, key))

    async def _from_the_beginning(
        self,
        view: ExecutionView,
        nodes: Sequence[str] | None,
        key: str | None,
        starter: str | None,
        version: Version,
    ) -> Started:
        """Start a script or task again with the same input, as a new execution."""
        _check_single(view, nodes, version)
        if view.kind == "task":
            return await self._task(view, key, starter)
        options, ancestry = _retry_options(view, key, starter)
        program = await self._program_of(view, version)
        return await self.launcher.start(program, Raw(view.input), options, ancestry)

    async def _from_the_failure(
        self, view: ExecutionView, kept: KeptMachine, key: str | None, starter: str | None, version: Version
    ) -> Started:
        """Start a script or Python workflow with its machine as it was before the turn that failed."""
        options, ancestry = _retry_options(view, key, starter)
        program = _machine_program(await self._program_of(view, version), view)
        await self.moves.check(view.id, program)
        return await self.launcher.continue_from(program, view.id, kept, Raw(view.input), options, ancestry)

    async def _at_a_turn(
        self, view: ExecutionView, turn: TurnAsked, key: str | None, starter: str | None, version: Version
    ) -> Started:
        """Start a script or Python workflow with its machine as it was after an earlier turn."""
        made = await self._made(view, key)
        if made is not None:
            await check_same_branch(self.stored, made, turn)
            return Started(made.id, is_new=False)
        program, found, _ = await self._planned(view, turn, version)
        options, ancestry = _retry_options(view, key, starter, "rerun")
        return await self.launcher.branch_off(
            program, view.id, found.branch, found.again, Raw(view.input), options, ancestry
        )

    async def _planned(
        self, view: ExecutionView, turn: TurnAsked, version: Version
    ) -> tuple[ScriptProgram, BranchPlan, RetryPlan]:
        found = await self.branches.plan(view, turn)
        if version is None:  # of the version that it was of then
            target = await self.stored.definitions.any_by_hash(found.branch.definition)
        else:
            target = await self._program_of(view, version)
        program = _machine_program(target, view)
        frames = await self.moves.check_machine(
            view.id, found.branch.definition, found.snapshot, program, found.what
        )
        await self.branches.check_variables(view, program, found)
        known = program.definition
        return (
            program,
            found,
            RetryPlan(
                known.name,
                known.version,
                again=found.again,
                frames=frames,
                turn=found.branch.turn,
                line=found.branch.kept.line,
                known=found.known,
                awaited=found.awaited,
                later=found.later,
            ),
        )

    async def _program_of(self, view: ExecutionView, version: Version = None) -> Program | ScriptProgram:
        """Return the given version, or the version that it ran. An execution that failed because its workflow was not
        deployed takes the current version.
        """
        definitions = self.stored.definitions
        if version is None and view.definition:
            return await definitions.any_by_hash(view.definition)
        name, asked = parse_target(view.workflow)
        definitions.forget(name)  # a version that was deployed a moment ago is the current one
        return await definitions.by_name(name, asked if version is None else read_version(version))

    async def _task(self, view: ExecutionView, key: str | None, starter: str | None) -> Started:
        """Start a task again in the same queue with the same options."""
        now = self.stored.stack.ledger.now()
        options, ancestry = _retry_options(view, key, starter)
        raw, queue, given = await self._original_task(view)
        new = new_task(view.workflow, raw, options, now, ancestry)
        return await self.launcher.create(new, start_task_transition(new, now, queue, given))

    async def _original_task(self, view: ExecutionView) -> tuple[bytes, str | None, Mapping[str, Any] | None]:
        """Return input, queue and options of a task: those given by a script, if it comes from one."""
        stored = await self.stored.stack.archive.execution(view.id)
        if stored is not None and stored.relation == "task":
            body = decode_task(stored.input)
            try:
                return await self.stored.inputs.raw(view.id, body), None, body.options
            except NotFound:
                raise Conflict(
                    f"cannot retry execution {view.id}: its input was removed with execution {view.parent}, which"
                    " called the task; start that one again"
                ) from None
        started = read_task(await self.stored.events(view.id, 0, FIRST_EVENTS))
        limit = limited(self.stored.task_limit(view.workflow))
        if started is None:
            return view.input, None, limit
        return view.input, started.queue, started.options or limit


def _check_turn(nodes: Sequence[str] | None, context: Mapping[str, Any] | None, *, from_start: bool) -> None:
    if nodes or context or from_start:
        raise InvalidInput(
            "an execution is rerun at a turn, or from nodes, or from its start: say one of them (at, nodes, from_start)"
        )


def _check_single(view: ExecutionView, nodes: Sequence[str] | None, version: Version) -> None:
    """Refuse what cannot be done again with an execution that is no graph."""
    if view.kind == "schedule":
        raise InvalidInput(f"'{view.workflow}' is a schedule; trigger it to start its workflow now")
    if nodes:
        raise InvalidInput(
            f"a {view.kind} has no nodes to rerun from; retry starts it again with the same input"
        )
    if view.relation == CLEANUP_RELATION:
        raise Conflict(
            f"execution {view.id} continues the clean-up of {view.parent}; a retry would start"
            f" '{view.workflow}' over. If its clean-up is unfinished, retry its dead letter:"
            f" dalsegno dead retry cleanup:{view.id}"
        )
    if view.kind == "task" and version is not None:
        raise InvalidInput(f"'{view.workflow}' is a task, which has no versions")


def _graph(program: Program | ScriptProgram, view: ExecutionView) -> Program:
    if isinstance(program, Program):
        return program
    known = program.definition
    raise Conflict(
        f"execution {view.id} of a graph cannot go on with {named(known)}, which is a {known.kind}"
    )


def _machine_program(program: Program | ScriptProgram, view: ExecutionView) -> ScriptProgram:
    if isinstance(program, ScriptProgram):
        return program
    raise Conflict(
        f"cannot retry execution {view.id} from its failure: {named(program.definition)} is a graph; {FROM_START}"
    )


def _retry_options(
    view: ExecutionView, key: str | None, starter: str | None, relation: str = "retry"
) -> tuple[StartOptions, Ancestry]:
    """Return the options and the ancestry of a retry of a script or task."""
    own = repeated_execution_id(view.id, key) if key is not None else None
    options = StartOptions(idempotency_key=key, tags=dict(view.tags), priority=view.priority, starter=starter)
    return options, Ancestry(own, view.id, relation)
