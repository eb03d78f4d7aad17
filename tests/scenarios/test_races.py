"""Merges that wait for any: the first wins, the losers run on or are cancelled."""

from __future__ import annotations

import pytest

from tests.scenarios.documents import conditional, graph, hold, log, race, split, wait
from tests.scenarios.stage import Stage

RACERS = {"x": hold("x"), "y": hold("y"), "z": hold("z")}
PATHS = "a > x > m, a > y > m, a > z > m, m > end"


@pytest.mark.parametrize("winner", ["x", "y", "z"])
def test_losers_that_are_kept_run_on_and_hold_the_execution_open(stage: Stage, winner: str) -> None:
    handle = stage.start(graph(PATHS, {**RACERS, "m": race()}))
    for door in RACERS:
        stage.until_comers(handle, door)
    stage.door(winner).open()
    stage.until_state(handle, "end", "COMPLETED")
    assert handle.status().state == "RUNNING"
    for door in RACERS:
        stage.door(door).open()
    ended = stage.end_of(handle)
    assert ended.context["$m"] == [winner]
    assert ended.nodes["m"] == ("COMPLETED", 1)
    assert ended.nodes["end"] == ("COMPLETED", 1)
    assert {ended.states[name] for name in RACERS} == {"COMPLETED"}
    assert ended.count("ArrivalDropped", "m") == 2
    assert ended.output == "end"


@pytest.mark.parametrize("winner", ["x", "y", "z"])
def test_losers_that_are_cancelled_are_dropped_at_once(stage: Stage, winner: str) -> None:
    handle = stage.start(graph(PATHS, {**RACERS, "m": race(losers="cancel")}))
    for door in RACERS:
        stage.until_comers(handle, door)
    stage.door(winner).open()
    ended = stage.end_of(handle)
    assert ended.state == "COMPLETED"
    assert ended.context["$m"] == [winner]
    assert {name: ended.states[name] for name in RACERS} == {
        name: "COMPLETED" if name == winner else "CANCELLED" for name in RACERS
    }
    assert ended.count("NodeCancelled") == 2


def test_a_cancelled_loser_that_sleeps_never_wakes(stage: Stage) -> None:
    nodes = {"slow": wait(3600), "m": race(losers="cancel")}
    ended = stage.run(graph("a > slow > m, a > b > m", nodes))
    assert ended.output == ["b"]
    assert ended.nodes["slow"] == ("CANCELLED", 0)
    stage.pass_time(7200)
    assert ended.events == stage.end_of(ended.handle).events


def test_a_cancelled_loser_in_a_split_takes_its_items_along(stage: Stage) -> None:
    nodes = {
        "s": split([1, 2, 3]),
        "w": wait(60),
        "g": {"type": "aggregator", "parameters": {}},
        "m": race(losers="cancel"),
    }
    ended = stage.run(graph("a > s > w > g > m, a > b > m", nodes))
    assert ended.state == "COMPLETED"
    assert ended.output == ["b"]
    assert ended.states["w"] == "CANCELLED"
    assert ended.states["g"] == "CANCELLED"


def test_a_racer_whose_path_dies_does_not_win(stage: Stage) -> None:
    nodes = {"c": conditional("false"), "m": race(), "b": hold("b")}
    handle = stage.start(graph("a > c > x > m, a > b > m", nodes))
    stage.until_comers(handle, "b")
    assert handle.status().state == "RUNNING"
    stage.door("b").open()
    ended = stage.end_of(handle)
    assert ended.output == ["b"]
    assert ended.states["x"] == "SKIPPED"


def test_a_race_without_living_racers_is_skipped(stage: Stage) -> None:
    nodes = {"c": conditional("false"), "l": log(), "m": race()}
    ended = stage.run(graph("c > x > m, x > l > m", nodes))
    assert ended.state == "COMPLETED"
    assert ended.states["m"] == "SKIPPED"


def test_losers_that_lead_elsewhere_too_are_not_cancelled(stage: Stage) -> None:
    nodes = {"x": hold("x"), "m": race(losers="cancel")}
    handle = stage.start(graph("a > x > m, a > y > m, x > elsewhere", nodes))
    stage.until_comers(handle, "x")
    stage.until_state(handle, "m", "COMPLETED")
    stage.door("x").open()
    ended = stage.end_of(handle)
    assert ended.states == {
        "a": "COMPLETED", "x": "COMPLETED", "y": "COMPLETED", "m": "COMPLETED", "elsewhere": "COMPLETED",
    }  # fmt: skip
    assert ended.context["$m"] == ["y"]
    assert ended.count("ArrivalDropped", "m") == 1
