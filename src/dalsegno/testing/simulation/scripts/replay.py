"""The decisions of a run taken once more, one after another, on one engine without faults.

Whatever was duplicated, lost or raced, the outcome must be what its decisions lead to when they are taken serially in
the order in which they took effect. Every step is decided again by the real engine, at the time it was decided first;
what came from outside (starts, signals, cancellations, endings of children) is applied as it was recorded.
"""

from __future__ import annotations

import msgspec

from dalsegno.adapters.memory import (
    MemoryArchive,
    MemoryBlobs,
    MemoryBroker,
    MemoryLedger,
    MemoryRecords,
    MemoryStore,
)
from dalsegno.core.script_tasks import put_off
from dalsegno.core.settlement import TokenRow, wake_row
from dalsegno.engine.engine import Engine
from dalsegno.engine.scripting.steps import ScriptStep
from dalsegno.engine.stack import Stack
from dalsegno.model.effect import FinishExecution, SaveMachine
from dalsegno.model.execution import ExecutionView
from dalsegno.model.machine import MachineView
from dalsegno.model.token import Lease
from dalsegno.model.transition import AlreadyApplied, Applied, Transition
from dalsegno.testing.clock import FakeClock
from dalsegno.testing.simulation.ledger import Commit, Wake
from dalsegno.testing.simulation.loop import virtual_loop
from dalsegno.testing.simulation.nodes import simulation_registry
from dalsegno.testing.simulation.replay import DivergedError, put_off_until
from dalsegno.testing.simulation.scripts.scenario import ScriptScenario
from dalsegno.testing.simulation.scripts.tasks import SimulatedTasks
from dalsegno.testing.simulation.scripts.texts import workflows_of
from dalsegno.testing.simulation.scripts.world import ScriptObservation, deploy
from dalsegno.testing.simulation.system import MAX_STEPS, MAX_TIME


class _ReplayLedger(MemoryLedger):
    """Shows a machine as the step saw it that is decided again: what came between its reading and its commit was not
    known to it."""

    knows: SaveMachine | None = None
    cancelled = False
    """Whether it knew that it was to end."""

    async def machine(self, execution: str) -> MachineView | None:
        view = await super().machine(execution)
        if view is None or self.knows is None:
            return view
        read, taken = self.knows.read, {signal.signal for signal in self.knows.taken}
        return msgspec.structs.replace(
            view,
            inbox=min(view.inbox, read),
            completions=tuple(each for each in view.completions if each.number <= read),
            signals=tuple(each for each in view.signals if each.id in taken),
            cancel=view.cancel if self.cancelled else "",
        )

    def give(self, token: TokenRow) -> Lease:
        """Leases a token even while its execution is paused: a step may have begun before."""
        return self._give("replay", token)


class _Replay:
    def __init__(self, scenario: ScriptScenario) -> None:
        self.scenario = scenario
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
        services = {"tasks": SimulatedTasks()}
        self.engine = Engine(stack, simulation_registry(), services, workflows=workflows_of(scenario))

    async def run(self, run: ScriptObservation) -> dict[str, ExecutionView]:
        executions = set(run.executions)
        self.store.blobs.update(run.blobs)  # what came from outside may refer to them
        await deploy(self.engine.client, self.scenario)
        for decision in run.decisions:
            name = decision.execution if isinstance(decision, Wake) else decision.transition.execution
            if name not in executions:
                continue
            if isinstance(decision, Wake):
                self._wake(decision)
            else:
                await self._commit(decision)
        client = self.engine.client
        return {execution: await client.status(execution) for execution in executions}

    def _wake(self, decision: Wake) -> None:
        self.clock.set(decision.now)
        token = self._token(decision.execution, decision.token)
        if token.kind == "deadline" and token.state == "ready":
            return  # it was claimed while paused, which put it back to sleep until the pause was over
        if token.state != "parked":
            raise DivergedError(
                f"token {token.id} ({token.kind} {token.node}) was woken, but is {token.state}"
            )
        wake_row(token, self.store, decision.now)

    def _token(self, execution: str, name: str) -> TokenRow:
        token = self.store.token(execution, name)
        if token is None:
            raise DivergedError(f"token {name} of {execution} does not exist")
        return token

    async def _commit(self, decision: Commit) -> None:
        recorded = decision.transition
        step = None
        transition = msgspec.structs.replace(recorded, keep=(), worker="")
        if recorded.token is not None:
            self.clock.set(_decided_at(decision))
            step = await self._decide_again(recorded, decision.losses)
            transition = step.transition
        self.clock.set(decision.now)
        [outcome] = await self.ledger.commit([transition])
        if not isinstance(outcome, Applied | AlreadyApplied):
            raise DivergedError(f"a transition of token {recorded.token} was {outcome}")
        if step is not None and step.warm is not None:
            self.engine.scripts.hot.keep(recorded.execution, step.warm)

    async def _decide_again(self, recorded: Transition, losses: int) -> ScriptStep:
        token = self._token(recorded.execution, recorded.token or "")
        if token.state not in ("ready", "held"):
            raise DivergedError(f"token {token.id} ({token.kind} {token.node}) was run, but is {token.state}")
        token.losses, token.fence = losses, recorded.fence - 1
        due = put_off_until(recorded, token)
        if due is not None:
            return ScriptStep(put_off(self.ledger.give(token), due))
        hot = self.engine.scripts.hot
        saved = _saved(recorded)
        if saved is not None or token.kind == "resume":
            self.ledger.knows, self.ledger.cancelled = saved, _is_about_ending(recorded, saved)
            step = await self.engine.scripts.step(self.ledger.give(token))
            self.ledger.knows = None
            if (saved is None) != (_saved(step.transition) is None):
                raise DivergedError(
                    f"token {token.id} ({token.kind} {token.node}) did not go on with its script"
                )
            return step
        # A plain completion, although this engine, which has every machine warm, would have gone on.
        warm = hot.take(recorded.execution)
        step = await self.engine.scripts.step(self.ledger.give(token))
        if warm is not None:
            hot.keep(recorded.execution, warm)
        return step


def _saved(transition: Transition) -> SaveMachine | None:
    return next((effect for effect in transition.effects if isinstance(effect, SaveMachine)), None)


def _is_about_ending(transition: Transition, saved: SaveMachine | None) -> bool:
    """Whether the step told its script of a cancellation or a timeout, or ended it for one."""
    ends = [effect for effect in transition.effects if isinstance(effect, FinishExecution)]
    return (saved is not None and saved.interrupted) or any(
        finish.state == "CANCELLED" or b'"TimeoutError"' in (finish.error or b"") for finish in ends
    )


def _decided_at(decision: Commit) -> float:
    """A step reads the clock when it decides; its commit may take a while."""
    transition = decision.transition
    times = [event.at for event in transition.events]
    times += [effect.event.at for effect in transition.effects if isinstance(effect, FinishExecution)]
    return times[0] if times else decision.now


def replay_script(scenario: ScriptScenario, run: ScriptObservation) -> dict[str, ExecutionView]:
    """Raises DivergedError where the log is no serial history of the program."""
    loop = virtual_loop(None, MAX_STEPS, MAX_TIME)
    try:
        return loop.run(_Replay(scenario).run(run))
    finally:
        loop.close()
