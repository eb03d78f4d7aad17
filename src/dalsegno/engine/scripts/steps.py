"""Steps of scripts: resume, task, timer, deadline, schedule and start. Each produces one transition.

If the worker that finishes a task has the script's machine in its cache and the completion lets it continue, both are
one *fused* commit. If the ledger refuses it because the machine has advanced meanwhile, the plain completion is
committed instead: the task is not run again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw

from dalsegno.core.graph.step_input import Awaiting, Result
from dalsegno.core.scripts.branch import Branch
from dalsegno.core.scripts.earlier_calls import begun_calls, cancelled_tasks
from dalsegno.core.scripts.ending import (
    GRACE,
    cut_off,
    expire_script,
    fail_cleanup,
    fail_script,
    is_failed_cleanup,
)
from dalsegno.core.scripts.journal import Received
from dalsegno.core.scripts.kept import UNKNOWN_TURN, FailedTurn, keeps_machine
from dalsegno.core.scripts.step import commit_turn
from dalsegno.core.scripts.task_options import task_options
from dalsegno.core.scripts.tasks import (
    TaskDone,
    finish_task,
    nothing,
    put_off,
    retry_task,
    settle_only,
    task_event,
)
from dalsegno.core.scripts.token_bodies import (
    EarlierCall,
    StartBody,
    TaskBody,
    blob_of,
    decode_start_body,
    decode_task,
    decode_timer,
    failed,
    succeeded,
)
from dalsegno.core.scripts.turn import Turn
from dalsegno.core.values import decode_value
from dalsegno.engine.batches import bytes_of
from dalsegno.engine.definitions import Definitions
from dalsegno.engine.journal.branched_off import BranchedOff, read_branch
from dalsegno.engine.journal.writing import Journals
from dalsegno.engine.schedules import schedule_step
from dalsegno.engine.scripts.advance import Job, ResumeInputs, interruption, outcome_of
from dalsegno.engine.scripts.failures import Failed, error_value, unstorable
from dalsegno.engine.scripts.kept import Cleanup, read_kept
from dalsegno.engine.scripts.machine_cache import LARGEST, MachineCache, size_of
from dalsegno.engine.scripts.moving import MOVE_REFUSED, MoveRefused
from dalsegno.engine.scripts.programs import RunningMachine, ScriptProgram
from dalsegno.engine.scripts.readiness import Readiness, waits_for
from dalsegno.engine.scripts.retry import Lookouts, Retry, context_of, look_at, take_up_again
from dalsegno.engine.scripts.script_step import ScriptStep, open_journal, step_of_turn
from dalsegno.engine.scripts.tasks import Questions, TaskRunner
from dalsegno.engine.scripts.turns import SLICE, Turns
from dalsegno.engine.secrets.snapshot_seals import check_blob
from dalsegno.engine.settings import EngineLimits
from dalsegno.engine.starting.pending import begin_step
from dalsegno.engine.starting.rerun import RerunHistory
from dalsegno.engine.steps.budget import is_light, refuse_if_light
from dalsegno.engine.steps.contexts import NO_TRANSACTIONS
from dalsegno.engine.steps.run_node import storable_failure
from dalsegno.engine.steps.tasks import Tasks
from dalsegno.engine.steps.values import SMALL, Loader, Results, Storage, blob_names, bytes_in_rows
from dalsegno.errors import BadConfiguration, InternalError, LimitExceeded, NotFound, NotJson
from dalsegno.lang import SnapshotError
from dalsegno.lang.errors import NameMissing
from dalsegno.lang.python.errors import NAME_MISSING
from dalsegno.lang.runtime.effects import ErrorValue, promise_id
from dalsegno.lang.runtime.limits import Heavy
from dalsegno.model.event import NewEvent
from dalsegno.model.failure import NO_RETRY
from dalsegno.model.ids import task_execution_id
from dalsegno.model.machine import Completion, MachineView, in_words, request_in
from dalsegno.model.token import Lease
from dalsegno.model.transition import Transition
from dalsegno.ports.archive import Archive
from dalsegno.ports.ledger import Ledger
from dalsegno.ports.node import AwaitSignal
from dalsegno.ports.transactions import WorkFailed

logger = logging.getLogger("dalsegno.scripts")

CLEANUP_CUT_OFF = "its clean-up was cut off"
LONG_AGO = 0.1
"""Seconds in the queue after which a script about to begin may have been cancelled, which is then looked up."""
AFTER_THE_SIGNAL = 1.0
"""Seconds by which the time limit of a wait is postponed for a signal that has arrived and is not assigned yet."""


class ScriptSteps:
    def __init__(
        self,
        ledger: Ledger,
        archive: Archive,
        blobs: Storage,
        definitions: Definitions,
        tasks: TaskRunner,
        turns: Turns,
        limits: EngineLimits,
        threads: Tasks | None,
        readiness: Readiness,
        cancel_grace: float | None,
    ) -> None:
        """``cancel_grace``: for workflows that do not set their own."""
        self.ledger = ledger
        self.archive = archive
        self.blobs = blobs
        self.definitions = definitions
        self.tasks = tasks
        self.turns = turns
        self.limits = limits
        self.results = Results(blobs, limits)
        self.inputs = tasks.inputs
        self.questions = Questions(ledger, blobs, tasks.types, self.results, self.inputs, tasks.log)
        self.threads = threads
        self.cancel_grace = cancel_grace
        self.reading = ResumeInputs(archive, blobs)
        self.hot = MachineCache()
        self.transactions = NO_TRANSACTIONS
        self.rerun_history = RerunHistory(archive, Loader(ledger, blobs))
        self.readiness = readiness
        self.journals = Journals(ledger)
        turns.journaled = self.journals.blobs
        self.task_returned: Callable[[Lease], None] = lambda _: None
        """Called when a task has returned, before its script takes its turn."""
        self.lookouts: Lookouts | None = None

    async def step(self, lease: Lease, began: float | None = None) -> ScriptStep:
        """Take a step. ``began``: start time of a task that was begun earlier and elsewhere."""
        step = await (self._task(lease, began) if lease.kind == "task" else self._step(lease))
        if lease.execution_kind == "task" and step.transition.park is None:
            await self.inputs.keep(lease.execution, decode_task(lease.data))
        step.size = bytes_of(step.transition.effects)
        if step.freed or step.size > SMALL or len(lease.data) > SMALL:
            return await self._charged(lease, step)
        return step

    async def _charged(self, lease: Lease, step: ScriptStep) -> ScriptStep:
        """Count what the step adds to the rows of its execution, and what it removes."""
        size = bytes_in_rows(step.transition) - step.freed
        if lease.kind == "task" and step.transition.park is None and len(lease.data) > SMALL:
            size -= len(lease.data)
        if size:
            try:
                await self.blobs.charge(lease.execution, size)
            except LimitExceeded as error:
                if self.transactions.has(lease):
                    await self.transactions.abandon(lease)
                return await self.fail(lease, ErrorValue("LimitExceeded", str(error)))
        return step

    def _step(self, lease: Lease) -> Awaitable[ScriptStep]:
        match lease.kind:
            case "resume":
                return self._resume(lease)
            case "timer":
                return self._timer(lease)
            case "deadline":
                return self._deadline(lease)
            case "schedule":
                return self._scheduled(lease)
            case "start":
                return self._begin(lease)
            case _:
                raise InternalError(f"a script has no tokens of kind {lease.kind}")

    async def _scheduled(self, lease: Lease) -> ScriptStep:
        return ScriptStep(await schedule_step(self.archive, lease, self.ledger.now()))

    async def _begin(self, lease: Lease) -> ScriptStep:
        return ScriptStep(await begin_step(self.rerun_history, self.definitions, lease, self.ledger.now()))

    # -- resuming ---------------------------------------------------------------------------------------------

    async def _resume(self, lease: Lease) -> ScriptStep:
        if lease.losses >= self.limits.losses:
            message = f"the worker process died {lease.losses} times while it ran this workflow's own code"
            error = ErrorValue("WORKER_LOST", message, "WorkerLost")
            return await self.fail(lease, error)
        try:
            return await self._resume_machine(lease)
        except NameMissing as error:
            program = await self.definitions.script(lease.definition)
            if not self.readiness.lacking(lease.definition, program):
                return await self._damaged(lease, error)
            raise BadConfiguration(waits_for(program, str(error))) from error
        except MoveRefused as error:
            program = await self.definitions.script(lease.definition)
            await self.readiness.check_migrations(lease, program)
            return await self.fail(lease, ErrorValue(MOVE_REFUSED, str(error)))
        except SnapshotError as error:
            return await self._damaged(lease, error)

    async def _damaged(self, lease: Lease, error: SnapshotError) -> ScriptStep:
        view = await self.archive.outline(lease.execution)
        if view is not None and view.definition != lease.definition:
            return ScriptStep(
                nothing(lease)
            )  # it was moved to another version, and its turn belongs to a new token
        logger.error("the stored machine of execution %s is damaged: %s", lease.execution, error)
        return await self.fail(lease, ErrorValue("SNAPSHOT_DAMAGED", str(error)))

    async def fail(self, lease: Lease, error: ErrorValue) -> ScriptStep:
        """Return the step that ends a script without another turn. Its machine is kept: a retry continues it, and so
        does a clean-up if it may have something to clean up. The commit is refused if the machine moves on meanwhile:
        then the step is to be computed again.
        """
        own = decode_task(lease.data).promise if lease.kind == "task" else None
        failure = FailedTurn(dropped=(own,)) if own is not None else UNKNOWN_TURN
        view, kept = await read_kept(self.ledger, self.blobs, lease.execution, error.message, failure)
        if view is not None and view.cancel:
            return ScriptStep(fail_cleanup(lease, view, error, self.ledger.now(), kept), ends_with=error)
        may_clean_up = kept is not None and error.code != MOVE_REFUSED  # the execution it continues still can
        cleans_up = may_clean_up and await self._can_clean_up(lease.definition)
        ending = fail_script(lease, view, error, self.ledger.now(), kept, is_unfinished=cleans_up)
        return ScriptStep(ending, ends_with=error)

    async def _can_clean_up(self, definition: str) -> bool:
        try:
            program = await self.definitions.any_by_hash(definition)
        except (SnapshotError, NotFound, Heavy):
            return True  # it cannot be read here, and may have something to clean up
        return isinstance(program, ScriptProgram) and program.can_clean_up

    async def _resume_machine(self, lease: Lease) -> ScriptStep:
        program = await self.definitions.script(lease.definition)
        await self.readiness.check_code(lease, program)
        if program.native:
            is_light.set(False)  # its code is user code and runs here
            await self.readiness.check_keys(lease, program)
        if lease.data and lease.fence == 1 and self.ledger.now() - lease.ready_at < LONG_AGO:
            return await self._first_turn(lease, program, decode_start_body(lease.data))
        view = await self.ledger.machine(lease.execution)
        if view is None:
            return ScriptStep(nothing(lease))  # it has ended meanwhile and was swept
        if not view.snapshot:
            return await self._first_turn(lease, program, await self._start_body(lease), view)
        job = await self.reading.job(lease.execution, view, self.ledger.now())
        begin = await self._loader(lease, program, view, job)
        turn, machine = await self._run(lease, program, job, begin)
        return await self._loaded_turned(lease, job, turn, machine)

    async def _run(
        self, lease: Lease, program: ScriptProgram, job: Job, begin: Callable[[], RunningMachine]
    ) -> tuple[Turn, RunningMachine | None]:
        was_interrupted = job.interrupted
        turn, machine = await self.turns.run(job, begin, self._thread(program))
        left = take_up_again(job, turn) if job.signals else ()
        if turn.cancel or turn.error is not None:
            await self._complete(lease, program, turn, was_interrupted, left)
        return turn, machine

    async def _complete(
        self,
        lease: Lease,
        program: ScriptProgram,
        turn: Turn,
        was_interrupted: bool,
        left: Sequence[EarlierCall] = (),
    ) -> None:
        """Add what the commit needs to a turn that failed or was asked to end. ``was_interrupted``: before the turn.
        ``left``: calls that it could have made again and has not.
        """
        if turn.error is not None and turn.error.code == NAME_MISSING:
            raise BadConfiguration(waits_for(program, turn.error.message))
        if turn.cancel and turn.interrupted and not was_interrupted:
            turn.grace_ends = self._end_of_grace(program)
        if turn.error is None:
            return
        is_unfinished, turn.exact = _leaves_state(turn, program), keeps_machine(turn)
        if not is_unfinished and not turn.exact:
            return
        failure = UNKNOWN_TURN
        if turn.exact:
            begun = begun_calls(lease.execution, turn, left)
            dropped = cancelled_tasks(turn)
            failure = FailedTurn(turn.raised, begun, turn.raises_again, turn.settled, dropped)
        message = turn.error.message
        _, turn.kept = await read_kept(self.ledger, self.blobs, lease.execution, message, failure)
        turn.is_unfinished = is_unfinished and turn.kept is not None

    def _end_of_grace(self, program: ScriptProgram) -> float | None:
        grace = self._grace(program)
        return self.ledger.now() + grace if grace is not None else None

    def _grace(self, program: ScriptProgram) -> float | None:
        """Return the seconds for which the script may clean up; None: no limit."""
        return program.cancel_grace if program.cancel_grace is not None else self.cancel_grace

    async def _loader(
        self, lease: Lease, program: ScriptProgram, view: MachineView, job: Job
    ) -> Callable[[], RunningMachine]:
        """Return a function that restores the machine. It is called where the program runs, because it may call user
        code.
        """
        execution = lease.execution
        cached = self.hot.take(execution)
        job.setting, job.received = program.journal, Received(view.read, view.completions, view.signals)
        light = is_light.get()
        blobs: dict[str, bytes] = {}
        snapshot = b""
        if cached is None or cached.version != view.version:
            cached = None
            refuse_if_light(len(view.snapshot))
            snapshot = await self.readiness.opened(lease, program, view.snapshot)
            blobs = await program.read_blobs(snapshot, partial(self._checked_blob, execution))
            job.blobs = blob_names([snapshot, *blobs.values()])
        else:
            job.blobs, job.journal = cached.blobs, cached.journal
            self.journals.set_aside(execution, cached.journal)

        def load() -> RunningMachine:
            machine = cached.machine if cached is not None else program.load(snapshot, blobs, light=light)
            job.before = machine.awaiting
            return machine

        return load

    async def _checked_blob(self, execution: str, name: str) -> bytes:
        data = await self.blobs.get(execution, name)
        check_blob(name, data, execution)
        return data

    async def _first_turn(
        self, lease: Lease, program: ScriptProgram, body: StartBody, view: MachineView | None = None
    ) -> ScriptStep:
        now = self.ledger.now()
        if body.cleanup_of is not None:
            return await self._first_turn_of_cleanup(lease, program, body.cleanup_of)
        if body.continues is not None:
            return await self._first_turn_of_retry(lease, program, body.continues)
        if body.branches is not None:
            branch = await read_branch(self.ledger, lease.execution)
            return await self._first_turn_of_retry(lease, program, body.branches, branch)
        if view is not None and view.cancel:
            error = interruption(view.cancel, "it had not begun yet")
            turn = Turn("failed", view.version, view.inbox, error=error, cancel=view.cancel, interrupted=True)
            return ScriptStep(commit_turn(lease, turn, now))
        signals = view.signals if view is not None else ()
        payloads = await self.reading.payloads(lease.execution, signals)
        version, inbox = (view.version, view.inbox) if view is not None else (0, 0)
        job = Job(
            lease.execution, version, inbox, now, {}, {}, {}, signals, payloads, setting=program.journal
        )
        if view is not None:
            job.received = Received(view.read, view.completions, view.signals)
        context = {
            "executionId": lease.execution,
            "workflow": body.workflow,
            "version": body.version,
            "startedAt": int(body.started_at * 1000),
            "attempt": body.attempt,
        }
        refuse_if_light(memoryview(body.input).nbytes)
        inputs, light = decode_value(body.input), is_light.get()
        budget = None if program.native else SLICE
        turn, machine = await self._run(
            lease, program, job, lambda: program.start(inputs, context, now, budget, light=light)
        )
        return await self._loaded_turned(lease, job, turn, machine)

    async def _first_turn_of_cleanup(self, lease: Lease, program: ScriptProgram, other: str) -> ScriptStep:
        """Continue the machine of an execution that ended before its clean-up did."""
        cleanup = Cleanup(self.archive, self.blobs, self.reading, lease, other)
        job = await cleanup.job(self.ledger.now())
        job.setting = program.journal
        snapshot, old = await self.readiness.kept_snapshot(lease, program, cleanup)
        begin = await cleanup.loader(program, snapshot, job, old=old)
        turn, machine = await self._run(lease, program, job, begin)
        if turn.status == "suspended":
            turn.carried = await cleanup.carried_over(turn)
        return await self._loaded_turned(lease, job, turn, machine)

    async def _first_turn_of_retry(
        self, lease: Lease, program: ScriptProgram, other: str, branch: Branch | None = None
    ) -> ScriptStep:
        """Take over the machine of a failed execution, or that of an earlier turn. Nothing of it runs in this turn: the
        next one runs the turn that followed again, as any turn of this execution.
        """
        machine_view, own = (
            await self.ledger.machine(lease.execution),
            await self.archive.execution(lease.execution),
        )
        if machine_view is None or own is None:
            return ScriptStep(nothing(lease))  # it has ended meanwhile and was swept
        given = self.archive, self.blobs, self.reading, lease, other, self.inputs, self.results
        retry = Retry(*given) if branch is None else BranchedOff(branch, *given)
        snapshot, old = await self.readiness.kept_snapshot(lease, program, retry)
        context = context_of(own, await self.reading.attempt(own))
        job = retry.job(machine_view)
        job.setting = program.journal
        begin = await retry.loader(program, snapshot, job, context, old)
        turn, machine = await self.turns.run(job, begin, self._thread(program))
        if turn.status == "suspended":
            await retry.take_over(turn, job.before, self.ledger.now())
        return await self._loaded_turned(lease, job, turn, machine, is_cached=False)

    async def _start_body(self, lease: Lease) -> StartBody:
        if lease.data:
            return decode_start_body(lease.data)
        view = await self.archive.execution(lease.execution)
        if view is None:
            raise NotFound(f"there is no execution {lease.execution} in this store")
        attempt = await self.reading.attempt(view)
        return StartBody(Raw(view.input), view.workflow, view.version, view.created_at, attempt)

    def _turned(
        self,
        lease: Lease,
        job: Job,
        turn: Turn,
        machine: Any,
        events: tuple[NewEvent, ...] = (),
        *,
        is_cached: bool = True,
    ) -> ScriptStep:
        now = self.ledger.now()
        return step_of_turn(lease, job, turn, machine, now, self.readiness, events, is_cached=is_cached)

    async def _loaded_turned(
        self, lease: Lease, job: Job, turn: Turn, machine: Any, *, is_cached: bool = True
    ) -> ScriptStep:
        await open_journal(self.journals, job, turn)
        return self._turned(lease, job, turn, machine, is_cached=is_cached)

    def _thread(self, program: ScriptProgram) -> Any:
        if not program.native or self.threads is None:
            return None
        return self.threads.call

    # -- tasks and timers -------------------------------------------------------------------------------------

    async def _task(self, lease: Lease, since: float | None = None) -> ScriptStep:
        body = decode_task(lease.data)
        began = self.ledger.now() if since is None else since
        if body.awaiting is not None:
            return await self._answered(lease, body, body.awaiting, began)
        returned = await self.tasks.run(lease, body, self._workflow_of(lease), began)
        self.task_returned(lease)
        if isinstance(returned, AwaitSignal):
            try:
                return ScriptStep(self.questions.ask(lease, body, returned, began))
            except (NotJson, LimitExceeded) as error:
                returned = unstorable(error)
        if not isinstance(returned, Failed):
            what = f"the output of task '{lease.node}'"
            try:
                small = self.results.of_small(returned, what)
                result = small or await self.results.of(lease.execution, returned, what)
            except (NotJson, LimitExceeded) as error:
                returned = unstorable(error)
            else:
                return await self._task_done(lease, body, TaskDone(began, body.line, result))
        return await self._task_failed(lease, body, returned, began)

    async def _answered(self, lease: Lease, body: TaskBody, awaiting: Awaiting, began: float) -> ScriptStep:
        done = await self.questions.answered(lease, body, awaiting, began)
        return await self._task_done(lease, body, done) if isinstance(done, TaskDone) else ScriptStep(done)

    async def work_failed(self, lease: Lease, failed: WorkFailed) -> ScriptStep:
        """Fail a task whose writes to its step's transaction were refused: the run counts as failed."""
        body = decode_task(lease.data)
        retry = task_options(body.options).retry or self.transactions.ended(lease) or NO_RETRY
        failure = storable_failure(failed.error, lease.node)
        returned = Failed(failure, error_value(failure, failed.error), retry)
        return await self._task_failed(lease, body, returned, self.ledger.now())

    async def _task_failed(self, lease: Lease, body: TaskBody, returned: Failed, began: float) -> ScriptStep:
        if self.transactions.has(lease):
            await self.transactions.abandon(lease)
        if returned.policy.allows(lease.attempt, returned.failure):
            now = self.ledger.now()
            due = now + returned.policy.delay(lease.token, lease.attempt, returned.failure)
            return ScriptStep(retry_task(lease, body, returned.failure, began, now, due))
        return await self._task_done(lease, body, TaskDone(began, body.line, error=returned.error))

    async def too_heavy(self, lease: Lease, message: str) -> ScriptStep:
        """Fail a step that exceeded the limits of its subprocess."""
        now = self.ledger.now()
        if lease.kind != "task":
            return await self.fail(lease, ErrorValue("LimitExceeded", message))
        error = unstorable(LimitExceeded(message))
        return await self._task_failed(lease, decode_task(lease.data), error, now)

    def _workflow_of(self, lease: Lease) -> str:
        program = self.definitions.cached_script(lease.definition)
        return program.definition.name if program is not None else lease.node

    async def _task_done(self, lease: Lease, body: TaskBody, done: TaskDone) -> ScriptStep:
        now = self.ledger.now()
        if body.promise is None or lease.execution_kind == "task":
            return ScriptStep(finish_task(lease, done, now))
        step = await self._settled(lease, done.completion(body.promise, lease), task_event(lease, done, now))
        step.done = done
        step.spent = body.stored.blob if body.stored is not None else None
        return step

    async def applied(self, lease: Lease, step: ScriptStep) -> None:
        """Note that the step, or its replacement, was applied."""
        if step.spent is not None:
            await self.inputs.remove(lease.execution, step.spent)

    def put_off(self, lease: Lease) -> None:
        """Note that a timer was put off. It may look at a task that goes on elsewhere."""
        if self.lookouts is not None:
            self.lookouts.watch(lease)

    async def handed_over(self, lease: Lease, step: ScriptStep) -> Transition | None:
        """Return the transition of a task whose script has ended meanwhile: the task is an execution of its own by
        now.
        """
        execution = task_execution_id(lease.token)
        if step.done is not None:
            await self.inputs.keep(execution, decode_task(lease.data))
            own = msgspec.structs.replace(lease, execution=execution, definition="")
            return finish_task(own, step.done, self.ledger.now())
        if lease.kind == "task" and step.transition.park is not None:
            return msgspec.structs.replace(step.transition, execution=execution)
        return None

    async def refused(self, lease: Lease, message: str) -> ScriptStep:
        """Return the failure of a step whose output the store cannot hold."""
        return await self.fail(lease, ErrorValue("NOT_STORABLE", f"the store cannot hold this: {message}"))

    async def _timer(self, lease: Lease) -> ScriptStep:
        body = decode_timer(lease.data)
        now = self.ledger.now()
        if body.awaited is not None:
            return ScriptStep(await look_at(self.archive, self.results, lease, body.awaited, now))
        if body.signal is None:
            event = NewEvent("TimerFired", "", "", now, None, lease.token)
            return await self._settled(lease, succeeded(body.promise, Result(b"null")), event)
        view = await self.ledger.machine(lease.execution)
        if view is not None and any(signal.name == body.signal for signal in view.signals):
            # The signal arrived in time, or another one of its name did. The resume that assigns it goes first.
            return ScriptStep(put_off(lease, now + AFTER_THE_SIGNAL))
        error = ErrorValue("TimeoutError", f"no {in_words(body.signal)} arrived in time")
        request = request_in(body.signal)
        kind = b'{"signal":true}' if request is None else b'{"request":true}'
        event = NewEvent("TimerFired", request or body.signal, "", now, kind, lease.token)
        return ScriptStep(settle_only(lease, failed(body.promise, error), event, repeatable=True))

    async def _settled(self, lease: Lease, completion: Completion, event: NewEvent) -> ScriptStep:
        """Settle a promise and continue the machine in the same commit if that is likely to be accepted."""

        def plain() -> Transition:
            return settle_only(lease, completion, event, repeatable=False)

        if self.transactions.has(lease):
            return ScriptStep(plain())  # a transaction is for one step, not also for the script's next one
        cached = self.hot.take_if_woken(lease.execution, lease.definition, completion)
        program = self.definitions.cached_script(lease.definition)
        if program is None or cached is None:
            return ScriptStep(plain())
        if program.native:
            is_light.set(False)
        size = size_of(completion)
        if size <= LARGEST or blob_of(completion) is None:
            outcome = outcome_of(completion)
        elif is_light.get():
            return ScriptStep(plain())  # the script continues in a step of its own
        else:
            outcome = await self.reading.outcome(lease.execution, completion)
        name = promise_id(completion.promise)
        job = Job(
            lease.execution,
            cached.version,
            cached.read,
            self.ledger.now(),
            {**cached.known, name: outcome},
            sizes={**cached.sizes, name: size},
            cancel=cached.cancel,
            interrupted=bool(cached.cancel),
            settled=completion,
            before=cached.awaiting,
            awaiting=cached.awaiting,
            blobs=cached.blobs,
            setting=program.journal,
            journal=cached.journal,
        )
        self.journals.set_aside(lease.execution, cached.journal)
        machine, was_interrupted = cached.machine, job.interrupted
        try:
            # As in `_run`, without a coroutine more for every step.
            turn, after = await self.turns.run(job, lambda: machine, self._thread(program))
            if turn.error is not None and _leaves_state(turn, program):
                return ScriptStep(plain())  # settled outcomes count, whichever process continues the clean-up
            if turn.cancel or turn.error is not None:
                await self._complete(lease, program, turn, was_interrupted)
        except (Heavy, BadConfiguration):
            return ScriptStep(plain())  # the script continues in a step of its own
        step = self._turned(lease, job, turn, after, (event,))
        step.instead = plain
        return step

    async def _deadline(self, lease: Lease) -> ScriptStep:
        program = await self.definitions.any_by_hash(lease.definition)
        now = self.ledger.now()
        if lease.node != GRACE:
            timeout = program.timeout if isinstance(program, ScriptProgram) else None
            return ScriptStep(expire_script(lease, now, timeout))
        view, kept = await read_kept(self.ledger, self.blobs, lease.execution, CLEANUP_CUT_OFF)
        if view is None:
            return ScriptStep(nothing(lease))
        grace = self._grace(program) if isinstance(program, ScriptProgram) else None
        return ScriptStep(cut_off(lease, view, now, grace, kept))


def _leaves_state(turn: Turn, program: ScriptProgram) -> bool:
    """Return True if a turn failed without an end of the script's clean-up, whether or not that had begun."""
    return is_failed_cleanup(turn) or (not turn.cancel and turn.cut_short and program.can_clean_up)
