"""Where splits, gates, merges and error edges meet."""

from __future__ import annotations

import pytest

from tests.scenarios.documents import (
    aggregator,
    conditional,
    echo,
    graph,
    hold,
    log,
    merge,
    race,
    split,
    task,
    wait,
)
from tests.scenarios.stage import Stage


def test_a_split_visited_twice_before_a_merge_delivers_its_first_result(stage: Stage) -> None:
    nodes = {
        "b": echo([1, 2]),
        "c": echo([3]),
        "s": split("$json"),
        "w": echo("{{ $item }}"),
        "g": aggregator(),
    }
    ended = stage.run(graph("a > b > s, a > c > s, s > w > g > m, a > z > m", {**nodes, "m": merge()}))
    assert ended.state == "COMPLETED"
    assert ended.output[1] == "z"
    assert ended.output[0] in ([1, 2], [3])
    assert ended.nodes["g"] == ("COMPLETED", 2)
    assert ended.nodes["m"] == ("COMPLETED", 1)
    assert ended.count("ArrivalDropped", "m") == 1


def test_a_gate_inside_an_item_waits_for_its_last_visit(stage: Stage) -> None:
    nodes = {
        "s": split([1, 2]),
        "x": echo("{{ $item }}"),
        "y": echo("{{ $item * 10 }}"),
        "gate": conditional("$json < 10"),
        "m": merge(),
        "g": aggregator(),
    }
    ended = stage.run(graph("s > x > gate, s > y > gate, gate > low > m, gate > high > m, m > g", nodes))
    assert ended.output == [["low", "high"], ["low", "high"]]
    assert ended.nodes["gate"] == ("COMPLETED", 4)


def test_a_gate_right_behind_the_split(stage: Stage) -> None:
    nodes = {"s": split([1, 2]), "x": echo("{{ $item }}"), "d": log(), "m": merge(), "g": aggregator()}
    ended = stage.run(graph("s > x > d, s > d, d > e > m, s > y > m, m > g", nodes))
    assert ended.output == [["e", "y"], ["e", "y"]]
    assert ended.nodes["d"] == ("COMPLETED", 4)


def test_a_split_that_fails_into_a_merge_beside_its_aggregator(stage: Stage) -> None:
    nodes = {"s": split("$trigger.items"), "w": echo("{{ $item }}"), "g": aggregator(), "m": merge()}
    document = graph("a > s > w > g > m, s !> rescue > m, a > b > m", nodes)
    assert stage.run(document, {"items": [1]}).output == [[1], "b"]
    assert stage.run(document, {"items": []}).output == [[], "b"]
    assert stage.run(document, {"items": 7}).output == ["rescue", "b"]


def test_an_aggregator_whose_error_edge_rejoins(stage: Stage) -> None:
    nodes = {"s": split([1]), "w": hold("w"), "g": aggregator(timeout=5), "m": merge()}
    handle = stage.start(graph("s > w > g > ok > m, g !> rescue > m", nodes))
    stage.until_comers(handle, "w")
    stage.pass_time(6)
    ended = stage.end_of(handle)
    assert ended.output == ["rescue"]
    assert ended.states["ok"] == "SKIPPED"


def test_a_race_between_a_split_and_a_timer(stage: Stage) -> None:
    nodes = {"s": split([1, 2]), "w": hold("w"), "g": aggregator(), "t": wait(10), "m": race(losers="cancel")}
    handle = stage.start(graph("a > s > w > g > m, a > t > m, m > end", nodes))
    stage.until_comers(handle, "w", 2)
    stage.until_event(handle, "NodeWaiting", "t")
    stage.pass_time(11)
    ended = stage.end_of(handle)
    assert ended.state == "COMPLETED"
    assert ended.output == "end"
    assert ended.context["$m"] == ["a"]
    assert ended.states["w"] == "CANCELLED"


@pytest.mark.parametrize("items", [[], [1], [1, 2, 3]])
def test_splits_one_after_the_other(stage: Stage, items: list[int]) -> None:
    nodes = {
        "s": split("$trigger.items"),
        "w": echo("{{ $item + 1 }}"),
        "g": aggregator(),
        "s2": split("$g"),
        "w2": echo("{{ $item * 2 }}"),
        "g2": aggregator(),
    }
    ended = stage.run(graph("s > w > g > s2 > w2 > g2", nodes), {"items": items})
    assert ended.output == [(item + 1) * 2 for item in items]


def test_parallel_splits_meet_in_a_merge(stage: Stage) -> None:
    nodes = {
        "s": split([1, 2]),
        "w": echo("{{ $item }}"),
        "g": aggregator(),
        "s2": split([]),
        "g2": aggregator(),
        "m": merge(),
    }
    assert stage.run(graph("a > s > w > g > m, a > s2 > w2 > g2 > m", nodes)).output == [[1, 2], []]


def test_items_that_all_end_early_leave_nulls(stage: Stage) -> None:
    nodes = {"s": split([1, 2]), "c": conditional("false"), "g": aggregator()}
    assert stage.run(graph("s > c > w > g > z", nodes)).context["$g"] == [None, None]


def test_ignored_failures_inside_items_go_on(stage: Stage) -> None:
    failing = task("fail_if", {"when": "{{ $item == 1 }}", "value": "{{ $item }}"}, error={"type": "ignore"})
    nodes = {"s": split([1, 2]), "f": failing, "w": echo("{{ $f.error.code ?? $f }}"), "g": aggregator()}
    ended = stage.run(graph("s > f > w > g", nodes))
    assert ended.state == "COMPLETED"
    assert ended.context["$s"] == {"total": 2, "failed": 0}
    assert ended.nodes["f"] == ("FAILED", 2)


def test_a_retry_inside_an_item_keeps_its_item(stage: Stage) -> None:
    flaky = task("flaky", {"failures": 1}, retry={"max_attempts": 2, "initial_delay": 1})
    nodes = {"s": split([1, 2]), "f": flaky, "w": echo("{{ $item }}"), "g": aggregator()}
    handle = stage.start(graph("s > f > w > g", nodes))
    stage.until_event(handle, "NodeRetrying", "f", times=2)
    stage.pass_time(2)
    assert stage.end_of(handle).output == [1, 2]


def test_pausing_in_the_middle_of_a_split(stage: Stage) -> None:
    nodes = {"s": split(list(range(8)), max_concurrency=2), "h": hold("h"), "g": aggregator()}
    handle = stage.start(graph("s > h > g", nodes))
    stage.until_comers(handle, "h", 2)
    handle.pause()
    stage.door("h").open()
    stage.until_event(handle, "NodeCompleted", "h", times=2)
    assert handle.status().state == "PAUSED"
    handle.resume()
    assert stage.end_of(handle).output == ["h"] * 8


def test_a_merge_deadline_that_passes_while_paused_fires_on_resume(stage: Stage) -> None:
    nodes = {"silent": hold("silent"), "m": merge(timeout=5)}
    handle = stage.start(graph("a > b > m, a > silent > m", nodes))
    stage.until_event(handle, "NodeWaiting", "m")
    stage.until_comers(handle, "silent")
    handle.pause()
    stage.pass_time(6)
    stage.until_state(handle, "m", "QUEUED")
    handle.resume()
    ended = stage.end_of(handle)
    assert ended.error["code"] == "MERGE_TIMEOUT"
