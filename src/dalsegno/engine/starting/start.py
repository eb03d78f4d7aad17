"""Starting executions of workflows and single tasks, and those ordered by other executions: the checks of a start,
and its transition for every kind of workflow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec import Raw

from dalsegno.core.graph.start import StartReply, begun, start
from dalsegno.core.outbox_orders import StartOrder, encode_notice
from dalsegno.core.pending import Again, StartToken, submit
from dalsegno.core.scripts.branch import Branch, start_branch, with_branch
from dalsegno.core.scripts.kept import KeptMachine, asked_again_tasks
from dalsegno.core.scripts.step import continue_script, start_script, start_task
from dalsegno.core.scripts.task_options import task_options
from dalsegno.core.scripts.token_bodies import LARGEST_INLINE, StoredInput, TaskBody, encode_body
from dalsegno.core.values import decode_value, encode_value, refuse_size
from dalsegno.engine.definitions import Program
from dalsegno.engine.executions import StoredExecutions
from dalsegno.engine.options import Duration, Moment, read_duration, read_moment
from dalsegno.engine.scripts.programs import AbsentProgram, ScriptProgram
from dalsegno.engine.scripts.retry import machine_to_continue
from dalsegno.engine.scripts.turns import InThread
from dalsegno.engine.settings import EngineLimits
from dalsegno.engine.steps.budget import light_limits
from dalsegno.engine.subprocesses.job_pool import INLINE_BYTES, Offload, payload_problems
from dalsegno.errors import Conflict, DalSegnoError, Finding, InvalidInput, LimitExceeded, UsageError
from dalsegno.lang import Expression, ExpressionFailed, Limits
from dalsegno.lang.python import PythonProgram, arguments_for
from dalsegno.lang.runtime.limits import Heavy
from dalsegno.lang.runtime.pending_effects import OTHER_LIMIT
from dalsegno.model.definition import Version
from dalsegno.model.effect import CreateExecution
from dalsegno.model.execution import ExecutionKind, NewExecution
from dalsegno.model.ids import derive, execution_id_for_key, new_execution_id
from dalsegno.model.limits import LONGEST_KEY, Concurrency, read_concurrency
from dalsegno.model.token import DEFAULT_QUEUE, NewToken
from dalsegno.model.transition import Applied, Outcome, Refused, Transition


@dataclass(frozen=True, slots=True)
class StartOptions:
    version: Version = None
    idempotency_key: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    delay: Duration | None = None
    """Time until it begins, during which it is PENDING; ``start_at`` gives the time instead."""
    start_at: Moment | None = None
    connection: Any = None
    """The caller's own connection, in whose transaction the execution is started."""
    starter: str | None = None
    """The API key whose quota of stored executions it counts for; kept as the tag `STARTER_TAG`."""
    limit: Concurrency | None = None
    """Limit shared with the other calls of the same ``gather``."""


STARTER_TAG = "dalsegno.key"
"""Set only by servers; values from other sources are ignored."""


def owned_tags(tags: Iterable[tuple[str, str]], starter: str | None) -> tuple[tuple[str, str], ...]:
    """Return tags in stored form, sorted, with the given starter in place of any other."""
    others = [(name, tag) for name, tag in tags if name != STARTER_TAG]
    return tuple(sorted([*others, (STARTER_TAG, starter)] if starter is not None else others))


class Started(NamedTuple):
    """The result of a start. Of all starts with the same idempotency key one is new; the others return its
    execution.
    """

    execution: str
    is_new: bool
    begun: StartReply | None = None
    """The reply to the start, if it is known without reading the rows back."""


@dataclass(frozen=True, slots=True)
class Ancestry:
    """The origin of an execution that was not started by a user."""

    execution: str | None = None
    """Its own id, if that is derived."""
    parent: str | None = None
    relation: str | None = None
    notify: bytes | None = None


NO_ANCESTRY = Ancestry()

KEY_BYTES = 1024 * 1024
"""Bytes that the expression of a ``concurrency.key`` may allocate."""


