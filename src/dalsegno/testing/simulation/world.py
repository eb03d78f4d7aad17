"""A simulated system from start to end: two processes, a faulty wire between them and the store, one client."""

from __future__ import annotations

import asyncio
import contextvars
from collections import Counter
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

from msgspec import Struct

from dalsegno.adapters.memory import MemoryStore
from dalsegno.core.summary import NodeSummary
from dalsegno.engine.client import Client
from dalsegno.engine.starting import StartOptions
from dalsegno.errors import Conflict, OperatorError
from dalsegno.graph.build import load_graph
from dalsegno.model.event import Event
from dalsegno.model.execution import ENDED, ExecutionView
from dalsegno.model.transition import Applied, Transition
from dalsegno.testing.simulation.broker import MessageBroker, NewsBroker, Post
from dalsegno.testing.simulation.clock import SimulatedClock
from dalsegno.testing.simulation.faults import Fault, Faults
from dalsegno.testing.simulation.invariants import Watch
from dalsegno.testing.simulation.ledger import Decision, ProcessLedger, RecordingLedger
from dalsegno.testing.simulation.loop import Exhausted, virtual_loop
from dalsegno.testing.simulation.nodes import simulation_registry
from dalsegno.testing.simulation.overheard import Overheard
from dalsegno.testing.simulation.process import Process
from dalsegno.testing.simulation.scenario import BYSTANDER, Scenario

PROCESSES = 2
RESTART_AFTER = (2.0, 2.0, 45.0)
"""Seconds, in turn: also so long that its leases expire and its timers are somebody else's."""
COOL_DOWN = 30.0
MAX_STEPS = 50_000
MAX_TIME = 40_000.0
KEY = "simulated"


class Again(Struct):
    """A rerun: where it started, and what it came to."""

    starts: tuple[str, ...]
    view: ExecutionView
    nodes: dict[str, NodeSummary]


class Observation(Struct):
    """What one run came to."""

    view: ExecutionView | None
    events: list[Event]
    nodes: dict[str, NodeSummary]
    context: dict[str, Any]
    decisions: list[Decision]
    findings: list[str]
    """Promises that were not kept."""
    again: Again | None = None
    """The run of the rerun, if there was one."""
    struck: list[Fault] = []
    steps: int = 0
    seconds: float = 0.0


