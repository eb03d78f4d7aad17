"""The engine: worker, timers, outbox and reconciler of one process on one stack, and its client."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from dalsegno.engine.client import Client
from dalsegno.engine.committer import Committer, Outage
from dalsegno.engine.definitions import Definitions
from dalsegno.engine.executions import all_executions
from dalsegno.engine.journal.room import JournalRoom
from dalsegno.engine.operations.endings import Endings, ending_in
from dalsegno.engine.operations.limits import follow_openings
from dalsegno.engine.operations.troubles import StuckReason, StuckReasons
from dalsegno.engine.process import switch_often
from dalsegno.engine.remote.declarations import RemoteDeclarations
from dalsegno.engine.scripts.python_workflows import Workflows
from dalsegno.engine.scripts.readiness import Readiness
from dalsegno.engine.scripts.retry import Lookouts
from dalsegno.engine.scripts.steps import ScriptSteps
from dalsegno.engine.scripts.task_inputs import TaskInputs
from dalsegno.engine.scripts.tasks import TaskRunner
from dalsegno.engine.scripts.turns import Turns, turn_limits
from dalsegno.engine.secrets import KeySource, Vault
from dalsegno.engine.secrets.snapshot_seals import SnapshotSeals
from dalsegno.engine.settings import REMOTE_VARIABLE, EngineSettings, remote_queues
from dalsegno.engine.steps.contexts import StepTransactions
from dalsegno.engine.steps.graph import Steps
from dalsegno.engine.steps.run_node import Runner
from dalsegno.engine.steps.task_writes import SERVICE, TaskWrites
from dalsegno.engine.steps.tasks import Tasks
from dalsegno.engine.steps.values import Loader, Storage
from dalsegno.engine.subprocesses.heavy_steps import HeavyLimits, HeavySteps
from dalsegno.engine.tracing import CombinedObserver, Observer, tracing_if_set
from dalsegno.engine.upkeep.outbox import Outbox
from dalsegno.engine.upkeep.reconciler import Reconciler
from dalsegno.engine.upkeep.timers import Timers
from dalsegno.engine.wire.intake import WireIntake
from dalsegno.engine.wire.publishing import Publishing
from dalsegno.engine.worker.capabilities import (
    Capabilities,
    LackingTokensWaker,
    MissingTasks,
    key_offer,
    node_offer,
    task_offer,
    version_offer,
)
from dalsegno.engine.worker.directory import LiveWorkers, dead_workers, describe, present, worker_name
from dalsegno.engine.worker.focused_broker import FocusedBroker
from dalsegno.engine.worker.heartbeat import Heartbeat, RetiredNames
from dalsegno.engine.worker.worker import Worker
from dalsegno.errors import BadConfiguration, OperatorError, StoreLost
from dalsegno.model.effect import AnswerRequest, DropTokens, FinishExecution
from dalsegno.model.execution import NOT_ENDED
from dalsegno.model.transition import Applied, Transition
from dalsegno.ports.archive import ExecutionFilter
from dalsegno.ports.broker import Broker, Neighbours
from dalsegno.ports.node import NodeTypes
from dalsegno.ports.stack import Stack
from dalsegno.ports.task_transport import Distribution

logger = logging.getLogger("dalsegno.engine")

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
LOOK = 0.05
"""Seconds between two checks whether a role may continue."""
OWN = ("child", "started", "task")
"""Relations of executions that an execution has started itself."""


class Engine:
    """All parts of one process. ``start`` runs the roles, ``stop`` ends them gracefully."""

    make_definitions: type[Definitions] = Definitions
    """Replaced by simulations, which compile a graph once for all their processes."""
    make_heartbeat: type[Heartbeat] = Heartbeat
    """Replaced by simulations, which have no threads."""

    def __init__(
        self,
        stack: Stack,
        types: NodeTypes,
        services: Mapping[str, Any] | None = None,
        settings: EngineSettings | None = None,
        workflows: Workflows | None = None,
    ) -> None:
        self.stack = stack
        self.settings = settings or EngineSettings()
        self.vault = Vault(stack.records, stack.archive, KeySource(stack.url), stack.clock)
        self.transactions = StepTransactions(stack.transactions)
        self.writes = TaskWrites(
            stack.published, stack.ledger.now, self.settings.limits.stored_bytes, self._note_written
        )
        self.services: dict[str, Any] = {
            "secrets": self.vault,
            "transactions": self.transactions,
            SERVICE: self.writes,
            **(services or {}),
        }
        self.logs: list[tuple[str, str, str, str]] = []
        self.workflows = workflows or Workflows()
        self.definitions = self.make_definitions(
            stack.archive,
            types,
            stack.clock,
            self.settings.limits,
            resolve=self.workflows.resolve,
            own=self.workflows.program,
        )
        self.seals = SnapshotSeals(
            self.vault.keys, stack.records, stack.clock, self.settings.unsealed_seconds
        )
        self.storage = Storage(stack.blobs, self.settings.limits.stored_bytes)
        self.loader = Loader(stack.ledger, self.storage)
        self.runner = Runner(types, self.loader, self.services, self._log, self.settings.limits)
        self.committer = self._make_committer()
        self.steps = Steps(
            stack.ledger,
            self.storage,
            self.definitions,
            self.loader,
            self.runner,
            stack.items_per_commit,
            self.settings.limits,
        )
        tasks = self.services.get("tasks")
        self._tasks = tasks if isinstance(tasks, Tasks) else None
        self.declarations = RemoteDeclarations(stack.records, stack.clock)
        missing = MissingTasks(stack.ledger.now) if self.settings.missing_tasks == "wait" else None
        log = lambda execution, level, message: self._log(execution, "workflow", level, message)  # noqa: E731 - a sink
        limits = self.settings.limits
        self.elsewhere = Capabilities(
            LiveWorkers(stack.ledger),
            self.workflows,
            stack.archive,
            self.declarations,
            missing,
            self._task_names,
        )
        self.scripts = ScriptSteps(
            stack.ledger,
            stack.archive,
            self.storage,
            self.definitions,
            TaskRunner(types, self.services, self._log, limits, TaskInputs(stack.archive, self.storage)),
            Turns(
                self.storage,
                turn_limits(limits),
                log,
                self._task_options,
                stack.archive,
                stack.published.usage,
            ),
            limits,
            self._tasks,
            Readiness(self.definitions, self.elsewhere, self.seals),
            self.settings.cancel_grace,
        )
        self.scripts.tasks.look_for_node_type = self.elsewhere.look_for_node_type
        self.heavy = HeavySteps(
            self.steps,
            self.scripts,
            stack.ledger,
            stack.archive,
            stack.published.usage,
            self._task_options,
            heavy_limits(self.settings),
            self._log,
        )
        self.steps.transactions = self.scripts.transactions = self.transactions
        self.timers = Timers(stack.ledger, stack.broker, stack.timer_interval)
        self.reconciler = Reconciler(
            stack.ledger,
            stack.archive,
            stack.broker,
            interval=self.settings.reconcile_every,
            untouched_after=self.settings.untouched_after,
            retention=self.settings.retention,
        )
        self.endings = Endings(stack.archive)
        self.client = Client(
            stack, self.definitions, self.committer, self.endings, self.loader, self.settings.limits
        )
        self.answers = self.client.asking.answers
        self._listen(stack)
        self.scripts.lookouts = Lookouts(self.endings.over, self.committer.commit)
        self.client.seals = self.seals
        self.client.task_limit = self._task_limit
        self.client.launcher.notice_due = self.timers.notice
        if self._tasks is not None:
            self.client.in_thread = self._tasks.call
            self._tasks.look_elsewhere = self.elsewhere.look_for_task
            self._tasks.workflow_share = self.settings.workflow_share
        self.outbox = Outbox(self.client, self.client.launcher, self.client.cancelling)
        self.troubles = StuckReasons(stack.records, stack.clock)
        self.outbox.trouble = self.troubles.note
        self.outage = Outage()
        for role in (
            self.committer,
            self.timers,
            self.endings,
            self.answers,
            self.reconciler,
            self.outbox,
            self.writes,
        ):
            role.outage = self.outage
        self.publishing = self._make_publishing()
        self._intake: WireIntake | None = None
        self.distribution: Distribution | None = None
        """Hands tasks out over the stack's brokers; set by the opener of the engine if the stack has brokers."""
        self.worker: Worker | None = None
        self.observer: Observer | None = None
        self._broker: Broker = stack.broker
        self._heartbeat: Heartbeat | None = None
        self._roles: list[asyncio.Task[None]] = []
        self.loss: StoreLost | None = None
        """The reason why this engine has stopped permanently."""
        self._loss_listeners: list[Callable[[StoreLost], None]] = []

    def _make_committer(self) -> Committer:
        stack = self.stack
        committer = Committer(stack.ledger, stack.broker, self._applied, stack.commits_at_once)
        self.storage.make_room = JournalRoom(stack.ledger, stack.blobs, committer.commit).make
        return committer

    def _make_publishing(self) -> Publishing | None:
        publisher, publications = self.stack.publisher, self.stack.publications
        if publisher is None or publications is None:
            return None
        publishing = Publishing(self.client, publisher, publications, worker_name(), self._works_alone)
        publishing.outage = self.outage
        self.client.launcher.publisher = publishing.publisher_of
        return publishing

    async def _works_alone(self) -> bool:
        """Return True if no other process runs steps."""
        if self.worker is None:
            return False
        views = await self.stack.ledger.workers()
        others = {view.id for view in views} - set(self.worker.names())
        return others <= dead_workers(views, self.stack.ledger.now())

    @property
    def intake(self) -> WireIntake:
        """Takes messages of other programs into the ledger."""
        if self._intake is None:
            self._intake = WireIntake(self.client, self.client.launcher, self.settings.adopt or "any")
            if self.publishing is not None:
                self._intake.applied = self.publishing.notice
        return self._intake

    @property
    def tasks(self) -> Tasks | None:
        """The tasks of this process's program."""
        return self._tasks

    async def start(self, *, worker: bool = True, scheduler: bool = True, focus: str | None = None) -> None:
        """Start the roles. With ``focus`` the worker runs only this execution."""
        if worker:
            self._refuse_remote_queues()
        self.vault.loop = self.writes.loop = loop = asyncio.get_running_loop()
        if self.stack.when_lost is not None:
            self.stack.when_lost(partial(_in_loop, loop, self._lose))
        tracing = tracing_if_set(self.stack.archive)
        if tracing is not None:
            self.observe(tracing)
        self.workflows.forget_deployed()
        await self.workflows.ensure_all(self.client)
        await self._declare_remote_tasks()
        if focus is not None:
            passed_over = await self.declarations.queues()
            broker = FocusedBroker(self.stack.broker, self.stack.ledger, focus, passed_over)
            await self._follow_children(broker, focus)
            self._focus(broker)
        if scheduler:
            if self.distribution is not None:
                await self.distribution.renew_leases()
                self._start_role("distribution of tasks", self.distribution.run)
            await self.reconciler.take_back_leases()
            self._start_role("timers", self.timers.run)
            self._start_role("reconciler", self.reconciler.run)
            self._start_role("outbox", self.outbox.run)
        if worker:
            self._start_worker(serves_others=focus is None)
        if self.publishing is not None:
            self._start_role("publishing", self.publishing.run)
        if worker or scheduler:
            self._receive(scheduler=scheduler)
        follow_openings(self.stack, self.timers.notice if scheduler else None)
        if scheduler and self.stack.neighbours is not None:
            self._share(self.stack.neighbours)
        if scheduler and self.stack.watch is not None:
            self.stack.watch.on_upkeep(self.timers.notice, self.outbox.notice)

    def _receive(self, *, scheduler: bool) -> None:
        """Take messages of other programs in."""
        for source in self.stack.sources:
            source.start(self.intake)
        if scheduler and self.stack.sources:
            self._start_role("adopted ids", self.intake.ids.run)

    def _refuse_remote_queues(self) -> None:
        """Refuse queues of remote tasks: this worker could only release the tokens it would claim from them."""
        for queue in remote_queues():
            if queue in self.settings.queues:
                raise BadConfiguration(
                    f"{REMOTE_VARIABLE} hands the queue '{queue}' out to other programs, so no worker of this "
                    "application may serve it; leave it out of the worker's queues"
                )
        for task in self._tasks.remote() if self._tasks is not None else ():
            if task.queue in self.settings.queues:
                raise BadConfiguration(
                    f"remote programs claim the queue '{task.queue}' (remote task '{task.name}'), so no worker of this "
                    "application may serve it; leave it out of the worker's queues"
                )

    async def _declare_remote_tasks(self) -> None:
        """Declare remote tasks for the other processes of the store and for error reports about missing tasks."""
        if self._tasks is not None and (names := self._tasks.names()):
            remote = self._tasks.declarations()
            own = set(names) - {each.task for each in remote}
            await self.declarations.declare(remote, own)

    def when_lost(self, listener: Callable[[StoreLost], None]) -> None:
        """Call ``listener`` in the event loop once the store is lost permanently, so that its owner ends this
        process.
        """
        self._loss_listeners.append(listener)
        if self.loss is not None:
            listener(self.loss)

    def _lose(self, error: StoreLost) -> None:
        """Stop claiming, firing timers and delivering, and fail all waits for executions."""
        if self.loss is not None:
            return
        self.loss = error
        logger.critical("%s", error)
        for role in self._roles:
            role.cancel()
        self.endings.lose(error)
        for listener in self._loss_listeners:
            listener(error)

    @property
    def is_running(self) -> bool:
        """Whether a worker or a scheduler runs."""
        return bool(self._roles)

    def _listen(self, stack: Stack) -> None:
        """Hear from other processes about endings and answers."""
        if stack.neighbours is not None:
            stack.neighbours.on_ending(self.endings.notice_elsewhere)
            stack.neighbours.on_answer(self.answers.notice_elsewhere)
            self.endings.waiting = self.answers.waiting = stack.neighbours.watch_endings
        if stack.watch is not None:
            stack.watch.on_commit(self.endings.poll_soon)
            stack.watch.on_commit(self.answers.poll_soon)
            stack.watch.on_commit(switch_often)

    def _share(self, neighbours: Neighbours) -> None:
        """Share timers, deliveries and repairs with the other processes that run a scheduler."""

        def announce_round() -> None:
            self.timers.look()
            neighbours.announce_round()

        def round_elsewhere() -> None:
            self.timers.notice_look()
            self.reconciler.notice_round()

        neighbours.on_upkeep(self.timers.notice, self.outbox.notice, round_elsewhere)
        self.timers.longest_sleep = neighbours.look_every
        # Processes announce outbox entries. This poll only finds those whose announcement was lost.
        self.outbox.look_every = lambda: 2 * neighbours.look_every()
        self.reconciler.on_round = announce_round

    async def _follow_children(self, broker: FocusedBroker, parent: str) -> None:
        """Follow the children that the execution has started before and that still run. Later ones are followed when
        they start.
        """
        where = ExecutionFilter(None, NOT_ENDED, parent=parent, relations=OWN)
        async for child in all_executions(self.stack.archive, where):
            broker.follow(parent, child.id)
            await self._follow_children(broker, child.id)

    def _focus(self, broker: FocusedBroker) -> None:
        self._broker = broker
        self.outbox.started = broker.follow
        self.committer.broker = self.timers.broker = self.reconciler.broker = broker

    def _start_worker(self, serves_others: bool) -> None:
        settings = self.settings
        name = settings.worker_name or worker_name()
        self.worker = Worker(
            name,
            self.stack.ledger,
            self._broker,
            self.committer,
            self.steps,
            self.scripts,
            queues=settings.queues,
            concurrency=settings.concurrency,
            step_by_step=self.stack.step_by_step,
            # A worker for a single execution has no other workflows to reserve slots for.
            workflow_share=settings.workflow_share if serves_others else 1.0,
            heavy=self.heavy,
        )
        if self._tasks is not None:
            self._tasks.workflow_of = self.worker.shares.current_workflow
        self.worker.modules = self.workflows.modules
        if serves_others:
            self.worker.offers = self._offers
        heartbeat = self.make_heartbeat(
            self.stack.ledger,
            self.worker.names,
            settings.lease_seconds,
            describe(self.worker, self.stack.clock),
        )
        heartbeat.outage = self.outage
        heartbeat.start()
        self._heartbeat = heartbeat  # only now: a heartbeat whose first beat failed has no thread to stop
        retired = RetiredNames(self.worker.names, self.reconciler)
        self.worker.renamed = partial(_call_all, heartbeat.soon, retired.notice)
        self.worker.observer = self.observer
        self.worker.transactions = self.transactions
        self.worker.writes = self.writes
        self.worker.releaser.trouble = self.troubles.note
        self.client.launcher.worker = self.worker
        # The worker claims nothing before its name is stored, which shows that the store is back.
        self._start_role("worker", self.worker.run, self.worker.names.may_lease)
        if serves_others:
            for presence in self.stack.presence:
                presence.show(present(self.worker, self.stack.clock))
        self._start_role("names", retired.run)
        if self.settings.missing_tasks == "wait":
            self._start_role("waiting tasks", self._taking_up().run)

    def fail_missing_tasks(self) -> None:
        """Switch to ``missing_tasks="fail"`` after the start, for a program that learns late that it is the only
        worker.
        """
        self.settings = replace(self.settings, missing_tasks="fail")
        self.elsewhere.stop_waiting()

    def _offers(self) -> tuple[str, ...]:
        versions = map(version_offer, list(self.workflows.versions))
        nodes = map(node_offer, self.definitions.types.added())
        tasks = map(task_offer, self._task_names())
        return (*tasks, *nodes, *versions, *map(key_offer, self.seals.key_ids))

    def _task_names(self) -> Sequence[str]:
        return self._tasks.names() if self._tasks is not None else ()

    def _taking_up(self) -> LackingTokensWaker:
        broker, queues = self._broker, self.settings.queues

        def is_ours(trouble: StuckReason) -> bool:
            """Return True if this worker may take the token. A worker for one execution takes its tokens from every
            queue.
            """
            if isinstance(broker, FocusedBroker):
                return broker.follows(trouble.execution)
            return trouble.queue in queues

        return LackingTokensWaker(self.stack.records, self.committer.commit, self._offers, is_ours)

    def _start_role(
        self, name: str, role: Callable[[], Awaitable[None]], may_continue: Callable[[], bool] = lambda: True
    ) -> None:
        self._roles.append(asyncio.create_task(self._supervise(name, role, may_continue), name=name))

    async def _supervise(
        self, name: str, role: Callable[[], Awaitable[None]], may_continue: Callable[[], bool]
    ) -> None:
        """Run a role and restart it after an error: a temporary outage of the store must not end it."""
        pause = FIRST_PAUSE
        while True:
            began = self.stack.clock.now()
            try:
                return await role()
            except StoreLost:
                return None
            except OperatorError as error:
                self.outage.failed(name, f"the {name} waits for the store", error)
            except Exception:
                logger.exception("the %s failed and is restarted", name)
            pause = (
                FIRST_PAUSE
                if self.stack.clock.now() - began > LONGEST_PAUSE
                else min(pause * 2, LONGEST_PAUSE)
            )
            await asyncio.sleep(pause)
            while not may_continue():  # noqa: ASYNC110 - what it waits for happens in another thread
                await asyncio.sleep(LOOK)
            self.outage.answered(name)

    async def stop(self) -> None:
        """Stop claiming, finish or release running steps, then close the stack. If the store is lost, running steps
        are interrupted: their results cannot be stored, and their executions may no longer exist.
        """
        for source in self.stack.sources:
            await source.stop()
        if self.worker is not None:
            await self.worker.stop(self.settings.grace if self.loss is None else 0.0)
        if self.publishing is not None and self.is_running and self.loss is None:
            await self.publishing.drain(self.settings.grace)
        for role in self._roles:
            role.cancel()
        for role in self._roles:
            with contextlib.suppress(asyncio.CancelledError):
                await role
        self._roles.clear()
        if self.scripts.lookouts is not None:
            await self.scripts.lookouts.close()
        await self.answers.close()
        await self.endings.close()
        await self.client.followers.close()
        await self.troubles.close()
        await self.committer.drain()
        if self._heartbeat is not None:
            self._heartbeat.stop()
        await self._leave()
        if self._tasks is not None:
            self._tasks.look_elsewhere = None  # the tasks outlive this engine
        for service in self.services.values():
            close = getattr(service, "close", None)
            if close is not None:
                await close()
        await self.heavy.close()
        await self.client.offload.close()
        if self._intake is not None:
            await self._intake.close()
        await self.stack.close()

    async def _leave(self) -> None:
        """Expire, by name, the leases that a claim in flight still took for this process, and offer their tokens to
        others.
        """
        if self.worker is not None:
            with contextlib.suppress(OperatorError):
                ready = await self.stack.ledger.expire(tuple(self.worker.names()))
                await self.stack.broker.offer(ready)

    def observe(self, observer: Observer) -> None:
        """Register an observer of everything this process does."""
        self.observer = observer if self.observer is None else CombinedObserver(self.observer, observer)
        self.committer.observer = self.observer
        if self.worker is not None:
            self.worker.observer = self.observer

    def _applied(self, transition: Transition, applied: Applied) -> None:
        if self.observer is not None:
            self.observer.applied(transition, applied)
        if applied.next_due is not None:
            self.timers.notice(applied.next_due)
        if applied.ready:
            self._broker.committed(transition)
            if self.worker is not None:
                self.worker.continuation.announced(applied.ready)
        if applied.owes:
            self.outbox.notice()
        if self.worker is not None:
            self.worker.releaser.note_stored(transition)
            if applied.ended is not None or DropTokens in map(type, transition.effects):
                _cancel_runs(self.worker, transition, applied)
        has_answers = AnswerRequest in map(type, transition.effects)
        if has_answers:
            self.answers.committed(transition, applied)
        if applied.ended is not None:
            self.endings.notice(transition.execution, ending_in(transition))
            self.reconciler.notice_ending()
        if self.client.followers.followed:
            self.client.followers.applied(transition, applied)
        if self.publishing is not None and self.is_running:
            self.publishing.committed(transition, applied)
        if self.stack.neighbours is not None:
            announce_commit(self.stack.neighbours, transition, applied)
            if has_answers:
                self.stack.neighbours.announce_answered(transition.execution)

    def _note_written(self, execution: str) -> None:
        self.client.followers.notice(execution)

    def _task_options(self, name: str) -> Mapping[str, Any]:
        return self._tasks.options_of(name) if self._tasks is not None else {}

    def _task_limit(self, name: str) -> dict[str, Any] | None:
        return self._tasks.limit_of(name) if self._tasks is not None else None

    def _log(self, execution: str, node: str, level: str, message: str) -> None:
        line = logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
        logging.getLogger("dalsegno.log").log(line, "%s %s: %s", execution, node, message)


