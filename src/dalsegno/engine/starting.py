"""New executions: what a start checks, and the transition it leads to, for every kind of workflow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from msgspec import Raw

from dalsegno.core.begun import Begun
from dalsegno.core.orders import StartOrder
from dalsegno.core.script import start_script, start_task
from dalsegno.core.script_bodies import TaskBody, encode_body
from dalsegno.core.start import start
from dalsegno.core.task_options import task_options
from dalsegno.core.values import decode_value, encode_value
from dalsegno.engine.definitions import Program
from dalsegno.engine.delays import Duration, Moment
from dalsegno.engine.offload import Offload
from dalsegno.engine.payload_schema import INLINE_BYTES, payload_problems
from dalsegno.engine.results import refuse_large
from dalsegno.engine.scripting.programs import AbsentProgram, ScriptProgram
from dalsegno.engine.scripting.turns import InThread
from dalsegno.engine.settings import EngineLimits
from dalsegno.errors import DalSegnoError, Finding, InvalidInput, LimitExceeded
from dalsegno.lang import Expression, ExpressionFailed, Limits
from dalsegno.lang.python import PythonProgram, arguments_for
from dalsegno.model.definition import Version
from dalsegno.model.execution import ExecutionKind, NewExecution
from dalsegno.model.ids import derive, execution_id_for_key, new_execution_id
from dalsegno.model.limits import LONGEST_KEY, Concurrency
from dalsegno.model.token import DEFAULT_QUEUE, NewToken
from dalsegno.model.transition import Transition


@dataclass(frozen=True, slots=True)
class StartOptions:
    version: Version = None
    idempotency_key: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    delay: Duration | None = None
    """It begins after so long, and is PENDING until then; or at ``start_at``."""
    start_at: Moment | None = None
    connection: Any = None
    """The caller's own, in whose transaction the execution is started."""
    starter: str | None = None
    """The API key whose quota of stored executions it counts for; kept as the tag `STARTER_TAG`."""
    limit: Concurrency | None = None
    """What limits it beside other calls that are gathered with it."""


STARTER_TAG = "dalsegno.key"
"""Set by servers alone: whatever else gives it is ignored."""


def owned_tags(tags: Iterable[tuple[str, str]], starter: str | None) -> tuple[tuple[str, str], ...]:
    """Tags as an execution keeps them, sorted: with its starter in place of any other."""
    others = [(name, tag) for name, tag in tags if name != STARTER_TAG]
    return tuple(sorted([*others, (STARTER_TAG, starter)] if starter is not None else others))


class Started(NamedTuple):
    """What a start led to. Of all that have the same idempotency key, one is new: the others find its execution."""

    execution: str
    is_new: bool
    begun: Begun | None = None
    """How it began, if that is plain."""


@dataclass(frozen=True, slots=True)
class Ancestry:
    """Where an execution comes from, if not from a user."""

    execution: str | None = None
    """Its own id, where that is derived."""
    parent: str | None = None
    relation: str | None = None
    notify: bytes | None = None


NO_ANCESTRY = Ancestry()

KEY_BYTES = 1024 * 1024
"""What the expression of a ``concurrency.key`` may allocate."""


def new_execution(
    program: Program | ScriptProgram,
    payload: Any,
    options: StartOptions,
    now: float,
    limits: EngineLimits,
    ancestry: Ancestry = NO_ANCESTRY,
) -> NewExecution:
    """As `check_input` has to approve it."""
    if payload is None and not (isinstance(program, ScriptProgram) and program.native):
        payload = {}  # to the parameters of a Python function, none is no object
    raw = bytes(payload if isinstance(payload, Raw) else encode_value(payload, "the input"))
    refuse_large(raw, "the input", limits)
    definition = program.definition
    return _new(
        definition.name, definition.version, definition.hash, raw, options, now, ancestry, _kind(program)
    )


def new_task(name: str, raw: bytes, options: StartOptions, now: float, ancestry: Ancestry) -> NewExecution:
    return _new(name, 0, "", raw, options, now, ancestry, "task")


def never_started(order: StartOrder, program: Program | ScriptProgram | None, now: float) -> NewExecution:
    """What an order asked for, as the record of its failure. Without a program (nobody deployed one) it counts as a
    script, which needs none to be looked at."""
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
    """Raises InvalidInput where a workflow cannot take this input: by its ``input_schema``, or by its parameters."""
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
    """Raises InvalidInput where the parameters of a Python workflow cannot take this input, as far as the function is
    at hand here. Annotated classes are the user's own code, which belongs in a thread."""
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
        # A class that builds itself from the input may raise anything.
        kind = type(error).__name__
        raise InvalidInput(f"workflow '{code.name}' cannot take its input: {kind}: {error}") from error


async def workflow_limit(
    program: Program | ScriptProgram, new: NewExecution, now: float, limits: EngineLimits, offload: Offload
) -> Concurrency | None:
    """The key of which a new execution needs a slot, and what its workflow allows. Raises InvalidInput where the input
    gives the key no value."""
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
    """The value of a concurrency key. A large input is read in a process."""
    try:
        if len(raw) <= INLINE_BYTES:
            trigger = decode_value(raw)
            return key.evaluate({"$trigger": trigger}.__getitem__, now=now, limits=_key_limits(limits))
        reply = await offload.large("key", key.source, raw, now, asdict(_key_limits(limits)))
    except ExpressionFailed as error:
        raise _without_key(error.code, str(error), limits) from None
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
    """A key is evaluated while its caller waits, and everybody else of the process with it."""
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
    """A task's limit as an option."""
    return {"concurrency": dict(concurrency)} if concurrency else None


def start_task_transition(
    new: NewExecution, now: float, queue: str | None, options: Mapping[str, Any] | None = None
) -> Transition:
    """``options`` as a script gives them."""
    known = task_options(options)
    token = NewToken(
        derive(new.id, "task"),
        "",
        "task",
        new.workflow,
        encode_body(TaskBody(Raw(new.input), options=dict(options) if options else None)),
        known.queue or queue or DEFAULT_QUEUE,
        known.priority or new.priority,
        known.limit_key(new.workflow),
        due=now + known.delay if known.delay else None,
        allowance=known.allows,
    )
    return start_task(new, now, token, options)
