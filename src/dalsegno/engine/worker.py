"""The worker: takes tokens, runs steps, commits, and goes on with what it spawned itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

import msgspec

from dalsegno.core.body import Body, decode_body
from dalsegno.core.complete import Step
from dalsegno.core.fail import halt
from dalsegno.core.situation import Situation
from dalsegno.engine.budget import is_light
from dalsegno.engine.committer import Committer
from dalsegno.engine.continuation import Continuation, kept_leases
from dalsegno.engine.elsewhere import RunsElsewhere
from dalsegno.engine.heartbeat import Names
from dalsegno.engine.heavy_steps import HeavySteps, PutOff, is_script
from dalsegno.engine.letting_go import LettingGo
from dalsegno.engine.long_runs import LongRuns
from dalsegno.engine.observing import Observer
from dalsegno.engine.obsolete_runs import ObsoleteRuns
from dalsegno.engine.raised import is_failure
from dalsegno.engine.scripting.steps import ScriptStep, ScriptSteps
from dalsegno.engine.slot_shares import UNKNOWN, HeldSlot, SlotShares, current_lease
from dalsegno.engine.steps import Steps
from dalsegno.engine.transactions import NO_TRANSACTIONS
from dalsegno.errors import (
    BadConfiguration,
    InternalError,
    InvalidInput,
    OperatorError,
)
from dalsegno.lang.limits import Heavy
from dalsegno.model.effect import CreateExecution
from dalsegno.model.execution import NewExecution
from dalsegno.model.failure import Failure
from dalsegno.model.ids import task_execution_id
from dalsegno.model.token import SYSTEM_QUEUE, Lease, NewToken, may_run_long, python_queue
from dalsegno.model.transition import AlreadyApplied, Applied, Outcome, Refused, Stale, Transition
from dalsegno.ports.broker import Broker
from dalsegno.ports.ledger import Ledger
from dalsegno.ports.transactions import WorkFailed

NAME_LOOK = 0.05
"""Seconds between two looks whether the store has heard of a new name."""
KEPT_FREE = 10
"""While workflows crowd others out, one slot in so many is for those others."""
OTHERS_EVERY = 0.02
"""Seconds between two claims for other workflows than those that hold their share."""
UNKNOWN_LOOK = 0.01
"""Seconds until definitions that are being loaded are looked at again."""
INTERRUPT_AGAIN = 30.0
"""Seconds for which a run that was called off may clean up."""


class Worker:
    """A worker's heartbeat keeps everything alive that is leased under its name, so it must not hold what it does not
    know of: whenever an answer that may have leased something was lost, it goes on under a new name (``doubt``), as
    soon as the store has heard of that. The old one is kept alive only as long as something still runs under it; then
    what it held unknowingly expires."""

    def __init__(
        self,
        name: str,
        ledger: Ledger,
        broker: Broker,
        committer: Committer,
        steps: Steps,
        scripts: ScriptSteps,
        *,
        queues: Sequence[str] = ("default",),
        concurrency: int = 100,
        continues: bool = True,
        workflow_share: float = 1.0,
        heavy: HeavySteps | None = None,
    ) -> None:
        self.ledger = ledger
        self.broker = broker
        self.committer = committer
        self.steps = steps
        self.scripts = scripts
        self._queues = tuple(dict.fromkeys((*queues, SYSTEM_QUEUE)))
        self.modules: Callable[[], Sequence[str]] = lambda: ()
        """Of the Python workflows whose code is here."""
        self.offers: Callable[[], tuple[str, ...]] = tuple
        """What this process can run that not every worker can."""
        self.concurrency = concurrency
        self._heavy = heavy
        self.running: dict[str, Lease] = {}
        self.started: dict[str, float] = {}
        """Since when each run goes on. One that has come to its end and waits for its commit is not among them."""
        self.continuation = Continuation(self._queues)
        self.steps_done = 0
        self._continues = continues
        self.observer: Observer | None = None
        self.transactions = NO_TRANSACTIONS
        self.renamed: Callable[[], None] = lambda: None
        """Called when there is a new name to keep alive."""
        self._tasks: dict[asyncio.Task[None], str] = {}
        """Runs in progress, and the name under which each was leased."""
        self.names = Names(name, lambda: list(self._tasks.values()))
        self._runs: dict[str, asyncio.Task[None] | None] = {}
        """Runs in progress that may take long, by their tokens."""
        self._called_off: dict[str, float] = {}
        """When each was, by its token."""
        self.shares = SlotShares(concurrency, workflow_share, steps.definitions)
        if heavy is not None:
            heavy.named = self.shares.learn
        self._others_at = self._newcomers_at = 0.0
        """When others than the workflows that hold their share, or more than most, are asked for again."""
        self.letting_go = LettingGo(ledger, broker, committer, scripts.elsewhere.colleagues)
        self._free = asyncio.Event()
        self._long_runs = LongRuns(self.running, self.started, committer, steps.definitions)
        self._obsolete_runs = ObsoleteRuns(self.running, self.started, ledger, self._interrupt, self._runs)
        self._stopping = False

    @property
    def occupied(self) -> int:
        """Slots in use."""
        return len(self.running)

    @property
    def name(self) -> str:
        """Under which it is leased what it takes from now on."""
        return self.names.current

    @property
    def queues(self) -> tuple[str, ...]:
        """What it is told to serve, what every worker serves, and what others could not run for want of the code."""
        return (*self._queues, *map(python_queue, self.modules()))

    async def run(self) -> None:
        """Takes work until stopped. What is running then is finished by ``stop``."""
        watches = [
            asyncio.create_task(watch) for watch in (self._long_runs.show(), self._obsolete_runs.watch())
        ]
        try:
            while not self._stopping:
                if self.occupied >= self.concurrency:
                    self._free.clear()
                    await self._free.wait()
                elif not self.names.may_lease():
                    await asyncio.sleep(NAME_LOOK)
                else:
                    await self._look_for_work()
        finally:
            for watch in watches:
                watch.cancel()

    async def _look_for_work(self) -> None:
        """First for workflows that have little of the slots, then for any that may have more."""
        full = self._full()
        crowding = {*self.shares.crowding(asyncio.get_running_loop().time()), *full}
        if self._heavy is not None:
            crowding.update(self._heavy.waiting())
        if crowding:
            await self._receive_newcomers(crowding)
        room = self._room(kept_free=self.concurrency // KEPT_FREE if crowding else 0)
        if self._heavy is not None:
            room = self._heavy.claimable(room)
        if full:
            await self._receive_others(room, full)
        elif room > 0:
            await self._receive(room)
        else:
            self._free.clear()
            await self._wait_for_slot(self._newcomers_at)

    def _full(self) -> list[str]:
        """Workflows of which nothing more is claimed now."""
        return [*self.shares.full(), *self._waiting_heavy()]

    def _waiting_heavy(self) -> list[str]:
        return self._heavy.full() if self._heavy is not None else []

    def _room(self, kept_free: int = 0) -> int:
        """Leases that may be claimed without knowing whose they are."""
        return min(self.concurrency - self.occupied - kept_free, self.shares.room_for_any())

    async def _receive(self, room: int) -> None:
        name = self.name
        try:
            leases = await self.broker.take(name, self.queues, room)
        except OperatorError:
            self.doubt(name)
            raise
        self.continuation.claimed(all_of_them=len(leases) < room)
        await self._accept(leases, name)

    async def _receive_others(self, room: int, full: list[str]) -> None:
        """Some workflows hold their share of the slots: the rest is for others. Whether these have anything is asked at
        intervals, so that it costs little where one workflow has much to do."""
        clock = asyncio.get_running_loop().time
        if clock() >= self._others_at and room > 0:
            found = await self._claim_others(room, full, only_long=not self._waiting_heavy())
            self._others_at = clock() + (OTHERS_EVERY if found < room else 0.0)
            if found:
                return
        self._free.clear()
        if self._full() == full:
            await self._wait_for_slot(clock() + UNKNOWN_LOOK if UNKNOWN in full else clock() + OTHERS_EVERY)

    async def _receive_newcomers(self, crowding: Iterable[str]) -> None:
        """Some workflows hold much of the slots and have more to do: what others have stands behind that. It is asked
        for first, at intervals, and finds a slot."""
        now = asyncio.get_running_loop().time()
        if now >= self._newcomers_at:
            await self._claim_others(self._room(), crowding, only_long=False)
            self._newcomers_at = asyncio.get_running_loop().time() + OTHERS_EVERY

    async def _wait_for_slot(self, until: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._free.wait()

    async def _claim_others(self, wanted: int, than: Iterable[str], *, only_long: bool) -> int:
        """How many were found. While it is not known whose runs hold the slots, nothing is claimed."""
        name, full = self.name, [each for each in than if each != UNKNOWN]
        if not full or wanted <= 0:
            return 0
        try:
            leases = await self.ledger.claim_others(name, self.queues, wanted, full, only_long=only_long)
        except OperatorError:
            self.doubt(name)
            raise
        self.continuation.claimed(all_of_them=len(leases) < wanted)
        await self._accept(leases, name, are_allowed=True)
        return len(leases)

    async def _accept(self, leases: Sequence[Lease], name: str, *, are_allowed: bool = False) -> None:
        """Work that arrives while the worker stops goes straight back; so does what is leased under a name that was
        given up meanwhile: nothing has kept that alive. Executions started here meanwhile may have taken the slots that
        it was claimed for."""
        unwanted = []
        for lease in leases:
            is_outdated = self._stopping or name != self.name
            is_allowed = are_allowed or self.shares.allows(lease)
            if is_outdated or self.occupied >= self.concurrency or not is_allowed:
                unwanted.append(lease)
            else:
                self._launch(lease, None, name)
        if unwanted:
            await self.letting_go.give_back(name, unwanted)

    def doubt(self, name: str) -> None:
        """Tokens may be leased under this name without the worker's knowing: it gives it up."""
        if self.names.give_up(name):
            self.renamed()

    # -- executions started in this process -------------------------------------------------------------------

    def offer(self, transition: Transition) -> tuple[Transition, list[NewToken]]:
        """A start, asking that its first tokens stay here: an idle worker then runs them without a claim."""
        room = self.concurrency - self.occupied
        if self._stopping or not self._continues or room <= 0 or self.continuation.others_wait:
            return transition, []
        if not self.names.may_lease():
            return transition, []
        if self.shares.is_bounded:
            created = next((each for each in transition.effects if type(each) is CreateExecution), None)
            room = min(room, self.shares.room(created.execution.workflow)) if created is not None else room
        return self.continuation.keeping(transition, room, self.name)

    def accept(self, new: NewExecution, kept: list[NewToken], applied: Applied, name: str) -> None:
        """``name``: that of the offer, which is kept alive from now on should it have been given up meanwhile."""
        if self._stopping:
            return  # it goes back with everything else that is leased under this name
        unwanted = []
        for lease in kept_leases(new.id, new.definition, 0, kept, applied, self.ledger.now(), new.kind):
            if self.shares.allows(lease):
                self._launch(lease, None, name)
            else:  # claims have filled its workflow's share while the start was committed
                unwanted.append(lease)
        if unwanted:
            task = asyncio.get_running_loop().create_task(self.letting_go.give_back(name, unwanted))
            self._tasks[task] = name
            task.add_done_callback(self._tasks.pop)

    def cancel_runs(self, execution: str, tokens: Sequence[str] | None = None) -> None:
        """Interrupts runs of an execution or of some of its tokens that have become useless; what they return would be
        refused. Other processes find out themselves."""
        its = [
            lease
            for lease in map(self.running.get, self._runs if tokens is None else tokens)
            if lease is not None
            and (
                lease.execution == execution
                or (lease.kind == "task" and task_execution_id(lease.token) == execution)
            )
        ]
        for lease in its:
            self._interrupt(lease)

    def _interrupt(self, lease: Lease) -> None:
        """Not while its commit is under way: ``started`` knows only what still runs."""
        token, now = lease.token, asyncio.get_running_loop().time()
        run = self._runs.get(token)
        if run is None or self.running.get(token) is not lease or token not in self.started:
            return
        if now - self._called_off.get(token, -INTERRUPT_AGAIN) < INTERRUPT_AGAIN:
            return
        if run is not asyncio.current_task():
            self._called_off[token] = now
            run.cancel()

    async def stop(self, grace: float = 10.0) -> None:
        """No more claims; running steps finish, or are handed back once the grace is over."""
        self._stopping = True
        self._free.set()
        names = self.names()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace)
        left = [task for task in self._tasks if not task.done()]
        for task in left:
            task.cancel()
        if left:
            await asyncio.gather(*left, return_exceptions=True)
        await self.committer.drain()
        for name in names if self.running else ():
            await self.letting_go.release_at_last(name, list(self.running.values()))

    def _launch(self, lease: Lease, body: Body | None, name: str) -> None:
        self.running[lease.token] = lease
        slot = self.shares.take(lease)
        self._long_runs.busy.set()
        self._obsolete_runs.busy.set()
        task = asyncio.get_running_loop().create_task(self._drive(lease, body, name, slot))
        self._tasks[task] = name
        task.add_done_callback(self._tasks.pop)

    async def _drive(self, lease: Lease, body: Body | None, name: str, slot: HeldSlot | None) -> None:
        """Runs a token, and then one of those it spawned, as long as it is fair to others. They are all of one
        execution and use one slot, which counts for its workflow from the first step that may run long."""
        clock = asyncio.get_running_loop().time
        began = now = clock()
        hops, this_run = 0, asyncio.current_task()
        following: Lease | None = lease
        holds_few = partial(self.shares.holds_few, slot)
        current_lease.set(lease)
        try:
            while following is not None:
                lease, hops = following, hops + 1
                is_light.set(self._heavy is not None and self._heavy.are_possible)
                now = self.started[lease.token] = clock()
                if self.observer is not None:
                    self.observer.began(lease)
                if may_run_long(lease.kind, lease.execution_kind):
                    self._runs[lease.token] = this_run
                    self.shares.may_run_long(slot)
                going_on = self._continues and self.continuation.may_go_on(
                    hops, now - began, lease.priority, holds_few
                )
                if is_script(lease):
                    following = await self._advance_script(lease, going_on, name)
                else:
                    following, body = await self._advance(lease, body, going_on, name)
                if self.transactions.has(lease):
                    await self.transactions.abandon(lease)  # its step was not applied
                self._done(lease, now)
                if following is not None:
                    self.running[following.token] = following
        except asyncio.CancelledError:
            if lease.token not in self._called_off:
                raise
            self._done(lease, now)
        except BaseException as error:  # noqa: BLE001 - what is no failure is raised again
            await self._let_go(lease, error, name)
            self._done(lease, now)
        finally:
            if self._heavy is not None:
                self._heavy.over(lease)
            self.shares.free(slot)
            self._free.set()
            if self.transactions.has(lease):
                await self.transactions.abandon(lease)

    async def _let_go(self, lease: Lease, error: BaseException, name: str) -> None:
        """The token is not brought to its end here, or not now."""
        if isinstance(error, Heavy):
            error = InternalError(f"a step of execution {lease.execution} was given up after it could be")
        is_others = isinstance(error, BadConfiguration | RunsElsewhere | PutOff)
        if not is_others and not is_failure(error):
            raise error
        self._runs.pop(lease.token, None)  # there is nothing to call off any more
        if isinstance(error, PutOff):
            await self.letting_go.put_off(name, lease, error.seconds)
        elif isinstance(error, BadConfiguration | RunsElsewhere):
            await self.letting_go.leave_to_others(lease, error, name)
        else:
            self.letting_go.note_broken(lease, error)
            await self.letting_go.give_back_broken(name, lease)

    def _done(self, lease: Lease, since: float) -> None:
        """After a lost lease the same token may be running here a second time: that run stays."""
        if self._heavy is not None:
            self._heavy.over(lease)
        if self.running.get(lease.token) is lease:
            del self.running[lease.token]
            self.started.pop(lease.token, None)
            self._runs.pop(lease.token, None)
            if self._called_off:
                self._called_off.pop(lease.token, None)
            if self.observer is not None:
                self.observer.stepped(lease, asyncio.get_running_loop().time() - since)

    async def _advance(
        self, lease: Lease, body: Body | None, going_on: bool, name: str
    ) -> tuple[Lease | None, Body | None]:
        step = await self._step(lease, body)
        self.started.pop(lease.token, None)
        transition: Transition = step.transition
        kept: list[NewToken] = []
        if going_on and step.bodies:
            transition, kept = self._keeping(lease, transition, name)
        try:
            outcome = await self._commit(lease, transition)
        except WorkFailed as failed:
            step, kept = await self.steps.work_failed(lease, body, failed), []
            outcome = await self.committer.commit(step.transition)
        if isinstance(outcome, Refused):
            step, kept = await self._refused(lease, body, outcome), []
            outcome = await self.letting_go.commit_failure(lease, step.transition)
        self.steps_done += 1
        if isinstance(outcome, AlreadyApplied) and kept:
            # The answer to an earlier try was lost; what that one kept for this worker is handed back.
            then = Applied(tuple([token.id for token in kept]))
            await self.letting_go.give_back(name, self._kept(lease, kept, then))
        if not isinstance(outcome, Applied) or not outcome.kept:
            return None, None
        leases = self._kept(lease, kept, outcome)
        for extra in leases[1:]:
            self._launch(extra, step.bodies.get(extra.token), name)
        return leases[0], step.bodies.get(leases[0].token)

    async def _step(self, lease: Lease, body: Body | None) -> Step:
        heavy = self._heavy
        if heavy is None or not heavy.are_possible:
            return await self.steps.step(lease, body)
        if not heavy.expected(lease):
            try:
                return await self.steps.step(lease, body)
            except Heavy:
                pass  # what it has loaded is free before the process begins
        self._runs[lease.token] = asyncio.current_task()
        return await heavy.step(lease, body)

    async def _script_step(self, lease: Lease) -> ScriptStep:
        heavy = self._heavy
        if heavy is None or not heavy.are_possible:
            return await self.scripts.step(lease)
        if not heavy.expected(lease):
            try:
                return await self.scripts.step(lease)
            except Heavy:
                pass
        self._runs[lease.token] = asyncio.current_task()
        return await heavy.script_step(lease)

    async def _advance_script(self, lease: Lease, going_on: bool, name: str) -> Lease | None:
        step = await self._script_step(lease)
        self.started.pop(lease.token, None)
        transition, kept = step.transition, list[NewToken]()
        if going_on:
            transition, kept = self._keeping(lease, transition, name)
        try:
            outcome = await self._commit(lease, transition)
        except WorkFailed as failed:
            step, kept = await self.scripts.work_failed(lease, failed), []
            outcome = await self.committer.commit(step.transition)
        self.steps_done += 1
        if isinstance(outcome, Applied):
            return self._go_on(lease, step, kept, outcome, name)
        if isinstance(outcome, AlreadyApplied) and kept:
            then = Applied(tuple([token.id for token in kept]))
            await self.letting_go.give_back(name, self._kept(lease, kept, then))
        elif isinstance(outcome, Refused):
            await self._fail_refused(lease, outcome, name)
        elif isinstance(outcome, Stale):
            await self._too_late(lease, step, outcome, name)
        return None

    def _keeping(self, lease: Lease, transition: Transition, name: str) -> tuple[Transition, list[NewToken]]:
        """The step, asking that what it spawns stays here. Not so in a task's own transaction: that is committed once
        and not sent again, so if its answer is lost nobody learns what it has kept."""
        if self._stopping or self.transactions.has(lease):
            return transition, []
        room = self.concurrency - self.occupied
        if self.shares.is_bounded:
            room = min(room, self.shares.room(self.shares.workflow_of(lease)))
        room = max(room, 0) + 1  # its own slot is free then
        return self.continuation.keeping(transition, room, name)

    def _commit(self, lease: Lease, transition: Transition) -> Awaitable[Outcome]:
        """With the other steps that wait; or in the transaction that its task has worked in."""
        if not self.transactions.has(lease):
            return self.committer.commit(transition, workflow=self.shares.workflow_of(lease))
        return self._commit_within(lease, transition)

    async def _commit_within(self, lease: Lease, transition: Transition) -> Outcome:
        within = await self.transactions.of_step(lease)
        if within is None:
            raise InternalError(f"the transaction of token {lease.token} went away during its step")
        try:
            outcome = await self.committer.commit_within(within, transition)
        except InvalidInput as error:
            # A value that the store cannot hold. The task's own work must not hold its locks while the step fails.
            await self.transactions.abandon(lease)
            return Refused(str(error))
        if isinstance(outcome, Applied):
            self.transactions.ended(lease)
        return outcome

    def _go_on(
        self, lease: Lease, step: ScriptStep, kept: list[NewToken], applied: Applied, name: str
    ) -> Lease | None:
        if step.warm is not None:
            self.scripts.hot.keep(lease.execution, step.warm)
        if not applied.kept:
            return None
        leases = self._kept(lease, kept, applied)
        for extra in leases[1:]:
            self._launch(extra, None, name)
        return leases[0]

    async def _too_late(self, lease: Lease, step: ScriptStep, outcome: Stale, name: str) -> None:
        """The machine moved on: the task's completion alone is committed. Or the script ended, and the task with the
        same lease is an execution of its own."""
        instead = step.instead() if step.instead is not None and outcome.reason == "version" else None
        if outcome.reason in ("finished", "unknown"):
            instead = self.scripts.handed_over(lease, step)
        if instead is None:
            is_handed_over = lease.kind == "task" and outcome.reason in ("finished", "unknown")
            is_outdated = lease.kind in ("resume", "deadline") and outcome.reason == "version"
            if (
                is_handed_over or is_outdated
            ):  # it is an execution of its own by now, or reads what has changed
                await self.letting_go.give_back(name, [lease])
            return
        answer = await self._commit(lease, instead)
        if isinstance(answer, Stale) and answer.reason == "finished" and outcome.reason == "version":
            await self._too_late(lease, step, answer, name)
        elif isinstance(answer, Refused):
            holding = msgspec.structs.replace(lease, execution=instead.execution)
            await self._fail_refused(holding, answer, name)

    async def _fail_refused(self, lease: Lease, refused: Refused, name: str) -> None:
        """Of a script. Should that have ended meanwhile, its task with the same lease is an execution of its own, which
        begins anew."""
        failure = self.scripts.refused(lease, refused.message)
        if isinstance(await self.letting_go.commit_failure(lease, failure), Stale):
            await self.letting_go.give_back(name, [lease])

    def _kept(self, lease: Lease, kept: Sequence[NewToken], applied: Applied) -> list[Lease]:
        now = self.ledger.now()
        kind = lease.execution_kind
        return kept_leases(lease.execution, lease.definition, lease.epoch, kept, applied, now, kind)

    async def _refused(self, lease: Lease, body: Body | None, refused: Refused) -> Step:
        """The store cannot hold what the step wants to write: the node fails, its execution with it."""
        is_light.set(False)
        program = await self.steps.definitions.by_hash(lease.definition)
        now = self.ledger.now()
        failure = Failure(
            f"the store cannot hold this output: {refused.message}",
            code="NOT_STORABLE",
            type="NotStorable",
            node=lease.node,
            retryable=False,
        )
        return halt(Situation(program.plan, lease, body or decode_body(lease.data), now, now), failure)
