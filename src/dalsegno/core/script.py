"""Scripts in the kernel: from what a run of a machine came to, to the transition that records it.

A *turn* is one run of a machine from a stop to the next await that nothing known resolves. It is driven by the engine;
what it leads to is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from dalsegno.core.orders import (
    CancelOrder,
    Notice,
    StartOrder,
    order_cancel,
    order_cancel_children,
    order_start,
)
from dalsegno.core.script_bodies import StartBody, TaskBody, TimerBody, encode_body, failed
from dalsegno.core.task_options import child_options, task_options
from dalsegno.lang.effects import (
    AwaitSignal,
    Cancel,
    ErrorValue,
    StartTask,
    StartTimer,
    StartWorkflow,
    promise_number,
)
from dalsegno.lang.effects import Effect as Request
from dalsegno.model.effect import (
    CreateExecution,
    DropTokens,
    Effect,
    FinishExecution,
    RequestCancel,
    SaveMachine,
    SettlePromise,
    SpawnToken,
)
from dalsegno.model.event import EventKind, NewEvent
from dalsegno.model.execution import EndState, NewExecution
from dalsegno.model.ids import child_execution_id, derive, promise_token_id, resume_token_id
from dalsegno.model.machine import CancelReason, Completion, Ranges, TakenSignal, Wake
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
CANCEL_GRACE = 30.0
"""Seconds a script may clean up after it was cancelled or timed out."""

TurnStatus = Literal["suspended", "completed", "failed"]


class Turn(Struct, gc=False):
    """What one run of a machine came to."""

    status: TurnStatus
    version: int
    """Of the machine that ran."""
    read: int
    requests: Sequence[tuple[Request, bytes]] = ()
    """What the machine asked for, with the encoded inputs where it has any."""
    snapshot: bytes = b""
    reachable: Ranges = ()
    wake: Wake = Wake()
    line: int = 0
    awaited: str = ""
    output: bytes = b"null"
    error: ErrorValue | None = None
    settled: Completion | None = None
    taken: tuple[TakenSignal, ...] = ()
    cancel: CancelReason = ""
    interrupted: bool = False
    dropped: tuple[str, ...] = ()
    """Tokens of timers that nothing waits for any more."""


def start_script(new: NewExecution, now: float, timeout: float | None) -> Transition:
    """The execution, its machine and the token of its first run."""
    body = b""
    if len(new.input) <= INLINE_INPUT:
        body = encode_body(StartBody(Raw(new.input), new.workflow, new.version, now))
    effects: list[Effect] = [CreateExecution(new), SpawnToken(resume_token(new.id, 0, body))]
    if timeout is not None:
        effects.append(SpawnToken(_system_token(new.id, "deadline", now + timeout)))
    return Transition(new.id, tuple(effects), (_started(new, now),))


def start_task(new: NewExecution, now: float, token: NewToken) -> Transition:
    """A single task as an execution of its own."""
    return Transition(new.id, (CreateExecution(new), SpawnToken(token)), (_started(new, now),))


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


def _system_token(execution: str, name: str, due: float) -> NewToken:
    return NewToken(
        derive(execution, name),
        "",
        "deadline",
        name,
        b"{}",
        SYSTEM_QUEUE,
        RESUME_PRIORITY,
        live=False,
        due=due,
    )


# -- a turn's commit ------------------------------------------------------------------------------------------


def commit_turn(lease: Lease, turn: Turn, now: float, events: Sequence[NewEvent] = ()) -> Transition:
    """The machine's new state, or its end, and everything it asked for: whole or not at all."""
    effects = _requested(lease, turn, now)
    if turn.status == "suspended":
        effects.append(_saved(turn))
        if turn.dropped:
            effects.append(DropTokens(turn.dropped))
        effects += _called_off(lease, turn)
        told = (*_told(turn, now, events), *_children(lease, turn, now))
    else:
        # The machine is saved here too, for the sake of the check: an ending must not come from one that has moved on.
        effects += [_saved(turn), *_called_off(lease, turn), *_ended(lease, turn, now)]
        told = (*events, *_children(lease, turn, now))
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
        return (*events, NewEvent("Suspended", turn.awaited, "", now, b'{"line":%d}' % turn.line))
    first = events[0]
    then = b'"then":{"line":%d,"awaits":%b}' % (turn.line, encode_body(turn.awaited))
    data = b"{%b}" % then if first.data is None else b"%b,%b}" % (first.data[:-1], then)
    return (msgspec.structs.replace(first, data=data), *events[1:])


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
    """What the script wants to begin; what it wants to end comes after that."""
    effects: list[Effect] = []
    for request, inputs in turn.requests:
        match request:
            case StartTask():
                effects.append(SpawnToken(_task_token(lease, request, inputs, turn.line, now)))
            case StartTimer(id, due):
                effects.append(SpawnToken(_timer_token(lease.execution, TimerBody(promise_number(id)), due)))
            case AwaitSignal(id, name, due):
                if due is not None:
                    body = TimerBody(promise_number(id), name)
                    effects.append(SpawnToken(_timer_token(lease.execution, body, due)))
            case StartWorkflow():
                effects.append(order_start(_child_order(lease, request, inputs)))
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
    number = promise_number(request.id)
    body = TaskBody(Raw(inputs), number, dict(request.options) or None, line)
    return NewToken(
        promise_token_id(lease.execution, number),
        "",
        "task",
        request.name,
        encode_body(body),
        options.queue or DEFAULT_QUEUE,
        options.priority,
        options.concurrency,
        due=now + options.delay if options.delay else None,
    )


