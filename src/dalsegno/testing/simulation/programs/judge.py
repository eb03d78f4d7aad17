"""One seed of programs from beginning to end: draw, run without faults and with them, judge.

Decisions are replayed serially on one engine without faults. Regardless of duplicates, losses and races, the outcome
must be that of the decisions taken serially in the order in which they took effect. The real engine decides every step
again, at the original time. External input (starts, signals, cancellations, endings of children) is applied as
recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

import msgspec
from msgspec import Struct

from dalsegno.core.scripts.tasks import put_off
from dalsegno.engine.scripts.script_step import ScriptStep
from dalsegno.lang.runtime.effects import promise_id
from dalsegno.model.effect import FinishExecution, SaveMachine
from dalsegno.model.execution import ExecutionView
from dalsegno.model.ids import child_execution_id, promise_token_id, task_execution_id
from dalsegno.model.machine import MachineView
from dalsegno.model.transition import AlreadyApplied, Applied, Transition
from dalsegno.testing.simulation.environment.faults import Commit, Fault, Wake, draw_schedule
from dalsegno.testing.simulation.environment.loop import virtual_loop
from dalsegno.testing.simulation.environment.system import MAX_STEPS, MAX_TIME
from dalsegno.testing.simulation.judge import COMMANDS_SHARE, Verdict, is_cancelled
from dalsegno.testing.simulation.programs.generator import draw_program
from dalsegno.testing.simulation.programs.program import Group, Program, promises
from dalsegno.testing.simulation.programs.reference import Prediction, predict
from dalsegno.testing.simulation.programs.run_program import ScriptObservation, deploy, observe_script
from dalsegno.testing.simulation.programs.scenario import (
    Language,
    ScriptScenario,
    SentSignal,
    SimulatedTasks,
    most_signals,
)
from dalsegno.testing.simulation.programs.sources import plain_code, workflows_of
from dalsegno.testing.simulation.reference import OrderMattersError, UnforeseeableError
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


MOST_PROMISES = 500
DONE = frozenset(("TaskCompleted", "TaskFailed"))


class ScriptCase(Struct, frozen=True):
    """All inputs of a run."""

    seed: int
    scenario: ScriptScenario
    schedule: tuple[Fault, ...] = ()
    order: int | None = None


def draw_script(seed: int) -> ScriptCase:
    random = Random(seed)
    program = draw_program(random)
    scenario = ScriptScenario(
        program,
        _signals(random, most_signals(program)),
        _language(random, program),
        random.random() < 0.5,
        random.choice((1, 2, 4, 20)),
        random.random() < 0.2,
    )
    commands = random.random() < COMMANDS_SHARE
    schedule = draw_schedule(random, steps=random.choice((150, 400, 800)), commands=commands)
    return ScriptCase(seed, scenario, schedule, random.getrandbits(32))


def _language(random: Random, program: Program) -> Language:
    """Draw the language. Only scripts can cancel the losers of a race."""
    cancels = any(
        isinstance(each, Group) and each.cancel
        for body in program.workflows.values()
        for each in promises(body)
    )
    return "flow" if cancels else random.choice(("flow", "flow", "python"))


def _signals(random: Random, most: Mapping[str, int]) -> tuple[SentSignal, ...]:
    sent: list[SentSignal] = []
    for name, number in sorted(most.items()):
        moments = sorted(random.choice((0.0, 0.0, 1.0, 7.0, 100.0)) for _ in range(number))
        sent += [SentSignal(after, name, 100 + place) for place, after in enumerate(moments)]
    return tuple(sorted(sent, key=lambda signal: signal.after))


def with_moves(case: ScriptCase) -> ScriptCase:
    """Return the case with moves of the main execution between two versions of its program."""
    random = Random(case.seed + 1)
    steps = random.choice((60, 150, 400))
    moves = [Fault("move", 1 + random.randrange(steps)) for _ in range(random.choice((1, 2, 5)))]
    scenario = msgspec.structs.replace(case.scenario, is_moved=True)
    return msgspec.structs.replace(case, scenario=scenario, schedule=(*case.schedule, *moves))


def judge_script(case: ScriptCase) -> Verdict:
    findings: list[str] = []
    scenario = case.scenario
    undisturbed = observe_script(scenario)
    findings += [f"without faults: {finding}" for finding in undisturbed.findings]
    certain = _certain(scenario, undisturbed)
    disturbed = observe_script(scenario, case.schedule, case.order)
    findings += disturbed.findings
    predicted = certain is not None
    for run, words, cancelled in (
        (undisturbed, "without faults: ", False),
        (disturbed, "", is_cancelled(case.schedule)),
    ):
        findings += [f"{words}{each}" for each in _replayed(scenario, run)]
        if not cancelled and scenario.program.timeout is None:
            expected = certain or _explained(scenario, run)
            predicted = predicted or expected is not None
            findings += [f"{words}{each}" for each in _differences(expected, run)]
    return Verdict(
        tuple(findings),
        certain is not None,
        predicted,
        disturbed.steps,
        tuple(disturbed.applied),
        disturbed.moved,
    )


def _certain(scenario: ScriptScenario, run: ScriptObservation) -> Prediction | None:
    """Return the outcome that holds in any order; None if order matters."""
    if scenario.program.timeout is not None:
        return None
    try:
        return predict(scenario.program, run.main, scenario.payloads())
    except (OrderMattersError, UnforeseeableError):
        return None


def _explained(scenario: ScriptScenario, run: ScriptObservation) -> Prediction | None:
    """Return the outcome for the order in which this run settled its promises."""
    order = {name: _order(name, run) for name in run.executions}
    try:
        return predict(scenario.program, run.main, scenario.payloads(), order)
    except (OrderMattersError, UnforeseeableError):
        return None


def _order(execution: str, run: ScriptObservation) -> dict[int | tuple[str, int], int]:
    tokens = {promise_token_id(execution, number): number for number in range(MOST_PROMISES)}
    children = {child_execution_id(execution, promise_id(number)): number for number in range(MOST_PROMISES)}
    found: dict[int | tuple[str, int], int] = {}
    signals: Counter[str] = Counter()
    for event in run.executions[execution].events:
        number: int | tuple[str, int] | None = None
        if event.kind in DONE or event.kind == "TimerFired":
            number = tokens.get(event.token or "")
        elif event.kind == "ChildEnded" and event.data is not None:
            number = children.get(msgspec.json.decode(event.data)["execution"])
        elif event.kind == "SignalReceived":
            number = (event.node, signals[event.node])
            signals[event.node] += 1
        if number is not None:
            found.setdefault(number, event.seq)
    return found


def _differences(expected: Prediction | None, run: ScriptObservation) -> list[str]:
    view = run.view
    if expected is None or view is None:
        return []
    found = []
    seen = _outcome(view)
    if (expected.result, expected.error) != seen:
        found.append(f"not as predicted (predicted ≠ seen): {(expected.result, expected.error)} ≠ {seen}")
    return found + _tasks_missing(expected, run)


def _outcome(view: ExecutionView) -> tuple[Any, str | None]:
    if view.state == "COMPLETED":
        return msgspec.json.decode(view.output or b"null"), None
    error = msgspec.json.decode(view.error or b"{}")
    return None, plain_code(error.get("code"))


def _tasks_missing(expected: Prediction, run: ScriptObservation) -> list[str]:
    """Every started task ended, awaited or not, and no other task ran."""
    done = {
        event.token: name
        for name, ended in run.executions.items()
        for event in ended.events
        if event.kind in DONE
    }
    kinds = {name: ended.view.kind for name, ended in run.executions.items()}
    alone = {name for name in expected.tasks if kinds.get(task_execution_id(name)) == "task"}
    missing = expected.tasks - done.keys() - alone
    extra = {
        token
        for token in done.keys() - expected.tasks - expected.possible
        if not _may_be_cancelled(done[token], expected, run)
    }
    return [f"task {name} was started, but never ended" for name in sorted(missing)[:3]] + [
        f"task {name} ran without a request" for name in sorted(extra, key=str)[:3]
    ]


def _may_be_cancelled(execution: str | None, expected: Prediction, run: ScriptObservation) -> bool:
    """Return True if the execution or an ancestor is a child that its failing parent cancels.

    It may clean up in any way.
    """
    while execution is not None:
        if execution in expected.cancellable:
            return True
        ended = run.executions.get(execution)
        execution = ended.view.parent if ended is not None else None
    return False


def _replayed(scenario: ScriptScenario, run: ScriptObservation) -> list[str]:
    try:
        again = replay_script(scenario, run)
    except DivergedError as error:
        return [f"no serial history: {error}"]
    found = []
    for name, ended in run.executions.items():
        before, after = _facts(ended.view), _facts(again[name])
        if before != after:
            found.append(f"not what its decisions lead to: {name}: {before} ≠ {after}")
    return found[:3]


def _facts(view: ExecutionView) -> tuple[Any, ...]:
    return view.state, view.output, view.error
