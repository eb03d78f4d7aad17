"""Ten thousand nodes are no problem. The goal is a second; a test may take ten times as long."""

from __future__ import annotations

import json
import random
from time import process_time
from typing import Any

import pytest

from dalsegno.errors import InvalidDefinition
from dalsegno.graph.build import load_graph
from tests.graph.catalog import CATALOG

COUNT = 10_000


def log(index: int, source: int | None) -> dict[str, Any]:
    message = "start" if source is None else f"after {{{{ $n{source}.x }}}}"
    return {"id": f"n{index}", "type": "log", "parameters": {"message": message}}


def graph(sources: list[list[int]]) -> dict[str, Any]:
    """Node by node, the indexes of the nodes before it."""
    nodes = [log(index, before[0] if before else None) for index, before in enumerate(sources)]
    edges = [
        {"id": f"e{source}-{index}", "src": f"n{source}", "dst": f"n{index}"}
        for index, before in enumerate(sources)
        for source in before
    ]
    return {"name": "large", "nodes": nodes, "edges": edges}


def chain() -> dict[str, Any]:
    return graph([[], *([index] for index in range(COUNT - 1))])


def fan_out() -> dict[str, Any]:
    return graph([[], *([0] for _ in range(COUNT - 1))])


def any_graph() -> dict[str, Any]:
    chance = random.Random(1)
    return graph(
        [
            [],
            *(
                sorted(chance.sample(range(index), min(index, chance.randint(1, 3))))
                for index in range(1, COUNT)
            ),
        ]
    )


@pytest.mark.parametrize("make", [chain, fan_out, any_graph])
def test_ten_thousand_nodes_load_quickly(make: Any) -> None:
    text = json.dumps(make())
    start = process_time()
    plan = load_graph(text, CATALOG).plan
    assert process_time() - start < 10
    assert len(plan.nodes) == COUNT


def test_parameters_as_deep_as_a_document_may_be() -> None:
    deep: Any = "{{ 1 }}"
    for _ in range(195):
        deep = [deep]
    load_graph({"nodes": [{"id": "a", "type": "log", "parameters": {"message": deep}}]}, CATALOG)


def test_references_over_long_distances() -> None:
    source = chain()
    for index in range(1, COUNT):
        source["nodes"][index]["parameters"]["message"] = f"$n{index // 2}.x"
    load_graph(source, CATALOG)
    source["nodes"][3]["parameters"]["message"] = f"$n{COUNT - 1}.x"
    with pytest.raises(InvalidDefinition, match="never runs before it"):
        load_graph(source, CATALOG)


def test_ten_thousand_mistakes_are_reported_in_good_time() -> None:
    source = chain()
    for index, edge in enumerate(source["edges"]):
        edge["dst"] = f"m{index}"
    start = process_time()
    with pytest.raises(InvalidDefinition) as refused:
        load_graph(source, CATALOG)
    assert process_time() - start < 10
    assert len(refused.value.findings) >= COUNT - 1
