"""Heartbeats of remote workers: workers that speak keep their tasks, and workers that are silent for too long lose
them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dalsegno.engine.remote.answers import Answers
from dalsegno.engine.remote.sessions import (
    ANYONE,
    Claimant,
    Held,
    RemoteLeases,
    Session,
    id_of,
    parts_of,
    timed_out,
)
from dalsegno.engine.worker.directory import remote_key_of, remote_worker_of
from dalsegno.errors import LeaseLost, NotFound, OperatorError

if TYPE_CHECKING:
    from dalsegno.engine.engine import Engine

logger = logging.getLogger("dalsegno.remote")

TICK = 0.25
"""Longest time, in seconds, between two checks for silence."""


class RemoteHeartbeats:
    def __init__(self, engine: Engine, remote_leases: RemoteLeases, answers: Answers) -> None:
        self.engine = engine
        self.ledger = engine.stack.ledger
        self.remote_leases = remote_leases
        self.sessions = remote_leases.sessions
        self.answers = answers
        self.settings = remote_leases.settings
        self.lost = 0
        """Number of tasks taken back from silent workers."""
        self._watch: asyncio.Task[None] | None = None

    # -- heartbeats -------------------------------------------------------------------------------------------

    async def heartbeat(
        self,
        worker: str,
        tasks: Sequence[tuple[str, int]],
        by: Claimant = ANYONE,
        dropped: Sequence[tuple[str, int]] = (),
    ) -> list[str]:
        """Renew the named tasks and return those that are lost or held by another worker: a heartbeat renews only the
        worker's own tasks. Tasks in ``dropped`` are handed back at once. So are older tasks of the worker that it
        does not name.
        """
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
        await self._give_back_unnamed(session, {parts_of(task)[1] for task, _ in tasks}, now)
        for owner in owners:
            await self.remote_leases.renew(session, owner)
        return [*lost, *await self._ended(tasks, lost)]

    async def _take_back(self, worker: str, dropped: Sequence[tuple[str, int]], by: Claimant) -> None:
        found = [await self._still_held(task, fence) for task, fence in dropped]
        own = [held for held in found if held is not None and _is_held_by(held, worker, by)]
        await self.remote_leases.give_back([held for held in own if held.settling is None])

    async def _give_back_unnamed(self, session: Session, named: set[str], now: float) -> None:
        """Hand back tasks that the heartbeat does not name. A heartbeat names everything the worker runs. A task
        given so long ago that the reply must have arrived, and not named, is not held any more, even if it was
        confirmed before: the worker may have been killed since.
        """
        unnamed = [held for held in session.held.values() if held.lease.token not in named]
        late = [held for held in unnamed if now - held.since > self.settings.first]
        await self.remote_leases.give_back([held for held in late if held.settling is None])

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
        """Return the tasks whose answer would be refused: their execution has ended, or a person has settled or
        requeued them. A task whose script has ended may continue as an execution of its own.
        """
        rest = [task for task, _ in tasks if task not in lost]
        found = [self.sessions.held(parts_of(task)[1]) for task in rest]
        gone = await self.ledger.obsolete([held.lease for held in found if held is not None])
        tokens = {lease.token for lease in gone}
        for token in tokens:
            self.sessions.forget(token)
        return [task for task in rest if parts_of(task)[1] in tokens]

    # -- watching ---------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Start the check for silence, with the first worker."""
        if self._watch is None:
            self._watch = asyncio.create_task(self._check_silence(), name="remote workers")

    async def _check_silence(self) -> None:
        clock = asyncio.get_running_loop().time
        pause = max(min(TICK, self.settings.first / 4), 0.02)
        while True:
            until = clock() + pause
            await asyncio.sleep(pause)
            self._exclude_stall(clock() - until)
            try:
                await self._check_all()
            except OperatorError as error:
                logger.warning("remote workers cannot be checked now (%s); trying again", error)
            except Exception:
                # A single task that breaks the check must not leave all others unchecked.
                logger.exception("the check of remote workers failed; trying again")

    def _exclude_stall(self, stalled_for: float) -> None:
        """Exclude a stall of this process or its machine from the silence of workers: their messages are still
        unread.
        """
        for session in self.sessions.all():
            session.stalled_seconds += stalled_for

    async def _check_all(self) -> None:
        now = self.ledger.now()
        for session in self.sessions.all():
            for held in list(session.held.values()):
                if held.deadline is not None and held.deadline <= now and held.settling is None:
                    await self._time_out(held)
            if session.silent_for(now) > session.allowed_silence(self.settings.lease, self.settings.first):
                await self._give_up(session)

    async def _time_out(self, held: Held) -> None:
        with contextlib.suppress(LeaseLost):
            await self.answers.settle_held(id_of(held.lease), held, timed_out(held), "timeout")

    async def _give_up(self, session: Session) -> None:
        """Take a silent worker's tasks back, unless it has spoken to another server, which then renewed its row."""
        row = next((each for each in await self.ledger.workers() if each.id == session.name), None)
        if row is not None and row.expires_at > session.written + 0.001:
            session.written = row.expires_at
            session.note_message(self.ledger.now())
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
        """Stop. Tasks stay with their workers, which continue with the next server; waiting calls have ended
        before.
        """
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
            self._watch = None
        for session in self.sessions.all():
            await self._stop_waiting(session)
        await self.remote_leases.settled()

    async def _stop_waiting(self, session: Session) -> None:
        """Cancel a session's claims. The leases of a worker that holds no tasks, which a cancelled claim may have
        taken, are expired at once.
        """
        claims = list(session.waiting.values())
        session.waiting.clear()
        for claim in claims:
            claim.cancel()
        await asyncio.gather(*claims, return_exceptions=True)
        if not session.held:
            with contextlib.suppress(OperatorError):
                await self.ledger.expire((session.name,))


def _is_held_by(held: Held, worker: str, by: Claimant) -> bool:
    """Return True if the worker holds the task. A task handed out without a key, before the server had keys, stays
    with the worker of that name.
    """
    is_served = by.queues is None or held.lease.queue in by.queues
    return is_served and remote_worker_of(held.owner) == worker and remote_key_of(held.owner) in ("", by.key)