def begins_at(delay: Duration | None, start_at: Moment | None, now: float) -> float | None:
    """Return the time at which an execution begins. None: at once, also for a time in the past."""
    if delay is not None and start_at is not None:
        raise InvalidInput("give either 'delay' or 'start_at', not both: each says when the execution begins")
    if delay is not None:
        due = now + read_duration(delay, "'delay'")
    elif start_at is not None:
        due = read_moment(start_at, "'start_at'")
    else:
        return None
    return due if due > now else None


def new_execution(
    program: Program | ScriptProgram,
    payload: Any,
    options: StartOptions,
    now: float,
    limits: EngineLimits,
    ancestry: Ancestry = NO_ANCESTRY,
) -> NewExecution:
    """Return a new execution, which `check_input` must approve."""
    if payload is None and not (isinstance(program, ScriptProgram) and program.native):
        payload = {}  # for the parameters of a Python function, a missing input is not an object
    raw = bytes(payload if isinstance(payload, Raw) else encode_value(payload, "the input"))
    refuse_size(len(raw), "the input", limits.value_bytes)
    definition = program.definition
    return _new(
        definition.name, definition.version, definition.hash, raw, options, now, ancestry, _kind(program)
    )


def new_task(name: str, raw: bytes, options: StartOptions, now: float, ancestry: Ancestry) -> NewExecution:
    return _new(name, 0, "", raw, options, now, ancestry, "task")


def never_started(order: StartOrder, program: Program | ScriptProgram | None, now: float) -> NewExecution:
    """Return the execution that an order requested, as the record of its failure. Without a program, because none is
    deployed, it counts as a script, which can be read without one.
    """
    options = StartOptions(None, order.idempotency_key, order.tags, order.priority)
    ancestry = Ancestry(order.execution, order.parent, order.relation)
    if program is None:
        return _new(order.workflow, 0, "", bytes(order.input), options, now, ancestry, "script")
    known = program.definition
    return _new(
        known.name, known.version, known.hash, bytes(order.input), options, now, ancestry, _kind(program)
    )


def _kind(program: Program | ScriptProgram) -> ExecutionKind:
    if isinstance(program, Program):
        return "graph"
    return "python" if program.native else "script"


def _new(
    name: str,
    version: int,
    definition: str,
    raw: bytes,
    options: StartOptions,
    now: float,
    ancestry: Ancestry,
    kind: ExecutionKind,
) -> NewExecution:
    key = options.idempotency_key
    own = execution_id_for_key(name, key) if key is not None else new_execution_id(now)
    return NewExecution(
        id=ancestry.execution or own,
        workflow=name,
        version=version,
        definition=definition,
        input=raw,
        created_at=now,
        priority=options.priority,
        tags=_tags_of(options) if options.tags or options.starter is not None else (),
        idempotency_key=key,
        parent=ancestry.parent,
        relation=ancestry.relation,
        kind=kind,
        notify=ancestry.notify,
    )


def _tags_of(options: StartOptions) -> tuple[tuple[str, str], ...]:
    return owned_tags(((str(name), str(tag)) for name, tag in options.tags.items()), options.starter)


async def check_input(
    program: Program | ScriptProgram,
    raw: bytes,
    limits: EngineLimits,
    offload: Offload,
    in_thread: InThread[None] | None,
) -> None:
    """Raise InvalidInput if a workflow cannot accept this input, by its ``input_schema`` or its parameters."""
    schema = program.plan.input_schema if isinstance(program, Program) else program.input_schema
    if schema is not None:
        problems = await payload_problems(schema, raw, limits, offload)
        if problems:
            lines = [f"{pointer or '/'}: {message}" for pointer, message in problems]
            findings = [Finding(pointer, "input-schema", message) for pointer, message in problems]
            raise InvalidInput.at(
                "the input does not fit the workflow's input_schema:\n" + "\n".join(lines), findings
            )
    await _check_arguments(program, raw, in_thread)


