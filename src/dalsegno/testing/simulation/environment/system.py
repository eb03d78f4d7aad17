"""A simulated system: two processes, a faulty connection between them and the store, one client.

Subclasses say what runs. The engine's log is captured during the simulation: hidden from the user, kept for the
verdict.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from functools import partial
from random import Random
from types import TracebackType
from typing import Any, Protocol, Self

from dalsegno.adapters.memory import MemoryStore
from dalsegno.engine.client import Client
from dalsegno.engine.scripts.python_workflows import Workflows
from dalsegno.engine.starting.start import StartOptions
from dalsegno.errors import Conflict, OperatorError
from dalsegno.model.execution import ENDED
from dalsegno.model.transition import Applied, Transition
from dalsegno.testing.histories import Asked
from dalsegno.testing.simulation.environment.faults import (
    Fault,
    Faults,
    MessageBroker,
    NewsBroker,
    Post,
    ProcessLedger,
    RecordingLedger,
)
from dalsegno.testing.simulation.environment.loop import Exhausted, SimulatedClock, virtual_loop
from dalsegno.testing.simulation.environment.process import Process
from dalsegno.testing.simulation.invariants import Watch
from dalsegno.testing.simulation.scenario import BYSTANDER

logger = logging.getLogger("dalsegno")


class CapturedLog(logging.Handler):
    """Captures the engine's log in a ``with`` block.

    ``errors`` has every logged exception that the store did not cause: a step or role that fails by itself is a
    finding.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info is not None else None
        if error is not None and not isinstance(error, OperatorError):
            self.errors.append(f"{record.getMessage()}: {error!r} {_place(error)}")

    def __enter__(self) -> Self:
        self._before = (logger.propagate, logger.level)
        logger.propagate = False
        logger.setLevel(logging.ERROR)
        logger.addHandler(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        logger.removeHandler(self)
        logger.propagate, level = self._before
        logger.setLevel(level)


def _place(error: BaseException) -> str:
    """Return the innermost line of the error."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return ""
    return f"at {traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}"


PROCESSES = 2
RESTART_AFTER = (2.0, 2.0, 45.0)
"""Seconds, in turn. The longest lets its leases expire and its timers move to other processes."""
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
        self.ended_processes: list[Process] = []
        self.findings: list[str] = []
        self.execution = ""
        self.bystander = ""
        self.ended = asyncio.Event()
        self._client: Process | None = None
        self._starts = 0
        self.accepted: set[str] = set()
        """Ids of the signals that the execution accepted."""
        self._commands: Counter[str] = Counter()
        self._deaths: Counter[str] = Counter()

    # -- what runs in it --------------------------------------------------------------------------------------------

    @abstractmethod
    async def begin(self) -> str:
        """Start the observed execution and return its id."""

    @abstractmethod
    async def look(self) -> None:
        """Read the running execution; the read must succeed."""

    @abstractmethod
    async def move(self) -> None:
        """Let the execution go on with another version, where it can."""

    @abstractmethod
    async def observe_end(self) -> None:
        """Record the outcome after everything has ended."""

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
        if process.process_run.dead:
            return
        process.kill()
        self._end_process(number)

    def _end_process(self, number: int) -> None:
        self.ended_processes.append(self.processes[number])
        pause = RESTART_AFTER[self._starts % len(RESTART_AFTER)]
        # In a separate context: callbacks of the dead process do not run.
        self.loop.call_later(pause, self._restart, number, context=contextvars.Context())

    def _stop(self, number: int) -> None:
        """Stop gracefully. The successor does not wait for it."""
        process = self.processes[number]
        if process.process_run.dead:
            return
        self.ended_processes.append(process)
        process.spawn(process.stop())
        self._restart(number)

    def _restart(self, number: int) -> None:
        self.processes[number] = self._process(f"p{number}")
        self._start(number)

    def _start(self, number: int) -> None:
        self.processes[number].process_run.on_death = partial(self._end_process, number)
        self.processes[number].start()

    def _process(self, name: str) -> Process:
        self._starts += 1
        ledger = ProcessLedger(self.truth, self.faults)
        broker = (NewsBroker if self.setting.news else MessageBroker)(self.post, ledger.as_ledger())
        return self._made(f"{name}.{self._starts}", ledger, broker, self.setting.concurrency)

    def _made(self, name: str, ledger: ProcessLedger, broker: MessageBroker, concurrency: int) -> Process:
        return Process(name, ledger, broker, concurrency, self._deaths, self.services, self.workflows)

    def asked(self) -> dict[str, Asked]:
        """Return the requests confirmed to the client, by execution."""
        commands = self._commands
        return {self.execution: Asked(tuple(self.accepted), commands["pause"], commands["resume"])}

    async def _command(self, kind: str) -> None:
        self._commands[kind] += 1
        try:
            if kind == "pause":
                await self.client.pause(self.execution)
            elif kind == "resume":
                await self.client.resume(self.execution)
            elif kind == "cancel":
                await self.client.cancel(self.execution)
            elif kind == "move":
                await self.move()
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
        with CapturedLog() as captured:
            try:
                self.loop.run(self._main())
            except Exhausted as error:
                self.findings.append(f"L6: {error}; {self._stuck()}")
        self.findings += [
            *self.watch.findings,
            *self.truth.complaints[:5],
            *list(dict.fromkeys(captured.errors))[:5],
        ]
        self.loop.close()

    async def _main(self) -> None:
        # The client reaches the store without faults: the simulation covers the system, not its user.
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
        """Wait until everything has ended, and no outstanding message can start anything."""
        await self.ended.wait()
        while self.store.outbox or not self._has_all_ended():  # noqa: ASYNC110 - virtual time costs nothing
            await asyncio.sleep(1.0)

    def _has_all_ended(self) -> bool:
        return all(found.row.state in ENDED for found in self.store.executions.values())

    def spawn(self, work: Any) -> None:
        """Run a client request concurrently."""
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
        for process in (*self.processes, *self.ended_processes):
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
