"""Remote workers: tasks that run in processes without a kernel, and the steps that are committed for them.

A remote worker asks for tasks, says from time to time which ones it works on, and reports how they ended. Everything
durable is the ledger's: a task in somebody's hands is a leased token, its fence refuses late answers, and any server of
the same store can take any call. What this object remembers only makes that quick.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from dalsegno.core.body import Body
from dalsegno.core.complete import Step
from dalsegno.core.script_tasks import put_off
from dalsegno.core.situation import RunRecord, Situation, encode_record, run_event
from dalsegno.engine.remote_sessions import Held, Session, Sessions, remote_worker_of, tasks_in
from dalsegno.engine.scripting.steps import ScriptStep
from dalsegno.engine.standin import Answer, Question, Remotely
from dalsegno.engine.tasks import Tasks
from dalsegno.errors import BadConfiguration, InvalidInput, LeaseLost, NotFound, OperatorError
from dalsegno.model.event import NewEvent
from dalsegno.model.execution import ENDED
from dalsegno.model.failure import Failure
from dalsegno.model.ids import task_execution_id
from dalsegno.model.inspection import Inspection
from dalsegno.model.token import SYSTEM_QUEUE, Lease, TokenView
from dalsegno.model.transition import AlreadyApplied, Applied, Outcome, ReadyToken, Refused, Stale, Transition

if TYPE_CHECKING:
    from dalsegno.engine.engine import Engine

logger = logging.getLogger("dalsegno.remote")

REMEMBERED = 10_000
"""Answers that are recognised when they come again."""
CANNOT_RUN_PAUSE = 2.0
TICK = 0.25
"""How often a waiting call looks whether its caller is still there; how often silence is judged, at most."""


class RemoteSettings(Struct, frozen=True):
    lease: float = 30.0
    """A remote worker that is silent for this long has lost its tasks."""
    first: float = 10.0
    """Within which it must show that it knows of a task that it was given: by a heartbeat, or by its result."""

    @property
    def interval(self) -> float:
        """How often a worker is asked to send heartbeats."""
        return self.lease / 3


class RemoteTask(Struct, frozen=True):
    """A task as it is handed out. ``id`` is opaque to workers."""

    id: str
    lease: Lease
    question: Question
    since: float
    deadline: float | None


class Settled(Struct, frozen=True):
    """An answer was taken: ``repeated`` if the same one had been taken before."""

    id: str
    verb: str
    repeated: bool = False


class Orchestrator:
    """Commits for the remote workers of one server process."""

    def __init__(self, engine: Engine, settings: RemoteSettings | None = None) -> None:
        self.engine = engine
        self.settings = settings or RemoteSettings()
        self.ledger = engine.stack.ledger
        self.sessions = Sessions()
        self.lost = 0
        """Tasks taken away from workers that were silent."""
        tasks = engine.services.get("tasks")
        self._remotely = Remotely(engine.steps, engine.scripts, tasks if isinstance(tasks, Tasks) else None)
        self._settled: OrderedDict[tuple[str, int], Settled] = OrderedDict()
        self._watch: asyncio.Task[None] | None = None
        self._background: set[asyncio.Task[None]] = set()

    # -- handing out ------------------------------------------------------------------------------------------

    async def claim(
        self,
        worker: str,
        queues: Sequence[str],
        limit: int,
        wait: float,
        *,
        tasks: Sequence[str] | None = None,
        gone: Callable[[], Awaitable[bool]] | None = None,
    ) -> list[RemoteTask]:
        """At most ``limit`` tasks; waits up to ``wait`` seconds for the first. ``gone`` tells whether the caller has
        hung up: what it would have been given then goes back at once."""
        if SYSTEM_QUEUE in queues:
            raise InvalidInput(
                f"the queue '{SYSTEM_QUEUE}' is the engine's own; give the queues of your tasks"
            )
        session = await self._session(worker, tuple(dict.fromkeys(queues)), wait)
        until = asyncio.get_running_loop().time() + wait
        session.polls += 1
        try:
            while True:
                left = until - asyncio.get_running_loop().time()
                leases = await self._take(session, limit, left, gone)
                found = await self._hand_out(session, leases, tasks)
                if found or not leases or left <= 0:
                    break
        except BaseException:
            self._doubt(session)
            raise
        finally:
            session.polls -= 1
            session.spoke_at = self.ledger.now()
        if found and gone is not None and await gone():
            await self._give_back(found)
            return []
        return [self._task(held) for held in found]

    def _doubt(self, session: Session) -> None:
        """Something may be leased to the worker that nobody knows of: it goes on under a new name. The old one is kept
        alive only by the tasks that it still names; then what it held unknowingly expires."""
        self.sessions.drop(session)

    async def _session(self, worker: str, queues: tuple[str, ...], wait: float) -> Session:
        now = self.ledger.now()
        session = self.sessions.of(worker, now)
        if self._watch is None:
            self._watch = asyncio.create_task(self._watch_over(), name="remote workers")
        await self._take_unknown_back(session)
        if session.queues != queues or session.written - now < wait + self.settings.lease / 2:
            session.queues = queues
            await self._keep_alive(session, wait + self.settings.lease)
        return session

    async def _keep_alive(self, session: Session, seconds: float) -> None:
        session.written = self.ledger.now() + seconds
        await asyncio.to_thread(self.ledger.heartbeat, session.name, seconds, session.info(session.name))

    async def _take(
        self, session: Session, limit: int, wait: float, gone: Callable[[], Awaitable[bool]] | None
    ) -> list[Lease]:
        """A claim under way is never broken off, which could lease tokens that nobody knows of: it is left to the
        worker's next call, and what it brings meanwhile goes back."""
        key = (session.queues, limit)
        claim = session.waiting.pop(key, None)
        if claim is None:
            claim = asyncio.create_task(self.engine.stack.broker.take(session.name, session.queues, limit))
        until = asyncio.get_running_loop().time() + max(wait, 0.05)
        try:
            while not claim.done():
                left = until - asyncio.get_running_loop().time()
                if left <= 0 or (gone is not None and await gone()):
                    return []
                await asyncio.wait({claim}, timeout=min(left, TICK))
        finally:
            if not claim.done():
                session.waiting[key] = claim
                claim.add_done_callback(lambda done: self._abandoned(session, key, done))
        return claim.result()

    def _abandoned(
        self, session: Session, key: tuple[tuple[str, ...], int], claim: asyncio.Task[list[Lease]]
    ) -> None:
        if session.waiting.get(key) is not claim:
            return
        del session.waiting[key]
        if claim.cancelled() or claim.exception() is not None:
            self._doubt(session)
        elif claim.result():
            self._later(self._hand_back(session.name, claim.result()))

    async def _hand_out(
        self, session: Session, leases: Sequence[Lease], tasks: Sequence[str] | None
    ) -> list[Held]:
        found = []
        for lease in leases:
            held = await self._prepare(session, lease)
            if held is None:
                continue
            if tasks is not None and held.question.task not in tasks:
                # Another worker of this queue may know it; until then it must not stand in the way of others.
                await self._put_off(lease)
                continue
            session.held[lease.token] = held
            self._record_started(held)
            found.append(held)
        return found

    async def _prepare(self, session: Session, lease: Lease) -> Held | None:
        """None where there is nothing to hand out: the step was taken here, or has to wait."""
        try:
            asked = await self._remotely.ask(lease)
        except BadConfiguration as error:
            logger.warning("token %s of execution %s is put off: %s", lease.token, lease.execution, error)
            await self._put_off(lease)
            return None
        if not isinstance(asked, Question):
            await self._commit(lease, asked, patient=True)
            return None
        now = self.ledger.now()
        deadline = now + asked.timeout if asked.timeout is not None else None
        return Held(lease, asked, session.name, now, deadline)

    async def _put_off(self, lease: Lease) -> None:
        """Nothing has been tried, so no attempt is used up."""
        transition = put_off(lease, self.ledger.now() + CANNOT_RUN_PAUSE)
        if transition.park is not None:
            transition = replace(transition, park=replace(transition.park, attempt=lease.attempt))
        await self.engine.committer.commit(transition)

    def _task(self, held: Held) -> RemoteTask:
        lease = held.lease
        return RemoteTask(f"{lease.execution}.{lease.token}", lease, held.question, held.since, held.deadline)

    def _record_started(self, held: Held) -> None:
        """A watcher sees who has it; the worker does not wait for that."""
        lease, now = held.lease, held.since
        if lease.kind == "task":
            record = encode_record(
                {"attempt": lease.attempt, "started_at": now, "worker": remote_worker_of(held.owner)}
            )
            event = NewEvent("TaskStarted", lease.node, "", now, record, lease.token)
        else:
            program = self.engine.definitions.cached(lease.definition)
            if program is None:
                return
            situation = Situation(program.plan, lease, Body(), now, now)
            event = run_event("NodeStarted", situation, RunRecord(lease.ready_at, now, lease.attempt))
        self.engine.committer.commit(Transition(lease.execution, (), (event,)))

    # -- answers ----------------------------------------------------------------------------------------------

    async def settle(self, id: str, fence: int, answer: Answer) -> Settled:
        """Commits the step with this answer. The same answer again is answered the same; one for a task that is not
        the worker's own any more is `LeaseLost`."""
        execution, token = _parts(id)
        held = self.sessions.held(token)
        if held is not None and held.settling is not None and held.lease.fence == fence:
            await asyncio.wait({held.settling})
        verb = "complete" if answer.failure is None else "fail"
        known = self._settled.get((token, fence))
        if known is not None:
            if known.verb != verb:
                raise LeaseLost(f"task {id} was answered before, with '{known.verb}'")
            return replace(known, repeated=True)
        if held is None or held.lease.fence != fence:
            held = await self._find(id, execution, token, fence)
        return await self._settle(id, held, answer, verb)

    async def _settle(self, id: str, held: Held, answer: Answer, verb: str) -> Settled:
        lease = held.lease
        worker = remote_worker_of(held.owner)
        if worker is not None:
            self.sessions.of(worker, self.ledger.now())
        held.confirmed = True
        held.settling = asyncio.get_running_loop().create_future()
        try:
            step = await self._remotely.answer(lease, answer, held.since)
            outcome = await self._commit(lease, step)
            if isinstance(outcome, Refused):
                again = await self._remotely.answer(lease, _not_storable(outcome.message), held.since)
                outcome = await self._commit(lease, again)
            if not isinstance(outcome, Applied | AlreadyApplied):
                raise _lost(id, outcome)
            settled = Settled(id, verb)
            self._remember((lease.token, lease.fence), settled)
            self.sessions.let_go(lease.token)
            if self.engine.observer is not None:
                self.engine.observer.remote(held, answer.failure, self.ledger.now())
            return replace(settled, repeated=isinstance(outcome, AlreadyApplied))
        except LeaseLost:
            self.sessions.let_go(lease.token)
            raise
        finally:
            held.settling.set_result(None)
            held.settling = None

    async def _commit(self, lease: Lease, step: Step | ScriptStep, *, patient: bool = False) -> Outcome:
        """As a local worker does, without keeping anything for itself. A worker that waits for its reply is told when
        the store is out of order, and comes again."""
        commit = self.engine.committer.commit
        outcome = await commit(step.transition, patient=patient)
        if isinstance(step, Step):
            return outcome
        scripts = self.engine.scripts
        if isinstance(outcome, Applied) and step.warm is not None:
            scripts.hot.keep(lease.execution, step.warm)
        if isinstance(outcome, Stale) and outcome.reason == "version" and step.instead is not None:
            outcome = await commit(step.instead(), patient=patient)
        if isinstance(outcome, Stale) and outcome.reason in ("finished", "unknown"):
            instead = scripts.handed_over(lease, step)
            if instead is not None:
                outcome = await commit(instead, patient=patient)
        return outcome

    def _remember(self, key: tuple[str, int], settled: Settled) -> None:
        self._settled[key] = settled
        if len(self._settled) > REMEMBERED:
            self._settled.popitem(last=False)

    async def _find(self, id: str, execution: str, token: str, fence: int) -> Held:
        """A task that another server process handed out. A script that ended has left it to an execution of its own."""
        for each in (execution, task_execution_id(token)):
            inspection = await self.ledger.inspect(each)
            view = _token_in(inspection, token)
            if inspection is None or view is None:
                continue
            if view.state != "leased" or view.fence != fence or remote_worker_of(view.owner) is None:
                raise LeaseLost(
                    f"task {id} is not yours any more: it was given to another worker, or will be"
                )
            return await self._adopt(_lease(inspection, view, self.ledger.now()), view.owner or "")
        if await self.engine.stack.archive.execution(execution) is None:
            raise NotFound(f"there is no task {id} in this store")
        raise LeaseLost(f"task {id} is over: it was answered, timed out, or its execution has ended")

    async def _adopt(self, lease: Lease, owner: str) -> Held:
        asked = await self._remotely.ask(lease)
        now = self.ledger.now()
        question = asked if isinstance(asked, Question) else Question(lease.node, None, lease.token, "", None)
        deadline = now + question.timeout if question.timeout is not None else None
        return Held(lease, question, owner, now, deadline, confirmed=True)

    # -- being alive ------------------------------------------------------------------------------------------

    async def heartbeat(self, worker: str, tasks: Sequence[tuple[str, int]]) -> list[str]:
        """Keeps the named tasks; those that are lost are returned. Whatever else the worker was given some time ago it
        does not know of: that goes back."""
        now = self.ledger.now()
        session = self.sessions.of(worker, now)
        lost, owners = [], {session.name}
        for task, fence in tasks:
            held = await self._still_held(task, fence)
            if held is None:
                lost.append(task)
                continue
            held.confirmed = True
            owners.add(held.owner)
            if held.owner != session.name and held.lease.token not in session.held:
                session.held[held.lease.token] = held
        named = {_parts(task)[1] for task, _ in tasks}
        for held in session.held.values():
            if held.lease.token not in named and now - held.since > self.settings.first:
                held.confirmed = False
        await self._take_unknown_back(session)
        for owner in owners:
            await self._renew(session, owner)
        return [*lost, *await self._ended(tasks, lost)]

    async def _still_held(self, id: str, fence: int) -> Held | None:
        execution, token = _parts(id)
        held = self.sessions.held(token)
        if held is not None and held.lease.fence == fence:
            return held
        try:
            return await self._find(id, execution, token, fence)
        except (LeaseLost, NotFound):
            return None

    async def _ended(self, tasks: Sequence[tuple[str, int]], lost: Sequence[str]) -> list[str]:
        """Tasks of executions that have ended meanwhile. One whose script is over may live on as its own execution,
        which its answer finds out."""
        rest = [task for task, _ in tasks if task not in lost]
        states = await self.engine.stack.archive.states([_parts(task)[0] for task in rest])
        ended = []
        for task in rest:
            execution, token = _parts(task)
            held = self.sessions.held(token)
            graph = held is not None and held.lease.execution_kind == "graph"
            if states.get(execution) in (ENDED if graph else ("CANCELLED",)):
                ended.append(task)
                self.sessions.let_go(token)
        return ended

    async def _renew(self, session: Session, owner: str) -> None:
        if owner == session.name:
            await self._keep_alive(session, self.settings.lease)
        else:
            info = session.info(owner)
            await asyncio.to_thread(self.ledger.heartbeat, owner, self.settings.lease, info)

    async def _take_unknown_back(self, session: Session) -> None:
        """It speaks, and does not say that it knows of these: the reply that brought them was lost on the way."""
        late = session.unconfirmed(self.ledger.now() - self.settings.first)
        late = [held for held in late if held.settling is None]
        if not late:
            return
        elsewhere = await self._confirmed_elsewhere(session)
        for held in late:
            if held.lease.token in elsewhere:
                held.confirmed = True
        await self._give_back([held for held in late if not held.confirmed])

    async def _confirmed_elsewhere(self, session: Session) -> set[str]:
        """What the worker told another server of the same store."""
        rows = await self.ledger.workers()
        return {token for row in rows if row.id == session.name for token in tasks_in(row.info)}

    async def _give_back(self, tasks: Sequence[Held]) -> None:
        for held in tasks:
            self.sessions.let_go(held.lease.token)
            await self._hand_back(held.owner, [held.lease])

    async def _hand_back(self, owner: str, leases: Sequence[Lease]) -> None:
        """Ready again, no loss counted."""
        await self.ledger.release(owner, leases)
        ready = [ReadyToken(each.token, each.execution, each.queue, each.priority) for each in leases]
        await self.engine.stack.broker.announce(ready)

    # -- watching ---------------------------------------------------------------------------------------------

    async def _watch_over(self) -> None:
        while True:
            await asyncio.sleep(max(min(TICK, self.settings.first / 4), 0.02))
            try:
                await self._look_after_all()
            except OperatorError as error:
                logger.warning("remote workers cannot be looked after now (%s); trying again", error)
            except Exception:
                # One task that breaks it must not leave all others unwatched.
                logger.exception("looking after remote workers broke; trying again")

    async def _look_after_all(self) -> None:
        now = self.ledger.now()
        for session in self.sessions.all():
            for held in list(session.held.values()):
                if held.deadline is not None and held.deadline <= now and held.settling is None:
                    await self._time_out(held)
            if session.silence(now) > session.patience(self.settings.lease, self.settings.first):
                await self._give_up(session)

    async def _time_out(self, held: Held) -> None:
        task = f"{held.lease.execution}.{held.lease.token}"
        with contextlib.suppress(LeaseLost):
            await self._settle(task, held, _timed_out(held), "timeout")

    async def _give_up(self, session: Session) -> None:
        """It was silent for too long, unless it spoke to another server, which then wrote so."""
        row = next((each for each in await self.ledger.workers() if each.id == session.name), None)
        if row is not None and row.expires_at > session.written + 0.001:
            session.written = row.expires_at
            session.spoke_at = self.ledger.now()
            return
        self.sessions.drop(session)
        for claim in session.waiting.values():
            claim.cancel()
        session.waiting.clear()
        lost = await self.ledger.expire((session.name,))
        if lost:
            self.lost += len(lost)
            self.engine.reconciler.repairs["expired-lease"] += len(lost)
            logger.warning(
                "took %d tasks back from remote worker %s, which is silent", len(lost), session.worker
            )
            await self.engine.stack.broker.announce(lost)

    def _later(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(self._told(work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _told(self, work: Awaitable[None]) -> None:
        try:
            await work
        except OperatorError as error:
            logger.warning("leases of remote workers are not handed back now, and expire: %s", error)

    async def stop(self) -> None:
        """Tasks stay with their workers, which go on with the next server; calls that wait have ended before."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
            self._watch = None
        for session in self.sessions.all():
            await self._stop_waiting(session)
        await asyncio.gather(*self._background, return_exceptions=True)

    async def _stop_waiting(self, session: Session) -> None:
        """A worker that holds nothing is forgotten at once, with whatever a claim of it may still have leased."""
        claims = list(session.waiting.values())
        session.waiting.clear()
        for claim in claims:
            claim.cancel()
        await asyncio.gather(*claims, return_exceptions=True)
        if not session.held:
            with contextlib.suppress(OperatorError):
                await self.ledger.expire((session.name,))


def _parts(id: str) -> tuple[str, str]:
    execution, dot, token = id.partition(".")
    if not (execution and dot and token):
        raise NotFound(f"there is no task {id!r}; give the id as it was handed out")
    return execution, token


def _token_in(inspection: Inspection | None, token: str) -> TokenView | None:
    tokens = inspection.tokens if inspection is not None else ()
    return next((view for view in tokens if view.id == token), None)


def _lease(inspection: Inspection, view: TokenView, now: float) -> Lease:
    execution = inspection.execution
    return Lease(
        view.id,
        execution.id,
        view.fence,
        view.scope,
        view.kind,
        view.node,
        view.data,
        view.queue,
        view.priority,
        view.attempt,
        view.losses,
        view.reason,
        now,
        execution.definition,
        execution.epoch,
        view.live,
        execution.kind,
    )


def _lost(id: str, outcome: Outcome) -> LeaseLost:
    reason = outcome.reason if isinstance(outcome, Stale) else ""
    if reason in ("finished", "scope", "unknown"):
        return LeaseLost(f"task {id} is not wanted any more: its execution, or its branch of it, has ended")
    return LeaseLost(f"task {id} is not yours any more: it was given to another worker, or answered before")


def _timed_out(held: Held) -> Answer:
    scripted = held.lease.kind == "task"
    name = held.question.task if scripted else held.lease.node
    what = f"task '{name}'" if scripted else f"node '{name}'"
    message = f"{what} did not end within its timeout of {held.question.timeout:g} s"
    return Answer(failure=Failure(message, "TimeoutError" if scripted else "TIMEOUT", "TimeoutError"))


def _not_storable(message: str) -> Answer:
    text = f"the store cannot hold this output: {message}"
    return Answer(failure=Failure(text, "NOT_STORABLE", "NotStorable", retryable=False))
