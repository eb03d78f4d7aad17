"""The same decisions once more, one after another, without faults: what happened must be what they lead to.

Whatever was duplicated, lost, retried or raced in a run, its effects must be those of its decisions taken serially in
the order in which they took effect. The replay knows no processes and no broker: it takes the log of a run, wakes and
runs the very tokens it names, and lets the real core decide again what follows from each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dalsegno.adapters.memory import (
    MemoryArchive,
    MemoryBlobs,
    MemoryBroker,
    MemoryLedger,
    MemoryRecords,
    MemoryStore,
)
from dalsegno.core.script_tasks import is_put_off, put_off
from dalsegno.core.settlement import TokenRow, wake_row
from dalsegno.core.start import start
from dalsegno.engine.engine import Engine
from dalsegno.engine.stack import Stack
from dalsegno.model.effect import CreateExecution
from dalsegno.model.token import Lease
from dalsegno.model.transition import Applied, Transition
from dalsegno.testing.clock import FakeClock
from dalsegno.testing.simulation.ledger import Commit, Decision, Wake
from dalsegno.testing.simulation.loop import Life, virtual_loop
from dalsegno.testing.simulation.nodes import ALWAYS, simulation_registry
from dalsegno.testing.simulation.scenario import Scenario
from dalsegno.testing.simulation.system import MAX_STEPS, MAX_TIME
from dalsegno.testing.simulation.world import Observation


class DivergedError(Exception):
    """A decision of the log could not be taken again."""


def put_off_until(recorded: Transition, token: TokenRow) -> float | None:
    """When the token was to be taken again, where a process that could not run it has put it off: nothing in the graph
    or the script decides that. A wait or a retry changes what the token carries."""
    park = recorded.park
    if park is None or not is_put_off(recorded) or (park.data, park.attempt) != (token.data, token.attempt):
        return None
    return park.due


class _Undying(Counter[str]):
    """Nothing dies in a replay: every node has done so often enough."""

    def __missing__(self, key: str) -> int:
        return ALWAYS


class _ReplayLedger(MemoryLedger):
    def give(self, token: TokenRow) -> Lease:
        """Leases a token even while its execution is paused: a step may have begun before."""
        return self._give("replay", token)


class _Replay:
    def __init__(self, scenario: Scenario, execution: str) -> None:
        self.scenario = scenario
        self.execution = execution
        self.clock = FakeClock()
        self.store = MemoryStore()
        self.ledger = _ReplayLedger(self.clock, self.store)
        stack = Stack(
            "replay:",
            self.ledger,
            MemoryBroker(self.ledger),
            MemoryArchive(self.store, self.clock),
            MemoryBlobs(self.store),
            MemoryRecords(self.store, self.clock),
            self.clock,
            self.ledger.close,
        )
        services = {"life": Life("replay"), "deaths": _Undying()}
        self.engine = Engine(stack, simulation_registry(), services)

    async def run(self, decisions: Sequence[Decision]) -> Observation:
        await self.engine.client.deploy(self.scenario.document)
        for decision in decisions:
            self.clock.set(decision.now)
            if isinstance(decision, Wake):
                self._wake(decision)
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

    def _wake(self, decision: Wake) -> None:
        if decision.execution != self.execution:
            return
        token = self._token(decision.token)
        if token.kind == "deadline" and token.state == "ready":
            return  # it was claimed while paused, which put it back to sleep until the pause was over
        if token.state != "parked":
            raise DivergedError(
                f"token {token.id} ({token.kind} {token.node}) was woken, but is {token.state}"
            )
        wake_row(token, self.store, decision.now)

    def _token(self, name: str) -> TokenRow:
        token = self.store.token(self.execution, name)
        if token is None:
            raise DivergedError(f"token {name} does not exist")
        return token

    async def _commit(self, decision: Commit) -> None:
        transition = decision.transition
        if transition.token is not None:
            transition = await self._decide_again(transition, decision.losses)
        elif isinstance(transition.effects[0] if transition.effects else None, CreateExecution):
            transition = await self._start_again(transition)
        [outcome] = await self.ledger.commit([transition])
        if not isinstance(outcome, Applied):
            raise DivergedError(f"a transition of token {transition.token} was {outcome}")

    async def _decide_again(self, recorded: Transition, losses: int) -> Transition:
        token = self._token(recorded.token or "")
        if token.state not in ("ready", "held"):
            raise DivergedError(f"token {token.id} ({token.kind} {token.node}) was run, but is {token.state}")
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
    """Raises DivergedError where the log is no serial history of the graph."""
    loop = virtual_loop(None, MAX_STEPS, MAX_TIME)
    try:
        return loop.run(_Replay(scenario, execution).run(decisions))
    finally:
        loop.close()
