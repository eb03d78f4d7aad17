"""Runs of many seeds, in this process or in several, and the report of a failed seed.

Each kind of case (graphs, programs) can draw, judge, shrink and print its cases.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Literal

import msgspec
from msgspec import Struct

from dalsegno.testing.simulation.judge import Verdict, draw, judge
from dalsegno.testing.simulation.programs.judge import draw_script, judge_script
from dalsegno.testing.simulation.programs.scenario import ScriptScenario
from dalsegno.testing.simulation.programs.shrink import simpler_scripts
from dalsegno.testing.simulation.programs.sources import text_of
from dalsegno.testing.simulation.scenario import Scenario
from dalsegno.testing.simulation.shrink import shrink_with, simpler_graphs

KindName = Literal["graphs", "scripts"]


@dataclass(frozen=True, slots=True)
class Kind:
    name: KindName
    noun: str
    draw: Callable[[int], Any]
    judge: Callable[[Any], Verdict]
    simpler: Callable[[Any], Iterator[Any]]
    text: Callable[[Any], str]
    surroundings: Callable[[Any], str]
    option: str = ""
    """For the command line."""


def _around_graph(scenario: Scenario) -> str:
    given = msgspec.json.encode(scenario.input).decode()
    return f"{_broker(scenario)}, rerun {scenario.rerun}; its input: {given}"


def _around_script(scenario: ScriptScenario) -> str:
    sent = ", ".join(
        f"{signal.name}={signal.payload} after {signal.after:g} s" for signal in scenario.signals
    )
    return f"{_broker(scenario)}; signals: {sent or 'none'}"


def _broker(scenario: Scenario | ScriptScenario) -> str:
    broker = "claims" if scenario.news else "messages"
    return f"{broker}, concurrency {scenario.concurrency}, bystander {scenario.bystander}"


KINDS: dict[KindName, Kind] = {
    "graphs": Kind("graphs", "graph", draw, judge, simpler_graphs, Scenario.as_json, _around_graph),
    "scripts": Kind(
        "scripts",
        "program",
        draw_script,
        judge_script,
        simpler_scripts,
        text_of,
        _around_script,
        " --scripts",
    ),
}


def kind_of(case: Any) -> Kind:
    return KINDS["scripts" if isinstance(case.scenario, ScriptScenario) else "graphs"]


def describe(case: Any, verdict: Verdict, *, seed: int) -> str:
    """Return everything needed to understand and repeat a failure.

    ``case`` is the smallest form found of the seed's case.
    """
    kind = kind_of(case)
    findings = "\n".join(f"  - {textwrap.shorten(finding, 1000)}" for finding in verdict.findings[:10])
    schedule = ", ".join(str(fault) for fault in case.schedule) or "none"
    order = "first come, first served" if case.order is None else f"drawn from {case.order}"
    return "\n".join(
        [
            f"seed {seed} broke a promise:",
            findings,
            "",
            f"the {kind.noun}, as short as it could be made:",
            textwrap.indent(kind.text(case.scenario), "  "),
            f"around it: {kind.surroundings(case.scenario)}",
            f"the faults: {schedule}",
            f"the order of steps: {order}",
            "",
            f"see it again: {command(seed, kind.option)}",
        ]
    )


def command(seed: int, option: str = "") -> str:
    return f"python -m dalsegno.testing.simulation{option} --start {seed} --seeds 1"


CHUNK = 20


class Tally(Struct):
    """The results of some seeds."""

    seeds: int = 0
    confluent: int = 0
    predicted: int = 0
    faults: int = 0
    steps: int = 0
    failures: list[str] = []
    """Printed reports of the failed seeds."""

    def add(self, other: Tally) -> None:
        self.seeds += other.seeds
        self.confluent += other.confluent
        self.predicted += other.predicted
        self.faults += other.faults
        self.steps += other.steps
        self.failures = [*self.failures, *other.failures]


def run_seed(seed: int, *, shrink_seconds: float = 20.0, kind: KindName = "graphs") -> Tally:
    """Run one seed. The report of a failure has the smallest form found in the given time."""
    craft = KINDS[kind]
    case = craft.draw(seed)
    verdict = craft.judge(case)
    tally = Tally(1, verdict.confluent, verdict.predicted, len(verdict.applied), verdict.steps)
    if verdict.findings:
        smaller, finding = shrink_with(case, verdict, shrink_seconds, craft.judge, craft.simpler)
        tally.failures = [describe(smaller, finding, seed=seed)]
    return tally


def run_chunk(seeds: range, shrink_seconds: float = 20.0, kind: KindName = "graphs") -> Tally:
    tally = Tally()
    for seed in seeds:
        tally.add(run_seed(seed, shrink_seconds=shrink_seconds, kind=kind))
    return tally


def run_seeds(
    seeds: range, jobs: int = 1, shrink_seconds: float = 20.0, kind: KindName = "graphs"
) -> Iterator[Tally]:
    """Yield tallies of chunks as they are done; together they cover all seeds."""
    chunks = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
    if jobs == 1:
        for chunk in chunks:
            yield run_chunk(chunk, shrink_seconds, kind)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run_chunk, chunks, repeat(shrink_seconds), repeat(kind))
