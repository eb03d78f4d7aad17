"""What is printed about a seed that failed: everything needed to understand it and to see it again."""

from __future__ import annotations

import textwrap

import msgspec

from dalsegno.testing.simulation.scenario import Scenario
from dalsegno.testing.simulation.verdict import Case, Verdict


def describe(case: Case, verdict: Verdict, *, seed: int) -> str:
    """``case`` is the shortest form that was found of what ``seed`` draws."""
    findings = "\n".join(f"  - {textwrap.shorten(finding, 1000)}" for finding in verdict.findings[:10])
    schedule = ", ".join(str(fault) for fault in case.schedule) or "none"
    order = "first come, first served" if case.order is None else f"drawn from {case.order}"
    scenario = case.scenario
    return "\n".join(
        [
            f"seed {seed} broke a promise:",
            findings,
            "",
            "the graph, as short as it could be made:",
            textwrap.indent(scenario.as_json(), "  "),
            f"its input: {msgspec.json.encode(scenario.input).decode()}",
            f"around it: {_surroundings(scenario)}",
            f"the faults: {schedule}",
            f"the order of steps: {order}",
            "",
            f"see it again: {command(seed)}",
        ]
    )


def _surroundings(scenario: Scenario) -> str:
    broker = "claims" if scenario.news else "messages"
    return f"{broker}, concurrency {scenario.concurrency}, bystander {scenario.bystander}, rerun {scenario.rerun}"


def command(seed: int) -> str:
    return f"python -m dalsegno.testing.simulation --start {seed} --seeds 1"
