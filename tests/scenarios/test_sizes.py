"""Long, wide and large: costs stay flat, and nothing is lost on the way."""

from __future__ import annotations

import time

import pytest

from tests.scenarios.documents import aggregator, chain, echo, graph, merge, split, task
from tests.scenarios.stage import Stage


def test_a_long_chain_with_big_contexts_reaches_back_to_its_beginning(stage: Stage) -> None:
    """Contexts outgrow their token again and again and become pages; every page stays reachable."""
    length = 300
    document = chain(length)
    for index, node in enumerate(document["nodes"]):
        node["parameters"]["input"] = {"at": index, "text": "x" * 700}
    document["nodes"][-1]["parameters"]["input"] = "{{ [$n0.at, $n1.at, $n150.at, $n297.at, $trigger.t] }}"
    ended = stage.run(document, {"t": "start"})
    assert ended.output == [0, 1, 150, 297, "start"]
    assert len(ended.context) == length + 1
    assert ended.context["$n42"] == {"at": 42, "text": "x" * 700}
    assert ended.count("NodeCompleted") == length


def test_contexts_with_pages_unite_at_a_merge(stage: Stage) -> None:
    big = {"text": "x" * 3000}
    nodes = {name: echo({**big, "of": name}) for name in ("a", "b", "b2", "c", "c2")}
    nodes |= {"m": merge(), "z": echo("{{ [$a.of, $b.of, $b2.of, $c.of, $c2.of, $m.length] }}")}
    ended = stage.run(graph("a > b > b2 > m, a > c > c2 > m, m > z", nodes))
    assert ended.output == ["a", "b", "b2", "c", "c2", 2]


@pytest.mark.parametrize("size", [10_000, 1_000_000])
def test_large_outputs_travel_by_reference(stage: Stage, size: int) -> None:
    @stage.app.task
    async def produce(length: int) -> str:
        return "y" * length

    nodes = {
        "a": task("produce", size),
        "b": echo("{{ $a.length }}"),
        "s": split(["{{ $a }}", "short"]),
        "w": echo("{{ $item.length }}"),
        "g": aggregator(),
    }
    ended = stage.run(graph("a > b > s > w > g > c", {**nodes, "c": echo("{{ $a }}")}))
    assert ended.context["$b"] == size
    assert ended.context["$g"] == [size, 5]
    assert ended.output == "y" * size
    [record] = ended.data("NodeCompleted", "a")
    assert "output" not in record
    assert record["output_ref"].startswith("blob:" if size > 256 * 1024 else "output:")


def test_a_large_start_payload(stage: Stage) -> None:
    ended = stage.run(graph("a > b", {"b": echo("{{ $trigger.text.length }}")}), {"text": "z" * 1_000_000})
    assert ended.output == 1_000_000


def test_large_items_come_back_whole(stage: Stage) -> None:
    items = [f"{index}" * 20_000 for index in range(20)]
    nodes = {"s": split("$trigger.items", max_concurrency=5), "w": echo("{{ $item }}"), "g": aggregator()}
    assert stage.run(graph("s > w > g", nodes), {"items": items}).output == items


def test_a_graph_of_ten_thousand_nodes_runs(stage: Stage) -> None:
    """A hundred chains of a hundred nodes, side by side."""
    chains, length = 100, 99
    nodes = {"a": task("echo"), "m": merge()}
    paths = []
    for number in range(chains):
        names = [f"n{number}_{index}" for index in range(length)]
        nodes |= {name: task("echo", number) for name in names}
        paths.append(" > ".join(["a", *names, "m"]))
    began = time.process_time()
    definition = stage.app.deploy(graph(", ".join(paths), nodes))
    deployed = time.process_time() - began
    ended = stage.end_of(stage.app.start(definition.name), patience=60)
    assert ended.output == list(range(chains))
    assert ended.count("NodeCompleted") == chains * length + 2
    assert deployed < 10


def fan_in(stage: Stage, width: int) -> float:
    """Seconds per arrival of a fan-out to ``width`` nodes and back into one merge."""
    names = [f"n{index}" for index in range(width)]
    nodes = {name: task("echo", index) for index, name in enumerate(names)}
    document = graph(
        ", ".join(f"a > {name} > m" for name in names), {**nodes, "m": merge()}, name=f"fan{width}"
    )
    definition = stage.app.deploy(document)
    began = time.perf_counter()
    handle = stage.app.start(definition.name)
    assert handle.result(60) == list(range(width))
    return (time.perf_counter() - began) / width


def test_five_thousand_arrivals_at_one_merge_cost_no_more_each_than_five_hundred(stage: Stage) -> None:
    few = fan_in(stage, 500)
    many = fan_in(stage, 5_000)
    assert many < 4 * few, f"{few * 1e6:.0f} µs per arrival of 500, {many * 1e6:.0f} µs of 5,000"


def test_five_thousand_items_pass_through_their_window(stage: Stage) -> None:
    total = 5_000
    nodes = {"s": split("$trigger.items"), "w": echo("{{ $item + 1 }}"), "g": aggregator()}
    handle = stage.start(graph("s > w > g", nodes), {"items": list(range(total))})
    ended = stage.end_of(handle, patience=60)
    assert ended.output == list(range(1, total + 1))
    assert ended.nodes["w"] == ("COMPLETED", total)
    assert ended.context["$s"] == {"total": total, "failed": 0}
