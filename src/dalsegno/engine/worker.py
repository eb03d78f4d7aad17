"""The worker: takes tokens, runs steps, commits, and goes on with what it spawned itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from dalsegno.core.body import Body
from dalsegno.core.complete import Step
from dalsegno.core.fail import halt
from dalsegno.core.situation import RunRecord, Situation, run_event
from dalsegno.engine.committer import Committer
from dalsegno.engine.steps import Steps
from dalsegno.errors import DalSegnoError
from dalsegno.model.effect import SpawnToken
from dalsegno.model.failure import Failure
from dalsegno.model.token import SYSTEM_QUEUE, Lease, NewToken
from dalsegno.model.transition import Applied, Refused, Transition
from dalsegno.ports.broker import Broker
from dalsegno.ports.ledger import Ledger

logger = logging.getLogger("dalsegno.worker")

MAX_HOPS = 32
MAX_RUN = 0.05
"""A chain goes on in one worker for this many steps or seconds, then lets others have a turn."""
SHOW_STARTED_AFTER = 0.1
"""A run longer than this is shown as started while it goes on."""


class Worker:
    def __init__(
        self,
        name: str,
        ledger: Ledger,
        broker: Broker,
        committer: Committer,
        steps: Steps,
        *,
        queues: Sequence[str] = ("default",),
        concurrency: int = 100,
        continues: bool = True,
    ) -> None:
        self.name = name
        self.ledger = ledger
        self.broker = broker
        self.committer = committer
        self.steps = steps
        self.queues = tuple(dict.fromkeys((*queues, SYSTEM_QUEUE)))
        self.concurrency = concurrency
        self.running: dict[str, Lease] = {}
        self.started: dict[str, float] = {}
        self.waiting_priority: int | None = None
        self.steps_done = 0
        self._continues = continues
        self._tasks: set[asyncio.Task[None]] = set()
        self._free = asyncio.Event()
        self._stopping = False

    async def run(self) -> None:
        """Takes work until stopped. What is running then is finished by ``stop``."""
        watch = asyncio.create_task(self._show_started())
        try:
            while not self._stopping:
                room = self.concurrency - len(self.running)
                if room <= 0:
                    self._free.clear()
                    await self._free.wait()
                    continue
                self.waiting_priority = None
                leases = await self.broker.take(self.name, self.queues, room)
                if self._stopping:
                    await self.ledger.release(self.name, leases)
                    break
                for lease in leases:
                    self._launch(lease, None)
        finally:
            watch.cancel()

    def notice(self, priority: int) -> None:
        """A token of this priority waits: chains of lower priority let it go first."""
        if self.waiting_priority is None or priority > self.waiting_priority:
            self.waiting_priority = priority

    async def stop(self, grace: float = 10.0) -> None:
        """No more claims; running steps finish, or are handed back once the grace is over."""
        self._stopping = True
        self._free.set()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace)
        left = [task for task in self._tasks if not task.done()]
        for task in left:
            task.cancel()
        if left:
            await asyncio.gather(*left, return_exceptions=True)
        await self.committer.drain()
        if self.running:
            await self.ledger.release(self.name, list(self.running.values()))

    def _launch(self, lease: Lease, body: Body | None) -> None:
        self.running[lease.token] = lease
        task = asyncio.get_running_loop().create_task(self._drive(lease, body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _drive(self, lease: Lease, body: Body | None) -> None:
        """Runs a token, and then one of those it spawned, as long as it is fair to others."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + MAX_RUN
        hops = 0
        following: Lease | None = lease
        try:
            while following is not None:
                lease = following
                hops += 1
                may_go_on = self._continues and hops < MAX_HOPS and loop.time() < deadline
                following, body = await self._advance(lease, body, may_go_on)
                del self.running[lease.token]
                self.started.pop(lease.token, None)
                if following is not None:
                    self.running[following.token] = following
        except asyncio.CancelledError:
            raise
        except Exception:
            # Not the node's failure (those are values) but ours: the token goes back and is tried elsewhere.
            logger.exception("step of token %s (node %s) broke", lease.token, lease.node)
            self.running.pop(lease.token, None)
            await self.ledger.release(self.name, [lease])
        finally:
            self._free.set()

    async def _advance(
        self, lease: Lease, body: Body | None, may_go_on: bool
    ) -> tuple[Lease | None, Body | None]:
        step = await self._step(lease, body)
        transition, kept = self._keeping(lease, step, may_go_on)
        outcome = await self.committer.commit(transition)
        if isinstance(outcome, Refused):
            step = self._refused(lease, body, outcome)
            outcome = await self.committer.commit(step.transition)
        self.steps_done += 1
        if not isinstance(outcome, Applied) or not outcome.kept:
            return None, None
        leases = [self._lease_of(lease, token) for token in kept if token.id in outcome.kept]
        for extra in leases[1:]:
            self._launch(extra, step.bodies.get(extra.token))
        return leases[0], step.bodies.get(leases[0].token)

    async def _step(self, lease: Lease, body: Body | None) -> Step:
        self.started[lease.token] = asyncio.get_running_loop().time()
        return await self.steps.step(lease, body)

    def _keeping(self, lease: Lease, step: Step, may_go_on: bool) -> tuple[Transition, list[NewToken]]:
        """Asks to keep spawned tokens, at most as many as there are free slots."""
        transition = step.transition
        if not may_go_on or self._stopping or not step.bodies:
            return transition, []
        if self.waiting_priority is not None and self.waiting_priority > lease.priority:
            return transition, []
        room = self.concurrency - len(self.running) + 1
        kept: list[NewToken] = []
        for effect in transition.effects:
            if type(effect) is SpawnToken and self._may_keep(effect.token) and len(kept) < room:
                kept.append(effect.token)
        if not kept:
            return transition, []
        names = tuple(token.id for token in kept)
        return msgspec.structs.replace(transition, keep=names, worker=self.name), kept

    def _may_keep(self, token: NewToken) -> bool:
        return (
            token.due is None
            and token.kind == "node"
            and token.limit_key is None
            and token.queue in self.queues
        )

    def _lease_of(self, parent: Lease, token: NewToken) -> Lease:
        return Lease(
            token.id,
            parent.execution,
            1,
            token.scope,
            token.kind,
            token.node,
            token.data,
            token.queue,
            token.priority,
            1,
            0,
            "",
            self.ledger.now(),
            parent.definition,
            parent.epoch,
            token.live,
        )

    def _refused(self, lease: Lease, body: Body | None, refused: Refused) -> Step:
        """The store cannot hold what the step wants to write: the node fails, its execution with it."""
        program = self.steps.definitions.cached(lease.definition)
        if program is None:
            raise DalSegnoError(f"definition {lease.definition} went away during a step")
        now = self.ledger.now()
        failure = Failure(
            f"the store cannot hold this output: {refused.message}",
            code="NOT_STORABLE",
            type="NotStorable",
            node=lease.node,
            retryable=False,
        )
        return halt(Situation(program.plan, lease, body or Body(), now, now), failure)

    async def _show_started(self) -> None:
        """Runs that take long are recorded as started once, so that a watcher sees what is going on."""
        loop = asyncio.get_running_loop()
        shown: set[str] = set()
        while True:
            await asyncio.sleep(SHOW_STARTED_AFTER if self.started else SHOW_STARTED_AFTER * 5)
            late = loop.time() - SHOW_STARTED_AFTER
            shown &= self.started.keys()
            for token, since in list(self.started.items()):
                lease = self.running.get(token)
                if since < late and token not in shown and lease is not None and lease.kind == "node":
                    shown.add(token)
                    self._record_started(lease)

    def _record_started(self, lease: Lease) -> None:
        now = self.ledger.now()
        program = self.steps.definitions.cached(lease.definition)
        if program is None:
            return
        situation = Situation(program.plan, lease, Body(), now, now)
        event = run_event("NodeStarted", situation, RunRecord(lease.ready_at, now, lease.attempt))
        self.committer.commit(Transition(lease.execution, (), (event,)))
