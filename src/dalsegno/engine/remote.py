"""Remote workers: tasks that run in processes without a kernel, and the steps that are committed for them.

A remote worker asks for tasks, says from time to time which ones it works on, and reports how they ended. Everything
durable is the ledger's: a task in somebody's hands is a leased token, its fence refuses late answers, and any server of
the same store can take any call. What is remembered here only makes that quick.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from dalsegno.engine.remote_answers import Answers
from dalsegno.engine.remote_claims import Claims
from dalsegno.engine.remote_custody import Custody
from dalsegno.engine.remote_presence import Presence
from dalsegno.engine.remote_sessions import ANYONE, Claimant, Sessions
from dalsegno.engine.remote_tasks import RemoteSettings, RemoteTask, Settled
from dalsegno.engine.standin import Answer, Remotely
from dalsegno.engine.tasks import Tasks

if TYPE_CHECKING:
    from dalsegno.engine.engine import Engine

__all__ = ["Claimant", "Orchestrator", "RemoteSettings", "RemoteTask", "Settled"]


class Orchestrator:
    """Commits for the remote workers of one server process."""

    def __init__(self, engine: Engine, settings: RemoteSettings | None = None) -> None:
        self.settings = settings or RemoteSettings()
        tasks = engine.services.get("tasks")
        remotely = Remotely(
            engine.steps, engine.scripts, tasks if isinstance(tasks, Tasks) else None, engine.heavy
        )
        custody = Custody(engine, self.settings)
        self._answers = Answers(engine, remotely, custody)
        self._claims = Claims(engine, remotely, custody, self._answers)
        self._presence = Presence(engine, custody, self._answers)
        self.sessions: Sessions = custody.sessions

    @property
    def lost(self) -> int:
        """Tasks taken away from workers that were silent."""
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
        """At most ``limit`` tasks; waits up to ``wait`` seconds for the first. ``gone`` tells whether the caller has
        hung up: what it would have been given then goes back at once. Raises QueueRefused where ``by`` may not have
        tasks of one of the queues."""
        self._presence.watch()
        return await self._claims.claim(worker, queues, limit, wait, tasks=tasks, gone=gone, by=by)

    async def settle(self, id: str, fence: int, answer: Answer, by: Claimant = ANYONE) -> Settled:
        """Commits the step with this answer. The same answer again is answered the same; one for a task that is not
        the worker's own any more is `LeaseLost`; for a task that ``by`` may not have, `QueueRefused`."""
        return await self._answers.settle(id, fence, answer, by)

    async def heartbeat(
        self,
        worker: str,
        tasks: Sequence[tuple[str, int]],
        by: Claimant = ANYONE,
        dropped: Sequence[tuple[str, int]] = (),
    ) -> list[str]:
        """Keeps the named tasks; those that are lost are returned. Those that it has dropped go back at once. Whatever
        else the worker was given some time ago it does not know of: that goes back."""
        self._presence.watch()
        return await self._presence.heartbeat(worker, tasks, by, dropped)

    async def stop(self) -> None:
        """Tasks stay with their workers, which go on with the next server; calls that wait have ended before."""
        await self._presence.stop()
