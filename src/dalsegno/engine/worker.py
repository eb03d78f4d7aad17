"""The worker: takes tokens, runs steps, commits, and goes on with what it spawned itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from dalsegno.core.body import Body
from dalsegno.core.complete import Step
from dalsegno.core.fail import halt
from dalsegno.core.situation import RunRecord, Situation, run_event
from dalsegno.engine.committer import Committer
from dalsegno.engine.continuation import Continuation, kept_leases
from dalsegno.engine.steps import Steps
from dalsegno.errors import DalSegnoError
from dalsegno.model.execution import NewExecution
from dalsegno.model.failure import Failure
from dalsegno.model.token import SYSTEM_QUEUE, Lease, NewToken
from dalsegno.model.transition import Applied, Refused, Transition
from dalsegno.ports.broker import Broker
from dalsegno.ports.ledger import Ledger

logger = logging.getLogger("dalsegno.worker")

BROKEN_PAUSE = 1.0
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
        self.continuation = Continuation(name, self.queues)
        self.steps_done = 0
        self._continues = continues
        self._tasks: set[asyncio.Task[None]] = set()
        self._free = asyncio.Event()
        self._busy = asyncio.Event()
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
                leases = await self.broker.take(self.name, self.queues, room)
                self.continuation.claimed(all_of_them=len(leases) < room)
                if self._stopping:
                    await self.ledger.release(self.name, leases)
                    break
                for lease in leases:
                    self._launch(lease, None)
        finally:
            watch.cancel()

    # -- executions started in this process -------------------------------------------------------------------

    def offer(self, transition: Transition) -> tuple[Transition, list[NewToken]]:
        """A start, asking that its first tokens stay here: an idle worker then runs them without a claim."""
        room = self.concurrency - len(self.running)
        if self._stopping or not self._continues or room <= 0 or self.continuation.others_wait:
            return transition, []
        return self.continuation.keeping(transition, room)

    def accept(self, new: NewExecution, kept: list[NewToken], applied: Applied) -> None:
        for lease in kept_leases(new.id, new.definition, 0, kept, applied, self.ledger.now()):
            self._launch(lease, None)

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
        self._busy.set()
        task = asyncio.get_running_loop().create_task(self._drive(lease, body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _drive(self, lease: Lease, body: Body | None) -> None:
        """Runs a token, and then one of those it spawned, as long as it is fair to others."""
        clock = asyncio.get_running_loop().time
        began, hops = clock(), 0
        following: Lease | None = lease
        try:
            while following is not None:
                lease, hops = following, hops + 1
                self.started[lease.token] = clock()
                going_on = self._continues and self.continuation.may_go_on(hops, clock() - began, lease.priority)
                following, body = await self._advance(lease, body, going_on)
                del self.running[lease.token]
                self.started.pop(lease.token, None)
                if following is not None:
                    self.running[following.token] = following
        except Exception:
            # Not the node's failure (those are values) but ours: the token goes back and is tried elsewhere.
            logger.exception("step of token %s (node %s) broke", lease.token, lease.node)
            await self._give_back(lease)
        finally:
            self._free.set()

    async def _give_back(self, lease: Lease) -> None:
        """After a pause, so that a step that always breaks does not spin."""
        await asyncio.sleep(BROKEN_PAUSE)
        await self.ledger.release(self.name, [lease])
        self.running.pop(lease.token, None)
        self.started.pop(lease.token, None)

    async def _advance(
        self, lease: Lease, body: Body | None, going_on: bool
    ) -> tuple[Lease | None, Body | None]:
        step = await self.steps.step(lease, body)
        transition, kept = step.transition, []
        if going_on and step.bodies and not self._stopping:
            room = self.concurrency - len(self.running) + 1
            transition, kept = self.continuation.keeping(transition, room)
        outcome = await self.committer.commit(transition)
        if isinstance(outcome, Refused):
            step = self._refused(lease, body, outcome)
            outcome = await self.committer.commit(step.transition)
        self.steps_done += 1
        if not isinstance(outcome, Applied) or not outcome.kept:
            return None, None
        now = self.ledger.now()
        leases = kept_leases(lease.execution, lease.definition, lease.epoch, kept, outcome, now)
        for extra in leases[1:]:
            self._launch(extra, step.bodies.get(extra.token))
        return leases[0], step.bodies.get(leases[0].token)

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
        clock = asyncio.get_running_loop().time
        shown: set[str] = set()
        while True:
            await self._busy.wait()
            await asyncio.sleep(SHOW_STARTED_AFTER)
            if not self.started:
                self._busy.clear()
            late = clock() - SHOW_STARTED_AFTER
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