async def _check_arguments(
    program: Program | ScriptProgram, raw: bytes, in_thread: InThread[None] | None
) -> None:
    """Raise InvalidInput if the parameters of a Python workflow cannot accept this input, provided its function is
    loaded here. Annotated classes are user code, which needs a thread.
    """
    if not isinstance(program, ScriptProgram) or isinstance(program, AbsentProgram):
        return
    code = program.code
    if not isinstance(code, PythonProgram) or not code.surroundings.has_function:
        return
    if in_thread is None or not code.surroundings.hints:
        _bind(code, raw)
    else:
        await in_thread(partial(_bind, code, raw))


def _bind(code: PythonProgram, raw: bytes) -> None:
    try:
        arguments_for(code, decode_value(raw))
    except DalSegnoError:
        raise
    except Exception as error:
        # A class that is constructed from the input may raise anything.
        kind = type(error).__name__
        raise InvalidInput(f"workflow '{code.name}' cannot take its input: {kind}: {error}") from error


async def workflow_limit(
    program: Program | ScriptProgram, new: NewExecution, now: float, limits: EngineLimits, offload: Offload
) -> Concurrency | None:
    """Return the key of which a new execution needs a slot, with the limit of its workflow. Raises InvalidInput if
    the key has no value for this input.
    """
    limit = program.plan.limit if isinstance(program, Program) else program.workflow_limit
    if limit is None or limit.key is None:
        return Concurrency(limit.name, limit.allows) if limit is not None else None
    found = await _key_of(limit.key, new.input, now, limits, offload)
    if isinstance(found, bool) or not isinstance(found, str | int | float) or found == "":
        raise InvalidInput(
            f"the key of the workflow's concurrency, {limit.name}, must be a text or a number for this input"
        )
    return Concurrency(str(found)[:LONGEST_KEY], limit.allows)


async def _key_of(key: Expression, raw: bytes, now: float, limits: EngineLimits, offload: Offload) -> Any:
    """Return the value of a concurrency key. A light one is evaluated here, any other in a subprocess."""
    allowed = _key_limits(limits)
    try:
        if len(raw) <= INLINE_BYTES:
            trigger = decode_value(raw)
            return key.evaluate({"$trigger": trigger}.__getitem__, now=now, limits=light_limits(allowed))
    except Heavy:
        pass
    except ExpressionFailed as error:
        raise _without_key(error.code, str(error), limits) from None
    reply = await offload.large("key", key.source, raw, now, asdict(allowed))
    raised = reply.get("raised")
    if raised is not None:
        raise _without_key(raised.get("code", ""), raised["message"], limits)
    return reply["value"]


def _without_key(code: str, message: str, limits: EngineLimits) -> DalSegnoError:
    if code != "LimitExceeded":
        return InvalidInput(f"the key of the workflow's concurrency has no value: {message}")
    return LimitExceeded(
        f"the key of the workflow's concurrency takes more than the limit key_instructions of "
        f"{limits.key_instructions:,} instructions, or more than {KEY_BYTES:,} bytes: use a field of the input"
    )


def _key_limits(limits: EngineLimits) -> Limits:
    """Return the limits of a key, which is evaluated while its caller, and everything else in the process, waits."""
    usual = limits.expressions
    return replace(
        usual,
        instructions=min(usual.instructions, limits.key_instructions),
        allocated_bytes=min(usual.allocated_bytes, KEY_BYTES),
        result_bytes=min(usual.result_bytes, KEY_BYTES),
    )


def start_transition(program: Program | ScriptProgram, new: NewExecution, now: float) -> Transition:
    if isinstance(program, Program):
        return start(program.plan, new, now)
    return start_script(new, now, program.timeout)


