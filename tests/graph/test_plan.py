"""What the plan knows of joins, scopes, repeated runs and races."""

from __future__ import annotations

from dalsegno.graph.plan import Plan
from tests.graph.documents import plan_of
from tests.rows import rows

RACE = {"type": "merge", "parameters": {"wait_mode": "wait_for_any", "losers": "cancel"}}


def those(plan: Plan, flag: str) -> str:
    """Ids of the nodes that have a flag, sorted, as one text."""
    return " ".join(sorted(node.id for node in plan.nodes.values() if getattr(node, flag)))


# paths, node types, and the nodes that are: multiple, gate, forks, solitary
FLAGS = {
    "chain": ("a > b > c", {}, "", "", "", "a b c"),
    "fan-out": ("a > b, a > c", {}, "", "", "a", "a"),
    "fan-out and fan-in without a merge": ("a > b > d > e, a > c > d", {}, "d e", "", "a", "a"),
    "fan-in before a merge": ("a > b > d > m, a > c > d, a > m", {"m": "merge"}, "d", "d", "a", "a"),
    "repeated node far before a merge": ("a > b > d > e > m, a > c > d", {"m": "merge"}, "d e", "d e", "a", "a"),
    "a merge cuts repetition": ("a > b > m > c, a > d > m", {"m": "merge"}, "", "", "a", "a"),
    "behind a merge it starts again": ("a > m > b > d, a > m, m > c > d", {"m": "merge"}, "d", "", "a m", "a"),
    "two entries": ("a > c, b > c", {}, "c", "", "", ""),
    "one trigger, two starts": ("t > a, t > b", {"t": "manual"}, "", "", "t", ""),
    "two triggers, one node": ("t > a > m, u > a", {"t": "manual", "u": "manual", "m": "merge"}, "a", "a", "", ""),
    "a condition takes one way": ("c > a > d, c > b > d", {"c": "conditional"}, "d", "", "", "a b c d"),
    "a condition before a merge": ("c > a > m, c > b > m", {"c": "conditional", "m": "merge"}, "", "", "", "a b c m"),
    "a switch takes one way": ("s > a, s > b, s > d", {"s": "switch"}, "", "", "", "a b d s"),
    "an error handler comes back": ("h > x > z, h !> y > x", {}, "x z", "", "", "h x y z"),
    "an error handler comes back to a merge": ("h > m, h !> y > m > z", {"m": "merge"}, "", "", "", "h m y z"),
    "an error handler before a merge": ("h > x > m, h !> y > x", {"m": "merge"}, "x", "x", "", "h m x y"),
    "two error edges": ("h > x, h !> y, h !> z", {}, "", "", "h", "h"),
    "split": ("s > a > g > z", {"s": "split", "g": "aggregator"}, "", "", "", "a g s z"),
    "split with two ways in": ("s > a > g > z, s > b > g", {"s": "split", "g": "aggregator"}, "", "", "s", "g s z"),
    "fork inside a split": ("s > a > b > g > z, a > c > g", {"s": "split", "g": "aggregator"}, "", "", "a", "a g s z"),
    "repetition inside a split stays there": (
        "s > a > b > d > g > z, a > c > d", {"s": "split", "g": "aggregator"}, "d", "", "a", "a g s z",
    ),
    "gate inside a split, by its own merge": (
        "s > a > b > d > m > g > z, a > c > d", {"s": "split", "g": "aggregator", "m": "merge"},
        "d", "d", "a", "a g s z",
    ),
    "a merge behind the aggregator makes no gate inside": (
        "s > a > b > d > g > m, a > c > d", {"s": "split", "g": "aggregator", "m": "merge"}, "d", "", "a", "a g m s",
    ),
    "a repeated split repeats its aggregator": (
        "x > a > s > i > g > z, x > b > s", {"s": "split", "g": "aggregator"}, "g s z", "", "x", "i x",
    ),
    "a repeated split is a gate with its aggregator": (
        "x > a > s > i > g > m, x > b > s, x > m", {"s": "split", "g": "aggregator", "m": "merge"},
        "g s", "g s", "x", "i x",
    ),
    "a split without aggregator leads nowhere": (
        "x > a > s > i > m, x > b > s", {"s": "split", "m": "merge"}, "s", "", "x", "i m x",
    ),
    "a split's error edge stays outside": (
        "x > a > s > i, x > b > s, s !> h > m", {"s": "split", "m": "merge"}, "h s", "h s", "x", "i x",
    ),
}  # fmt: skip


@rows("case", FLAGS.values(), ids=FLAGS.keys())
def test_flags(case: tuple[str, dict[str, str], str, str, str, str]) -> None:
    paths, types, multiple, gate, forks, solitary = case
    plan = plan_of(paths, **types)
    found = {flag: those(plan, flag) for flag in ("multiple", "gate", "forks", "solitary")}
    assert found == {"multiple": multiple, "gate": gate, "forks": forks, "solitary": solitary}


def test_joins_in_documents_with_edges_are_each_except_for_merges() -> None:
    plan = plan_of("a > b > d > m, a > c > d, c > m", m="merge")
    assert {node.id: node.join for node in plan.nodes.values()} == {
        "a": "each", "b": "each", "c": "each", "d": "each", "m": "all",
    }  # fmt: skip
    assert those(plan, "barrier") == "m"
    assert [(edge.src, edge.slot) for edge in plan.nodes["m"].in_edges] == [("d", 0), ("c", 1)]


