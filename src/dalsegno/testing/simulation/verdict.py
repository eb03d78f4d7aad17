"""One seed from beginning to end: draw a scenario and a schedule, run them, judge."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from dalsegno.errors import InvalidDefinition
from dalsegno.graph.build import load_graph
from dalsegno.graph.plan import Plan
from dalsegno.testing.simulation.again import rerun_differences
from dalsegno.testing.simulation.faults import Fault, draw_schedule
from dalsegno.testing.simulation.generator import generate
from dalsegno.testing.simulation.nodes import simulation_registry
from dalsegno.testing.simulation.outcome import differences, outcome_of
from dalsegno.testing.simulation.punctuality import lateness
from dalsegno.testing.simulation.reference import foretell
from dalsegno.testing.simulation.replay import DivergedError, replay
from dalsegno.testing.simulation.scenario import Scenario
from dalsegno.testing.simulation.visits import OrderMattersError, UnforeseeableError
from dalsegno.testing.simulation.world import Observation, observe

COMMANDS_SHARE = 0.15


class Case(Struct, frozen=True):
    """Everything a run depends on."""

    seed: int
    scenario: Scenario
    schedule: tuple[Fault, ...] = ()
    order: int | None = None
    """Seed of the scheduler; None is first come, first served."""


class Verdict(Struct, frozen=True):
    findings: tuple[str, ...]
    confluent: bool
    foretold: bool
    steps: int
    struck: tuple[Fault, ...] = ()


def draw(seed: int) -> Case:
    """A valid scenario and a schedule for it."""
    random = Random(seed)
    scenario = generate(random)
    while not _valid(scenario):
        scenario = generate(random)
    schedule = draw_schedule(
        random, steps=random.choice((200, 500, 1000)), commands=random.random() < COMMANDS_SHARE
    )
    return Case(seed, scenario, schedule, random.getrandbits(32))


def _valid(scenario: Scenario) -> bool:
    try:
        load_graph(scenario.document, simulation_registry())
    except InvalidDefinition:
        return False
    return True


def judge(case: Case) -> Verdict:
    """Runs the case with and without its faults and compares."""
    findings: list[str] = []
    calm = observe(case.scenario)
    findings += [f"without faults: {finding}" for finding in (*calm.findings, *lateness(calm))]
    confluent, foretold = _foretold(case.scenario, calm, findings)
    stormy = observe(case.scenario, case.schedule, case.order)
    findings += stormy.findings
    if confluent and not is_cancelled(case.schedule):
        findings += [f"confluent, but with faults {each}" for each in _compared(calm, stormy)]
    for run in (calm, stormy):
        findings += _replayed(case.scenario, run)
        if confluent:
            findings += rerun_differences(_plan(case.scenario), run)
    return Verdict(tuple(findings), confluent, foretold, stormy.steps, tuple(stormy.struck))


def is_cancelled(schedule: Sequence[Fault]) -> bool:
    """A pause changes nothing in the end; a cancel does."""
    return any(fault.kind == "cancel" for fault in schedule)


def _compared(calm: Observation, stormy: Observation) -> list[str]:
    """A failed execution ends at once: which nodes were still to be skipped by then depends on who was quicker."""
    outcomes = [outcome_of(calm), outcome_of(stormy)]
    if outcomes[0] is not None and outcomes[0].state != "COMPLETED":
        outcomes = [each and replace(each, states=None) for each in outcomes]
    return differences(*outcomes)


def _foretold(scenario: Scenario, calm: Observation, findings: list[str]) -> tuple[bool, bool]:
    """Compares with the reference reading; whether order does not matter, and whether the outcome was foretold."""
    try:
        expected = foretell(_plan(scenario), scenario.parameters(), scenario.input)
    except OrderMattersError:
        return False, False
    except UnforeseeableError:
        return True, False
    findings += [
        f"not as foretold (foretold ≠ seen): {each}" for each in differences(expected, outcome_of(calm))
    ]
    return True, True


def _plan(scenario: Scenario) -> Plan:
    return load_graph(scenario.document, simulation_registry()).plan


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
