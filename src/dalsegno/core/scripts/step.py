"""Steps of scripts: from the result of a machine's run to the transition that records it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from dalsegno.core.history import start_facts
from dalsegno.core.outbox_orders import (
    CancelOrder,
    Notice,
    StartOrder,
    decode_start,
    is_start,
    order_cancel,
    order_start,
)
from dalsegno.core.scripts.earlier_calls import post_begun
from dalsegno.core.scripts.ending import deadline_token, ended, grace_token
from dalsegno.core.scripts.task_options import child_options, task_options
from dalsegno.core.scripts.token_bodies import (
    AwaitedExecution,
    StartBody,
    TaskBody,
    TimerBody,
    decode_timer,
    encode_body,
    failed,
)
from dalsegno.core.scripts.turn import Turn
from dalsegno.lang.runtime.effects import (
    AwaitSignal,
    Cancel,
    ErrorValue,
    Reply,
    StartTask,
    StartTimer,
    StartWorkflow,
    asks_people,
    promise_number,
)
from dalsegno.model.effect import (
    AnswerRequest,
    CreateExecution,
    DropTokens,
    Effect,
    ReplaceTags,
    SaveMachine,
    SettlePromise,
    SpawnToken,
)
from dalsegno.model.event import NewEvent
from dalsegno.model.execution import NewExecution
from dalsegno.model.ids import child_execution_id, promise_token_id, resume_token_id
from dalsegno.model.limits import as_option
from dalsegno.model.machine import in_mailbox, reaches
from dalsegno.model.token import DEFAULT_QUEUE, RESUME_NODE, RESUME_PRIORITY, SYSTEM_QUEUE, Lease, NewToken
from dalsegno.model.transition import Transition

INLINE_INPUT = 4096
"""Bytes of a start payload up to which the first token carries it."""


def start_script(new: NewExecution, now: float, timeout: float | None) -> Transition:
    """Create the execution, its machine and the token of its first run."""
    body = b""
    if len(new.input) <= INLINE_INPUT and new.relation != "retry":  # a retry reads its attempt number
        body = encode_body(StartBody(Raw(new.input), new.workflow, new.version, now))
    return start_from(new, body, now, timeout, _started(new, now))


def continue_script(
    new: NewExecution, other: str, line: int, again: Sequence[str], now: float, timeout: float | None
) -> Transition:
    """Create an execution that starts with the machine of a failed one, which is kept with ``other``. ``line``: where
    that waited. ``again``: the tasks that are asked again.
    """
    facts: dict[str, Any] = {"input": Raw(new.input), "relation": new.relation, "from": other, "line": line}
    if again:
        facts["again"] = list(again)
    started = NewEvent("ExecutionStarted", "", "", now, encode_body(facts))
    return start_from(new, encode_body(StartBody(started_at=now, continues=other)), now, timeout, started)


def start_from(
    new: NewExecution, body: bytes, now: float, timeout: float | None, started: NewEvent
) -> Transition:
    effects: list[Effect] = [CreateExecution(new), SpawnToken(resume_token(new.id, 0, body))]
    if timeout is not None:
        effects.append(SpawnToken(deadline_token(new.id, "deadline", now + timeout)))
    return Transition(new.id, tuple(effects), (started,))


def start_task(
    new: NewExecution, now: float, token: NewToken, options: Mapping[str, Any] | None = None
) -> Transition:
    """Create a single task as an execution of its own.

    Its token is removed at its end, so the start event records how it is to run.
    """
    queue = token.queue if token.queue != DEFAULT_QUEUE else None
    started = NewEvent("ExecutionStarted", "", "", now, start_facts(new.input, queue=queue, options=options))
    return Transition(new.id, (CreateExecution(new), SpawnToken(token)), (started,))


def _started(new: NewExecution, now: float) -> NewEvent:
    return NewEvent("ExecutionStarted", "", "", now, b'{"input":%b}' % new.input)


def resume_token(execution: str, version: int, body: bytes = b"") -> NewToken:
    return NewToken(
        resume_token_id(execution, version),
        "",
        "resume",
        RESUME_NODE,
        body,
        SYSTEM_QUEUE,
        RESUME_PRIORITY,
        live=False,
    )


# -- commit of a turn --------------------------------------------------------------------------------------------


def commit_turn(lease: Lease, turn: Turn, now: float, events: Sequence[NewEvent] = ()) -> Transition:
    """Commit the machine's new state, or its end, and everything it requested, atomically."""
    effects = _requested(lease, turn, now)
    # The machine of a script that ends is saved too, for the version check: an ending must not come from a
    # machine that has moved on.
    effects.append(_saved(turn))
    if Reply in turn.kinds:  # after the turn took them, before an ending
        effects += [_answered(request, raw, now) for request, raw in turn.requests if type(request) is Reply]
    taken_over: list[Effect] = []
    if turn.status == "suspended":
        if turn.dropped:
            effects.append(DropTokens(turn.dropped))
        if turn.grace_ends is not None:
            effects.append(SpawnToken(grace_token(lease.execution, turn.grace_ends)))
        if turn.carried or turn.taken_up:
            taken_over = [*turn.carried, *_taken_up(lease.execution, turn, now)]
            effects += taken_over
    if Cancel in turn.kinds:
        effects += _cancelled_requests(lease, turn)
    if turn.status == "suspended":
        recorded = _recorded(turn, now, events)
        if turn.begun:
            effects.append(post_begun(lease.execution, turn.begun, recorded[0]))
            recorded = recorded[1:]
        if taken_over:
            recorded = (*recorded, *_carried_children(taken_over, turn.line, now))
    else:
        effects += ended(lease.execution, turn, now)
        recorded = tuple(events)
    if StartWorkflow in turn.kinds:
        recorded = (*recorded, *_children(lease, turn, now))
    if turn.tags is not None:
        effects.insert(0, turn.tags)  # before an ending
        recorded = (_tagged(turn.tags, now), *recorded)
    if turn.published is not None:
        effects.insert(0, turn.published)
    if turn.appended:
        effects[:0] = turn.appended
    return Transition(
        lease.execution,
        tuple(effects),
        recorded,
        lease.token,
        lease.fence,
        "",
        lease.live,
        epoch=lease.epoch,
    )


