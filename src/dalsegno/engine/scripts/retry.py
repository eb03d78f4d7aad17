"""Retries from the failure: the first commit of the new execution, and its looks at tasks that go on elsewhere."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any

import msgspec
from msgspec.structs import replace

from dalsegno.core.graph.step_input import Result
from dalsegno.core.outbox_orders import order_start
from dalsegno.core.scripts.earlier_calls import find_begun, read_begun, take_up, took_begun
from dalsegno.core.scripts.ending import error_object
from dalsegno.core.scripts.kept import (
    KeptMachine,
    child_order,
    decode_kept,
    known_before,
    task_token,
    tasks_again,
    timer_again,
)
from dalsegno.core.scripts.step import await_execution
from dalsegno.core.scripts.tasks import put_off, settle_only
from dalsegno.core.scripts.token_bodies import (
    LARGEST_INLINE,
    AskedTask,
    AwaitedExecution,
    EarlierCall,
    StoredInput,
    blob_of,
    decode_task,
    decode_timer,
    encode_body,
    failed,
    input_as_blob,
    succeeded,
)
from dalsegno.core.scripts.turn import Turn, leaves_of
from dalsegno.engine.scripts.advance import Job, ResumeInputs
from dalsegno.engine.scripts.kept import Predecessor, kept_with
from dalsegno.engine.scripts.moving import FROM_START
from dalsegno.engine.scripts.task_inputs import TaskInputs
from dalsegno.engine.steps.values import Results, Storage
from dalsegno.errors import Conflict, DalSegnoError, NotFound
from dalsegno.lang import SnapshotError
from dalsegno.lang.runtime.effects import Awaitable as Awaits
from dalsegno.lang.runtime.effects import ErrorValue, asks_people, promise_id, promise_number
from dalsegno.model.effect import Effect, HurryToken, SettlePromise, SpawnToken
from dalsegno.model.event import NewEvent
from dalsegno.model.execution import ENDED, SCRIPTED, ExecutionView
from dalsegno.model.ids import child_execution_id, task_execution_id
from dalsegno.model.machine import Completion, MachineView, numbers_in, reaches
from dalsegno.model.token import Lease
from dalsegno.model.transition import Transition
from dalsegno.ports.archive import Archive
from dalsegno.ports.records import UNTIL_REMOVED

logger = logging.getLogger("dalsegno.scripts")

FIRST_LOOK, LAST_LOOK = 0.2, 15.0
"""Seconds between two looks at an execution that goes on elsewhere: the longer it takes, the fewer."""
PER_SECOND = 0.1

LOST = ("FAILED", "CANCELLED")


class Retry(Predecessor):
    """The failed execution whose machine is taken over, with what it waited for."""

    def __init__(
        self,
        archive: Archive,
        blobs: Storage,
        reading: ResumeInputs,
        lease: Lease,
        other: str,
        inputs: TaskInputs,
        results: Results,
    ) -> None:
        super().__init__(archive, blobs, reading, lease, other)
        self._inputs = inputs
        self._results = results

    def job(self, view: MachineView) -> Job:
        """Return a job that runs nothing: no outcome is known, and no time has passed."""
        return Job(self._execution, view.version, view.inbox, -inf, {}, {}, {})

    async def take_over(self, turn: Turn, awaiting: Awaits | None, now: float) -> None:
        """Add to the first turn what the failed execution knew, had begun and waited for."""
        kept = await self.kept()
        await self._copy_blobs([blob_of(each) for each in kept.completions])
        await self._copy_blobs([blob_of(Completion(0, True, each.data)) for each in kept.signals])
        effects = known_before(kept, turn.reachable, now)
        for task in tasks_again(kept, turn.reachable):
            effects.append(await self._task(task, now, is_failed=task.promise in kept.failed))
        effects += await self._timers(kept, turn)
        effects += await self._orders(kept, turn, awaiting)
        turn.carried = effects
        turn.begun = tuple([call for call in kept.begun if await self._goes_on(call)])

    async def _goes_on(self, call: EarlierCall) -> bool:
        """Return False for a task that has failed since: it is called again. Detached workflows are left alone."""
        if call.detached:
            return True
        view = await self._archive.execution(call.execution)
        return view is None or view.state not in LOST

    async def _task(self, task: AskedTask, now: float, *, is_failed: bool) -> Effect:
        """Ask a failed task again; await one that goes on as an execution of its own, unless that has failed."""
        other = None if is_failed else task_execution_id(task.token)
        view = await self._archive.execution(other) if other is not None else None
        if view is not None and view.state not in LOST:
            return await_execution(self._execution, AwaitedExecution(task.promise, view.id, task.node), now)
        return await self._again(task, self.other if view is None else view.id)

    async def _again(self, task: AskedTask, owner: str) -> Effect:
        body = task.body
        if body.stored is not None:
            raw = await self._input(owner, task)
            if len(raw) <= LARGEST_INLINE:
                body = replace(body, input=msgspec.Raw(raw), stored=None)
            else:
                data = input_as_blob(task.promise, raw)
                name = await self._blobs.put(self._execution, data, turn=UNTIL_REMOVED)
                body = replace(body, stored=StoredInput(self._execution, name, len(raw)))
        return SpawnToken(task_token(self._execution, replace(task, body=body)))

    async def _input(self, owner: str, task: AskedTask) -> bytes:
        try:
            return await self._inputs.raw(owner, task.body)
        except NotFound:
            raise SnapshotError(
                f"the input of task '{task.node}' of execution {self.other} is no longer kept"
            ) from None

    async def _timers(self, kept: KeptMachine, turn: Turn) -> list[Effect]:
        """Set timers again, for their times, and go on with waits for tasks of earlier executions."""
        found: list[Effect] = []
        for timer in kept.timers:
            if not reaches(turn.reachable, timer.promise):
                continue
            other = timer.awaited.execution if timer.awaited is not None else None
            view = await self._archive.execution(other) if other is not None else None
            if view is not None and view.state in LOST:
                found.append(await self._again(asked_by(view, timer.promise), view.id))
            else:
                found.append(timer_again(self._execution, timer))
        return found

    async def _orders(self, kept: KeptMachine, turn: Turn, awaiting: Awaits | None) -> list[Effect]:
        """Return the orders of the children it waited for: one that failed goes on from its failure, one that was
        cancelled with its parent starts again. What has completed is known.
        """
        known = {each.promise for each in kept.completions} - set(kept.failed)
        known.update([each.promise for each in kept.tasks], [each.promise for each in kept.timers])
        missing = [promise for promise in numbers_in(turn.reachable) if promise not in known]
        found: list[Effect] = []
        for promise, child in await self._children(missing):
            known.add(promise)
            if child.state == "COMPLETED":
                result = await self._results.of_raw(
                    self._execution, child.output or b"null", "the child's output"
                )
                found.append(SettlePromise(succeeded(promise, result)))
                continue
            goes_on = child.state == "FAILED" and await can_continue(self._archive, child)
            order = child_order(self._execution, promise, child, continues=child.id if goes_on else None)
            found.append(order_start(order))
        self._check_awaited(awaiting, known)
        return found

    def _check_awaited(self, awaiting: Awaits | None, known: set[int]) -> None:
        """Refuse to wait for what nothing would ever settle."""
        for leaf in leaves_of(awaiting) if awaiting is not None else ():
            if leaf.kind in ("task", "workflow") and promise_number(leaf.id) not in known:
                raise SnapshotError(
                    f"{leaf.kind} '{leaf.name}' of execution {self.other} cannot be awaited again: it was never"
                    f" started, or is no longer stored; {FROM_START}"
                )


def asked_by(view: ExecutionView, promise: int) -> AskedTask:
    """Return the call of a task that was handed over."""
    return AskedTask(promise, view.workflow, decode_task(view.input), "", view.priority)


def take_up_again(job: Job, turn: Turn) -> Sequence[EarlierCall]:
    """Let a turn that is run again take up the calls that were made before. Return those that it has not made."""
    signal = find_begun(job.execution, job.signals)
    if signal is None or not job.stops or turn.cancel:
        return ()
    turn.taken = (*turn.taken, took_begun(signal))
    return take_up(turn, read_begun(signal))


def context_of(view: ExecutionView, attempt: int) -> dict[str, Any]:
    """Return what a program can read about its execution."""
    return {
        "executionId": view.id,
        "workflow": view.workflow,
        "version": view.version,
        "startedAt": int(view.created_at * 1000),
        "attempt": attempt,
    }


# -- tasks that go on elsewhere ----------------------------------------------------------------------------------


class Lookouts:
    """Waits in this process for endings of such tasks, so that the next look need not be waited for.

    They only hurry what happens anyway.
    """

    def __init__(
        self, over: Callable[[str], Awaitable[None]], commit: Callable[[Transition], Awaitable[object]]
    ) -> None:
        """``over``: returns when an execution has ended."""
        self._over = over
        self._commit = commit
        self._waiting: dict[str, asyncio.Task[None]] = {}
        """By the token that is parked until the next look."""

    def watch(self, lease: Lease) -> None:
        awaited = decode_timer(lease.data).awaited
        if awaited is None or lease.token in self._waiting:
            return
        waiting = asyncio.get_running_loop().create_task(self._hurry(lease, awaited.execution))
        self._waiting[lease.token] = waiting
        waiting.add_done_callback(lambda _: self._waiting.pop(lease.token, None))

    async def _hurry(self, lease: Lease, execution: str) -> None:
        try:
            await self._over(execution)
            await self._commit(Transition(lease.execution, (HurryToken(lease.token, lease.attempt),)))
        except DalSegnoError as error:
            logger.info("execution %s looks at %s later: %s", lease.execution, execution, error)

    async def close(self) -> None:
        for waiting in (found := list(self._waiting.values())):
            waiting.cancel()
        await asyncio.gather(*found, return_exceptions=True)


async def look_at(
    archive: Archive, results: Results, lease: Lease, awaited: AwaitedExecution, now: float
) -> Transition:
    """Return the step that looks at a task that goes on as an execution of its own: its ending settles the promise."""
    view = await archive.execution(awaited.execution)
    if view is not None and view.state not in ENDED:
        pause = min(max((now - view.created_at) * PER_SECOND, FIRST_LOOK), LAST_LOOK)
        return put_off(lease, now + pause)
    completion, error = await _ending(results, lease.execution, awaited, view)
    shown = error_object(error, traceback=False) if error is not None else None
    data = encode_body({"execution": awaited.execution, "error": shown})
    event = NewEvent("ChildEnded", awaited.name, "", now, data)
    return settle_only(lease, completion, event, repeatable=True)


async def _ending(
    results: Results, execution: str, awaited: AwaitedExecution, view: ExecutionView | None
) -> tuple[Completion, ErrorValue | None]:
    if view is None:
        error = ErrorValue("NOT_FOUND", f"execution {awaited.execution} has been removed", "NotFound")
        return failed(awaited.promise, error), error
    if view.state == "COMPLETED":
        result: Result = await results.of_raw(execution, view.output or b"null", "the output of the task")
        return succeeded(awaited.promise, result), None
    error = error_of(view)
    asked = asked_by(view, awaited.promise)
    if asked.body.stored is not None:
        return failed(awaited.promise, error), error
    return failed(awaited.promise, error, asked), error


# -- before a retry ----------------------------------------------------------------------------------------------


async def can_continue(archive: Archive, view: ExecutionView) -> bool:
    """Return True if a failed execution has a machine with which another one can start."""
    if view.kind not in SCRIPTED or view.state != "FAILED" or view.context is None:
        return False
    try:
        _, data = await kept_with(archive, view.id)
    except SnapshotError:
        return False
    kept = decode_kept(data)
    return not kept.cancel and not kept.raises_again


async def machine_to_continue(archive: Archive, view: ExecutionView) -> KeptMachine | None:
    """Return the machine from which a retry starts; None if it starts from the beginning. Raise Conflict for one that
    cannot be continued.
    """
    if view.kind not in SCRIPTED or view.state != "FAILED" or view.context is None:
        return None
    try:
        other, data = await kept_with(archive, view.id)
    except SnapshotError as error:
        raise Conflict(f"cannot retry execution {view.id} from its failure: {error}; {FROM_START}") from None
    kept = decode_kept(data)
    if kept.cancel:
        return None
    if kept.raises_again:
        raise Conflict(
            f"cannot retry execution {view.id} from its failure: its error handling has already run, and would only"
            f" raise the same error again; {FROM_START}"
        )
    await _check_calls(archive, view, other, kept)
    return kept


async def _check_calls(archive: Archive, view: ExecutionView, other: str, kept: KeptMachine) -> None:
    asked = {task.promise for task in kept.tasks}
    lost = [promise for promise in kept.failed if promise not in asked]
    if lost:
        await _check_children(archive, view, other, lost)
    pending = [task for task in kept.tasks if task.promise not in kept.failed and not asks_people(task.node)]
    awaited = {task_execution_id(task.token): task.node for task in pending}
    awaited.update({call.execution: call.name for call in kept.begun if not call.detached})
    awaited.update(
        {each.execution: each.name for timer in kept.timers if (each := timer.awaited) is not None}
    )
    found = await archive.states(list(awaited)) if awaited else {}
    gone = sorted(name for execution, name in awaited.items() if execution not in found)
    if gone:
        raise Conflict(
            f"cannot retry execution {view.id} from its failure: its task '{gone[0]}' went on without it, and its"
            f" outcome is no longer stored; {FROM_START}"
        )


async def _check_children(archive: Archive, view: ExecutionView, other: str, promises: Iterable[int]) -> None:
    """Check that what failed and is not asked again as a task is a child that can go on."""
    for promise in promises:
        name = child_execution_id(other, promise_id(promise))
        child = await archive.execution(name)
        if child is None:
            raise Conflict(
                f"cannot retry execution {view.id} from its failure: the call that failed is not kept, because its"
                f" input is large; {FROM_START}"
            )
        if child.kind == "graph":
            raise Conflict(
                f"cannot retry execution {view.id} from its failure: its child {child.id} is a graph, which would"
                f" start again from the beginning; {FROM_START}"
            )


def error_of(view: ExecutionView) -> ErrorValue:
    """Return the error with which an execution ended."""
    error = msgspec.json.decode(view.error) if view.error is not None else {}
    if view.state == "CANCELLED":
        error["code"] = "CancelledError"
    return error_from(error, f"the child execution ended {view.state}")


def error_from(error: Mapping[str, Any], message: str = "it failed") -> ErrorValue:
    """Return an error from the object that users see. ``message``: if it has none."""
    return ErrorValue(
        error.get("code") or "TASK_FAILED",
        error.get("message") or message,
        error.get("type"),
        error.get("details"),
        classes=tuple(error.get("classes") or ()),
        args=tuple(error.get("args") or ()),
        attributes=error.get("attributes"),
        traceback=error.get("traceback"),
    )
