"""One seed from beginning to end: draw a scenario and a schedule, run them, judge.

* Reruns: with the same nodes and the same recorded contexts, the result must be the same.
* Lateness: in a run without clock jumps, events must happen when they are due.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dalsegno.errors import InvalidDefinition
from dalsegno.graph.plan import Plan
from dalsegno.model.event import Event
from dalsegno.testing.simulation.environment.faults import Fault, draw_schedule
from dalsegno.testing.simulation.environment.process import compiled
from dalsegno.testing.simulation.generator import generate
from dalsegno.testing.simulation.reference import OrderMattersError, UnforeseeableError, predict
from dalsegno.testing.simulation.replay import DivergedError, replay
from dalsegno.testing.simulation.run_graph import Observation, differences, observe, outcome_of, timeless
from dalsegno.testing.simulation.scenario import Scenario


def rerun_differences(plan: Plan, run: Observation) -> list[str]:
    """Compare everything downstream of the node from which a completed, confluent execution was rerun.

    Nodes that may run several times are excluded: a rerun repeats only the visits that come from its start.
    """
    again, view = run.again, run.view
    if again is None or view is None or not again.starts or view.state != "COMPLETED":
        return []
    behind = set(again.starts).union(*(plan.descendants(name) for name in again.starts))
    if any(plan.nodes[name].multiple for name in behind):
        return []
    if again.view.state != "COMPLETED":
        return [f"a rerun from {again.starts} ended {again.view.state}: {again.view.error!r}"]
    found = []
    for name in sorted(behind):
        before, after = run.nodes[name], again.nodes[name]
        if (before.runs, before.failed, before.state) != (after.runs, after.failed, after.state):
            found.append(f"a rerun from {again.starts} differs at {name}: {before} ≠ {after}")
    return found + _outputs(plan, run, behind)


def _outputs(plan: Plan, run: Observation, behind: set[str]) -> list[str]:
    assert run.again is not None
    assert run.view is not None
    sources = plan.output_nodes or plan.leaves
    if plan.output is not None or not set(sources) <= behind:
        return []
    before, after = (
        timeless(msgspec.json.decode(view.output or b"null")) for view in (run.view, run.again.view)
    )
    return [f"a rerun from {run.again.starts} puts out {after}, not {before}"] if before != after else []


SLACK = 0.5
"""Seconds between a due time and its effect, without failures."""
ROUNDING = 1e-3


def lateness(run: Observation) -> list[str]:
    """Return waits and retries that became ready too early or too late. When they then run depends on free workers."""
    due: dict[str, float] = {}
    found = []
    for event in run.events:
        if event.token is None or event.data is None or event.kind == "NodeStarted":
            continue
        promised = due.pop(event.token, None)
        if promised is not None:
            found += _judge(event, promised)
        record = msgspec.json.decode(event.data)
        moment = record.get("resume_at") or record.get("retry_at")
        if moment is not None:
            due[event.token] = max(moment, event.at)
    return found


def _judge(event: Event, promised: float) -> list[str]:
    woken = msgspec.json.decode(event.data or b"{}").get("queued_at", event.at)
    if promised - ROUNDING <= woken <= promised + SLACK:
        return []
    return [f"time: node {event.node} was due at {promised:.3f}, but woke at {woken:.3f}"]


COMMANDS_SHARE = 0.15


class Case(Struct, frozen=True):
    """All inputs of a run."""

    seed: int
    scenario: Scenario
    schedule: tuple[Fault, ...] = ()
    order: int | None = None
    """Seed of the scheduler; None is first come, first served."""


class Verdict(Struct, frozen=True):
    findings: tuple[str, ...]
    confluent: bool
    predicted: bool
    steps: int
    applied: tuple[Fault, ...] = ()
    moved: int = 0
    """How often an execution was moved to another version."""


def draw(seed: int) -> Case:
    """Return a valid scenario and a schedule for it."""
    random = Random(seed)
    scenario = generate(random)
    while not is_valid(scenario):
        scenario = generate(random)
    schedule = draw_schedule(
        random, steps=random.choice((200, 500, 1000)), commands=random.random() < COMMANDS_SHARE
    )
    return Case(seed, scenario, schedule, random.getrandbits(32))


def is_valid(scenario: Scenario) -> bool:
    try:
        compiled(scenario.document)
    except InvalidDefinition:
        return False
    return True


def judge(case: Case) -> Verdict:
    """Run the case with and without its faults and compare."""
    findings: list[str] = []
    undisturbed = observe(case.scenario)
    findings += [f"without faults: {finding}" for finding in (*undisturbed.findings, *lateness(undisturbed))]
    confluent, predicted = _predicted(case.scenario, undisturbed, findings)
    disturbed = observe(case.scenario, case.schedule, case.order)
    findings += disturbed.findings
    if confluent and not is_cancelled(case.schedule):
        findings += [f"confluent, but with faults {each}" for each in _compared(undisturbed, disturbed)]
    for run in (undisturbed, disturbed):
        findings += _replayed(case.scenario, run)
        if confluent:
            findings += rerun_differences(_plan(case.scenario), run)
    return Verdict(tuple(findings), confluent, predicted, disturbed.steps, tuple(disturbed.applied))


def is_cancelled(schedule: Sequence[Fault]) -> bool:
    """Return True if the schedule cancels. A pause does not change the outcome; a cancel does."""
    return any(fault.kind == "cancel" for fault in schedule)


def _compared(undisturbed: Observation, disturbed: Observation) -> list[str]:
    """Compare outcomes. The states of a failed execution are not compared: skipped nodes depend on timing."""
    outcomes = [outcome_of(undisturbed), outcome_of(disturbed)]
    if outcomes[0] is not None and outcomes[0].state != "COMPLETED":
        outcomes = [each and replace(each, states=None) for each in outcomes]
    return differences(*outcomes)


def _predicted(scenario: Scenario, undisturbed: Observation, findings: list[str]) -> tuple[bool, bool]:
    """Compare with the reference reading; return whether order is irrelevant, and whether the outcome was predicted."""
    try:
        expected = predict(_plan(scenario), scenario.parameters(), scenario.input)
    except OrderMattersError:
        return False, False
    except UnforeseeableError:
        return True, False
    findings += [
        f"not as predicted (predicted ≠ seen): {each}"
        for each in differences(expected, outcome_of(undisturbed))
    ]
    return True, True


def _plan(scenario: Scenario) -> Plan:
    return compiled(scenario.document).plan


def _replayed(scenario: Scenario, run: Observation) -> list[str]:
    if run.view is None:
        return []
    try:
        again = replay(scenario, run.view.id, run.decisions)
    except DivergedError as error:
        return [f"L1–L7: no serial history: {error}"]
    return [
        f"not what its decisions lead to: {each}" for each in differences(outcome_of(again), outcome_of(run))
    ]
