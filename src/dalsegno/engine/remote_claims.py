"""Handing out tasks to remote workers: who asks gets some, or waits for the first."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from dalsegno.core.body import Body
from dalsegno.core.script_tasks import put_off
from dalsegno.core.situation import RunRecord, Situation, encode_record, run_event
from dalsegno.engine.elsewhere import RunsElsewhere
from dalsegno.engine.heavy_steps import PutOff
from dalsegno.engine.remote_answers import Answers
from dalsegno.engine.remote_custody import Custody
from dalsegno.engine.remote_sessions import ANYONE, Claimant, Held, Session, remote_worker_of
from dalsegno.engine.remote_tasks import RemoteTask, task_of
from dalsegno.engine.standin import Question, Remotely
from dalsegno.errors import BadConfiguration, InvalidInput
from dalsegno.model.event import NewEvent
from dalsegno.model.token import SYSTEM_QUEUE, Lease
from dalsegno.model.transition import Transition

if TYPE_CHECKING:
    from dalsegno.engine.engine import Engine

logger = logging.getLogger("dalsegno.remote")

CANNOT_RUN_PAUSE = 2.0
TICK = 0.25
"""How often a waiting call looks whether its caller is still there."""


class Claims:
    def __init__(self, engine: Engine, remotely: Remotely, custody: Custody, answers: Answers) -> None:
        self.engine = engine
        self.ledger = engine.stack.ledger
        self.custody = custody
        self.sessions = custody.sessions
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
        """At most ``limit`` tasks; waits up to ``wait`` seconds for the first. ``gone`` tells whether the caller has
        hung up: what it would have been given then goes back at once."""
        if SYSTEM_QUEUE in queues:
            raise InvalidInput(
                f"the queue '{SYSTEM_QUEUE}' is the engine's own; give the queues of your tasks"
            )
        by.check_queues(queues)
        session = await self._session(worker, tuple(dict.fromkeys(queues)), wait, by.key)
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
            session.hear(self.ledger.now())
        if found and gone is not None and await gone():
            await self.custody.give_back(found)
            return []
        return [task_of(held) for held in found]

    def _doubt(self, session: Session) -> None:
        """Something may be leased to the worker that nobody knows of: it goes on under a new name. The old one is kept
        alive only by the tasks that it still names; then what it held unknowingly expires."""
        self.sessions.drop(session)

    async def _session(self, worker: str, queues: tuple[str, ...], wait: float, key: str) -> Session:
        now = self.ledger.now()
        session = self.sessions.of(worker, now, key)
        await self.custody.take_unknown_back(session)
        if session.queues != queues or session.written - now < wait + self.custody.settings.lease / 2:
            session.queues = queues
            await self.custody.keep_alive(session, wait + self.custody.settings.lease)
        return session

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
            self.custody.later(self.custody.hand_back(session.name, claim.result()))

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
        except (BadConfiguration, RunsElsewhere) as error:
            logger.warning("token %s of execution %s is put off: %s", lease.token, lease.execution, error)
            await self._put_off(lease)
            return None
        except PutOff as error:
            await self._put_off(lease, error.seconds)
            return None
        if not isinstance(asked, Question):
            await self.answers.commit(lease, asked, patient=True)
            return None
        now = self.ledger.now()
        deadline = now + asked.timeout if asked.timeout is not None else None
        return Held(lease, asked, session.name, now, deadline)

    async def _put_off(self, lease: Lease, pause: float = CANNOT_RUN_PAUSE) -> None:
        await self.engine.committer.commit(put_off(lease, self.ledger.now() + pause))

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
