"""One run of a graph in the simulated system, and its outcome without legitimate differences between two runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from dalsegno.core.states import NodeSummary
from dalsegno.engine.starting.start import StartOptions
from dalsegno.model.event import Event
from dalsegno.model.execution import ENDED, ExecutionView
from dalsegno.testing.simulation.environment.faults import Decision, Fault
from dalsegno.testing.simulation.environment.process import compiled
from dalsegno.testing.simulation.environment.system import COOL_DOWN, KEY, SimulatedSystem
from dalsegno.testing.simulation.scenario import Scenario


class Outcome(Struct, frozen=True):
    """The comparable facts of a run. None is not compared.

    * ``runs``: per node, committed runs, failed ones, and retried attempts.
    * ``context``: only of completed executions.
    * ``states``: of the nodes at the end.
    """

    state: str
    output: Any
    error: Any
    runs: dict[str, tuple[int, int, int]]
    context: dict[str, Any] | None
    states: dict[str, str] | None = None


def outcome_of(observation: Observation) -> Outcome | None:
    view = observation.view
    if view is None:
        return None
    retries = Counter(event.node for event in observation.events if event.kind == "NodeRetrying")
    return Outcome(
        view.state,
        timeless(_decoded(view.output)),
        timeless(_decoded(view.error)),
        {
            name: (node.runs, node.failed, retries[name])
            for name, node in observation.nodes.items()
            if node.runs or retries[name]
        },
        timeless(observation.context) if view.state == "COMPLETED" else None,
        {name: node.state for name, node in observation.nodes.items()},
    )


def _decoded(raw: bytes | None) -> Any:
    return msgspec.json.decode(raw) if raw is not None else None


def timeless(value: Any) -> Any:
    """Remove what depends on the clock: when a wait woke, and how many had arrived at a timeout."""
    if isinstance(value, dict):
        return {key: "some time" if key == "resume_at" else timeless(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [timeless(inner) for inner in value]
    return value


def differences(left: Outcome | None, right: Outcome | None) -> list[str]:
    """Return messages, one per field that differs."""
    if left is None or right is None:
        return [] if left is right else ["only one of the two runs ended"]
    found = []
    for field in Outcome.__struct_fields__:
        mine, other = getattr(left, field), getattr(right, field)
        known = field not in ("context", "states") or (mine is not None and other is not None)
        if known and mine != other:
            found.append(f"{field}: {_short(mine, other)}")
    return found


def _short(mine: Any, other: Any) -> str:
    if isinstance(mine, dict) and isinstance(other, dict):
        keys = [key for key in {**mine, **other} if mine.get(key, "absent") != other.get(key, "absent")]
        mine = {key: mine.get(key, "absent") for key in keys}
        other = {key: other.get(key, "absent") for key in keys}
    return f"{str(mine)[:400]} ≠ {str(other)[:400]}"


class Again(Struct):
    """A rerun: its start and its result."""

    starts: tuple[str, ...]
    view: ExecutionView
    nodes: dict[str, NodeSummary]


class Observation(Struct):
    """The result of one run."""

    view: ExecutionView | None
    events: list[Event]
    nodes: dict[str, NodeSummary]
    context: dict[str, Any]
    decisions: list[Decision]
    findings: list[str]
    """Broken guarantees."""
    again: Again | None = None
    """The rerun, if there was one."""
    applied: list[Fault] = []
    steps: int = 0
    seconds: float = 0.0


class World(SimulatedSystem):
    def __init__(self, scenario: Scenario, schedule: Sequence[Fault] = (), order: int | None = None) -> None:
        super().__init__(scenario, schedule, order)
        self.scenario = scenario
        self._observation = Observation(None, [], {}, {}, self.truth.decisions, self.findings)

    def run(self) -> Observation:
        self.simulate()
        observation = self._observation
        observation.applied = self.faults.applied
        observation.steps, observation.seconds = self.loop.steps, self.loop.time()
        return observation

    async def begin(self) -> str:
        definition, _ = await self.client.deploy(self.scenario.document)
        options = StartOptions(idempotency_key=KEY)
        return await self.client.start(definition.name, self.scenario.input, options)

    async def move(self) -> None:
        """Do nothing: executions of graphs keep their version."""

    async def look(self) -> None:
        waits = await self.client.why(self.execution)
        await self.client.nodes(self.execution)
        await self.client.context(self.execution)
        if not waits and (await self.client.status(self.execution)).state not in ENDED:
            self.findings.append("L6: nothing tells why the execution waits")

    async def observe_end(self) -> None:
        observation = self._observation
        self.watch.at_the_end(self.asked())
        await self.watch.send_again(self.truth)
        ended = await self.client.status(self.execution)
        if self.scenario.rerun is not None:
            observation.again = await self._run_again(self.scenario.rerun)
        await asyncio.sleep(COOL_DOWN)
        observation.view = await self.client.status(self.execution)
        observation.events = await self.client.all_events(self.execution)
        observation.nodes = await self.client.nodes(self.execution)
        observation.context = await self.client.context(self.execution)
        self.watch.after_the_end(ended, observation.view, self.asked())

    async def _run_again(self, number: int) -> Again | None:
        """Retry the failed nodes; without failures, rerun from some node that ran."""
        nodes = await self.client.nodes(self.execution)
        plan = compiled(self.scenario.document).plan
        ran = [
            name
            for name, node in plan.nodes.items()
            if node.depth == 0 and nodes[name].runs and node.collects is None
        ]
        failed = any(node.state in ("FAILED", "CANCELLED") for node in nodes.values())
        if not failed and not ran:
            return None
        starts = () if failed else (ran[number % len(ran)],)
        self.ended.clear()
        execution = await self.client.rerun(self.execution, starts or None)
        await self.until_quiet()
        return Again(starts, await self.client.status(execution), await self.client.nodes(execution))


def observe(scenario: Scenario, schedule: Sequence[Fault] = (), order: int | None = None) -> Observation:
    return World(scenario, schedule, order).run()
