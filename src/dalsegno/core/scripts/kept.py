"""Kept machines of ended executions: what is kept of them, and how another execution continues them.

A script that failed keeps its machine as it was before the turn that failed, together with what it was waiting for. A
retry starts from there:

- What had completed stays completed. What failed where the program waited is asked again, under a new idempotency key
  unless the program gave the key.
- Tasks that were still pending became executions of their own when the execution failed. Their endings are awaited; one
  that has failed since is asked again.
- The failed turn is run again. The calls that it made were handed over as well: the same calls, with the same name and
  input, take up those executions, in their order.

A cancelled script cleans up without a time limit, unless its workflow sets ``cancel_grace``. If the grace passes,
if the execution is terminated, or if the clean-up itself fails, the execution ends. Its machine is kept in the same
way, and a new execution can finish the clean-up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from dalsegno.core.outbox_orders import Notice, StartOrder, order_start
from dalsegno.core.scripts.earlier_calls import BEGUN, find_begun, read_begun
from dalsegno.core.scripts.step import await_execution, resume_token, timer_token
from dalsegno.core.scripts.task_options import task_options
from dalsegno.core.scripts.token_bodies import (
    AskedTask,
    AwaitedExecution,
    EarlierCall,
    StartBody,
    StoredInput,
    TaskBody,
    TimerBody,
    asked_again,
    decode_start_body,
    decode_task,
    decode_timer,
    encode_body,
)
from dalsegno.core.scripts.turn import Turn
from dalsegno.lang.runtime.effects import asks_people, promise_id
from dalsegno.model.effect import (
    CreateExecution,
    Effect,
    FinishExecution,
    PostSignal,
    RequestCancel,
    SettlePromise,
    SpawnToken,
)
from dalsegno.model.event import NewEvent
from dalsegno.model.execution import CLEANUP_RELATION, ExecutionView, NewExecution
from dalsegno.model.ids import child_execution_id, promise_token_id
from dalsegno.model.machine import (
    CancelReason,
    Completion,
    MachineView,
    Ranges,
    SignalView,
    reaches,
    request_in,
)
from dalsegno.model.token import DEFAULT_QUEUE, SYSTEM_QUEUE, UNFINISHED, NewToken, TokenView
from dalsegno.model.transition import Transition


class AskedTimer(Struct, frozen=True, array_like=True):
    promise: int
    due: float
    signal: str | None = None
    awaited: AwaitedExecution | None = None
    """For a wait for a task that goes on as an execution of its own."""


class FailedTurn(Struct, frozen=True, gc=False):
    """What a kept machine needs to know of the turn that failed."""

    raised: Ranges | None = None
    """The promises in awaits that raised; None: not known."""
    begun: tuple[EarlierCall, ...] = ()
    raises_again: bool = False
    settled: Completion | None = None
    """The completion that the failed turn brought along."""
    dropped: tuple[int, ...] = ()
    """The unfinished tasks that its commit ends: they do not go on without it."""


UNKNOWN_TURN = FailedTurn()


class KeptMachine(Struct, frozen=True, omit_defaults=True):
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
    line: int = 0
    failed: tuple[int, ...] = ()
    """The promises whose failures a retry asks again."""
    begun: tuple[EarlierCall, ...] = ()
    """The calls of the failed turn, in order."""
    raises_again: bool = False
    """It failed with an error that it was handling already: only its error handling would run again."""
    turn: int = 0
    """The turn after which it was like this; 0: not known."""
    reachable: Ranges = ()


_encode = msgspec.json.Encoder().encode
decode_kept = msgspec.json.Decoder(KeptMachine).decode


def keeps_machine(turn: Turn) -> bool:
    """Return True if the machine as it was before this turn is kept for a retry. One that failed in its first turn
    has nothing to keep: it starts from the beginning.
    """
    return turn.error is not None and not turn.cancel and turn.version > 0


def kept_machine(
    execution: ExecutionView,
    view: MachineView,
    tokens: Sequence[TokenView],
    message: str,
    failure: FailedTurn = UNKNOWN_TURN,
) -> bytes | None:
    """Return what is kept with the execution; None if its code had not begun, so that there is nothing to continue.

    The tokens are read before the view: what was done in between is among the view's completions.
    """
    if not view.snapshot:
        return _not_begun(execution, view, tokens, message)
    completions = view.completions
    if failure.settled is not None:
        completions = (*completions, replace(failure.settled, number=view.inbox + 1))
    tasks, timers = _asked(tokens, frozenset([completion.promise for completion in completions]))
    raised = view.wake.awaited if failure.raised is None else failure.raised
    failed = [promise for promise in failure.dropped if promise in tasks]
    for completion in completions:
        if completion.ok or not reaches(raised, completion.promise):
            continue
        failed.append(completion.promise)
        if (task := asked_again(completion)) is not None:
            tasks[completion.promise] = task
    return _encode(
        KeptMachine(
            view.snapshot,
            view.cancel,
            view.interrupted,
            message,
            tuple([each for each in completions if each.promise not in tasks]),
            tuple(tasks.values()),
            tuple(timers),
            view.signals,
            line=view.line,
            failed=tuple(failed),
            begun=failure.begun or read_begun(find_begun(execution.id, view.signals)),
            raises_again=failure.raises_again,
            turn=view.version,
            reachable=view.reachable,
        )
    )


def _asked(
    tokens: Iterable[TokenView], done: frozenset[int]
) -> tuple[dict[int, AskedTask], list[AskedTimer]]:
    """Return the unfinished tasks and timers."""
    tasks: dict[int, AskedTask] = {}
    timers: list[AskedTimer] = []
    for token in tokens:
        if token.state not in UNFINISHED:
            continue
        if token.kind == "task":
            body = decode_task(token.data)
            if body.promise is not None and body.promise not in done:
                tasks[body.promise] = AskedTask(body.promise, token.node, body, token.id, token.priority)
        elif token.kind == "timer":
            timer = decode_timer(token.data)
            awaited = timer.awaited
            if awaited is not None and awaited.promise not in done:
                timers.append(AskedTimer(awaited.promise, 0.0, awaited=awaited))
            elif awaited is None and token.due is not None and timer.promise not in done:
                timers.append(AskedTimer(timer.promise, token.due, timer.signal))
    return tasks, timers


def _not_begun(
    execution: ExecutionView, view: MachineView, tokens: Sequence[TokenView], message: str
) -> bytes | None:
    """Return a reference to the execution that keeps the machine that this one was to continue."""
    other = execution.parent if execution.relation == CLEANUP_RELATION else _continued(tokens)
    if other is None:
        return None
    return _encode(KeptMachine(b"", view.cancel, view.interrupted, message, state_of=other))


def _continued(tokens: Sequence[TokenView]) -> str | None:
    """Return the execution whose machine the token of the first turn names."""
    bodies = [decode_start_body(token.data) for token in tokens if token.kind == "resume" and token.data]
    return next((body.continues for body in bodies if body.continues is not None), None)


# -- continuation -----------------------------------------------------------------------------------------------


def start_cleanup(new: NewExecution, kept: KeptMachine, now: float) -> Transition:
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


def known_before(kept: KeptMachine, reachable: Ranges, now: float) -> list[Effect]:
    """Return the effects that make what had completed and arrived known to a retry, in the same order."""
    failed = frozenset(kept.failed)
    placed: list[tuple[int, Effect]] = [
        (completion.number, SettlePromise(completion))
        for completion in kept.completions
        if completion.promise not in failed and reaches(reachable, completion.promise)
    ]
    for signal in kept.signals:
        if (
            signal.name != BEGUN and request_in(signal.name) is None
        ):  # who sent a request was told of the failure
            event = NewEvent("SignalReceived", signal.name, "", now)
            placed.append((signal.place, PostSignal(signal.id, signal.name, signal.data, event)))
    return [effect for _, effect in sorted(placed, key=lambda one: one[0])]


def carried_over(
    execution: str,
    kept: KeptMachine,
    children: Sequence[tuple[int, ExecutionView]],
    reachable: Ranges,
) -> list[Effect]:
    """Return the effects that recreate what the old execution waited for, tasks with the same idempotency keys. Their
    stored inputs must have been copied.
    """
    effects: list[Effect] = [
        SpawnToken(task_token(execution, task, key=task.token)) for task in tasks_again(kept, reachable)
    ]
    effects += [timer_again(execution, timer) for timer in kept.timers if reaches(reachable, timer.promise)]
    for promise, child in children:
        if reaches(reachable, promise):
            effects.append(order_start(child_order(execution, promise, child)))
    effects += [SettlePromise(each) for each in kept.completions if reaches(reachable, each.promise)]
    return effects


def timer_again(execution: str, timer: AskedTimer) -> SpawnToken:
    """Set a timer for the time for which it was set first, or go on with the wait for another execution."""
    if timer.awaited is not None:
        return await_execution(execution, timer.awaited, timer.due)
    body = TimerBody(timer.promise, timer.signal)
    return SpawnToken(timer_token(execution, timer.promise, body, timer.due))


def tasks_again(kept: KeptMachine, reachable: Ranges) -> list[AskedTask]:
    """Return the tasks to be requested again."""
    return [task for task in kept.tasks if reaches(reachable, task.promise)]


def asked_again_tasks(kept: KeptMachine) -> list[str]:
    """Return the names of the failed tasks that a retry asks again."""
    failed = frozenset(kept.failed)
    return [task.node for task in kept.tasks if task.promise in failed]


def stored_inputs(tokens: Iterable[TokenView]) -> list[StoredInput]:
    """Return the stored inputs of the tasks among these tokens."""
    bodies = [decode_task(token.data) for token in tokens if token.kind == "task"]
    return [body.stored for body in bodies if body.stored is not None]


def task_token(execution: str, task: AskedTask, *, key: str | None = None) -> NewToken:
    """Return the token of a task that is requested again, under a new idempotency key unless the script gave one.
    ``key``: the former one.
    """
    given = dict(task.body.options or {})
    if key is not None:
        given.setdefault("key", key)
    given.pop("delay", None)
    options, asks = task_options(given), asks_people(task.node)
    return NewToken(
        promise_token_id(execution, task.promise),
        "",
        "task",
        task.node,
        encode_body(_body(execution, task, given)),
        options.queue or (SYSTEM_QUEUE if asks else DEFAULT_QUEUE),
        task.priority,
        options.limit_key(task.node),
        live=not asks,
        allowance=options.allows,
    )


def _body(execution: str, task: AskedTask, options: dict[str, Any]) -> TaskBody:
    stored = task.body.stored
    if stored is not None:
        stored = replace(stored, owner=execution)
    return TaskBody(task.body.input, task.promise, options or None, task.body.line, stored=stored)


def child_order(
    execution: str, promise: int, child: ExecutionView, *, continues: str | None = None
) -> StartOrder:
    """Order the child again. ``continues``: from its failure, instead of from the beginning."""
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
        continues=continues,
    )