def heavy_limits(settings: EngineSettings) -> HeavyLimits:
    """Return the limits of heavy steps. Waiting heavy steps take at most a quarter of the slots."""
    in_line = max(settings.concurrency // 4, 1)
    return HeavyLimits(settings.heavy_processes, settings.heavy_memory, settings.heavy_seconds, in_line)


def announce_commit(neighbours: Neighbours, transition: Transition, applied: Applied) -> None:
    """Notify other processes of the events of a commit that they may wait for."""
    if applied.next_due is not None:
        neighbours.announce_due(applied.next_due)
    if applied.owes:
        neighbours.announce_outbox()
    if applied.ended is not None:
        neighbours.announce_ended(transition.execution)


def _in_loop(
    loop: asyncio.AbstractEventLoop, listener: Callable[[StoreLost], None], error: StoreLost
) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(listener, error)


def _call_all(*calls: Callable[[], None]) -> None:
    for call in calls:
        call()


def _cancel_runs(worker: Worker, transition: Transition, applied: Applied) -> None:
    """Interrupt the runs of tokens that a commit has dropped, alone or with their execution."""
    for effect in transition.effects:
        if type(effect) is DropTokens:
            worker.cancel_runs(transition.execution, effect.tokens)
    if applied.ended is None:
        return
    finish = next((effect for effect in transition.effects if type(effect) is FinishExecution), None)
    if finish is None or not finish.hand_over:
        last = worker.running.get(transition.token) if transition.token is not None else None
        if last is None or last.execution_kind != "graph":
            worker.cancel_runs(transition.execution)
        # Otherwise a step here ended a graph. Such a graph seldom has another running step; the worker's next check
        # finds it.
