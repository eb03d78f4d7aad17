"""Serial replay of a run's decisions on one engine without faults.

Regardless of duplicates, losses and races, the outcome must be that of the decisions taken serially in the order in
which they took effect. The real engine decides every step again, at the original time. External input (starts,
signals, cancellations, endings of children) is applied as recorded.
"""

from __future__ import annotations

import msgspec

from dalsegno.core.scripts.tasks import put_off
from dalsegno.engine.scripts.steps import ScriptStep
from dalsegno.model.effect import FinishExecution, SaveMachine
from dalsegno.model.execution import ExecutionView
from dalsegno.model.machine import MachineView
from dalsegno.model.transition import AlreadyApplied, Applied, Transition
from dalsegno.testing.simulation.environment.faulty_ports import Commit, Wake
from dalsegno.testing.simulation.environment.loop import virtual_loop
from dalsegno.testing.simulation.environment.system import MAX_STEPS, MAX_TIME
from dalsegno.testing.simulation.programs.run_program import ScriptObservation, deploy
from dalsegno.testing.simulation.programs.scenario import ScriptScenario
from dalsegno.testing.simulation.programs.sources import workflows_of
from dalsegno.testing.simulation.programs.tasks import SimulatedTasks
from dalsegno.testing.simulation.replay import DivergedError, ReplayLedger, ReplayWorld, put_off_until


class _ReplayLedger(ReplayLedger):
    """Shows a machine as the replayed step saw it, without changes between its read and its commit."""

    knows: SaveMachine | None = None
    cancelled = False
    """True if the step knew that the execution was to end."""

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


class _Replay(ReplayWorld[_ReplayLedger]):
    def __init__(self, scenario: ScriptScenario) -> None:
        super().__init__(_ReplayLedger, {"tasks": SimulatedTasks()}, workflows_of(scenario))
        self.scenario = scenario

    async def run(self, run: ScriptObservation) -> dict[str, ExecutionView]:
        executions = set(run.executions)
        self.store.blobs.update(run.blobs)  # recorded input from outside may refer to them
        await deploy(self.engine.client, self.scenario)
        for decision in run.decisions:
            name = decision.execution if isinstance(decision, Wake) else decision.transition.execution
            if name not in executions:
                continue
            if isinstance(decision, Wake):
                self.wake(decision)
            else:
                await self._commit(decision)
        client = self.engine.client
        return {execution: await client.status(execution) for execution in executions}

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
        if step is not None and step.cached is not None:
            self.engine.scripts.hot.keep(recorded.execution, step.cached)

    async def _decide_again(self, recorded: Transition, losses: int) -> ScriptStep:
        token = self.runnable(recorded.execution, recorded.token or "")
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
        # A plain completion. This engine, which has every machine cached, would have continued the script.
        warm = hot.take(recorded.execution)
        step = await self.engine.scripts.step(self.ledger.give(token))
        if warm is not None:
            hot.keep(recorded.execution, warm)
        return step


def _saved(transition: Transition) -> SaveMachine | None:
    return next((effect for effect in transition.effects if isinstance(effect, SaveMachine)), None)


def _is_about_ending(transition: Transition, saved: SaveMachine | None) -> bool:
    """Return True if the step delivered a cancellation or timeout to its script, or ended it for one."""
    ends = [effect for effect in transition.effects if isinstance(effect, FinishExecution)]
    return (saved is not None and saved.interrupted) or any(
        finish.state == "CANCELLED" or b'"TimeoutError"' in (finish.error or b"") for finish in ends
    )


def _decided_at(decision: Commit) -> float:
    """Return the time of the decision, which may be earlier than that of the commit."""
    transition = decision.transition
    times = [event.at for event in transition.events]
    times += [effect.event.at for effect in transition.effects if isinstance(effect, FinishExecution)]
    return times[0] if times else decision.now


def replay_script(scenario: ScriptScenario, run: ScriptObservation) -> dict[str, ExecutionView]:
    """Replay a run; raise DivergedError if the log is not a serial history of the program."""
    loop = virtual_loop(None, MAX_STEPS, MAX_TIME)
    try:
        return loop.run(_Replay(scenario).run(run))
    finally:
        loop.close()
