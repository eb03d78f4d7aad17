"""A simulated system: two processes, a faulty wire between them and the store, one client. Others say what runs."""

from __future__ import annotations

import asyncio
import contextvars
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any, Protocol

from dalsegno.adapters.memory import MemoryStore
from dalsegno.engine.client import Client
from dalsegno.engine.starting import StartOptions
from dalsegno.engine.workflows import Workflows
from dalsegno.errors import Conflict, OperatorError
from dalsegno.model.execution import ENDED
from dalsegno.model.transition import Applied, Transition
from dalsegno.testing.simulation.broker import MessageBroker, NewsBroker, Post
from dalsegno.testing.simulation.clock import SimulatedClock
from dalsegno.testing.simulation.faults import Fault, Faults
from dalsegno.testing.simulation.invariants import Watch
from dalsegno.testing.simulation.ledger import ProcessLedger, RecordingLedger
from dalsegno.testing.simulation.loop import Exhausted, virtual_loop
from dalsegno.testing.simulation.overheard import Overheard
from dalsegno.testing.simulation.process import Process
from dalsegno.testing.simulation.scenario import BYSTANDER

PROCESSES = 2
RESTART_AFTER = (2.0, 2.0, 45.0)
"""Seconds, in turn: also so long that its leases expire and its timers are somebody else's."""
COOL_DOWN = 30.0
MAX_STEPS = 50_000
MAX_TIME = 40_000.0
KEY = "simulated"


class Setting(Protocol):
    """How the system around a scenario is built."""

    @property
    def news(self) -> bool: ...

    @property
    def concurrency(self) -> int: ...

    @property
    def bystander(self) -> bool: ...


class SimulatedSystem(ABC):
    def __init__(
        self,
        setting: Setting,
        schedule: Sequence[Fault] = (),
        order: int | None = None,
        services: dict[str, Any] | None = None,
        workflows: Workflows | None = None,
    ) -> None:
        self.setting = setting
        self.services = services or {}
        self.workflows = workflows
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
        self.ended = asyncio.Event()
        self._client: Process | None = None
        self._born = 0
        self._deaths: Counter[str] = Counter()

    # -- what runs in it --------------------------------------------------------------------------------------------

    @abstractmethod
    async def begin(self) -> str:
        """Starts the execution that is watched, and gives its id."""

    @abstractmethod
    async def look(self) -> None:
        """Whoever looks at a running execution must get an answer."""

    @abstractmethod
    async def observe_end(self) -> None:
        """Everything has ended: what did it come to?"""

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
        broker = (NewsBroker if self.setting.news else MessageBroker)(self.post, ledger.as_ledger())
        return self._made(f"{name}.{self._born}", ledger, broker, self.setting.concurrency)

    def _made(self, name: str, ledger: ProcessLedger, broker: MessageBroker, concurrency: int) -> Process:
        return Process(name, ledger, broker, concurrency, self._deaths, self.services, self.workflows)

    async def _command(self, kind: str) -> None:
        try:
            if kind == "pause":
                await self.client.pause(self.execution)
            elif kind == "resume":
                await self.client.resume(self.execution)
            elif kind == "cancel":
                await self.client.cancel(self.execution)
            else:
                await self.look()
        except (Conflict, OperatorError):
            return

    # -- the run --------------------------------------------------------------------------------------------------

    @property
    def client(self) -> Client:
        assert self._client is not None
        return self._client.engine.client

    def simulate(self) -> None:
        with Overheard() as overheard:
            try:
                self.loop.run(self._main())
            except Exhausted as error:
                self.findings.append(f"L6: {error}; {self._stuck()}")
        self.findings += [
            *self.watch.findings,
            *self.truth.complaints[:5],
            *list(dict.fromkeys(overheard.errors))[:5],
        ]
        self.loop.close()

    async def _main(self) -> None:
        # The client reaches the store without faults: what is simulated is the system, not its user.
        wire = ProcessLedger(self.truth, Faults(()))
        broker = MessageBroker(self.post, wire.as_ledger())
        self._client = self._made("client", wire, broker, 1)
        self.processes = [self._process(f"p{number}") for number in range(PROCESSES)]
        for number in range(PROCESSES):
            self._start(number)
        self.execution = await self.begin()
        if self.setting.bystander:
            await self.client.deploy(BYSTANDER)
            self.bystander = await self.client.start("bystander", {}, StartOptions(idempotency_key=KEY))
        self.spawn(self._never_paused_for_ever())
        await self.until_quiet()
        await self._after_the_end()

    async def until_quiet(self) -> None:
        """Until everything has ended, and nothing that is still owed can start anything."""
        await self.ended.wait()
        while self.store.outbox or not self._has_all_ended():  # noqa: ASYNC110 - virtual time costs nothing
            await asyncio.sleep(1.0)

    def _has_all_ended(self) -> bool:
        return all(found.row.state in ENDED for found in self.store.executions.values())

    def spawn(self, work: Any) -> None:
        """Something the client does meanwhile."""
        assert self._client is not None
        self._client.spawn(work)

    async def _never_paused_for_ever(self) -> None:
        while True:
            await asyncio.sleep(60)
            await self._command("resume")

    def _after_commit(self, transition: Transition, applied: Applied) -> None:
        self.watch.after_commit(transition, applied)
        started = len(self.store.executions) > self.setting.bystander
        if applied.ended is not None and started and self._has_all_ended():
            self.ended.set()

    async def _after_the_end(self) -> None:
        await self.observe_end()
        for process in (*self.processes, *self.graveyard):
            self._look_at(process)
        for problem in self.loop.problems:
            self.findings.append(
                f"a task broke unseen: {problem.get('message')} {problem.get('exception')!r}"
            )

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