def test_slots_and_positions_follow_the_document() -> None:
    plan = plan_of("a > m, b > m, a > x, c > m", m="merge")
    assert [(edge.src, edge.slot) for edge in plan.nodes["m"].in_edges] == [("a", 0), ("b", 1), ("c", 2)]
    assert [(edge.dst, edge.position) for edge in plan.nodes["a"].success_edges] == [("m", 0), ("x", 1)]


def test_both_edges_of_a_condition_may_lead_to_one_merge() -> None:
    plan = plan_of("c > m > z, c > m", c="conditional", m="merge")
    assert [edge.id for edge in plan.nodes["m"].in_edges] == ["c-m", "c-m-2"]
    assert [edge.id for edge in plan.dead_run(plan.edges["c-m-2"]).stops] == ["c-m-2"]
    assert [edge.id for edge in plan.nodes["c"].despite] == ["c-m-2"]


def test_three_nested_splits_and_their_aggregators() -> None:
    plan = plan_of(
        "a > s1 > b > s2 > c > s3 > d > g3 > e > g2 > f > g1 > z",
        s1="split", s2="split", s3="split", g1="aggregator", g2="aggregator", g3="aggregator",
    )  # fmt: skip
    assert {node.id: (node.split, node.depth) for node in plan.nodes.values()} == {
        "a": (None, 0), "s1": (None, 0), "b": ("s1", 1), "s2": ("s1", 1), "c": ("s2", 2), "s3": ("s2", 2),
        "d": ("s3", 3), "g3": ("s2", 2), "e": ("s2", 2), "g2": ("s1", 1), "f": ("s1", 1), "g1": (None, 0),
        "z": (None, 0),
    }  # fmt: skip
    assert [plan.nodes[split].aggregator for split in ("s1", "s2", "s3")] == ["g1", "g2", "g3"]
    assert [plan.nodes[name].collects for name in ("g1", "g2", "g3")] == ["s1", "s2", "s3"]
    assert set(plan.region("s1")) == set(plan.nodes) - {"a", "s1", "z"}
    assert set(plan.region("s2")) == {"c", "s3", "d", "g3", "e", "g2"}
    assert plan.region("b") == ()


def test_inner_split_without_aggregator_leaves_the_aggregator_to_itself() -> None:
    """The aggregator collects the innermost split around it; the outer one then has none."""
    plan = plan_of("s > r > a > g > b", s="split", r="split", g="aggregator")
    assert plan.nodes["r"].aggregator == "g"
    assert plan.nodes["s"].aggregator is None
    assert plan.nodes["b"].split == "s"


def test_error_edges_stay_in_the_scope_of_their_node() -> None:
    plan = plan_of("s > a > g > z, a !> h > g, s !> w, g !> v", s="split", g="aggregator")
    assert {name: plan.nodes[name].split for name in "ahgzwv"} == {
        "a": "s", "h": "s", "g": None, "z": None, "w": None, "v": None,
    }  # fmt: skip


def test_losers_are_the_nodes_that_can_only_lead_to_the_race() -> None:
    plan = plan_of("x > a > b > m > z, x > c > m, c > other, x > d > e > m, d !> e", m=RACE)
    assert plan.nodes["m"].losers == ("a", "b", "d", "e")
    only = plan_of("x > a > m > z, x > b > m", m=RACE)
    assert only.nodes["m"].losers == ("x", "a", "b")


def test_losers_take_a_collected_split_as_one_node_and_stay_in_their_scope() -> None:
    plan = plan_of(
        "x > s > i > g > m > z, x > r > j, x > b > m", m=RACE, s="split", g="aggregator", r="split"
    )
    assert plan.nodes["m"].losers == ("s", "g", "b")
    inside = plan_of("s > x > a > m > g, x > b > m, b > g", s="split", g="aggregator", m=RACE)
    assert inside.nodes["m"].losers == ("a",)


def test_losers_are_kept_unless_asked_otherwise() -> None:
    plan = plan_of("x > a > m", m={"type": "merge", "parameters": {"wait_mode": "wait_for_any"}})
    assert plan.nodes["m"].join == "any"
    assert plan.nodes["m"].losers == ()


def test_entries_with_and_without_triggers() -> None:
    assert plan_of("a > c, b > c").entries == ("a", "b")
    plan = plan_of("t > b, u > a, t > a", t="manual", u="manual")
    assert plan.entries == ("b", "a")
    assert [edge.id for edge in plan.entry_edges] == ["t-b", "t-a", "u-a"]
    assert plan.triggers == ("t", "u")


def test_leaves_are_root_nodes_without_success_edges() -> None:
    plan = plan_of(
        "t > a > b, a !> h, a > s > i > g, a > r > j", t="manual", s="split", g="aggregator", r="split"
    )
    assert plan.leaves == ("b", "h", "g")


def test_where_an_ignored_failure_goes_on() -> None:
    def despite(paths: str, **nodes: object) -> list[str]:
        return [edge.dst for edge in plan_of(paths, **nodes).nodes["x"].despite]

    assert despite("x > a, x > b, x !> c") == ["a", "b"]
    assert despite("x > a, x > b", x="conditional") == ["b"]
    assert despite("x > a", x="conditional") == []
    rules = [{"value": 1, "operator": "eq", "compare": 1}]
    assert despite("x > a, x > b", x={"type": "switch", "parameters": {"rules": rules}}) == ["b"]
    assert despite("x > a, x > b", x="switch") == []


def test_descendants_and_ancestors() -> None:
    plan = plan_of("a > b > c, a !> d > e, x > c")
    assert plan.descendants("a") == {"b", "c", "d", "e"}
    assert plan.ancestors("c") == {"a", "b", "x"}
    assert plan.descendants("e") == frozenset()
    assert plan.descendants("a") is plan.descendants("a")