def limited(concurrency: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return a task's limit as an option."""
    return {"concurrency": dict(concurrency)} if concurrency else None


def start_task_transition(
    new: NewExecution, now: float, queue: str | None, options: Mapping[str, Any] | None = None
) -> Transition:
    """Return the start of a task. ``options`` in the form that a script gives them."""
    known, given = task_options(options), dict(options) if options else None
    if len(new.input) <= LARGEST_INLINE:
        body = TaskBody(Raw(new.input), options=given)
    else:
        body = TaskBody(options=given, stored=StoredInput(new.id, "", len(new.input)))
    token = NewToken(
        derive(new.id, "task"),
        "",
        "task",
        new.workflow,
        encode_body(body),
        known.queue or queue or DEFAULT_QUEUE,
        known.priority or new.priority,
        known.limit_key(new.workflow),
        due=now + known.delay if known.delay else None,
        allowance=known.allows,
    )
    return start_task(new, now, token, options)


class LocalWorker(Protocol):
    """The worker of this process, as starts see it: it may keep the first tokens of an execution."""

    def offer(
        self, transition: Transition, workflow: str, kind: ExecutionKind
    ) -> tuple[Transition, list[NewToken]]:
        """Return a start that asks to keep its first tokens here, and those tokens."""

    def concluded(self, workflow: str, kept: list[NewToken]) -> None:
        """Release the slots reserved for a start, regardless of its outcome."""

    def accept(self, new: NewExecution, kept: list[NewToken], applied: Applied, name: str) -> None:
        """Run the kept tokens of a start. ``name`` is that of the offer."""

    def give_up_name(self, name: str) -> None:
        """Give up a name under which tokens may be leased that the worker does not know of."""


Publisher: TypeAlias = tuple[str | None, float | None]
NO_PUBLISHER: Publisher = (None, None)


class Launcher:
    def __init__(self, stored: StoredExecutions) -> None:
        self.stored = stored
        self.worker: LocalWorker | None = None
        """The worker of this process, if one runs: it continues executions that are started here."""
        self.notice_due: Callable[[float], None] = lambda due: None
        """Receives due times that no commit of this process reports."""
        self.announce: Callable[[str], None] = lambda execution: None
        """Called with the id of every execution that is about to be created."""
        self.publisher: Callable[[CreateExecution], Publisher] = lambda created: NO_PUBLISHER
        """Returns who publishes an execution from its start, and until when no other process does."""

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
        """Run all checks of a start and return the commit it would make. Nothing is stored."""
        stored = self.stored
        now = stored.stack.ledger.now()
        due = begins_at(options.delay, options.start_at, now)
        new = new_execution(program, payload, options, now, stored.limits, ancestry)
        await check_input(program, new.input, stored.limits, stored.offload, stored.in_thread)
        limit = await workflow_limit(program, new, now, stored.limits, stored.offload)
        if options.limit is not None:
            if limit is not None:
                raise InvalidInput(f"the workflow '{new.workflow}' {OTHER_LIMIT}")
            limit = options.limit
        waits = due is not None or limit is not None
        return new, submit(new, now, due, limit=limit) if waits else start_transition(program, new, now)

    async def start_task(self, name: str, payload: Any, options: StartOptions, queue: str | None) -> Started:
        stored = self.stored
        raw = encode_value(payload, "the input")
        refuse_size(len(raw), "the input", stored.limits.value_bytes)
        now = stored.stack.ledger.now()
        due = begins_at(options.delay, options.start_at, now)
        new = new_task(name, raw, options, now, NO_ANCESTRY)
        limit = stored.task_limit(name)
        delayed = submit(new, now, due, StartToken(queue, limit)) if due is not None else None
        first = delayed or start_task_transition(new, now, queue, limited(limit))
        return await self.create(new, first, options)

    async def start_ordered(self, order: StartOrder, starter: str | None = None) -> Started:
        notify = encode_notice(order.notify) if order.notify is not None else None
        ancestry = Ancestry(order.execution, order.parent, order.relation, notify)
        program = await self.stored.definitions.ordered(order)
        limit = read_concurrency(order.concurrency) if order.concurrency is not None else None
        options = StartOptions(
            None, order.idempotency_key, order.tags, order.priority, starter=starter, limit=limit
        )
        if order.continues is None:
            return await self.start(program, order.input, options, ancestry)
        other = await self.stored.stack.archive.execution(order.continues)
        kept = await machine_to_continue(self.stored.stack.archive, other) if other is not None else None
        if kept is None or not isinstance(program, ScriptProgram):
            raise Conflict(f"execution {order.continues} cannot be continued: its machine is no longer kept")
        return await self.continue_from(program, order.continues, kept, order.input, options, ancestry)

    async def continue_from(
        self,
        program: ScriptProgram,
        other: str,
        kept: KeptMachine,
        payload: Any,
        options: StartOptions,
        ancestry: Ancestry,
    ) -> Started:
        """Start an execution with the machine that is kept of a failed one."""
        stored = self.stored
        now = stored.stack.ledger.now()
        new = new_execution(program, payload, options, now, stored.limits, ancestry)
        limit = options.limit or await workflow_limit(program, new, now, stored.limits, stored.offload)
        if limit is not None:
            body = StartToken(again=Again((), machine_of=other))
            return await self.create(new, submit(new, now, body=body, limit=limit), options)
        first = continue_script(new, other, kept.line, asked_again_tasks(kept), now, program.timeout)
        return await self.create(new, first, options)

    async def branch_off(
        self,
        program: ScriptProgram,
        other: str,
        branch: Branch,
        again: Sequence[str],
        payload: Any,
        options: StartOptions,
        ancestry: Ancestry,
    ) -> Started:
        """Start an execution with the machine of an earlier turn of another one."""
        stored = self.stored
        now = stored.stack.ledger.now()
        new = new_execution(program, payload, options, now, stored.limits, ancestry)
        limit = await workflow_limit(program, new, now, stored.limits, stored.offload)
        if limit is not None:
            body = StartToken(again=Again(tuple(again), branch_of=other))
            first = submit(new, now, body=body, limit=limit)
        else:
            first = start_branch(new, other, branch, again, now, program.timeout)
        return await self.create(new, with_branch(first, branch), options)

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
        """Commit the transition that creates or begins an execution. This process's worker keeps its first tokens if
        it can.
        """
        if options is not None and options.connection is not None:
            transition = self._published(transition, lambda created: NO_PUBLISHER)
            return await self._commit_with_the_caller(options.connection, transition)
        self.announce(new.id)
        transition = self._published(transition, self.publisher)
        worker = self.worker
        kept: list[NewToken] = []
        if worker is not None:
            transition, kept = worker.offer(transition, new.workflow, new.kind)
        self.stored.endings.started(new.id)
        # A cancelled caller does not cancel the commit: kept tokens are run all the same.
        then = (
            partial(_take_up, worker, new, kept, transition.worker) if worker is not None and kept else None
        )
        return await self.stored.committer.commit(
            transition, wait_for_store=False, then=then, workflow=new.workflow
        )

    def _published(self, transition: Transition, who: Callable[[CreateExecution], Publisher]) -> Transition:
        """Return a start that leaves a mark of what is published, if this stack publishes what graphs do."""
        first = transition.effects[0]
        if self.stored.stack.publisher is None or not isinstance(first, CreateExecution):
            return transition
        if first.execution.kind != "graph":
            return transition
        publisher, until = who(first)
        new = msgspec.structs.replace(
            first.execution, publishes=True, publisher=publisher, published_until=until
        )
        made = msgspec.structs.replace(first, execution=new)
        return msgspec.structs.replace(transition, effects=(made, *transition.effects[1:]))

    async def _commit_with_the_caller(self, connection: Any, transition: Transition) -> Outcome:
        """Commit in the caller's own transaction: the execution becomes visible when that is committed, and never if
        it is rolled back.
        """
        transactions = self.stored.stack.transactions
        if transactions is None:
            raise UsageError("a start in your own transaction needs a store on SQLite or PostgreSQL")
        outcome = await transactions.start(connection, transition)
        if isinstance(outcome, Applied) and outcome.next_due is not None:
            self.notice_due(outcome.next_due)
        return outcome


def _take_up(
    worker: LocalWorker, new: NewExecution, kept: list[NewToken], name: str, outcome: Outcome | None
) -> None:
    """Hand the tokens kept by the first commit to the worker, under the name of the offer."""
    worker.concluded(new.workflow, kept)
    if outcome is None:
        worker.give_up_name(name)
    elif isinstance(outcome, Applied):
        worker.accept(new, kept, outcome, name)