def _timer_token(execution: str, body: TimerBody, due: float) -> NewToken:
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
    )


# -- endings --------------------------------------------------------------------------------------------------


def _ended(lease: Lease, turn: Turn, now: float) -> list[Effect]:
    """A script ends at its ``return`` or an uncaught throw, whatever still runs: tasks are handed over, children are
    cancelled unless it returned. After a cancellation or a timeout nothing lives on."""
    if turn.cancel == "cancel":
        return cancelled_ending(lease.execution, now, turn.output, turn.error)
    if turn.cancel == "timeout":
        error = turn.error or ErrorValue("TimeoutError", "the execution did not end within its timeout")
        return [
            order_cancel_children(lease.execution, "its parent timed out"),
            failing(error, now, hand_over=False),
        ]
    if turn.error is not None:
        return [
            order_cancel_children(lease.execution, "its parent failed"),
            failing(turn.error, now, hand_over=True),
        ]
    event = NewEvent("ExecutionCompleted", "", "", now, b'{"output":%b}' % turn.output)
    return [FinishExecution("COMPLETED", event, turn.output, hand_over=True)]


def cancelled_ending(
    execution: str, now: float, output: bytes | None = None, error: ErrorValue | None = None
) -> list[Effect]:
    cause = error or ErrorValue("CancelledError", "the execution was cancelled")
    finish = _finish("CANCELLED", "ExecutionCancelled", cause, now, hand_over=False)
    if error is None and output is not None:
        finish = msgspec.structs.replace(finish, output=output)
    return [order_cancel_children(execution, "its parent was cancelled"), finish]


def failing(error: ErrorValue, now: float, *, hand_over: bool) -> FinishExecution:
    return _finish("FAILED", "ExecutionFailed", error, now, hand_over=hand_over)


def _finish(
    state: EndState, kind: EventKind, error: ErrorValue, now: float, *, hand_over: bool
) -> FinishExecution:
    data = encode_body(error_object(error))
    event = NewEvent(kind, "", "", now, b'{"error":%b}' % data)
    return FinishExecution(state, event, error=data, hand_over=hand_over)


def error_object(error: ErrorValue) -> dict[str, Any]:
    """The error object users see in results."""
    found: dict[str, Any] = {
        "message": error.message,
        "code": error.code,
        "type": error.type or error.code,
        "details": error.data,
        "node": None,
    }
    if error.stack:
        found["stack"] = list(error.stack)
    if error.classes:
        found["classes"] = list(error.classes)
        found["args"] = list(error.args)
    return found


def fail_script(lease: Lease, error: ErrorValue, now: float) -> Transition:
    """Ends the execution without running its machine: a damaged snapshot, a limit."""
    children = order_cancel_children(lease.execution, "its parent failed")
    effects = (children, failing(error, now, hand_over=True))
    return Transition(
        lease.execution, effects, (), lease.token, lease.fence, "", lease.live, epoch=lease.epoch
    )


# -- cancellation and timeout ---------------------------------------------------------------------------------


def cancel_script(
    execution: str, now: float, reason: str | None, grace: float, *, repeatable: bool = False
) -> Transition:
    """Throws ``CancelledError`` at the script's await; after the grace, or on a second cancel, it ends. ``repeatable``: an
    order that may be delivered twice, which then counts once."""
    message = f"the execution was cancelled: {reason}" if reason else "the execution was cancelled"
    error = ErrorValue("CancelledError", message)
    finish = _finish("CANCELLED", "ExecutionCancelled", error, now, hand_over=False)
    event = NewEvent("CancelRequested", "", "", now, encode_body({"reason": reason}))
    children = order_cancel_children(execution, "its parent was cancelled")
    request = RequestCancel("cancel", event, finish, repeatable, (children,))
    return Transition(execution, (request, SpawnToken(_system_token(execution, "grace", now + grace))))


def expire_script(lease: Lease, cancel: CancelReason, now: float, timeout: float, grace: float) -> Transition:
    """A deadline has passed: the execution's own, or the grace after a cancellation. A script that is cleaning up
    already goes on doing so."""
    message = f"the execution did not end within its timeout of {timeout:g} s"
    late = ErrorValue("TimeoutError", message)
    effects: tuple[Effect, ...]
    if lease.node == "grace":
        if cancel == "cancel":
            effects = tuple(cancelled_ending(lease.execution, now))
        else:
            children = order_cancel_children(lease.execution, "its parent timed out")
            effects = (children, failing(late, now, hand_over=False))
    else:
        event = NewEvent("CancelRequested", "", "", now, encode_body({"reason": message}))
        children = order_cancel_children(lease.execution, "its parent timed out")
        finish = failing(late, now, hand_over=False)
        request = RequestCancel("timeout", event, finish, repeatable=True, owed=(children,))
        effects = (request, SpawnToken(_system_token(lease.execution, "grace", now + grace)))
    return Transition(
        lease.execution, effects, (), lease.token, lease.fence, "", lease.live, epoch=lease.epoch
    )


def settle_only(
    lease: Lease, completion: Completion, events: Sequence[NewEvent], *, repeatable: bool
) -> Transition:
    """The plain completion of a task or timer: someone else goes on with the machine."""
    return Transition(
        lease.execution,
        (SettlePromise(completion, repeatable),),
        tuple(events),
        lease.token,
        lease.fence,
        "",
        lease.live,
        epoch=lease.epoch,
    )
