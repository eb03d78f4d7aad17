"""How many items of a split are open at a time, and items that sleep."""

from __future__ import annotations

import pytest

from tests.scenarios.documents import aggregator, echo, graph, hold, split, wait
from tests.scenarios.stage import Stage


def test_the_window_bounds_how_many_items_are_open(stage: Stage) -> None:
    nodes = {"s": split(list(range(10)), max_concurrency=4), "w": hold("w"), "g": aggregator()}
    handle = stage.start(graph("s > w > g", nodes))
    stage.until_comers(handle, "w", 4)
    assert handle.nodes()["w"].state == "RUNNING"
    assert len(stage.door("w").comers) == 4
    stage.door("w").open()
    ended = stage.end_of(handle)
    assert ended.output == ["w"] * 10
    assert ended.nodes["w"] == ("COMPLETED", 10)


@pytest.mark.parametrize("window", [1, 2, 3, 7])
def test_small_windows_still_open_every_item(stage: Stage, window: int) -> None:
    nodes = {"s": split(list(range(20)), max_concurrency=window), "w": echo("{{ $item }}"), "g": aggregator()}
    assert stage.run(graph("s > w > g", nodes)).output == list(range(20))


def test_a_wait_inside_a_split_parks_every_item(stage: Stage) -> None:
    nodes = {"s": split([1, 2, 3]), "w": wait(30), "x": echo("{{ $item }}"), "g": aggregator()}
    handle = stage.start(graph("s > w > x > g", nodes))
    stage.until_event(handle, "NodeWaiting", "w", times=3)
    [sleeping] = [waiting for waiting in handle.why() if waiting.kind == "timer"]
    assert (sleeping.node, sleeping.count) == ("w", 3)
    stage.pass_time(31)
    assert stage.end_of(handle).output == [1, 2, 3]
