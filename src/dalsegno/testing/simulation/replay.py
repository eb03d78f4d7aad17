"""Serial replay of a run's decisions, without faults; the outcome must be the same.

Regardless of duplicates, losses, retries and races, the effects of a run must be those of its decisions taken
serially in the order in which they took effect. The replay knows no processes and no broker: it takes the log of a
run, wakes and runs the very tokens it names, and lets the real core decide again what follows from each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from dalsegno.adapters.memory import (
    MemoryArchive,
    MemoryBlobs,
    MemoryBroker,
    MemoryLedger,
    MemoryPublished,
    MemoryRecords,
    MemoryStore,
)
from dalsegno.core.graph.start import start
from dalsegno.core.scripts.tasks import is_put_off, put_off
from dalsegno.core.settlement import TokenRow, wake_row
from dalsegno.engine.engine import Engine
from dalsegno.engine.scripts.python_workflows import Workflows
from dalsegno.model.effect import CreateExecution, MarkStarted
from dalsegno.model.token import Lease
from dalsegno.model.transition import Applied, Transition
from dalsegno.ports.stack import Stack
from dalsegno.testing.clock import FakeClock
from dalsegno.testing.simulation.environment.faults import Commit, Decision, Wake
from dalsegno.testing.simulation.environment.loop import ProcessRun, virtual_loop
from dalsegno.testing.simulation.environment.process import ALWAYS, simulation_registry
from dalsegno.testing.simulation.environment.system import MAX_STEPS, MAX_TIME
from dalsegno.testing.simulation.run_graph import Observation
from dalsegno.testing.simulation.scenario import Scenario


class DivergedError(Exception):
    """A decision of the log could not be replayed."""


def put_off_until(recorded: Transition, token: TokenRow) -> float | None:
    """Return the time until which a process that could not run the token deferred it, else None.

    Neither the graph nor the script decides this. A wait or a retry, in contrast, changes the token's data.
    """
    park = recorded.park
    if park is None or not is_put_off(recorded) or (park.data, park.attempt) != (token.data, token.attempt):
        return None
    return park.due


def is_about_history_only(recorded: Transition) -> bool:
    """Return True if the transition only records that a run has started.

    Whether it is recorded depends on the duration.
    """
    return bool(recorded.effects) and isinstance(recorded.effects[0], MarkStarted)


class _NoMoreDeaths(Counter[str]):
    """Counts every node as having killed its process often enough, so that nothing dies in a replay."""

    def __missing__(self, key: str) -> int:
        return ALWAYS


class ReplayLedger(MemoryLedger):
    def give(self, token: TokenRow) -> Lease:
        """Lease a token even while its execution is paused: a step may have begun before."""
        return self._give("replay", token)


L = TypeVar("L", bound=ReplayLedger)


class ReplayWorld(Generic[L]):
    """A memory store and an engine in which the decisions of a log are replayed."""

    def __init__(self, ledger: type[L], services: dict[str, Any], workflows: Workflows | None = None) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore()
        self.ledger = ledger(self.clock, self.store)
        stack = Stack(
            url="replay:",
            ledger=self.ledger,
            broker=MemoryBroker(self.ledger),
            archive=MemoryArchive(self.store, self.clock),
            blobs=MemoryBlobs(self.store),
            records=MemoryRecords(self.store, self.clock),
            published=MemoryPublished(self.store, self.clock),
            clock=self.clock,
            close=self.ledger.close,
        )
        self.engine = Engine(stack, simulation_registry(), services, workflows=workflows)

    def wake(self, decision: Wake) -> None:
        self.clock.set(decision.now)
        token = self.token(decision.execution, decision.token)
        if token.kind == "deadline" and token.state == "ready":
            return  # it was claimed while paused, which parked it again until the pause was over
        if token.state != "parked":
            raise DivergedError(
                f"token {token.id} ({token.kind} {token.node}) was woken, but is {token.state}"
            )
        wake_row(token, self.store, decision.now)

    def token(self, execution: str, name: str) -> TokenRow:
        token = self.store.token(execution, name)
        if token is None:
            raise DivergedError(f"token {name} of {execution} does not exist")
        return token

    def runnable(self, execution: str, name: str) -> TokenRow:
        token = self.token(execution, name)
        if token.state not in ("ready", "held"):
            raise DivergedError(f"token {token.id} ({token.kind} {token.node}) was run, but is {token.state}")
        return token


class _Replay(ReplayWorld[ReplayLedger]):
    def __init__(self, scenario: Scenario, execution: str) -> None:
        super().__init__(ReplayLedger, {"process_run": ProcessRun("replay"), "deaths": _NoMoreDeaths()})
        self.scenario = scenario
        self.execution = execution

    async def run(self, decisions: Sequence[Decision]) -> Observation:
        await self.engine.client.deploy(self.scenario.document)
        for decision in decisions:
            self.clock.set(decision.now)
            if isinstance(decision, Wake):
                if decision.execution == self.execution:
                    self.wake(decision)
            elif decision.transition.execution == self.execution:
                await self._commit(decision)
        while await self.ledger.sweep():
            pass
        client = self.engine.client
        return Observation(
            await client.status(self.execution),
            await client.all_events(self.execution),
            await client.nodes(self.execution),
            await client.context(self.execution),
            [],
            [],
        )

    async def _commit(self, decision: Commit) -> None:
        transition = decision.transition
        if is_about_history_only(transition):
            return
        if transition.token is not None:
            transition = await self._decide_again(transition, decision.losses)
        elif isinstance(transition.effects[0] if transition.effects else None, CreateExecution):
            transition = await self._start_again(transition)
        [outcome] = await self.ledger.commit([transition])
        if not isinstance(outcome, Applied):
            raise DivergedError(f"a transition of token {transition.token} was {outcome}")

    async def _decide_again(self, recorded: Transition, losses: int) -> Transition:
        token = self.runnable(self.execution, recorded.token or "")
        token.losses = losses
        due = put_off_until(recorded, token)
        if due is not None:
            return put_off(self.ledger.give(token), due)
        return (await self.engine.steps.step(self.ledger.give(token))).transition

    async def _start_again(self, transition: Transition) -> Transition:
        created = transition.effects[0]
        assert isinstance(created, CreateExecution)
        program = await self.engine.definitions.by_hash(created.execution.definition)
        return start(program.plan, created.execution, self.clock.now())


def replay(scenario: Scenario, execution: str, decisions: Sequence[Decision]) -> Observation:
    """Replay a run; raise DivergedError if the log is not a serial history of the graph."""
    loop = virtual_loop(None, MAX_STEPS, MAX_TIME)
    try:
        return loop.run(_Replay(scenario, execution).run(decisions))
    finally:
        loop.close()
