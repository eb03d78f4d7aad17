"""Remote workers that speak keep their tasks; those that are silent for too long lose them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dalsegno.engine.remote_answers import Answers
from dalsegno.engine.remote_custody import Custody
from dalsegno.engine.remote_sessions import ANYONE, Claimant, Held, Session, remote_key_of, remote_worker_of
from dalsegno.engine.remote_tasks import id_of, parts_of, timed_out
from dalsegno.errors import LeaseLost, NotFound, OperatorError
from dalsegno.model.execution import ENDED

if TYPE_CHECKING:
    from dalsegno.engine.engine import Engine

logger = logging.getLogger("dalsegno.remote")

TICK = 0.25
"""How often silence is judged, at most."""


class Presence:
    def __init__(self, engine: Engine, custody: Custody, answers: Answers) -> None:
        self.engine = engine
        self.ledger = engine.stack.ledger
        self.custody = custody
        self.sessions = custody.sessions
        self.answers = answers
        self.settings = custody.settings
        self.lost = 0
        """Tasks taken away from workers that were silent."""
        self._watch: asyncio.Task[None] | None = None

    # -- speaking ---------------------------------------------------------------------------------------------

    async def heartbeat(
        self,
        worker: str,
        tasks: Sequence[tuple[str, int]],
        by: Claimant = ANYONE,
        dropped: Sequence[tuple[str, int]] = (),
    ) -> list[str]:
        """Keeps the named tasks; those that are lost are returned, and those that another worker was given: who names
        them keeps nobody's work but its own. Those that it has dropped go back at once; whatever else it was given some
        time ago it does not know of, and that goes back, too."""
        now = self.ledger.now()
        session = self.sessions.of(worker, now, by.key)
        await self._take_back(worker, dropped, by)
        lost, owners = [], {session.name}
        for task, fence in tasks:
            held = await self._still_held(task, fence)
            if held is None or not _is_held_by(held, worker, by):
                lost.append(task)
                continue
            held.confirmed = True
            owners.add(held.owner)
            if held.owner != session.name and held.lease.token not in session.held:
                session.held[held.lease.token] = held
        named = {parts_of(task)[1] for task, _ in tasks}
        for held in session.held.values():
            if held.lease.token not in named and now - held.since > self.settings.first:
                held.confirmed = False
        await self.custody.take_unknown_back(session)
        for owner in owners:
            await self.custody.renew(session, owner)
        return [*lost, *await self._ended(tasks, lost)]

    async def _take_back(self, worker: str, dropped: Sequence[tuple[str, int]], by: Claimant) -> None:
        found = [await self._still_held(task, fence) for task, fence in dropped]
        own = [held for held in found if held is not None and _is_held_by(held, worker, by)]
        await self.custody.give_back([held for held in own if held.settling is None])

    async def _still_held(self, id: str, fence: int) -> Held | None:
        execution, token = parts_of(id)
        held = self.sessions.held(token)
        if held is not None and held.lease.fence == fence:
            return held
        try:
            return await self.answers.find(id, execution, token, fence)
        except (LeaseLost, NotFound):
            return None

    async def _ended(self, tasks: Sequence[tuple[str, int]], lost: Sequence[str]) -> list[str]:
        """Tasks of executions that have ended meanwhile. One whose script is over may live on as its own execution,
        which its answer finds out."""
        rest = [task for task, _ in tasks if task not in lost]
        states = await self.engine.stack.archive.states([parts_of(task)[0] for task in rest])
        ended = []
        for task in rest:
            execution, token = parts_of(task)
            held = self.sessions.held(token)
            graph = held is not None and held.lease.execution_kind == "graph"
            if states.get(execution) in (ENDED if graph else ("CANCELLED",)):
                ended.append(task)
                self.sessions.let_go(token)
        return ended

    # -- watching ---------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """From the first worker on."""
        if self._watch is None:
            self._watch = asyncio.create_task(self._watch_over(), name="remote workers")

    async def _watch_over(self) -> None:
        clock = asyncio.get_running_loop().time
        pause = max(min(TICK, self.settings.first / 4), 0.02)
        while True:
            until = clock() + pause
            await asyncio.sleep(pause)
            self._forgive(clock() - until)
            try:
                await self._look_after_all()
            except OperatorError as error:
                logger.warning("remote workers cannot be looked after now (%s); trying again", error)
            except Exception:
                # One task that breaks it must not leave all others unwatched.
                logger.exception("looking after remote workers broke; trying again")

    def _forgive(self, stood_still: float) -> None:
        """What workers said while this process (or its machine) stood still is still to be read: that time is not
        theirs."""
        for session in self.sessions.all():
            session.deaf += stood_still

    async def _look_after_all(self) -> None:
        now = self.ledger.now()
        for session in self.sessions.all():
            for held in list(session.held.values()):
                if held.deadline is not None and held.deadline <= now and held.settling is None:
                    await self._time_out(held)
            if session.silence(now) > session.patience(self.settings.lease, self.settings.first):
                await self._give_up(session)

    async def _time_out(self, held: Held) -> None:
        with contextlib.suppress(LeaseLost):
            await self.answers.settle_held(id_of(held.lease), held, timed_out(held), "timeout")

    async def _give_up(self, session: Session) -> None:
        """It was silent for too long, unless it spoke to another server, which then wrote so."""
        row = next((each for each in await self.ledger.workers() if each.id == session.name), None)
        if row is not None and row.expires_at > session.written + 0.001:
            session.written = row.expires_at
            session.hear(self.ledger.now())
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

    async def stop(self) -> None:
        """Tasks stay with their workers, which go on with the next server; calls that wait have ended before."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
            self._watch = None
        for session in self.sessions.all():
            await self._stop_waiting(session)
        await self.custody.settled()

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


def _is_held_by(held: Held, worker: str, by: Claimant) -> bool:
    """A task that was handed out without a key, before the server had one, stays with the worker of that name."""
    is_served = by.queues is None or held.lease.queue in by.queues
    return is_served and remote_worker_of(held.owner) == worker and remote_key_of(held.owner) in ("", by.key)
