"""L9: what one execution does delays another by no more than one window of its split."""

from __future__ import annotations

from itertools import pairwise

import pytest

from dalsegno.testing.simulation.environment.faults import Commit
from dalsegno.testing.simulation.run_graph import World
from tests.simulation.graphs import graph, node, scenario

WINDOW = 10
ITEMS = 200


@pytest.mark.parametrize("news", [True, False], ids=["claims", "messages"])
@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_wide_split_does_not_starve_another_execution(news: bool, concurrency: int) -> None:
    nodes = [
        node("s", "split", input_array=list(range(ITEMS)), max_concurrency=WINDOW),
        node("i"),
        node("j"),
        node("g", "aggregator"),
    ]
    wide = scenario(graph(nodes, "s>i", "i>j", "j>g"), bystander=True, news=news, concurrency=concurrency)
    world = World(wide)
    run = world.run()
    assert run.findings == []
    commits = [each.transition.execution for each in run.decisions if isinstance(each, Commit)]
    steps = [index for index, execution in enumerate(commits) if execution == world.bystander]
    gaps = [after - before for before, after in pairwise(steps)]
    assert len(commits) > 2 * ITEMS
    assert max(gaps) <= 2 * WINDOW + 2 * concurrency