class World:
    def __init__(self, scenario: Scenario, schedule: Sequence[Fault] = (), order: int | None = None) -> None:
        self.scenario = scenario
        self.faults = Faults(schedule)
        random = Random(order) if order is not None else None
        self.loop = virtual_loop(random, MAX_STEPS, MAX_TIME)
        self.loop.before_step = self._before_step
        self.clock = SimulatedClock(self.loop)
        self.store = MemoryStore()
        self.truth = RecordingLedger(self.clock, self.store)
        self.watch = Watch(self.store)
        self.truth.before_commit = self.watch.before_commit
        self.truth.after_commit = self._after_commit
        self.post = Post(self.faults, random)
        self.processes: list[Process] = []
        self.graveyard: list[Process] = []
        self.findings: list[str] = []
        self.execution = ""
        self.bystander = ""
        self._ended = asyncio.Event()
        self._client: Process | None = None
        self._born = 0
        self._deaths: Counter[str] = Counter()

    # -- faults ---------------------------------------------------------------------------------------------------

    def _before_step(self, step: int) -> None:
        fault = self.faults.step(step) if self.faults.steps else None
        if fault is None or not self.processes:
            return
        if fault.kind == "crash":
            self._crash(int(fault.arg))
        elif fault.kind == "stop":
            self._stop(int(fault.arg))
        elif fault.kind == "jump":
            self.clock.jump(fault.arg)
        elif self._client is not None and self.execution:
            self._client.spawn(self._command(fault.kind))

    def _crash(self, number: int) -> None:
        process = self.processes[number]
        if process.life.dead:
            return
        process.kill()
        self._bury(number)

    def _bury(self, number: int) -> None:
        self.graveyard.append(self.processes[number])
        pause = RESTART_AFTER[self._born % len(RESTART_AFTER)]
        # In a context of its own: what belongs to the dead process will not happen.
        self.loop.call_later(pause, self._restart, number, context=contextvars.Context())

    def _stop(self, number: int) -> None:
        """Its successor does not wait for it."""
        process = self.processes[number]
        if process.life.dead:
            return
        self.graveyard.append(process)
        process.spawn(process.stop())
        self._restart(number)

    def _restart(self, number: int) -> None:
        self.processes[number] = self._process(f"p{number}")
        self._start(number)

    def _start(self, number: int) -> None:
        self.processes[number].life.mourner = partial(self._bury, number)
        self.processes[number].start()

    def _process(self, name: str) -> Process:
        self._born += 1
        ledger = ProcessLedger(self.truth, self.faults)
        broker = (NewsBroker if self.scenario.news else MessageBroker)(self.post, ledger.as_ledger())
        return Process(f"{name}.{self._born}", ledger, broker, self.scenario.concurrency, self._deaths)

    async def _command(self, kind: str) -> None:
        try:
            if kind == "pause":
                await self.client.pause(self.execution)
            elif kind == "resume":
                await self.client.resume(self.execution)
            elif kind == "cancel":
                await self.client.cancel(self.execution)
            else:
                await self._look()
        except (Conflict, OperatorError):
            return

    async def _look(self) -> None:
        """Whoever looks at a running execution must get an answer."""
        waits = await self.client.why(self.execution)
        await self.client.nodes(self.execution)
        await self.client.context(self.execution)
        if not waits and (await self.client.status(self.execution)).state not in ENDED:
            self.findings.append("L6: nothing tells why the execution waits")

    # -- the run --------------------------------------------------------------------------------------------------

    @property
    def client(self) -> Client:
        assert self._client is not None
        return self._client.engine.client

    def run(self) -> Observation:
        observation = Observation(None, [], {}, {}, self.truth.decisions, self.findings)
        with Overheard() as overheard:
            try:
                self.loop.run(self._main(observation))
            except Exhausted as error:
                self.findings.append(f"L6: {error}; {self._stuck()}")
        self.findings += [
            *self.watch.findings,
            *self.truth.complaints[:5],
            *list(dict.fromkeys(overheard.errors))[:5],
        ]
        observation.struck = self.faults.struck
        observation.steps, observation.seconds = self.loop.steps, self.loop.time()
        self.loop.close()
        return observation

    async def _main(self, observation: Observation) -> None:
        # The client reaches the store without faults: what is simulated is the system, not its user.
        wire = ProcessLedger(self.truth, Faults(()))
        self._client = Process("client", wire, MessageBroker(self.post, wire.as_ledger()), 1, self._deaths)
        self.processes = [self._process(f"p{number}") for number in range(PROCESSES)]
        for number in range(PROCESSES):
            self._start(number)
        definition, _ = await self.client.deploy(self.scenario.document)
        options = StartOptions(idempotency_key=KEY)
        self.execution = await self.client.start(definition.name, self.scenario.input, options)
        if self.scenario.bystander:
            await self.client.deploy(BYSTANDER)
            self.bystander = await self.client.start("bystander", {}, options)
        self._client.spawn(self._never_paused_for_ever())
        await self._ended.wait()
        await self._all_settled()
        await self._after_the_end(observation)

    async def _all_settled(self) -> None:
        """An execution that ended may still owe others something: a child is told, or started and cancelled."""
        while self.store.outbox or any(found.row.state not in ENDED for found in self.store.executions.values()):
            await asyncio.sleep(1.0)

    async def _never_paused_for_ever(self) -> None:
        while True:
            await asyncio.sleep(60)
            await self._command("resume")

    def _after_commit(self, transition: Transition, applied: Applied) -> None:
        self.watch.after_commit(transition, applied)
        rows = [found.row for found in self.store.executions.values()]
        started = len(rows) > self.scenario.bystander
        if applied.ended is not None and started and all(row.state in ENDED for row in rows):
            self._ended.set()

    async def _after_the_end(self, observation: Observation) -> None:
        self.watch.at_the_end()
        await self.watch.send_again(self.truth)
        ended = await self.client.status(self.execution)
        if self.scenario.rerun is not None:
            observation.again = await self._run_again(self.scenario.rerun)
        await asyncio.sleep(COOL_DOWN)
        observation.view = await self.client.status(self.execution)
        observation.events = await self.client.all_events(self.execution)
        observation.nodes = await self.client.nodes(self.execution)
        observation.context = await self.client.context(self.execution)
        self.watch.after_the_end(ended, observation.view, observation.events)
        for process in (*self.processes, *self.graveyard):
            self._look_at(process)
        for problem in self.loop.problems:
            self.findings.append(
                f"a task broke unseen: {problem.get('message')} {problem.get('exception')!r}"
            )

    async def _run_again(self, number: int) -> Again | None:
        """A retry of what failed; where nothing did, a rerun from some node that ran."""
        nodes = await self.client.nodes(self.execution)
        plan = load_graph(self.scenario.document, simulation_registry()).plan
        ran = [
            name
            for name, node in plan.nodes.items()
            if node.depth == 0 and nodes[name].runs and node.collects is None
        ]
        failed = any(node.state in ("FAILED", "CANCELLED") for node in nodes.values())
        if not failed and not ran:
            return None
        starts = () if failed else (ran[number % len(ran)],)
        self._ended.clear()
        execution = await self.client.rerun(self.execution, starts or None)
        await self._ended.wait()
        return Again(starts, await self.client.status(execution), await self.client.nodes(execution))

    def _look_at(self, process: Process) -> None:
        for execution, reason in process.engine.reconciler.stuck.items():
            self.findings.append(f"L6: the reconciler reports {execution} as stuck: {reason}")

    def _stuck(self) -> str:
        running = [found for found in self.store.executions.values() if found.row.state not in ENDED]
        if not running:
            return "no execution is running"
        found = running[0]
        tokens = [
            f"{token.kind} {token.node or '-'} {token.state} owner={token.owner} due={token.due}"
            for token in found.tokens.values()
            if token.state not in ("consumed", "cancelled")
        ]
        row = found.row
        return f"execution {row.id}: state {row.state}, live {row.live}, tokens: " + "; ".join(tokens[:8])


def observe(scenario: Scenario, schedule: Sequence[Fault] = (), order: int | None = None) -> Observation:
    return World(scenario, schedule, order).run()
