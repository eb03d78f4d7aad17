"""Unfinished clean-ups: what is kept of them, and how another execution continues them.

A cancelled script cleans up without a time limit, unless its workflow sets ``cancel_grace``. If the grace passes,
if the execution is terminated, or if the clean-up itself fails, the execution ends. Its machine, as it was last
stored, is kept with it, together with what it was waiting for. A new execution can start from that machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from dalsegno.core.outbox_orders import Notice, StartOrder, order_start
from dalsegno.core.scripts.step import resume_token, timer_token
from dalsegno.core.scripts.task_options import task_options
from dalsegno.core.scripts.token_bodies import (
    AskedTask,
    StartBody,
    StoredInput,
    TaskBody,
    TimerBody,
    asked_again,
    decode_task,
    decode_timer,
    encode_body,
)
from dalsegno.lang.runtime.effects import promise_id
from dalsegno.model.effect import (
    CreateExecution,
    Effect,
    FinishExecution,
    RequestCancel,
    SettlePromise,
    SpawnToken,
)
from dalsegno.model.event import NewEvent
from dalsegno.model.execution import CLEANUP_RELATION, ExecutionView, NewExecution
from dalsegno.model.ids import child_execution_id, promise_token_id
from dalsegno.model.machine import CancelReason, Completion, MachineView, Ranges, SignalView, reaches
from dalsegno.model.token import DEFAULT_QUEUE, NewToken, TokenView
from dalsegno.model.transition import Transition


class AskedTimer(Struct, frozen=True, array_like=True):
    promise: int
    due: float
    signal: str | None = None


class UnfinishedCleanup(Struct, frozen=True, omit_defaults=True):
    """A machine that was asked to end, or was ended without that, and what it was waiting for."""

    snapshot: bytes
    cancel: CancelReason
    """Empty: no cancellation was requested before the end."""
    interrupted: bool
    """The machine had received the request."""
    message: str
    """Why it ended."""
    completions: tuple[Completion, ...] = ()
    tasks: tuple[AskedTask, ...] = ()
    """The unfinished tasks, and the failed ones it waited for."""
    timers: tuple[AskedTimer, ...] = ()
    signals: tuple[SignalView, ...] = ()
    state_of: str | None = None
    """The execution whose machine it was to start from.

    Set if it ended before its own first turn; nothing else is kept then.
    """


_encode = msgspec.json.Encoder().encode
decode_unfinished = msgspec.json.Decoder(UnfinishedCleanup).decode


def unfinished(
    execution: ExecutionView, view: MachineView, tokens: Iterable[TokenView], message: str
) -> bytes | None:
    """Return what is kept with the execution; None if its code had not begun, so that there is nothing to clean up.

    The tokens are read before the view: what was done in between is among the view's completions.
    """
    if not view.snapshot:
        return _not_begun(execution, view, message)
    tasks: dict[int, AskedTask] = {}
    timers: list[AskedTimer] = []
    done = {completion.promise for completion in view.completions}
    for token in tokens:
        if token.kind == "task":
            body = decode_task(token.data)
            if body.promise is not None and body.promise not in done:
                tasks[body.promise] = AskedTask(body.promise, token.node, body, token.id, token.priority)
        elif token.kind == "timer" and token.due is not None:
            timer = decode_timer(token.data)
            if timer.promise not in done:
                timers.append(AskedTimer(timer.promise, token.due, timer.signal))
    for completion in view.completions:
        task = asked_again(completion) if reaches(view.wake.awaited, completion.promise) else None
        if task is not None:
            tasks[completion.promise] = task
    return _encode(
        UnfinishedCleanup(
            view.snapshot,
            view.cancel,
            view.interrupted,
            message,
            tuple([each for each in view.completions if each.promise not in tasks]),
            tuple(tasks.values()),
            tuple(timers),
            view.signals,
        )
    )


def _not_begun(execution: ExecutionView, view: MachineView, message: str) -> bytes | None:
    """Return a reference to the execution that keeps the state of the clean-up that this one was to continue."""
    if execution.relation != CLEANUP_RELATION or execution.parent is None:
        return None
    return _encode(UnfinishedCleanup(b"", view.cancel, view.interrupted, message, state_of=execution.parent))


# -- continuation -----------------------------------------------------------------------------------------------


def start_cleanup(new: NewExecution, kept: UnfinishedCleanup, now: float) -> Transition:
    """Create an execution that starts from its parent's machine with a cancellation already requested."""
    started = NewEvent("ExecutionStarted", "", "", now, b'{"input":%b}' % new.input)
    asked = NewEvent("CancelRequested", "", "", now, encode_body({"reason": kept.message}))
    body = StartBody(Raw(new.input), new.workflow, new.version, now, cleanup_of=new.parent)
    never = FinishExecution("CANCELLED", asked)  # applied only to an execution without a machine
    effects = (
        CreateExecution(new),
        RequestCancel(kept.cancel or "cancel", asked, never),
        SpawnToken(resume_token(new.id, 0, encode_body(body))),
    )
    return Transition(new.id, effects, (started,))


def carried_over(
    execution: str,
    kept: UnfinishedCleanup,
    children: Sequence[tuple[int, ExecutionView]],
    reachable: Ranges,
) -> list[Effect]:
    """Return the effects that recreate what the old execution waited for, tasks with the same idempotency keys. Their
    stored inputs must have been copied.
    """
    effects: list[Effect] = [
        SpawnToken(_task_token(execution, task)) for task in tasks_again(kept, reachable)
    ]
    for timer in kept.timers:
        if reaches(reachable, timer.promise):
            token = timer_token(execution, TimerBody(timer.promise, timer.signal), timer.due)
            effects.append(SpawnToken(token))
    for promise, child in children:
        if reaches(reachable, promise):
            effects.append(order_start(_child_order(execution, promise, child)))
    effects += [SettlePromise(each) for each in kept.completions if reaches(reachable, each.promise)]
    return effects


def tasks_again(kept: UnfinishedCleanup, reachable: Ranges) -> list[AskedTask]:
    """Return the tasks to be requested again."""
    return [task for task in kept.tasks if reaches(reachable, task.promise)]


def stored_inputs(tokens: Iterable[TokenView]) -> list[StoredInput]:
    """Return the stored inputs of the tasks among these tokens."""
    bodies = [decode_task(token.data) for token in tokens if token.kind == "task"]
    return [body.stored for body in bodies if body.stored is not None]


def _task_token(execution: str, task: AskedTask) -> NewToken:
    given = dict(task.body.options or {})
    given.setdefault("key", task.token)
    given.pop("delay", None)
    options = task_options(given)
    return NewToken(
        promise_token_id(execution, task.promise),
        "",
        "task",
        task.node,
        encode_body(_body(execution, task, given)),
        options.queue or DEFAULT_QUEUE,
        task.priority,
        options.limit_key(task.node),
        allowance=options.allows,
    )


def _body(execution: str, task: AskedTask, options: dict[str, Any]) -> TaskBody:
    stored = task.body.stored
    if stored is not None:
        stored = msgspec.structs.replace(stored, owner=execution)
    return TaskBody(task.body.input, task.promise, options, task.body.line, stored=stored)


def _child_order(execution: str, promise: int, child: ExecutionView) -> StartOrder:
    """Order the child again: it was cancelled with its parent."""
    return StartOrder(
        child_execution_id(execution, promise_id(promise)),
        child.workflow,
        Raw(child.input),
        child.version,
        execution,
        "child",
        Notice(execution, promise),
        dict(child.tags),
        child.priority,
    )
