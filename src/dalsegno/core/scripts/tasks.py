"""Tasks and timers of scripts: their ends and attempts as transitions and events."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from dalsegno.core.graph.ending import completion_event
from dalsegno.core.graph.external_waits import signal_of
from dalsegno.core.graph.step_input import Awaiting, Result, RunRecord, encode_record
from dalsegno.core.scripts.ending import error_object, failing
from dalsegno.core.scripts.token_bodies import (
    LARGEST_ASKED,
    AskedTask,
    TaskBody,
    decode_task,
    encode_body,
    failed,
    succeeded,
)
from dalsegno.lang.runtime.effects import ErrorValue
from dalsegno.model.effect import FinishExecution, SettlePromise
from dalsegno.model.event import EventKind, NewEvent
from dalsegno.model.failure import Failure
from dalsegno.model.machine import Completion
from dalsegno.model.token import Lease
from dalsegno.model.transition import Park, Transition

INLINE_OUTPUT = 4096
"""Bytes of a task's output up to which its event shows it."""


class TaskDone(Struct, frozen=True, gc=False):
    """The end of a task: a result or an error."""

    began: float
    line: int
    result: Result = Result(b"null")
    error: ErrorValue | None = None

    def completion(self, promise: int, lease: Lease) -> Completion:
        """Return the completion of a promise.

        That of a failed task includes its call, so that it can be requested again, unless its input is large: a stored
        input is removed with its task.
        """
        if self.error is None:
            return succeeded(promise, self.result)
        asked = None
        if len(lease.data) <= LARGEST_ASKED and (body := decode_task(lease.data)).stored is None:
            asked = AskedTask(promise, lease.node, body, lease.token, lease.priority)
        return failed(promise, self.error, asked)


class TaskRecord(Struct, frozen=True, omit_defaults=True, gc=False):
    """The data of the event about a task's end."""

    queued_at: float
    started_at: float
    attempt: int
    line: int
    error: dict[str, Any] | None = None
    output: Raw | None = None
    """Present if it is small."""
    output_ref: str | None = None


def task_event(lease: Lease, done: TaskDone, now: float) -> NewEvent:
    raw, error = done.result.raw, None if done.error is None else error_object(done.error)
    is_shown = error is None and done.result.blob is None and len(raw) <= INLINE_OUTPUT
    record = TaskRecord(
        lease.ready_at,
        done.began,
        lease.attempt,
        done.line,
        error,
        Raw(raw) if is_shown else None,
        done.result.blob if error is None else None,
    )
    kind: EventKind = "TaskCompleted" if error is None else "TaskFailed"
    return NewEvent(kind, lease.node, "", now, encode_record(record), lease.token)


def settle_only(lease: Lease, completion: Completion, event: NewEvent, *, repeatable: bool) -> Transition:
    """Commit only the completion of a task or timer: another worker continues with the machine."""
    return Transition(
        lease.execution,
        (SettlePromise(completion, repeatable),),
        (event,),
        lease.token,
        lease.fence,
        "",
        lease.live,
        epoch=lease.epoch,
    )


def retry_task(
    lease: Lease, body: TaskBody, failure: Failure, began: float, now: float, due: float
) -> Transition:
    """Park the task until its next attempt."""
    record = RunRecord(lease.ready_at, began, lease.attempt, error=failure.recorded_briefly(), retry_at=due)
    event = NewEvent("TaskRetrying", lease.node, "", now, encode_record(record), lease.token)
    return _asleep(lease, Park(due, encode_body(body), lease.attempt + 1), (event,))


def await_decision(
    lease: Lease, body: TaskBody, awaiting: Awaiting, began: float, now: float, problem: Failure | None = None
) -> Transition:
    """Park the task until a decision arrives. ``problem``: why the last arrival was unusable."""
    record = RunRecord(
        lease.ready_at,
        began,
        lease.attempt,
        error=problem.as_dict() if problem is not None else None,
        signal=signal_of(awaiting),
        due=awaiting.due,
        question=awaiting.question,
    )
    event = NewEvent("NodeWaiting", lease.node, "", now, encode_record(record), lease.token)
    waiting = encode_body(msgspec.structs.replace(body, awaiting=awaiting))
    return _asleep(lease, Park(awaiting.due, waiting, lease.attempt, awaiting.awaits), (event,))


def put_off(lease: Lease, due: float, queue: str | None = None) -> Transition:
    """Park the token until ``due``, in ``queue`` if another one is given. No attempt is used up."""
    return _asleep(lease, Park(due, lease.data, lease.attempt, queue=queue))


def is_put_off(step: Transition) -> bool:
    return step.park is not None and not step.events and not step.effects


def _asleep(lease: Lease, park: Park, events: tuple[NewEvent, ...] = ()) -> Transition:
    return Transition(
        lease.execution,
        (),
        events,
        lease.token,
        lease.fence,
        lease.scope,
        lease.live,
        park,
        lease.epoch,
    )


def nothing(lease: Lease) -> Transition:
    """Consume the token without effect."""
    return Transition(lease.execution, (), (), lease.token, lease.fence, "", lease.live, epoch=lease.epoch)


def finish_task(lease: Lease, done: TaskDone, now: float) -> Transition:
    """End a task that is an execution of its own."""
    if done.error is not None:
        finish = failing(done.error, now, hand_over=False)
    else:
        finish = FinishExecution("COMPLETED", completion_event(now, done.result.raw), done.result.raw)
    return Transition(
        lease.execution,
        (finish,),
        (task_event(lease, done, now),),
        lease.token,
        lease.fence,
        "",
        lease.live,
        epoch=lease.epoch,
    )
