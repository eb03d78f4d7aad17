"""Splits inside splits: scopes nest, and inner items see the outer loops."""

from __future__ import annotations

from tests.scenarios.documents import aggregator, echo, error_object, graph, hold, split, task
from tests.scenarios.stage import Stage

NESTED = {"outer": split("$trigger.rows"), "inner": split("$item"), "g1": aggregator(), "g2": aggregator()}
PATHS = "outer > inner > w > g1 > g2"


def test_nested_lists_keep_their_shape(stage: Stage) -> None:
    nodes = {**NESTED, "w": echo("{{ $item * 10 }}")}
    ended = stage.run(graph(PATHS, nodes), {"rows": [[1, 2], [3], []]})
    assert ended.output == [[10, 20], [30], []]
    assert ended.nodes == {
        "outer": ("COMPLETED", 1),
        "inner": ("COMPLETED", 3),
        "w": ("COMPLETED", 3),
        "g1": ("COMPLETED", 3),
        "g2": ("COMPLETED", 1),
    }
    assert ended.context == {
        "$trigger": {"rows": [[1, 2], [3], []]},
        "$outer": {"total": 3, "failed": 0},
        "$g2": [[10, 20], [30], []],
    }


def test_inner_items_see_the_outer_loop_by_its_splits_id(stage: Stage) -> None:
    seen = {
        "item": "{{ $item }}",
        "at": "{{ $index }}",
        "row": "{{ $outer.item }}",
        "row_at": "{{ $outer.index }}",
        "rows": "{{ $outer.total }}",
        "inner": "{{ $inner.index }}",
    }
    ended = stage.run(graph(PATHS, {**NESTED, "w": echo(seen)}), {"rows": [[7], [8, 9]]})
    assert ended.output == [
        [{"item": 7, "at": 0, "row": [7], "row_at": 0, "rows": 2, "inner": 0}],
        [
            {"item": 8, "at": 0, "row": [8, 9], "row_at": 1, "rows": 2, "inner": 0},
            {"item": 9, "at": 1, "row": [8, 9], "row_at": 1, "rows": 2, "inner": 1},
        ],
    ]


def test_after_the_inner_aggregator_the_item_is_the_outer_one_again(stage: Stage) -> None:
    nodes = {**NESTED, "w": echo("{{ $item }}"), "after": echo(["{{ $item }}", "{{ $index }}", "{{ $g1 }}"])}
    ended = stage.run(graph("outer > inner > w > g1 > after > g2", nodes), {"rows": [[1], [2, 3]]})
    assert ended.output == [[[1], 0, [1]], [[2, 3], 1, [2, 3]]]


def test_three_levels_deep(stage: Stage) -> None:
    nodes = {
        "s1": split("$trigger.cube"),
        "s2": split("$item"),
        "s3": split("$item"),
        "w": echo("{{ [$s1.index, $s2.index, $s3.index, $item] }}"),
        "g3": aggregator(),
        "g2": aggregator(),
        "g1": aggregator(),
    }
    cube = [[["a"], []], [["b", "c"]], []]
    ended = stage.run(graph("s1 > s2 > s3 > w > g3 > g2 > g1 > end", nodes), {"cube": cube})
    assert ended.context["$g1"] == [
        [[[0, 0, 0, "a"]], []],
        [[[1, 0, 0, "b"], [1, 0, 1, "c"]]],
        [],
    ]
    assert ended.nodes["w"] == ("COMPLETED", 3)
    assert ended.output == "end"


def test_a_failure_inside_stays_in_the_innermost_slot(stage: Stage) -> None:
    nodes = {**NESTED, "w": task("fail_if", {"when": "{{ $item == 2 }}", "value": "{{ $item }}"})}
    ended = stage.run(graph(PATHS, nodes), {"rows": [[1, 2], [3]]})
    refused = {"error": error_object("refused", "REFUSED", "w")}
    assert ended.output == [[1, refused], [3]]
    assert ended.context["$outer"] == {"total": 2, "failed": 0}


def test_an_inner_split_that_halts_fails_the_outer_item(stage: Stage) -> None:
    nodes = {
        **NESTED,
        "inner": split("$item", on_item_error="halt"),
        "w": task("fail_if", {"when": "{{ $item == 2 }}", "value": "{{ $item }}"}),
    }
    ended = stage.run(graph(PATHS, nodes), {"rows": [[1, 2], [3]]})
    assert ended.output[0]["error"]["code"] == "ITEM_FAILED"
    assert ended.output[0]["error"]["node"] == "inner"
    assert ended.output[1] == [3]
    assert ended.context["$outer"] == {"total": 2, "failed": 1}


def test_an_inner_split_without_aggregator_holds_the_outer_item_open(stage: Stage) -> None:
    nodes = {
        "outer": split([1, 2]),
        "inner": split([1, 2]),
        "w": hold("w"),
        "x": echo("{{ $item }}"),
        "g": aggregator(),
    }
    handle = stage.start(graph("outer > x > g, outer > inner > w", nodes))
    stage.until_comers(handle, "w", 4)
    assert handle.nodes()["g"].runs == 0
    stage.door("w").open()
    ended = stage.end_of(handle)
    assert ended.output == [1, 2]
    assert ended.nodes["w"] == ("COMPLETED", 4)
