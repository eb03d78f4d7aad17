"""Clean-ups that did not come to their end: what is kept of them, and how another execution goes on with them.

A script that is asked to end cleans up without a limit, unless its workflow sets a ``cancel_grace``. Where that passes,
where somebody terminates the execution, or where the clean-up itself fails, the execution ends; its machine, as it was
stored last, stays with it, together with what it was waiting for. A new execution can begin with that machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Raw, Struct

from dalsegno.core.orders import Notice, StartOrder, order_start
from dalsegno.core.script import resume_token, timer_token
from dalsegno.core.script_bodies import (
    AskedTask,
    StartBody,
    TaskBody,
    TimerBody,
    asked_again,
    decode_task,
    decode_timer,
    encode_body,
)
from dalsegno.core.task_options import task_options
from dalsegno.lang.effects import promise_id
from dalsegno.model.effect import (
    CreateExecution,
    Effect,
    FinishExecution,
    RequestCancel,
    SettlePromise,
    SpawnToken,
)
from dalsegno.model.event import NewEvent
from dalsegno.model.execution import ExecutionView, NewExecution
from dalsegno.model.ids import child_execution_id, promise_token_id
from dalsegno.model.machine import CancelReason, Completion, MachineView, Ranges, SignalView, reaches
from dalsegno.model.token import DEFAULT_QUEUE, NewToken, TokenView
from dalsegno.model.transition import Transition

RELATION = "cleanup"
"""Of an execution that goes on with the clean-up of another one."""


class AskedTimer(Struct, frozen=True, array_like=True):
    promise: int
    due: float
    signal: str | None = None


class UnfinishedCleanup(Struct, frozen=True, omit_defaults=True):
    """A machine that had been told to end, or was ended without that, and what it was waiting for."""

    snapshot: bytes
    cancel: CancelReason
    """Empty: nobody had asked it to end before it was ended."""
    interrupted: bool
    """Whether it had been told."""
    message: str
    """Why it ended."""
    completions: tuple[Completion, ...] = ()
    tasks: tuple[AskedTask, ...] = ()
    """Those that were not done, and those that it waited for and that had failed."""
    timers: tuple[AskedTimer, ...] = ()
    signals: tuple[SignalView, ...] = ()


_encode = msgspec.json.Encoder().encode
decode_unfinished = msgspec.json.Decoder(UnfinishedCleanup).decode


def unfinished(view: MachineView, tokens: Iterable[TokenView], message: str) -> bytes | None:
    """What is kept with the execution; None where its code had not begun, so that there is nothing to clean up."""
    if not view.snapshot:
        return None
    tasks: dict[int, AskedTask] = {}
    timers: list[AskedTimer] = []
    for token in tokens:
        if token.kind == "task":
            body = decode_task(token.data)
            if body.promise is not None:
                tasks[body.promise] = AskedTask(body.promise, token.node, body, token.id, token.priority)
        elif token.kind == "timer" and token.due is not None:
            timer = decode_timer(token.data)
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


# -- going on -------------------------------------------------------------------------------------------------


def start_cleanup(new: NewExecution, kept: UnfinishedCleanup, now: float) -> Transition:
    """An execution that begins with the machine of its parent and is asked to end from its beginning."""
    started = NewEvent("ExecutionStarted", "", "", now, b'{"input":%b}' % new.input)
    asked = NewEvent("CancelRequested", "", "", now, encode_body({"reason": kept.message}))
    body = StartBody(Raw(new.input), new.workflow, new.version, now, cleanup_of=new.parent)
    never = FinishExecution("CANCELLED", asked)  # only what has no machine ends with the request
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
    """What the new execution waits for as the old one did, tasks with the same idempotency keys."""
    effects: list[Effect] = [
        SpawnToken(_task_token(execution, task)) for task in kept.tasks if reaches(reachable, task.promise)
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
        encode_body(TaskBody(task.body.input, task.promise, given, task.body.line)),
        options.queue or DEFAULT_QUEUE,
        task.priority,
        options.limit_key(task.node),
        allowance=options.allows,
    )


def _child_order(execution: str, promise: int, child: ExecutionView) -> StartOrder:
    """The child was cancelled with its parent; it is started again."""
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
