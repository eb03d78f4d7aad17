"""What closes with an edge that carries nothing."""

from __future__ import annotations

from dalsegno.graph.build import load_graph
from tests.graph.catalog import CATALOG
from tests.graph.documents import plan_of
from tests.rows import rows

SPLIT = {"s": "split", "g": "aggregator"}

# paths, node types, the dead edge, and what is skipped and where it stops
CASES = {
    "a leaf": ("c > a, c > b", {"c": "conditional"}, "c-a", "a", ""),
    "a chain": ("c > a > x > y, c > b", {"c": "conditional"}, "c-a", "a x y", ""),
    "a tree": ("c > a > x, a > y !> z, c > b", {"c": "conditional"}, "c-a", "a x y z", ""),
    "up to a merge": ("c > a > m, c > b > m", {"c": "conditional", "m": "merge"}, "c-a", "a", "a-m"),
    "straight into a merge": ("c > m, c > b > m", {"c": "conditional", "m": "merge"}, "c-m", "", "c-m"),
    "into two slots of one merge": (
        "c > a > x > m, a > y > m, c > b", {"c": "conditional", "m": "merge"}, "c-a", "a x y", "x-m y-m",
    ),
    "a merge with one input": ("c > a > m > z, c > b", {"c": "conditional", "m": "merge"}, "c-a", "a", "a-m"),
    "a shared node without a barrier ahead": ("c > a > x, c > b > x > y", {"c": "conditional"}, "c-a", "a", ""),
    "a gate": ("c > a > x, c > b > x > m", {"c": "conditional", "m": "merge"}, "c-a", "a", "a-x"),
    "a single-input gate is just skipped": (
        "p > x, q > x > y > m, q > m", {"m": "merge"}, "x-y", "y", "y-m",
    ),
    "an error handler": ("h > m, h !> y > m", {"m": "merge"}, "h-y", "y", "y-m"),
    "success edges after a branched failure": ("h > a > m, h > b, h !> y > m", {"m": "merge"}, "h-a", "a", "a-m"),
    "a fallback": ("w > a > m, w > b > m, w > f > m", {"w": "switch", "m": "merge"}, "w-f", "f", "f-m"),
    "a split dies as one node": ("c > s > i > j > g > z, c > b", {"c": "conditional", **SPLIT}, "c-s", "s i j g z", ""),
    "a split before a merge": (
        "c > s > i > g > m, c > b > m", {"c": "conditional", "m": "merge", **SPLIT}, "c-s", "s i g", "g-m",
    ),
    "error edges of a dead split and aggregator close too": (
        "c > s > i > g > x, s !> y > m, g !> z > m, c > b > m", {"c": "conditional", "m": "merge", **SPLIT},
        "c-s", "s y i g x z", "y-m z-m",
    ),
    "barriers inside a dead split are nobody's": (
        "c > s > i > n > g, s > j > n, c > b", {"c": "conditional", "n": "merge", **SPLIT}, "c-s", "s i j n g", "",
    ),
    "a dead split without aggregator": ("c > s > i > j, c > b", {"c": "conditional", "s": "split"}, "c-s", "s i j", ""),
    "nested splits die together": (
        "c > s > r > i > k > g > z, c > b", {"c": "conditional", "r": "split", "k": "aggregator", **SPLIT},
        "c-s", "s r k i g z", "",
    ),
    "a failed split closes its region with its first edge": (
        "s > i > g > m, s > j > g, s !> h > m", {"m": "merge", **SPLIT}, "s-i", "i j g", "g-m",
    ),
    "the other edges of a split carry nothing more": (
        "s > i > g > m, s > j > g, s !> h > m", {"m": "merge", **SPLIT}, "s-j", "", "",
    ),
    "inside an item it ends at the aggregator": (
        "s > c > a > g > z, c > b > g", {"c": "conditional", **SPLIT}, "c-a", "a", "",
    ),
    "inside an item up to its own merge": (
        "s > c > a > n > g, c > b > n", {"c": "conditional", "n": "merge", **SPLIT}, "c-a", "a", "a-n",
    ),
    "a split inside an item": (
        "s > c > r > i > k > n > g, c > b > n",
        {"c": "conditional", "n": "merge", "r": "split", "k": "aggregator", **SPLIT}, "c-r", "r i k", "k-n",
    ),
    "a split that is a gate is told": (
        "c > a > s > i > g > m, c > b > s, x > m", {"c": "conditional", "m": "merge", **SPLIT}, "c-a", "a", "a-s",
    ),
}  # fmt: skip


@rows("case", CASES.values(), ids=CASES.keys())
def test_dead_run(case: tuple[str, dict[str, str], str, str, str]) -> None:
    paths, types, edge, skipped, stops = case
    plan = plan_of(paths, **types)
    run = plan.dead_run(plan.edges[edge])
    assert sorted(run.skipped) == sorted(skipped.split())
    assert sorted(stop.id for stop in run.stops) == sorted(stops.split())
    assert len(set(run.skipped)) == len(run.skipped)
    assert plan.dead_run(plan.edges[edge]) is run


def test_a_join_of_dependencies_stops_a_dead_run() -> None:
    edges = {"true_edge_id": "a", "false_edge_id": "b"}
    nodes = [
        {"id": "c", "handler": "conditional", "config": {"expression": "true", **edges}},
        {"id": "a", "handler": "log", "dependencies": ["c"]},
        {"id": "b", "handler": "log", "dependencies": ["c"]},
        {"id": "d", "handler": "log", "dependencies": ["a", "b"]},
        {"id": "e", "handler": "log", "dependencies": ["d"]},
    ]
    plan = load_graph({"dag": {"nodes": nodes}}, CATALOG).plan
    run = plan.dead_run(plan.edges["c->b"])
    assert run.skipped == ("b",)
    assert [edge.id for edge in run.stops] == ["b->d"]


def test_ten_thousand_nodes_die_without_recursion() -> None:
    names = " > ".join(f"n{index}" for index in range(10_000))
    plan = plan_of(f"c > {names}, c > b", c="conditional")
    assert len(plan.dead_run(plan.edges["c-n0"]).skipped) == 10_000
