"""Steps of scripts: a resume, a task, a timer, a deadline. Each leads to one transition.

When the worker that finishes a task has the script's machine warm and the completion lets it go on, both are one
*fused* commit. If the ledger refuses it because the machine has moved on meanwhile, the plain completion is committed
instead: the task is not run again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from dalsegno.core import script
from dalsegno.core.script import Turn
from dalsegno.core.script_bodies import (
    StartBody,
    TaskBody,
    blob_of,
    decode_start_body,
    decode_task,
    decode_timer,
    encode_body,
    error_in,
    failed,
    succeeded,
)
from dalsegno.core.settlement.machines import reaches
from dalsegno.core.situation import Result, RunRecord, encode_record
from dalsegno.core.values import decode_value
from dalsegno.engine.definitions import Definitions
from dalsegno.engine.results import Results
from dalsegno.engine.runner import storable_failure
from dalsegno.engine.schedule_step import schedule_step
from dalsegno.engine.scripting.failures import error_value
from dalsegno.engine.scripting.following import Job, interruption, lost_timers
from dalsegno.engine.scripting.hot import LARGEST, HotMachines, Warm
from dalsegno.engine.scripting.programs import ScriptProgram
from dalsegno.engine.scripting.task_run import Failed, TaskRunner
from dalsegno.engine.scripting.turns import Turns
from dalsegno.engine.settings import EngineLimits
from dalsegno.engine.tasks import Tasks
from dalsegno.errors import DalSegnoError, InternalError, LimitExceeded, NotFound, NotJson
from dalsegno.lang import SnapshotError
from dalsegno.lang.effects import ErrorValue, Ok, Outcome, promise_id, promise_number
from dalsegno.model.effect import FinishExecution
from dalsegno.model.event import EventKind, NewEvent
from dalsegno.model.ids import task_execution_id
from dalsegno.model.machine import Completion, MachineView, SignalView
from dalsegno.model.retry import NO_RETRY
from dalsegno.model.token import Lease
from dalsegno.model.transition import Park, Transition
from dalsegno.ports.archive import Archive
from dalsegno.ports.blobs import Blobs
from dalsegno.ports.ledger import Ledger

logger = logging.getLogger("dalsegno.scripts")

LONG_AGO = 0.1
"""Seconds in the queue after which a script about to begin may have been asked to end: then that is looked up."""
RECENT = 200
"""Events among which the request to end is looked for."""


class TaskDone(Struct, frozen=True, gc=False):
    result: Result | None
    error: ErrorValue | None


class ScriptStep(Struct, gc=False):
    """A transition; what to commit instead if it is refused because the machine moved on; and the machine to keep warm
    once it is applied."""

    transition: Transition
    instead: Transition | None = None
    warm: Warm | None = None
    done: TaskDone | None = None
    """How a task ended, should its script have ended before it."""


class ScriptSteps:
    def __init__(
        self,
        ledger: Ledger,
        archive: Archive,
        blobs: Blobs,
        definitions: Definitions,
        tasks: TaskRunner,
        turns: Turns,
        limits: EngineLimits,
        threads: Tasks | None,
        cancel_grace: float,
    ) -> None:
        self.ledger = ledger
        self.archive = archive
        self.blobs = blobs
        self.definitions = definitions
        self.tasks = tasks
        self.turns = turns
        self.limits = limits
        self.results = Results(blobs, limits)
        self.threads = threads
        self.cancel_grace = cancel_grace
        self.hot = HotMachines()

    async def step(self, lease: Lease) -> ScriptStep:
        match lease.kind:
            case "resume":
                return await self._resume(lease)
            case "task":
                return await self._task(lease)
            case "timer":
                return await self._timer(lease)
            case "deadline":
                return await self._deadline(lease)
            case "schedule":
                return ScriptStep(await schedule_step(self.archive, lease, self.ledger.now()))
            case _:
                raise InternalError(f"a script has no tokens of kind {lease.kind}")

    # -- resuming ---------------------------------------------------------------------------------------------

    async def _resume(self, lease: Lease) -> ScriptStep:
        if lease.losses >= self.limits.losses:
            message = f"the worker process died {lease.losses} times while it ran this workflow's own code"
            error = ErrorValue("WORKER_LOST", message, "WorkerLost")
            return ScriptStep(script.fail_script(lease, error, self.ledger.now()))
        try:
            return await self._resume_machine(lease)
        except SnapshotError as error:
            logger.error("the stored machine of execution %s is damaged: %s", lease.execution, error)
            value = ErrorValue("SNAPSHOT_DAMAGED", str(error))
            return ScriptStep(script.fail_script(lease, value, self.ledger.now()))

    async def _resume_machine(self, lease: Lease) -> ScriptStep:
        program = await self.definitions.script(lease.definition)
        if lease.data and lease.fence == 1 and self.ledger.now() - lease.ready_at < LONG_AGO:
            return await self._first_turn(lease, program, decode_start_body(lease.data))
        view = await self.ledger.machine(lease.execution)
        if view is None:
            raise InternalError(f"execution {lease.execution} has no machine")
        if not view.snapshot:
            return await self._first_turn(lease, program, await self._start_body(lease), view)
        warm = self.hot.take(lease.execution)
        if warm is not None and warm.version == view.version:
            machine = warm.machine
        else:
            names = program.blobs_in(view.snapshot)
            blobs = {name: await self.blobs.get(lease.execution, name) for name in names}
            machine = program.load(view.snapshot, blobs)
        job = Job(
            lease.execution,
            view.version,
            view.inbox,
            self.ledger.now(),
            await self._known(lease.execution, view.completions),
            {promise_id(each.promise): (each.number, 0) for each in view.completions},
            view.signals,
            await self._signal_reader(lease.execution, view.signals),
            view.cancel,
            view.interrupted,
            await self._reason(lease.execution) if view.cancel == "cancel" and not view.interrupted else None,
        )
        before = machine.awaiting
        turn, after = await self.turns.run(job, lambda: machine, self._thread(program))
        turn.dropped = lost_timers(lease.execution, before, turn.reachable)
        return self._turned(lease, job, turn, after)

    async def _first_turn(
        self, lease: Lease, program: ScriptProgram, body: StartBody, view: MachineView | None = None
    ) -> ScriptStep:
        now = self.ledger.now()
        if view is not None and view.cancel:
            error = interruption(view.cancel, "it had not begun yet")
            turn = Turn("failed", view.version, view.inbox, error=error, cancel=view.cancel)
            return ScriptStep(script.commit_turn(lease, turn, now))
        signals = view.signals if view is not None else ()
        read = await self._signal_reader(lease.execution, signals)
        version, inbox = (view.version, view.inbox) if view is not None else (0, 0)
        job = Job(lease.execution, version, inbox, now, {}, {}, signals, read)
        context = {
            "executionId": lease.execution,
            "workflow": body.workflow,
            "version": body.version,
            "startedAt": int(body.started_at * 1000),
            "attempt": 1,
        }
        inputs = decode_value(body.input)
        budget = None if program.native else 20_000
        turn, machine = await self.turns.run(
            job, lambda: program.start(inputs, context, now, budget), self._thread(program)
        )
        return self._turned(lease, job, turn, machine)

    async def _start_body(self, lease: Lease) -> StartBody:
        if lease.data:
            return decode_start_body(lease.data)
        view = await self.archive.execution(lease.execution)
        if view is None:
            raise NotFound(f"there is no execution {lease.execution} in this store")
        return StartBody(Raw(view.input), view.workflow, view.version, view.created_at)

    def _turned(
        self, lease: Lease, job: Job, turn: Turn, machine: Any, events: tuple[NewEvent, ...] = ()
    ) -> ScriptStep:
        transition = script.commit_turn(lease, turn, self.ledger.now(), events)
        warm = None
        if turn.status == "suspended" and machine is not None and len(turn.snapshot) <= LARGEST:
            read = turn.read + 1 if turn.settled is not None else turn.read
            read += len(turn.taken)
            cancel = turn.cancel if turn.interrupted else ""
            known = _still_reachable(job.known, turn)
            warm = Warm(machine, turn.version + 1, read, turn.wake, known, job.awaiting, cancel)
        return ScriptStep(transition, warm=warm)

    async def _reason(self, execution: str) -> str | None:
        """Why somebody wants it cancelled, as the history says. That was a moment ago."""
        view = await self.archive.execution(execution)
        seq = view.seq if view is not None else 0
        for event in reversed(await self.archive.events(execution, max(seq - RECENT, 0), RECENT)):
            if event.kind == "CancelRequested" and event.data is not None:
                reason = decode_value(event.data).get("reason")
                return reason if isinstance(reason, str) else None
        return None

    def _thread(self, program: ScriptProgram) -> Any:
        if not program.native or self.threads is None:
            return None
        return self.threads.call

    async def _known(self, execution: str, completions: tuple[Completion, ...]) -> dict[str, Outcome]:
        found: dict[str, Outcome] = {}
        for completion in completions:
            found[promise_id(completion.promise)] = (
                Ok(await self._value(execution, completion)) if completion.ok else error_in(completion)
            )
        return found

    async def _value(self, execution: str, completion: Completion) -> Any:
        blob = blob_of(completion)
        raw = completion.data[1:] if blob is None else await self.blobs.get(execution, blob)
        return decode_value(raw)

    async def _signal_reader(self, execution: str, signals: tuple[SignalView, ...]) -> Any:
        values = {
            signal.id: await self._value(execution, Completion(0, True, signal.data)) for signal in signals
        }
        return lambda signal: values[signal.id]

    # -- tasks and timers -------------------------------------------------------------------------------------

    async def _task(self, lease: Lease) -> ScriptStep:
        body = decode_task(lease.data)
        began = self.ledger.now()
        returned = await self.tasks.run(lease, body, lease.node, began)
        if not isinstance(returned, Failed):
            try:
                result = await self.results.of(
                    lease.execution, returned, f"the output of task '{lease.node}'"
                )
            except (NotJson, LimitExceeded) as error:
                returned = self._unstorable(error)
            else:
                return await self._task_done(lease, body, result, None, began)
        if returned.policy.allows(lease.attempt, returned.failure):
            return ScriptStep(self._retry(lease, body, returned, began))
        return await self._task_done(lease, body, None, returned.error, began)

    def _unstorable(self, error: DalSegnoError) -> Failed:
        failure = storable_failure(error, None)
        return Failed(failure, error_value(failure, error), NO_RETRY)

    def _retry(self, lease: Lease, body: TaskBody, attempt: Failed, began: float) -> Transition:
        now = self.ledger.now()
        due = now + attempt.policy.delay(lease.token, lease.attempt, attempt.failure)
        record = RunRecord(
            lease.ready_at, began, lease.attempt, error=attempt.failure.as_dict(), retry_at=due
        )
        event = NewEvent("TaskRetrying", lease.node, "", now, encode_record(record), lease.token)
        return Transition(
            lease.execution,
            (),
            (event,),
            lease.token,
            lease.fence,
            "",
            lease.live,
            Park(due, encode_body(body), lease.attempt + 1),
            lease.epoch,
        )

    async def _task_done(
        self, lease: Lease, body: TaskBody, result: Result | None, error: ErrorValue | None, began: float
    ) -> ScriptStep:
        if body.promise is None or lease.execution_kind == "task":
            return ScriptStep(self._finish_task(lease, result, error))
        event = self._task_event(lease, result, error, began, body.line)
        if error is not None:
            completion = failed(body.promise, error)
        elif result is not None:
            completion = succeeded(body.promise, result)
        else:
            raise InternalError("a task ended without a result and without an error")
        step = await self._settled(lease, completion, event)
        step.done = TaskDone(result, error)
        return step

    def handed_over(self, lease: Lease, step: ScriptStep) -> Transition | None:
        """The step of a task whose script has ended meanwhile: the task is an execution of its own by now."""
        execution = task_execution_id(lease.token)
        if step.done is not None:
            own = msgspec.structs.replace(lease, execution=execution, definition="")
            return self._finish_task(own, step.done.result, step.done.error)
        if lease.kind == "task" and step.transition.park is not None:
            return msgspec.structs.replace(step.transition, execution=execution)
        return None

    def refused(self, lease: Lease, message: str) -> Transition:
        """The store cannot hold what the step wants to write."""
        error = ErrorValue("NOT_STORABLE", f"the store cannot hold this: {message}")
        return script.fail_script(lease, error, self.ledger.now())

    def _task_event(
        self, lease: Lease, result: Result | None, error: ErrorValue | None, began: float, line: int
    ) -> NewEvent:
        record: dict[str, Any] = {"queued_at": lease.ready_at, "started_at": began, "attempt": lease.attempt}
        kind: EventKind = "TaskCompleted"
        if error is not None:
            kind = "TaskFailed"
            record["error"] = script.error_object(error)
        elif result is not None and result.blob is not None:
            record["output_ref"] = result.blob
        elif result is not None and len(result.raw) <= 4096:
            record["output"] = Raw(result.raw)
        record["line"] = line
        return NewEvent(kind, lease.node, "", self.ledger.now(), encode_record(record), lease.token)

    def _finish_task(self, lease: Lease, result: Result | None, error: ErrorValue | None) -> Transition:
        """A task that is an execution of its own ends with it."""
        now = self.ledger.now()
        if error is not None or result is None:
            finish = script.failing(error or ErrorValue("TASK_FAILED", "no result"), now, hand_over=False)
        else:
            event = NewEvent("ExecutionCompleted", "", "", now, b'{"output":%b}' % result.raw)
            finish = FinishExecution("COMPLETED", event, result.raw)
        return Transition(
            lease.execution, (finish,), (), lease.token, lease.fence, "", lease.live, epoch=lease.epoch
        )

    async def _timer(self, lease: Lease) -> ScriptStep:
        body = decode_timer(lease.data)
        now = self.ledger.now()
        if body.signal is not None:
            error = ErrorValue("TimeoutError", f"no signal '{body.signal}' came in time")
            event = NewEvent("TimerFired", body.signal, "", now, b'{"signal":true}', lease.token)
            completion = failed(body.promise, error)
            return ScriptStep(script.settle_only(lease, completion, (event,), repeatable=True))
        event = NewEvent("TimerFired", "", "", now, None, lease.token)
        return await self._settled(lease, succeeded(body.promise, Result(b"null")), event)

    async def _settled(self, lease: Lease, completion: Completion, event: NewEvent) -> ScriptStep:
        """Goes on with the machine in the same commit where that is likely to be accepted."""
        plain = script.settle_only(lease, completion, (event,), repeatable=False)
        if not lease.definition or not self.hot.wakes(lease.execution, ok=completion.ok):
            return ScriptStep(plain)
        program = self.definitions.cached_script(lease.definition)
        warm = self.hot.take(lease.execution)
        if program is None or warm is None:
            return ScriptStep(plain)
        known = dict(warm.known)
        value = await self._known(lease.execution, (completion,))
        known.update(value)
        job = Job(
            lease.execution,
            warm.version,
            warm.read,
            self.ledger.now(),
            known,
            cancel=warm.cancel,
            interrupted=bool(warm.cancel),
            settled=completion,
        )
        before, machine = warm.awaiting, warm.machine
        turn, after = await self.turns.run(job, lambda: machine, self._thread(program))
        turn.dropped = lost_timers(lease.execution, before, turn.reachable)
        step = self._turned(lease, job, turn, after, (event,))
        step.instead = plain
        return step

    async def _deadline(self, lease: Lease) -> ScriptStep:
        program = await self.definitions.script(lease.definition)
        view = await self.ledger.machine(lease.execution)
        cancel = view.cancel if view is not None else ""
        now = self.ledger.now()
        timeout = program.timeout or 0.0
        return ScriptStep(script.expire_script(lease, cancel, now, timeout, self.cancel_grace))


def _still_reachable(known: Mapping[str, Outcome], turn: Turn) -> dict[str, Outcome]:
    return {name: outcome for name, outcome in known.items() if reaches(turn.reachable, promise_number(name))}
