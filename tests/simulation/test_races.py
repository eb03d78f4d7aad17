"""Races with losers that hold something open below them: splits in progress, merges that wait."""

from __future__ import annotations

from random import Random

import pytest

from dalsegno.testing.simulation import Case, judge
from dalsegno.testing.simulation.environment.faults import draw_schedule
from dalsegno.testing.simulation.run_graph import observe
from tests.simulation.graphs import graph, node, scenario

RACE = graph(
    [
        node("a"),
        node("fast", seconds=1.0),
        node("s", "split", input_array=[1, 2, 3, 4], max_concurrency=2),
        node("i", seconds=5.0),
        node("g", "aggregator"),
        node("x"),
        node("y", seconds=30.0),
        node("inner", "merge", timeout="30d"),
        node("m", "merge", wait_mode="wait_for_any", losers="cancel"),
        node("z"),
    ],
    "a>fast", "a>s", "a>x", "a>y", "fast>m", "s>i", "i>g", "g>m", "x>inner", "y>inner", "inner>m", "m>z",
)  # fmt: skip


def test_losers_are_cancelled_with_everything_they_hold_open() -> None:
    run = observe(scenario(RACE))
    assert run.findings == []
    assert run.view is not None
    assert run.view.state == "COMPLETED"
    states = {name: summary.state for name, summary in run.nodes.items()}
    assert states == {
        "a": "COMPLETED",
        "fast": "COMPLETED",
        "s": "COMPLETED",
        "i": "CANCELLED",
        "g": "CANCELLED",
        "x": "COMPLETED",
        "y": "CANCELLED",
        "inner": "CANCELLED",
        "m": "COMPLETED",
        "z": "COMPLETED",
    }
    assert run.seconds < 60, "the losers held the execution open"


@pytest.mark.parametrize("start", range(0, 60, 20))
def test_races_keep_the_promises_under_faults(start: int) -> None:
    for seed in range(start, start + 20):
        schedule = draw_schedule(Random(seed), steps=500, commands=seed % 5 == 0)
        assert judge(Case(seed, scenario(RACE), schedule, order=seed)).findings == (), f"seed {seed}"