def _answered(reply: Reply, raw: bytes, now: float) -> AnswerRequest:
    event = NewEvent("RequestAnswered", reply.name, "", now, raw)
    return AnswerRequest(in_mailbox(reply.id), raw, event)


def _saved(turn: Turn) -> SaveMachine:
    return SaveMachine(
        turn.version,
        turn.snapshot,
        turn.read,
        turn.wake,
        turn.reachable,
        turn.line,
        turn.settled,
        turn.taken,
        turn.interrupted,
        turn.exact,
    )


def _recorded(turn: Turn, now: float, events: Sequence[NewEvent]) -> tuple[NewEvent, ...]:
    """Record that the script waits again, and where. A fused commit has its task's event, which shows that too."""
    if turn.settled is None or not events:
        place = b'{"line":%d%b}' % (turn.line, _limits(turn))
        return (*events, NewEvent("Suspended", turn.awaited, "", now, place))
    first = events[0]
    limits = _limits(turn) if turn.limits else b""
    then = b'"then":{"line":%d,"awaits":%b%b}' % (turn.line, encode_body(turn.awaited), limits)
    data = b"{%b}" % then if first.data is None else b"%b,%b}" % (first.data[:-1], then)
    return (msgspec.structs.replace(first, data=data), *events[1:])


def _tagged(change: ReplaceTags, now: float) -> NewEvent:
    """Return the event of changed tags; removed tags are null."""
    names = [name for name, _ in change.new]
    gone = {name: None for name, _ in change.gone if name not in names}
    return NewEvent("TagsChanged", "", "", now, encode_body({"tags": {**gone, **dict(change.new)}}))


def _limits(turn: Turn) -> bytes:
    return b',"limits":%b' % encode_body(turn.limits) if turn.limits else b""


def _children(lease: Lease, turn: Turn, now: float) -> list[NewEvent]:
    return [
        _child_started(
            child_execution_id(lease.execution, request.id),
            request.name,
            turn.line,
            now,
            detached=request.detached,
        )
        for request, _ in turn.requests
        if isinstance(request, StartWorkflow)
    ]


def _carried_children(effects: Sequence[Effect], line: int, now: float) -> list[NewEvent]:
    """Return the events of executions that are waited for because another execution waited for them."""
    found: list[NewEvent] = []
    for effect in effects:
        if is_start(effect):
            order = decode_start(effect.data)
            found.append(_child_started(order.execution, order.workflow, line, now))
        elif isinstance(effect, SpawnToken) and effect.token.kind == "timer":
            awaited = decode_timer(effect.token.data).awaited
            if awaited is not None:
                found.append(_child_started(awaited.execution, awaited.name, line, now))
    return found


