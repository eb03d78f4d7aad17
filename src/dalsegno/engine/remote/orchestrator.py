"""The orchestrator of remote workers: tasks that run in processes without a kernel, and the steps committed for them.

- A remote worker claims tasks, reports in heartbeats which ones it works on, and reports their outcomes. A claim
  returns tasks at once or waits for the first.
- All durable state is in the ledger: a held task is a leased token, its fence refuses late answers, and any server of
  the same store can handle any call. What is remembered here is only a cache.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from dalsegno.core.graph.step_input import Body, RunRecord, StepInput, encode_record, run_event
from dalsegno.core.scripts.tasks import put_off
from dalsegno.engine.remote.answers import Answers
from dalsegno.engine.remote.presence import RemoteHeartbeats
from dalsegno.engine.remote.sessions import (
    ANYONE,
    Claimant,
    Held,
    RemoteLeases,
    RemoteSettings,
    RemoteTask,
    Session,
    Sessions,
    Settled,
    task_of,
)
from dalsegno.engine.remote.task_proxy import Answer, RemoteRequest, RemoteSteps
from dalsegno.engine.steps.tasks import Tasks
from dalsegno.engine.subprocesses.heavy_steps import PutOff
from dalsegno.engine.worker.capabilities import NotRunnableHere
from dalsegno.engine.worker.long_runs import shown_as_started
from dalsegno.errors import BadConfiguration, InvalidInput, OperatorError
from dalsegno.model.event import NewEvent
from dalsegno.model.token import SYSTEM_QUEUE, Lease

if TYPE_CHECKING:
    from dalsegno.engine.engine import Engine

__all__ = ["Claimant", "Orchestrator", "RemoteSettings", "RemoteTask", "Settled"]

logger = logging.getLogger("dalsegno.remote")

CANNOT_RUN_PAUSE = 2.0
TICK = 0.25
"""Seconds between two checks whether the caller of a waiting call is still connected."""


class Claims:
    def __init__(
        self, engine: Engine, remotely: RemoteSteps, remote_leases: RemoteLeases, answers: Answers
    ) -> None:
        self.engine = engine
        self.ledger = engine.stack.ledger
        self.remote_leases = remote_leases
        self.sessions = remote_leases.sessions
        self.answers = answers
        self._remotely = remotely

    async def claim(
        self,
        worker: str,
        queues: Sequence[str],
        limit: int,
        wait: float,
        *,
        tasks: Sequence[str] | None = None,
        gone: Callable[[], Awaitable[bool]] | None = None,
        by: Claimant = ANYONE,
    ) -> list[RemoteTask]:
        """Return at most ``limit`` tasks, waiting up to ``wait`` seconds for the first. ``gone`` returns True if the
        caller has disconnected: the tasks found for it are then handed back at once.
        """
        if SYSTEM_QUEUE in queues:
            raise InvalidInput(
                f"the queue '{SYSTEM_QUEUE}' is the engine's own; give the queues of your tasks"
            )
        by.check_queues(queues)
        session = await self._session(worker, tuple(dict.fromkeys(queues)), wait, by.key)
        await self.note(worker, session.queues)
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
            self._give_up_name(session)
            raise
        finally:
            session.polls -= 1
            session.note_message(self.ledger.now())
        if found and gone is not None and await gone():
            await self.remote_leases.give_back(found)
            return []
        given = {held.lease.queue for held in found}
        await self.note(worker, given, given)
        return [task_of(held) for held in found]

    async def note(self, worker: str, queues: Iterable[str], given: Container[str] = ()) -> None:
        """Record a claim, so that people can see which program is missing. If the record cannot be written, the
        worker keeps its tasks.
        """
        try:
            await self.engine.declarations.note_claim(worker, queues, given)
        except OperatorError as error:
            logger.warning(
                "the claim of %s for the queues %s cannot be recorded: %s", worker, ", ".join(queues), error
            )

    def _give_up_name(self, session: Session) -> None:
        """Drop a session under whose name unknown leases may exist: the worker continues under a new name. The old
        name is renewed only for the tasks that the worker still names; then the unknown leases expire.
        """
        self.sessions.drop(session)

    async def _session(self, worker: str, queues: tuple[str, ...], wait: float, key: str) -> Session:
        now = self.ledger.now()
        session = self.sessions.of(worker, now, key)
        await self.remote_leases.take_unknown_back(session)
        if session.queues != queues or session.written - now < wait + self.remote_leases.settings.lease / 2:
            session.queues = queues
            await self.remote_leases.keep_alive(session, wait + self.remote_leases.settings.lease)
        return session

    async def _take(
        self, session: Session, limit: int, wait: float, gone: Callable[[], Awaitable[bool]] | None
    ) -> list[Lease]:
        """Claim tokens. A claim in flight is never cancelled, which could leave unknown leases: the worker's next
        call takes it over, and what it finds in between is handed back.
        """
        key = (session.queues, limit)
        claim = session.waiting.pop(key, None)
        if claim is None:
            claim = asyncio.create_task(self.remote_leases.take(session.name, session.queues, limit))
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
            self._give_up_name(session)
        elif claim.result():
            self.remote_leases.later(self.remote_leases.hand_back(session.name, claim.result()))

    async def _hand_out(
        self, session: Session, leases: Sequence[Lease], tasks: Sequence[str] | None
    ) -> list[Held]:
        found = []
        for lease in leases:
            held = await self.prepare(session.name, lease)
            if held is None:
                continue
            if tasks is not None and held.question.task not in tasks:
                # Another worker of this queue may know the task; until then it must not block others.
                await self.put_off(lease)
                continue
            session.held[lease.token] = held
            self.record_started(held, session.worker)
            found.append(held)
        return found

    async def prepare(self, owner: str, lease: Lease) -> Held | None:
        """Return the task to hand out; None if there is none: the step was taken here, or has to wait. ``owner``: the
        name under which it is leased.
        """
        try:
            asked = await self._remotely.ask(lease)
        except (BadConfiguration, NotRunnableHere) as error:
            logger.warning("token %s of execution %s is postponed: %s", lease.token, lease.execution, error)
            await self.put_off(lease)
            return None
        except PutOff as error:
            await self.put_off(lease, error.seconds)
            return None
        if not isinstance(asked, RemoteRequest):
            await self.answers.commit(lease, asked, wait_for_store=True)
            return None
        declared = await self.answers.declared(asked.task)
        limits = (asked.timeout, declared.timeout if declared is not None else None)
        asked = replace(asked, timeout=min((each for each in limits if each is not None), default=None))
        now = self.ledger.now()
        deadline = now + asked.timeout if asked.timeout is not None else None
        return Held(lease, asked, owner, now, deadline)

    async def put_off(self, lease: Lease, pause: float = CANNOT_RUN_PAUSE) -> None:
        await self.engine.committer.commit(put_off(lease, self.ledger.now() + pause))

    def record_started(self, held: Held, worker: str) -> None:
        """Record the start, with the worker, in the background."""
        lease, now = held.lease, held.since
        if lease.kind == "task":
            record = encode_record({"attempt": lease.attempt, "started_at": now, "worker": worker})
            event = NewEvent("TaskStarted", lease.node, "", now, record, lease.token)
        else:
            program = self.engine.definitions.cached(lease.definition)
            if program is None:
                return
            step_input = StepInput(program.plan, lease, Body(), now, now)
            event = run_event("NodeStarted", step_input, RunRecord(lease.ready_at, now, lease.attempt))
        self.engine.committer.commit(shown_as_started(lease, event))


class Orchestrator:
    """The service that hands tasks to, and commits steps for, the remote workers of one server process."""

    def __init__(self, engine: Engine, settings: RemoteSettings | None = None) -> None:
        self.settings = settings or RemoteSettings()
        tasks = engine.services.get("tasks")
        remotely = RemoteSteps(
            engine.steps, engine.scripts, tasks if isinstance(tasks, Tasks) else None, engine.heavy
        )
        remote_leases = RemoteLeases(engine.stack.ledger, engine.stack.broker, self.settings)
        self._answers = Answers(engine, remotely, remote_leases)
        self._claims = Claims(engine, remotely, remote_leases, self._answers)
        self._presence = RemoteHeartbeats(engine, remote_leases, self._answers)
        self.sessions: Sessions = remote_leases.sessions

    @property
    def lost(self) -> int:
        """Number of tasks taken back from silent workers."""
        return self._presence.lost

    async def claim(
        self,
        worker: str,
        queues: Sequence[str],
        limit: int,
        wait: float,
        *,
        tasks: Sequence[str] | None = None,
        gone: Callable[[], Awaitable[bool]] | None = None,
        by: Claimant = ANYONE,
    ) -> list[RemoteTask]:
        """Return at most ``limit`` tasks, waiting up to ``wait`` seconds for the first. ``gone`` returns True if the
        caller has disconnected: the tasks found for it are then handed back at once. Raises QueueRefused if ``by``
        may not take tasks of one of the queues.
        """
        self._presence.watch()
        return await self._claims.claim(worker, queues, limit, wait, tasks=tasks, gone=gone, by=by)

    async def settle(self, id: str, fence: int, answer: Answer, by: Claimant = ANYONE) -> Settled:
        """Commit the step with this answer. The same answer again returns the same result. Raises `LeaseLost` if the
        worker no longer holds the task, and `QueueRefused` if ``by`` may not take it.
        """
        return await self._answers.settle(id, fence, answer, by)

    async def heartbeat(
        self,
        worker: str,
        tasks: Sequence[tuple[str, int]],
        by: Claimant = ANYONE,
        dropped: Sequence[tuple[str, int]] = (),
    ) -> list[str]:
        """Renew the named tasks and return those that are lost. Tasks in ``dropped`` are handed back at once. So are
        older tasks of the worker that it does not name.
        """
        self._presence.watch()
        return await self._presence.heartbeat(worker, tasks, by, dropped)

    async def stop(self) -> None:
        """Stop. Tasks stay with their workers, which continue with the next server; waiting calls have ended
        before.
        """
        await self._presence.stop()
