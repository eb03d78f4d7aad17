"""The worker: claims tokens, runs steps, commits them, and continues with the tokens it spawned."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from dalsegno.core.graph.complete import Step
from dalsegno.core.graph.fail import halt
from dalsegno.core.graph.step_input import Body, StepInput, decode_body
from dalsegno.engine.committer import Committer
from dalsegno.engine.scripts.script_step import ScriptStep
from dalsegno.engine.scripts.steps import ScriptSteps
from dalsegno.engine.steps.budget import is_light
from dalsegno.engine.steps.contexts import NO_TRANSACTIONS
from dalsegno.engine.steps.graph import Steps
from dalsegno.engine.steps.run_node import is_failure
from dalsegno.engine.steps.task_writes import TaskWrites
from dalsegno.engine.subprocesses.heavy_steps import SCRIPT_TOKENS, HeavySteps, PutOff
from dalsegno.engine.tracing import Observer
from dalsegno.engine.worker.capabilities import NotRunnableHere
from dalsegno.engine.worker.heartbeat import Names
from dalsegno.engine.worker.long_runs import LongRuns, ObsoleteRuns
from dalsegno.engine.worker.slot_shares import UNKNOWN, HeldSlot, SlotShares, current_lease
from dalsegno.engine.worker.tokens import Continuation, TokenReleaser, kept_leases
from dalsegno.errors import BadConfiguration, InternalError, InvalidInput, OperatorError
from dalsegno.lang.runtime.limits import Heavy
from dalsegno.model.execution import SCRIPTED, ExecutionKind, NewExecution
from dalsegno.model.failure import Failure
from dalsegno.model.ids import task_execution_id
from dalsegno.model.token import LONG_KINDS, SYSTEM_QUEUE, Lease, NewToken, may_run_long, python_queue
from dalsegno.model.transition import AlreadyApplied, Applied, Outcome, Refused, Stale, Transition
from dalsegno.ports.broker import Broker
from dalsegno.ports.ledger import Ledger
from dalsegno.ports.transactions import WorkFailed

NAME_LOOK = 0.05
"""Seconds between two checks whether a new name is stored."""
KEPT_FREE = 10
"""While some workflows crowd out others, one slot in this many is kept free for the others."""
OTHERS_EVERY = 0.02
"""Seconds between two claims for workflows other than those that hold their share."""
UNKNOWN_LOOK = 0.01
"""Seconds until definitions that are being loaded are checked again."""
INTERRUPT_AGAIN = 30.0
"""Seconds that a cancelled run may take to clean up before it is cancelled again."""


class Worker:
    """A worker of a set of queues: it claims their tokens, runs them and commits their steps.

    A worker's heartbeat renews every lease under its name, so the worker must not hold leases that it does not know
    of. If a reply that may have leased something is lost, the worker gives up its name (``give_up_name``) and
    continues under a new one as soon as the store knows that. The old name is renewed only while runs leased under
    it continue; then its unknown leases expire.
    """

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
        step_by_step: bool = False,
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
        """Modules of the Python workflows whose code this process has."""
        self.offers: Callable[[], tuple[str, ...]] = tuple
        """Capabilities of this process that not every worker has."""
        self.concurrency = concurrency
        self._heavy = heavy
        self.running: dict[str, Lease] = {}
        self.started: dict[str, float] = {}
        """Start time of each run, by token. A run that has finished and waits for its commit is not included."""
        self.continuation = Continuation(self._queues)
        self.steps_done = 0
        self._continues = continues
        self._step_by_step = step_by_step
        """Each node of a graph is announced by a message of its own; scripts continue all the same."""
        self.observer: Observer | None = None
        self.transactions = NO_TRANSACTIONS
        self.writes: TaskWrites | None = None
        """What running tasks publish, log and stream."""
        self.renamed: Callable[[], None] = lambda: None
        """Called when there is a new name to renew."""
        self._tasks: dict[asyncio.Task[None], str] = {}
        """Runs in progress, with the name under which each was leased."""
        self.names = Names(name, lambda: list(self._tasks.values()))
        self._runs: dict[str, asyncio.Task[None] | None] = {}
        """Runs in progress that may take long, by token."""
        self._called_off: dict[str, float] = {}
        """Time at which a run was cancelled, by token."""
        self.shares = SlotShares(concurrency, workflow_share, steps.definitions)
        if heavy is not None:
            heavy.named = self.shares.learn
        self._offered: Counter[str] = Counter()
        """Tokens that starts in flight may leave here, by workflow."""
        self._others_at = self._newcomers_at = 0.0
        """Times of the next claims for workflows that do not hold their share, and for those that are not
        crowding.
        """
        self.releaser = TokenReleaser(ledger, broker, committer, scripts.readiness.elsewhere.live_workers)
        self._free = asyncio.Event()
        self._long_runs = LongRuns(self.running, self.started, committer, steps.definitions)
        scripts.task_returned = self._long_runs.returned
        self._obsolete_runs = ObsoleteRuns(self.running, self.started, ledger, self._interrupt, self._runs)
        self._stopping = False

    @property
    def occupied(self) -> int:
        """Slots in use, and those reserved for starts in flight."""
        return len(self.running) + (self._offered.total() if self._offered else 0)

    @property
    def name(self) -> str:
        """The name under which new leases are taken."""
        return self.names.current

    @property
    def queues(self) -> tuple[str, ...]:
        """The configured queues, the queue that every worker serves, and the queues of Python modules that only
        workers with the code can serve.
        """
        return (*self._queues, *map(python_queue, self.modules()))

    async def run(self) -> None:
        """Claim and run tokens until stopped; ``stop`` finishes the running steps."""
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
        """Claim tokens, first for workflows that hold few slots, then for any below their share."""
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
        """Return the workflows for which nothing more is claimed now."""
        return [*self.shares.full(), *self._waiting_heavy()]

    def _waiting_heavy(self) -> list[str]:
        return self._heavy.full() if self._heavy is not None else []

    def _room(self, kept_free: int = 0) -> int:
        """Return the number of leases that may be claimed without knowing their workflow."""
        return min(self.concurrency - self.occupied - kept_free, self.shares.room_for_any())

    async def _receive(self, room: int) -> None:
        name = self.name
        try:
            leases = await self.broker.take(name, self.queues, room)
        except OperatorError:
            self.give_up_name(name)
            raise
        self.continuation.claimed(all_of_them=len(leases) < room)
        await self._accept(leases, name)

    async def _receive_others(self, room: int, full: list[str]) -> None:
        """Claim for other workflows while some hold their share of the slots. This query runs at intervals, so that
        it costs little while a single workflow is busy.
        """
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
        """Claim first for the workflows that are not crowding: their tokens queue behind those of workflows that hold
        many slots and have more work. This query runs at intervals, and slots are kept free for it.
        """
        now = asyncio.get_running_loop().time()
        if now >= self._newcomers_at:
            await self._claim_others(self._room(), crowding, only_long=False)
            self._newcomers_at = asyncio.get_running_loop().time() + OTHERS_EVERY

    async def _wait_for_slot(self, until: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._free.wait()

    async def _claim_others(self, wanted: int, excluded: Iterable[str], *, only_long: bool) -> int:
        """Claim for other workflows and return the number of leases. While the workflows of the running leases are
        unknown, nothing is claimed.
        """
        name, full = self.name, [each for each in excluded if each != UNKNOWN]
        if not full or wanted <= 0:
            return 0
        try:
            leases = await self.ledger.claim_others(name, self.queues, wanted, full, only_long=only_long)
        except OperatorError:
            self.give_up_name(name)
            raise
        self.continuation.claimed(all_of_them=len(leases) < wanted)
        await self._accept(leases, name, are_allowed=True)
        return len(leases)

    async def _accept(self, leases: Sequence[Lease], name: str, *, are_allowed: bool = False) -> None:
        """Launch claimed tokens and release the others: all of them while the worker stops, those leased under a name
        that was given up meanwhile and not renewed, and those whose slots were taken by executions started here.
        """
        rejected = []
        for lease in leases:
            is_outdated = self._stopping or name != self.name
            is_allowed = are_allowed or self.shares.allows(lease)
            if is_outdated or self.occupied >= self.concurrency or not is_allowed:
                rejected.append(lease)
            else:
                self._launch(lease, None, name)
        if rejected:
            await self.releaser.give_back(name, rejected)
            for lease in rejected:
                self.broker.settled(lease)

    def give_up_name(self, name: str) -> None:
        """Give up a name under which tokens may be leased that the worker does not know of."""
        if self.names.give_up(name):
            self.renamed()

    # -- executions started in this process -------------------------------------------------------------------

    def offer(
        self, transition: Transition, workflow: str, kind: ExecutionKind
    ) -> tuple[Transition, list[NewToken]]:
        """Return a start that asks to keep its first tokens here, and those tokens: a worker with free slots runs
        them without a claim. Kept tokens reserve slots until the start is ``concluded``.
        """
        room = self.concurrency - self.occupied
        if self._stopping or not self._may_keep(kind) or room <= 0 or self.continuation.others_wait:
            return transition, []
        if not self.names.may_lease():
            return transition, []
        if self.shares.is_bounded:
            room = min(room, self.shares.room(workflow) - self._offered[workflow])
        transition, kept = self.continuation.keeping(
            transition, lambda _: room, None, self.name, at_least=min(room, 1)
        )
        if kept:
            self._offered[workflow] += len(kept)
        return transition, kept

    def _may_keep(self, kind: ExecutionKind) -> bool:
        return self._continues and not (self._step_by_step and kind == "graph")

    def concluded(self, workflow: str, kept: list[NewToken]) -> None:
        """Release the slots reserved for a start, regardless of its outcome."""
        self._offered[workflow] -= len(kept)
        if not self._offered[workflow]:
            del self._offered[workflow]

    def accept(self, new: NewExecution, kept: list[NewToken], applied: Applied, name: str) -> None:
        """Launch the kept tokens of a start. ``name`` is that of the offer; it is renewed from now on even if it was
        given up meanwhile.
        """
        if self._stopping:
            return  # they are released with all other leases under this name
        rejected = []
        for lease in kept_leases(new.id, new.definition, 0, kept, applied, self.ledger.now(), new.kind):
            if self.shares.allows(lease):
                self._launch(lease, None, name)
            else:  # claims have filled the workflow's share while the start was committed
                rejected.append(lease)
        if rejected:
            task = asyncio.get_running_loop().create_task(self.releaser.give_back(name, rejected))
            self._tasks[task] = name
            task.add_done_callback(self._tasks.pop)

    def cancel_runs(self, execution: str, tokens: Sequence[str] | None = None) -> None:
        """Cancel runs of an execution, or of some of its tokens, whose results would be refused. Other processes
        detect this themselves.
        """
        runs = [
            lease
            for lease in map(self.running.get, self._runs if tokens is None else tokens)
            if lease is not None
            and (
                lease.execution == execution
                or (lease.kind == "task" and task_execution_id(lease.token) == execution)
            )
        ]
        for lease in runs:
            self._interrupt(lease)

    def _interrupt(self, lease: Lease) -> None:
        """Cancel a run, unless its commit is in flight: ``started`` contains only runs that have not finished."""
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
        """Stop claiming. Running steps finish, or are cancelled and their leases released after the grace period."""
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
            await self.releaser.release_on_stop(name, list(self.running.values()))

    def _launch(self, lease: Lease, body: Body | None, name: str) -> None:
        self.running[lease.token] = lease
        slot = self.shares.take(lease)
        self._long_runs.busy.set()
        self._obsolete_runs.busy.set()
        task = asyncio.get_running_loop().create_task(self._drive(lease, body, name, slot))
        self._tasks[task] = name
        task.add_done_callback(self._tasks.pop)

    async def _drive(self, lease: Lease, body: Body | None, name: str, slot: HeldSlot | None) -> None:
        """Run a token and then, as long as that is fair to others, one of the tokens it spawned. All of them belong
        to one execution and use one slot, which counts towards its workflow's share from the first step that may take
        long.
        """
        clock = asyncio.get_running_loop().time
        began = now = clock()
        hops, this_run = 0, asyncio.current_task()
        following: Lease | None = lease
        holds_few = partial(self.shares.holds_few, slot)
        may_keep = self._may_keep(lease.execution_kind)
        heavy = self._heavy
        begins_light = heavy is not None and heavy.are_possible
        current_lease.set(lease)
        try:
            while following is not None:
                lease, hops = following, hops + 1
                is_light.set(begins_light)
                now = self.started[lease.token] = clock()
                if self.observer is not None:
                    self.observer.began(lease)
                if lease.kind in LONG_KINDS or may_run_long(lease.kind, lease.execution_kind):
                    self._runs[lease.token] = this_run
                    if slot is not None and not slot.is_long:
                        self.shares.may_run_long(slot)
                going_on = may_keep and self.continuation.may_continue(
                    hops, now - began, lease.priority, holds_few
                )
                if lease.kind in SCRIPT_TOKENS or lease.execution_kind in SCRIPTED:
                    following = await self._advance_script(lease, going_on, name)
                else:
                    following, body = await self._advance(lease, body, going_on, name)
                if self.transactions.retries and self.transactions.has(lease):
                    await self.transactions.abandon(lease)  # its step was not applied
                self._done(lease, now)
                if following is not None:
                    self.running[following.token] = following
        except asyncio.CancelledError:
            if lease.token not in self._called_off:
                raise
            self._done(lease, now)
        except BaseException as error:  # noqa: BLE001 - what is no failure is raised again
            await self._release_failed(lease, error, name)
            self._done(lease, now)
        finally:
            if heavy is not None and heavy.held:
                heavy.release_bytes(lease)
            self.shares.free(slot)
            self._free.set()
            if self.transactions.retries and self.transactions.has(lease):
                await self.transactions.abandon(lease)

    async def _release_failed(self, lease: Lease, error: BaseException, name: str) -> None:
        """Release a token whose step cannot be finished here, or not now."""
        if isinstance(error, Heavy):
            error = InternalError(f"a step of execution {lease.execution} was given up after it could be")
        is_others = isinstance(error, BadConfiguration | NotRunnableHere | PutOff)
        if not is_others and not is_failure(error):
            raise error
        self._runs.pop(lease.token, None)  # nothing is left to cancel
        if isinstance(error, PutOff):
            await self.releaser.put_off(name, lease, error.seconds)
        elif isinstance(error, BadConfiguration | NotRunnableHere):
            await self.releaser.leave_to_others(lease, error, name)
        else:
            self.releaser.note_broken(lease, error)
            await self.releaser.give_back_broken(name, lease)

    def _done(self, lease: Lease, since: float) -> None:
        """Remove a finished run. After a lost lease the same token may run here a second time; that run stays."""
        if self.writes is not None and self.writes.runs:
            self.writes.forget(lease)
        if self._heavy is not None and self._heavy.held:
            self._heavy.release_bytes(lease)
        if self.running.get(lease.token) is lease:
            del self.running[lease.token]
            self.started.pop(lease.token, None)
            self._runs.pop(lease.token, None)
            if self._called_off:
                self._called_off.pop(lease.token, None)
            self.broker.settled(lease)
            if self.observer is not None:
                self.observer.stepped(lease, asyncio.get_running_loop().time() - since)

    async def _advance(
        self, lease: Lease, body: Body | None, going_on: bool, name: str
    ) -> tuple[Lease | None, Body | None]:
        step, heavy = None, self._heavy
        if heavy is None or not heavy.known_heavy or not heavy.expected(lease):
            try:
                step = await self.steps.step(lease, body)
            except Heavy:
                step = None  # frees what the step has loaded before the subprocess begins
        if step is None:
            step = await self._heavy_step(lease, body)
        self.started.pop(lease.token, None)
        transition: Transition = step.transition
        kept: list[NewToken] = []
        if going_on and step.bodies:
            transition, kept = self._keeping(lease, transition, name)
        try:
            outcome = await self._commit(lease, transition, step.size)
        except WorkFailed as failed:
            step, kept = await self.steps.work_failed(lease, body, failed), []
            outcome = await self.committer.commit(step.transition)
        self.steps_done += 1
        if isinstance(outcome, Refused):
            step, kept = await self._refused(lease, body, outcome), []
            outcome = await self.releaser.commit_failure(lease, step.transition)
        if not isinstance(outcome, Applied):
            if isinstance(outcome, AlreadyApplied) and kept:
                # The reply to an earlier attempt was lost; the tokens it kept for this worker are released.
                then = Applied(tuple([token.id for token in kept]))
                await self.releaser.give_back(name, self._kept(lease, kept, then))
            return None, None
        if not outcome.kept:
            return None, None
        leases = self._kept(lease, kept, outcome)
        for extra in leases[1:]:
            self._launch(extra, step.bodies.get(extra.token), name)
        return leases[0], step.bodies.get(leases[0].token)

    def _heavy_step(self, lease: Lease, body: Body | None) -> Awaitable[Step]:
        return self._heavy_steps(lease).step(lease, body)

    def _heavy_script_step(self, lease: Lease) -> Awaitable[ScriptStep]:
        return self._heavy_steps(lease).script_step(lease)

    def _heavy_steps(self, lease: Lease) -> HeavySteps:
        """Return the heavy steps. From now on the run waits for a subprocess and can be cancelled."""
        if self._heavy is None:
            raise InternalError(
                f"a step of execution {lease.execution} was given up, and there is no process for it"
            )
        self._runs[lease.token] = asyncio.current_task()
        return self._heavy

    async def _advance_script(self, lease: Lease, going_on: bool, name: str) -> Lease | None:
        step, heavy = None, self._heavy
        if heavy is None or not heavy.known_heavy or not heavy.expected(lease):
            try:
                step = await self.scripts.step(lease)
            except Heavy:
                step = None
        if step is None:
            step = await self._heavy_script_step(lease)
        self.started.pop(lease.token, None)
        transition: Transition = step.transition
        kept: list[NewToken] = []
        if going_on:
            transition, kept = self._keeping(lease, transition, name)
        try:
            outcome = await self._commit(lease, transition, step.size)
        except WorkFailed as failed:
            step, kept = await self.scripts.work_failed(lease, failed), []
            outcome = await self.committer.commit(step.transition)
        self.steps_done += 1
        if step.spent is not None and isinstance(outcome, Applied | AlreadyApplied):
            await self.scripts.applied(lease, step)
        if isinstance(outcome, Applied):
            return self._continue_with(lease, step, kept, outcome, name)
        if isinstance(outcome, AlreadyApplied) and kept:
            then = Applied(tuple([token.id for token in kept]))
            await self.releaser.give_back(name, self._kept(lease, kept, then))
        elif isinstance(outcome, Refused):
            await self._fail_refused(lease, outcome, name)
        elif isinstance(outcome, Stale):
            await self._too_late(lease, step, outcome, name)
        return None

    def _keeping(self, lease: Lease, transition: Transition, name: str) -> tuple[Transition, list[NewToken]]:
        """Return the step's transition, asking to keep the tokens it spawns. Not if the task has its own transaction:
        that is committed once and not sent again, so if its reply is lost the kept tokens remain unknown.
        """
        if self._stopping or (self.transactions.retries and self.transactions.has(lease)):
            return transition, []
        return self.continuation.keeping(transition, self._room_for, lease, name)

    def _room_for(self, lease: Lease) -> int:
        """Return the slots for tokens that a run of this lease has spawned, including its own slot, which is free by
        then.
        """
        room = self.concurrency - self.occupied
        if self.shares.is_bounded:
            room = min(room, self.shares.room(self.shares.workflow_of(lease)))
        return max(room, 0) + 1

    def _commit(self, lease: Lease, transition: Transition, size: int | None = None) -> Awaitable[Outcome]:
        """Commit a step with the others that wait, or in the transaction that its task has used. ``size``: the bytes
        of its effects, if they are known.
        """
        if self.writes is not None and self.writes.runs and self.writes.has(lease):
            return self._commit_with_writes(self.writes, lease, transition)
        return self._commit_alone(lease, transition, size)

    async def _commit_with_writes(self, writes: TaskWrites, lease: Lease, transition: Transition) -> Outcome:
        """Commit a step with what its run has written and not stored yet."""
        appended = await writes.finish(lease)
        if appended:
            transition = replace(transition, effects=(*transition.effects, *appended))
        return await self._commit_alone(lease, transition)

    def _commit_alone(
        self, lease: Lease, transition: Transition, size: int | None = None
    ) -> Awaitable[Outcome]:
        if not self.transactions.retries or not self.transactions.has(lease):
            workflow = self.shares.names.get(lease.definition) or self.shares.workflow_of(lease)
            return self.committer.commit(transition, workflow=workflow, size=size)
        return self._commit_within(lease, transition)

    async def _commit_within(self, lease: Lease, transition: Transition) -> Outcome:
        within = await self.transactions.of_step(lease)
        if within is None:
            raise InternalError(f"the transaction of token {lease.token} was lost during its step")
        try:
            outcome = await self.committer.commit_within(within, transition)
        except InvalidInput as error:
            # The store cannot hold a value. The task's transaction must not keep its locks while the step fails.
            await self.transactions.abandon(lease)
            return Refused(str(error))
        if isinstance(outcome, Applied):
            self.transactions.ended(lease)
        return outcome

    def _continue_with(
        self, lease: Lease, step: ScriptStep, kept: list[NewToken], applied: Applied, name: str
    ) -> Lease | None:
        if step.cached is not None:
            self.scripts.hot.keep(lease.execution, step.cached)
        if lease.kind == "timer" and step.transition.park is not None:
            self.scripts.put_off(lease)
        if not applied.kept:
            return None
        leases = self._kept(lease, kept, applied)
        for extra in leases[1:]:
            self._launch(extra, None, name)
        return leases[0]

    async def _too_late(self, lease: Lease, step: ScriptStep, outcome: Stale, name: str) -> None:
        """Handle a stale commit. If the machine has moved on, only the task's completion is committed. If the script
        has ended, the task with the same lease is an execution of its own.
        """
        if step.ends_with is not None and outcome.reason == "version":
            step = await self.scripts.fail(lease, step.ends_with)
            again = await self._commit(lease, step.transition)
            if isinstance(again, Stale):
                await self._too_late(lease, step, again, name)
            return
        instead = step.instead() if step.instead is not None and outcome.reason == "version" else None
        if outcome.reason in ("finished", "unknown"):
            instead = await self.scripts.handed_over(lease, step)
        if instead is None:
            is_handed_over = lease.kind == "task" and outcome.reason in ("finished", "unknown")
            is_outdated = lease.kind in ("resume", "deadline") and outcome.reason == "version"
            # The task is an execution of its own by now, or the step must read the changed machine.
            if is_handed_over or is_outdated:
                await self.releaser.give_back(name, [lease])
            return
        answer = await self._commit(lease, instead)
        if isinstance(answer, Stale) and answer.reason == "finished" and outcome.reason == "version":
            await self._too_late(lease, step, answer, name)
        elif isinstance(answer, Applied | AlreadyApplied) and outcome.reason == "version":
            await self.scripts.applied(lease, step)
        elif isinstance(answer, Refused):
            holding = msgspec.structs.replace(lease, execution=instead.execution)
            await self._fail_refused(holding, answer, name)

    async def _fail_refused(self, lease: Lease, refused: Refused, name: str) -> None:
        """Commit the failure of a refused script step. If the script has ended meanwhile, its task with the same
        lease is an execution of its own and starts again.
        """
        step = await self.scripts.refused(lease, refused.message)
        outcome = await self.releaser.commit_failure(lease, step.transition)
        if isinstance(outcome, Stale) and outcome.reason == "version":
            await self._too_late(lease, step, outcome, name)
        elif isinstance(outcome, Stale):
            await self.releaser.give_back(name, [lease])

    def _kept(self, lease: Lease, kept: Sequence[NewToken], applied: Applied) -> list[Lease]:
        now = self.ledger.now()
        kind = lease.execution_kind
        return kept_leases(lease.execution, lease.definition, lease.epoch, kept, applied, now, kind)

    async def _refused(self, lease: Lease, body: Body | None, refused: Refused) -> Step:
        """Return a step that fails the node, and its execution, because the store cannot hold the step's output."""
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
        return halt(StepInput(program.plan, lease, body or decode_body(lease.data), now, now), failure)