def _child_started(
    execution: str, workflow: str, line: int, now: float, *, detached: bool = False
) -> NewEvent:
    fields: dict[str, Any] = {"execution": execution, "line": line}
    if detached:
        fields["detached"] = True
    return NewEvent("ChildStarted", workflow, "", now, encode_body(fields))


def _requested(lease: Lease, turn: Turn, now: float) -> list[Effect]:
    """Return the effects of what the script starts; what it ends comes after them.

    Timers that nothing can wait for any more are not started: a loop may have made many.
    """
    effects: list[Effect] = []
    timers: list[tuple[TimerBody, float]] = []
    for request, inputs in turn.requests:
        match request:
            case StartTask():
                effects.append(SpawnToken(_task_token(lease, request, inputs, turn, now)))
            case StartTimer(id, due):
                timers.append((TimerBody(promise_number(id)), due))
            case AwaitSignal(id, name, due):
                if due is not None:
                    timers.append((TimerBody(promise_number(id), name), due))
            case StartWorkflow():
                effects.append(order_start(_child_order(lease, request, inputs)))
    for body, due in timers:
        if reaches(turn.reachable, body.promise):
            effects.append(SpawnToken(timer_token(lease.execution, body.promise, body, due)))
    return effects


def await_execution(execution: str, awaited: AwaitedExecution, due: float) -> SpawnToken:
    """Look at another execution from ``due`` on, whose ending settles the promise."""
    return SpawnToken(timer_token(execution, awaited.promise, TimerBody(awaited=awaited), due))


def _taken_up(execution: str, turn: Turn, now: float) -> list[Effect]:
    """Return the waits for the tasks that another execution has begun for this turn already."""
    return [
        await_execution(execution, awaited, now)
        for awaited in turn.taken_up
        if reaches(turn.reachable, awaited.promise)
    ]


def _cancelled_requests(lease: Lease, turn: Turn) -> list[Effect]:
    """Drop what the script no longer needs. A later await of such a promise throws."""
    effects: list[Effect] = []
    for request, _ in turn.requests:
        if not isinstance(request, Cancel):
            continue
        if request.kind == "workflow":
            child = child_execution_id(lease.execution, request.id)
            effects.append(order_cancel(CancelOrder(child, "its parent is no longer interested")))
            continue
        number = promise_number(request.id)
        error = ErrorValue("CancelledError", f"the {request.kind} was cancelled")
        effects.append(DropTokens((promise_token_id(lease.execution, number),)))
        effects.append(SettlePromise(failed(number, error), repeatable=True))
    return effects


def _task_token(lease: Lease, request: StartTask, inputs: bytes, turn: Turn, now: float) -> NewToken:
    options = task_options(request.options)
    number, asks = promise_number(request.id), asks_people(request.name)
    given, stored = dict(request.options) or None, turn.stored.get(request.id) if turn.stored else None
    if stored is None:
        body = TaskBody(Raw(inputs), number, given, turn.line)
    else:
        body = TaskBody(promise=number, options=given, line=turn.line, stored=stored)
    return NewToken(
        promise_token_id(lease.execution, number),
        "",
        "task",
        request.name,
        encode_body(body),
        options.queue or (SYSTEM_QUEUE if asks else DEFAULT_QUEUE),
        options.priority,
        options.limit_key(request.name),
        live=not asks,
        due=now + options.delay if options.delay else None,
        allowance=options.allows,
    )


def timer_token(execution: str, promise: int, body: TimerBody, due: float) -> NewToken:
    return NewToken(
        promise_token_id(execution, promise),
        "",
        "timer",
        body.signal or "",
        encode_body(body),
        SYSTEM_QUEUE,
        live=False,
        due=due,
    )


def _child_order(lease: Lease, request: StartWorkflow, inputs: bytes) -> StartOrder:
    options = child_options(request.options)
    notice = None if request.detached else Notice(lease.execution, promise_number(request.id))
    return StartOrder(
        child_execution_id(lease.execution, request.id),
        request.name,
        Raw(inputs),
        options.version,
        lease.execution,
        "started" if request.detached else "child",
        notice,
        dict(options.tags),
        options.priority,
        concurrency=as_option(options.concurrency) if options.concurrency is not None else None,
    )
