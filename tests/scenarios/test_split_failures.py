"""Items that fail the split, aggregators that give up: what is still open is cancelled."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scenarios.documents import aggregator, echo, error_object, graph, hold, split, task
from tests.scenarios.stage import Stage

REFUSED = error_object("refused", "REFUSED", "w")
ITEM_FAILED = error_object(
    "item 1 failed: refused", "ITEM_FAILED", "s", type="ItemFailed", details={"index": 1, "error": REFUSED}
)
SECOND_FAILS = task("fail_if", {"when": "{{ $item == 2 }}", "value": "{{ $item }}"})


def halting(paths: str, *, error: dict[str, Any] | None = None, **nodes: Any) -> dict[str, Any]:
    fields = {"error": error} if error is not None else {}
    first = split([1, 2, 3], on_item_error="halt", **fields)
    return graph(paths, {"s": first, "w": SECOND_FAILS, "g": aggregator(), **nodes})


def test_on_item_error_halt_fails_the_split_and_with_it_the_execution(stage: Stage) -> None:
    ended = stage.run(halting("s > w > g > end"))
    assert ended.state == "FAILED"
    assert ended.error == ITEM_FAILED
    assert ended.states["s"] == "FAILED"
    assert ended.states["end"] == "PENDING"


def test_a_halting_item_cancels_the_items_still_open(stage: Stage) -> None:
    ended = stage.run(halting("s > w > h > g > end", h=hold("h")))
    assert ended.state == "FAILED"
    assert ended.states["h"] == "CANCELLED"
    assert ended.states["g"] != "COMPLETED"


def test_a_split_that_ignores_its_failure_behaves_as_empty(stage: Stage) -> None:
    ended = stage.run(halting("s > w > g > end", error={"type": "ignore"}))
    assert ended.state == "COMPLETED"
    assert ended.context["$g"] == []
    assert ended.states["s"] == "FAILED"
    assert ended.nodes["g"] == ("COMPLETED", 1)
    assert ended.output == "end"


def test_a_split_that_branches_takes_its_error_edge(stage: Stage) -> None:
    ended = stage.run(halting("s > w > g > end, s !> rescue"))
    assert ended.state == "COMPLETED"
    assert ended.context["$s"] == {"error": ITEM_FAILED}
    assert ended.output == {"rescue": "rescue"}
    assert {name: ended.states[name] for name in ("s", "g", "end", "rescue")} == {
        "s": "FAILED", "g": "SKIPPED", "end": "SKIPPED", "rescue": "COMPLETED",
    }  # fmt: skip


def test_without_aggregator_a_failed_item_fails_the_split_by_default(stage: Stage) -> None:
    ended = stage.run(graph("s > w", {"s": split([1, 2, 3]), "w": SECOND_FAILS}))
    assert ended.state == "FAILED"
    assert ended.error == ITEM_FAILED


def test_without_aggregator_failed_items_can_be_collected_all_the_same(stage: Stage) -> None:
    nodes = {"s": split([1, 2, 3], on_item_error="collect"), "w": SECOND_FAILS}
    ended = stage.run(graph("s > w", nodes))
    assert ended.state == "COMPLETED"
    assert ended.context["$s"] == {"total": 3, "failed": 1}


def test_a_split_that_is_no_list_can_be_ignored(stage: Stage) -> None:
    nodes = {"s": split("$trigger", error={"type": "ignore"}), "g": aggregator()}
    ended = stage.run(graph("s > w > g > end", nodes))
    assert ended.state == "COMPLETED"
    assert ended.context["$g"] == []
    assert ended.nodes["s"] == ("FAILED", 1)
    assert ended.nodes["w"] == ("SKIPPED", 0)


def test_a_split_that_is_no_list_can_branch(stage: Stage) -> None:
    nodes = {"s": split("$trigger"), "g": aggregator()}
    ended = stage.run(graph("s > w > g > end, s !> rescue", nodes))
    assert ended.context["$s"]["error"]["code"] == "NOT_A_LIST"
    assert {name: ended.states[name] for name in ("w", "g", "end", "rescue")} == {
        "w": "SKIPPED", "g": "SKIPPED", "end": "SKIPPED", "rescue": "COMPLETED",
    }  # fmt: skip


@pytest.mark.parametrize("strategy", ["halt", "ignore", "branch"])
def test_an_aggregator_that_times_out_cancels_its_items_and_applies_its_strategy(
    stage: Stage, strategy: str
) -> None:
    paths = "s > w > h > g > end" + (", g !> rescue" if strategy == "branch" else "")
    nodes = {
        "s": split([1, 2]),
        "w": echo("{{ $item }}"),
        "h": hold("h"),
        "g": aggregator(timeout=5, error={"type": strategy}),
    }
    handle = stage.start(graph(paths, nodes))
    stage.until_comers(handle, "h", 2)
    stage.pass_time(5.5)
    ended = stage.end_of(handle)
    timed_out = error_object(
        "aggregator 'g' gave up after 5 s with 0 of 2 arrived",
        "AGGREGATOR_TIMEOUT",
        "g",
        type="TimeoutError",
        details={"arrived": 0, "expected": 2, "timeout": 5},
    )
    assert ended.states["g"] == "FAILED"
    assert ended.states["h"] == "CANCELLED"
    if strategy == "halt":
        assert ended.state == "FAILED"
        assert ended.error == timed_out
    else:
        assert ended.state == "COMPLETED"
        assert ended.context["$g"] == {"error": timed_out}
        assert ended.context["$s"] == {"total": 2, "failed": 0}
        assert ended.states["end"] == ("COMPLETED" if strategy == "ignore" else "SKIPPED")


def test_items_that_arrive_after_the_aggregator_gave_up_change_nothing(stage: Stage) -> None:
    nodes = {
        "s": split([1, 2]),
        "h": hold("h"),
        "g": aggregator(timeout=5, error={"type": "ignore"}),
        "end": hold("end"),
    }
    handle = stage.start(graph("s > h > g > end", nodes))
    stage.until_comers(handle, "h", 2)
    stage.pass_time(6)
    stage.until_comers(handle, "end")
    stage.door("h").open()
    stage.door("end").open()
    ended = stage.end_of(handle)
    assert ended.state == "COMPLETED"
    assert ended.nodes["g"] == ("FAILED", 1)
    assert ended.nodes["h"] == ("CANCELLED", 0)
    assert ended.nodes["end"] == ("COMPLETED", 1)


def test_a_halting_item_of_a_collecting_split_does_not_touch_its_siblings(stage: Stage) -> None:
    nodes = {
        "s": split([1, 2, 3]),
        "w": SECOND_FAILS,
        "h": hold("h"),
        "side": hold("side"),
        "g": aggregator(),
    }
    handle = stage.start(graph("s > h > w > g, s > side", nodes))
    stage.until_comers(handle, "side", 3)
    stage.door("h").open()
    stage.until_event(handle, "NodeFailed", "w")
    stage.door("side").open()
    ended = stage.end_of(handle)
    assert ended.output == [1, {"error": REFUSED}, 3]
    assert ended.nodes["side"] == ("CANCELLED", 2)
