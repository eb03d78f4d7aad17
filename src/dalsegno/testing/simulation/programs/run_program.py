"""One run of a program in the simulated system, and the invariants of scripts after every commit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from dalsegno.adapters.memory import MemoryStore
from dalsegno.adapters.memory.store import MemoryExecution
from dalsegno.engine.client import Client
from dalsegno.engine.starting.start import StartOptions
from dalsegno.errors import Conflict
from dalsegno.model.event import Event
from dalsegno.model.execution import ENDED, ExecutionView
from dalsegno.model.token import UNFINISHED
from dalsegno.model.transition import Applied, Transition
from dalsegno.testing.simulation.environment.faults import Decision, Fault
from dalsegno.testing.simulation.environment.system import COOL_DOWN, KEY, SimulatedSystem
from dalsegno.testing.simulation.programs.program import MAIN
from dalsegno.testing.simulation.programs.scenario import ScriptScenario, SentSignal, SimulatedTasks
from dalsegno.testing.simulation.programs.sources import programs_of, workflows_of

MAX_FINDINGS = 20


class MachineWatch:
    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.findings: list[str] = []
        self._versions: dict[str, int] = {}
        self._results: dict[tuple[str, int], bytes] = {}

    def _find(self, sentence: str) -> None:
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(sentence)

    def after_commit(self, transition: Transition) -> None:
        execution = self.store.executions[transition.execution]
        if execution.machine is None or execution.row.state in ENDED:
            return
        self._check_resumes(execution)
        self._check_version(execution)
        self._check_results(execution)

    def _check_resumes(self, execution: MemoryExecution) -> None:
        pending = [
            token
            for token in execution.tokens.values()
            if token.kind == "resume" and token.state in UNFINISHED
        ]
        machine = execution.machine
        if len(pending) > 1:
            self._find(f"resume: {len(pending)} resumes of {execution.row.id} are pending")
        if machine is not None and machine.resuming != bool(pending):
            self._find(
                f"resume: {execution.row.id} believes resuming={machine.resuming}, but {len(pending)} are pending"
            )

    def _check_version(self, execution: MemoryExecution) -> None:
        machine = execution.machine
        if machine is not None:
            before = self._versions.get(execution.row.id, 0)
            if machine.version < before or machine.version > before + 1:
                self._find(f"version: {execution.row.id} went from {before} to {machine.version}")
            self._versions[execution.row.id] = machine.version

    def _check_results(self, execution: MemoryExecution) -> None:
        """A promise has one result, which never changes."""
        for promise, completion in execution.inbox.items():
            key = (execution.row.id, promise)
            if self._results.setdefault(key, completion.data) != completion.data:
                self._find(f"promise: p{promise} of {execution.row.id} was settled twice, differently")


class Ended(Struct, frozen=True):
    """An execution that has ended."""

    view: ExecutionView
    events: list[Event]


class ScriptObservation(Struct):
    """The result of one run: the main execution under ``main``, and all its descendants by id."""

    main: str
    executions: dict[str, Ended]
    decisions: list[Decision]
    findings: list[str]
    blobs: dict[tuple[str, str], bytes]
    applied: list[Fault] = []
    steps: int = 0
    seconds: float = 0.0
    moved: int = 0
    """How often the main execution was moved to another version."""

    @property
    def view(self) -> ExecutionView | None:
        ended = self.executions.get(self.main)
        return ended.view if ended is not None else None


NEVER = 1e7
"""A timeout that no run reaches: with it, a program is another version of itself."""


async def deploy(client: Client, scenario: ScriptScenario) -> None:
    """Deploy the programs and, for moves, the main one in another version."""
    for program in programs_of(scenario):
        await client.deploy_script(program)
    if not scenario.is_moved:
        return
    other = msgspec.structs.replace(scenario.program, timeout=NEVER)
    for program in programs_of(msgspec.structs.replace(scenario, program=other)):
        if program.name == MAIN:
            await client.deploy_script(program)


class ScriptWorld(SimulatedSystem):
    def __init__(
        self, scenario: ScriptScenario, schedule: Sequence[Fault] = (), order: int | None = None
    ) -> None:
        super().__init__(scenario, schedule, order, {"tasks": SimulatedTasks()}, workflows_of(scenario))
        self.scenario = scenario
        self.machines = MachineWatch(self.store)
        self._executions: dict[str, Ended] = {}
        self.moved = 0

    def run(self) -> ScriptObservation:
        self.simulate()
        return ScriptObservation(
            self.execution,
            self._executions,
            self.truth.decisions,
            [*self.findings, *self.machines.findings],
            self.store.blobs,
            self.faults.applied,
            self.loop.steps,
            self.loop.time(),
            self.moved,
        )

    async def begin(self) -> str:
        await deploy(self.client, self.scenario)
        version = 1 if self.scenario.is_moved else None
        execution = await self.client.start(MAIN, {}, StartOptions(idempotency_key=KEY, version=version))
        for number, signal in enumerate(self.scenario.signals):
            self.spawn(self._send(execution, number, signal))
        return execution

    def _after_commit(self, transition: Transition, applied: Applied) -> None:
        super()._after_commit(transition, applied)
        self.machines.after_commit(transition)

    async def _send(self, execution: str, number: int, signal: SentSignal) -> None:
        # Equal times keep their order: the later signal must not overtake the earlier one.
        await asyncio.sleep(signal.after + number * 0.001)
        try:
            for _ in range(2):  # the second one with the same id changes nothing
                await self.client.signal(execution, signal.name, signal.payload, f"signal-{number}")
                self.accepted.add(f"signal-{number}")
        except Conflict:
            return

    async def move(self) -> None:
        """Change the version of the main execution. The other one has the same code, so it must not be refused."""
        try:
            version = (await self.client.status(self.execution)).version
            done = await self.client.move(self.execution, 3 - version)
            self.moved += done.state == "moved"
        except Conflict as refused:
            if "cannot continue" in str(refused):
                self.findings.append(f"move: {refused}")

    async def look(self) -> None:
        waits = await self.client.why(self.execution)
        picture = await self.client.picture(self.execution)
        state = (await self.client.status(self.execution)).state
        if not waits and picture is None and state not in ENDED:
            self.findings.append("L6: nothing tells why the execution waits")

    async def observe_end(self) -> None:
        self.watch.at_the_end(self.asked())
        await self.watch.send_again(self.truth)
        ended = await self.client.status(self.execution)
        await asyncio.sleep(COOL_DOWN)
        for execution in self.store.executions:
            if execution != self.bystander:
                view = await self.client.status(execution)
                self._executions[execution] = Ended(view, await self.client.all_events(execution))
        main = self._executions[self.execution]
        self.watch.after_the_end(ended, main.view, self.asked())


def observe_script(
    scenario: ScriptScenario, schedule: Sequence[Fault] = (), order: int | None = None
) -> ScriptObservation:
    return ScriptWorld(scenario, schedule, order).run()
