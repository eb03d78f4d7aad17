"""Kinds of cases: graphs, and programs. Each kind can draw, judge, shrink and print its cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from dalsegno.testing.simulation.judge import Verdict, draw, judge
from dalsegno.testing.simulation.programs.judge import draw_script, judge_script
from dalsegno.testing.simulation.programs.scenario import ScriptScenario
from dalsegno.testing.simulation.programs.shrink import simpler_scripts
from dalsegno.testing.simulation.programs.sources import text_of
from dalsegno.testing.simulation.scenario import Scenario
from dalsegno.testing.simulation.shrink import simpler_graphs

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
