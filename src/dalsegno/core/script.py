"""Scripts in the kernel: from what a run of a machine came to, to the transition that records it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from dalsegno.core.orders import CancelOrder, Notice, StartOrder, order_cancel, order_start
from dalsegno.core.script_bodies import StartBody, TaskBody, TimerBody, encode_body, failed
from dalsegno.core.script_ending import deadline_token, ended, grace_token
from dalsegno.core.task_options import child_options, task_options
from dalsegno.core.told import tell
from dalsegno.core.turn import Turn
from dalsegno.lang.effects import (
    AwaitSignal,
    Cancel,
    ErrorValue,
    StartTask,
    StartTimer,
    StartWorkflow,
    asks_people,
    promise_number,
)
from dalsegno.model.effect import (
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
from dalsegno.model.machine import reaches
from dalsegno.model.token import (
    DEFAULT_QUEUE,
    RESUME_NODE,
    RESUME_PRIORITY,
    SYSTEM_QUEUE,
    Lease,
    NewToken,
)
from dalsegno.model.transition import Transition

INLINE_INPUT = 4096
"""Bytes of a start payload that travel in the first token."""


def start_script(new: NewExecution, now: float, timeout: float | None) -> Transition:
    """The execution, its machine and the token of its first run."""
    body = b""
    if len(new.input) <= INLINE_INPUT and new.relation != "retry":  # a retry has to look up which try it is
        body = encode_body(StartBody(Raw(new.input), new.workflow, new.version, now))
    effects: list[Effect] = [CreateExecution(new), SpawnToken(resume_token(new.id, 0, body))]
    if timeout is not None:
        effects.append(SpawnToken(deadline_token(new.id, "deadline", now + timeout)))
    return Transition(new.id, tuple(effects), (_started(new, now),))


def start_task(
    new: NewExecution, now: float, token: NewToken, options: Mapping[str, Any] | None = None
) -> Transition:
    """A single task as an execution of its own. Its token goes with its end: how it is to run is told by its start."""
    queue = token.queue if token.queue != DEFAULT_QUEUE else None
    started = NewEvent("ExecutionStarted", "", "", now, tell(new.input, queue=queue, options=options))
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


# -- a turn's commit ------------------------------------------------------------------------------------------


def commit_turn(lease: Lease, turn: Turn, now: float, events: Sequence[NewEvent] = ()) -> Transition:
    """The machine's new state, or its end, and everything it asked for: whole or not at all."""
    effects = _requested(lease, turn, now)
    # The machine of one that ends is saved too, for the sake of the check: that must not come from one that moved on.
    effects.append(_saved(turn))
    kinds = {type(request) for request, _ in turn.requests}
    if turn.status == "suspended":
        if turn.dropped:
            effects.append(DropTokens(turn.dropped))
        if turn.grace_ends is not None:
            effects.append(SpawnToken(grace_token(lease.execution, turn.grace_ends)))
        effects += turn.carried
    if Cancel in kinds:
        effects += _called_off(lease, turn)
    if turn.status == "suspended":
        told = _told(turn, now, events)
    else:
        effects += ended(lease.execution, turn, now)
        told = tuple(events)
    if StartWorkflow in kinds:
        told = (*told, *_children(lease, turn, now))
    if turn.tags is not None:
        effects.insert(0, turn.tags)  # before an ending
        told = (_tagged(turn.tags, now), *told)
    return Transition(
        lease.execution,
        tuple(effects),
        told,
        lease.token,
        lease.fence,
        "",
        lease.live,
        epoch=lease.epoch,
    )


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
    )


def _told(turn: Turn, now: float, events: Sequence[NewEvent]) -> tuple[NewEvent, ...]:
    """That the script waits again, and where. A fused commit has the event of its task, which tells that too."""
    if turn.settled is None or not events:
        place = b'{"line":%d%b}' % (turn.line, _limits(turn))
        return (*events, NewEvent("Suspended", turn.awaited, "", now, place))
    first = events[0]
    then = b'"then":{"line":%d,"awaits":%b%b}' % (turn.line, encode_body(turn.awaited), _limits(turn))
    data = b"{%b}" % then if first.data is None else b"%b,%b}" % (first.data[:-1], then)
    return (msgspec.structs.replace(first, data=data), *events[1:])


def _tagged(change: ReplaceTags, now: float) -> NewEvent:
    """Tags that went are null."""
    names = [name for name, _ in change.new]
    gone = {name: None for name, _ in change.gone if name not in names}
    return NewEvent("TagsChanged", "", "", now, encode_body({"tags": {**gone, **dict(change.new)}}))


def _limits(turn: Turn) -> bytes:
    return b',"limits":%b' % encode_body(turn.limits) if turn.limits else b""


def _children(lease: Lease, turn: Turn, now: float) -> list[NewEvent]:
    return [
        _child_started(child_execution_id(lease.execution, request.id), request, turn.line, now)
        for request, _ in turn.requests
        if isinstance(request, StartWorkflow)
    ]


def _child_started(execution: str, request: StartWorkflow, line: int, now: float) -> NewEvent:
    told: dict[str, Any] = {"execution": execution, "line": line}
    if request.detached:
        told["detached"] = True
    return NewEvent("ChildStarted", request.name, "", now, encode_body(told))


def _requested(lease: Lease, turn: Turn, now: float) -> list[Effect]:
    """What the script wants to begin; what it wants to end comes after that. Timers that nothing can wait for any more
    are not begun: a loop may have made many."""
    effects: list[Effect] = []
    timers: list[tuple[TimerBody, float]] = []
    for request, inputs in turn.requests:
        match request:
            case StartTask():
                effects.append(SpawnToken(_task_token(lease, request, inputs, turn.line, now)))
            case StartTimer(id, due):
                timers.append((TimerBody(promise_number(id)), due))
            case AwaitSignal(id, name, due):
                if due is not None:
                    timers.append((TimerBody(promise_number(id), name), due))
            case StartWorkflow():
                effects.append(order_start(_child_order(lease, request, inputs)))
    for body, due in timers:
        if reaches(turn.reachable, body.promise):
            effects.append(SpawnToken(timer_token(lease.execution, body, due)))
    return effects


def _called_off(lease: Lease, turn: Turn) -> list[Effect]:
    """What the script is no longer interested in. Should it await such a promise nevertheless, that throws."""
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


def _task_token(lease: Lease, request: StartTask, inputs: bytes, line: int, now: float) -> NewToken:
    options = task_options(request.options)
    number, asks = promise_number(request.id), asks_people(request.name)
    body = TaskBody(Raw(inputs), number, dict(request.options) or None, line)
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


def timer_token(execution: str, body: TimerBody, due: float) -> NewToken:
    return NewToken(
        promise_token_id(execution, body.promise),
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
