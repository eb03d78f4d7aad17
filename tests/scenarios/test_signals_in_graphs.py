"""Graphs that wait for signals: early and late ones, many at once, time limits, splits, pauses."""

from __future__ import annotations

from typing import Any

from tests.scenarios.documents import (
    aggregator,
    dependencies,
    echo,
    error_object,
    graph,
    hold,
    merge,
    race,
    split,
)
from tests.scenarios.stage import Stage


def signal(name: str, timeout: Any = None, **fields: Any) -> dict[str, Any]:
    limit = {} if timeout is None else {"timeout": timeout}
    return {"type": "wait", "parameters": {"resume": "signal", "signal": name, **limit}, **fields}


def test_a_signal_wakes_the_wait_and_its_payload_is_the_output(stage: Stage) -> None:
    handle = stage.start(graph("a > w > b", {"w": signal("paid"), "b": echo("{{ $w.amount }}")}))
    stage.until_event(handle, "NodeWaiting", "w")
    [waiting] = handle.why()
    assert (waiting.kind, waiting.node, waiting.due) == ("signal", "w", None)
    assert waiting.sentence == "node 'w' waits for the signal 'paid'"
    assert handle.nodes()["w"].state == "WAITING"

    handle.signal("paid", {"amount": 12})

    ended = stage.end_of(handle)
    assert (ended.output, ended.context["$w"]) == (12, {"amount": 12})
    kinds = [event.kind for event in ended.events if event.node in ("w", "paid")]
    assert kinds == ["NodeWaiting", "SignalReceived", "NodeCompleted"]
    assert ended.data("NodeWaiting", "w")[0]["signal"] == "paid"


def test_signals_that_came_before_are_taken_at_once_and_in_order(stage: Stage) -> None:
    handle = stage.start(graph("h > w > v", {"h": hold("gate"), "w": signal("go"), "v": signal("go")}))
    stage.until_comers(handle, "gate")
    handle.signal("go", "one")
    handle.signal("go", "two")
    stage.door("gate").open()
    ended = stage.end_of(handle)
    assert (ended.context["$w"], ended.context["$v"]) == ("one", "two")


def test_a_signal_of_another_name_is_not_taken(stage: Stage) -> None:
    handle = stage.start(graph("w", {"w": signal("go-{{ $trigger.key }}")}), {"key": 7})
    stage.until_event(handle, "NodeWaiting", "w")
    handle.signal("go-8", "wrong")
    handle.signal("go-7", "right")
    assert stage.end_of(handle).output == "right"


def test_the_wait_passes_on_what_it_received(stage: Stage) -> None:
    handle = stage.start(graph("a > w > m, a > b > m", {"w": signal("go"), "m": merge()}))
    stage.until_event(handle, "NodeWaiting", "w")
    handle.signal("go", "ignored by the merge")
    assert stage.end_of(handle).output == ["a", "b"]


def test_a_wait_that_times_out_fails_and_its_strategy_applies(stage: Stage) -> None:
    nodes = {"w": signal("go", "1m", retry={"max_attempts": 3}), "late": echo("{{ $w.error }}")}
    handle = stage.start(
        graph("w > b, w !> late", {**nodes, "w": {**nodes["w"], "error": {"type": "branch"}}})
    )
    stage.until_event(handle, "NodeWaiting", "w")
    assert handle.nodes()["w"].due == stage.clock.now() + 60
    stage.pass_time(61)
    ended = stage.end_of(handle)
    assert ended.states == {"w": "FAILED", "b": "SKIPPED", "late": "COMPLETED"}
    assert ended.output["late"] == error_object(
        "node 'w' gave up after 1m: signal 'go' did not arrive",
        "TIMEOUT",
        "w",
        type="TimeoutError",
        details={"signal": "go"},
    )
    assert ended.count("NodeRetrying") == 0


def test_a_signal_after_the_time_limit_waits_for_the_next_wait(stage: Stage) -> None:
    first = {**signal("go", 10), "error": {"type": "ignore"}}
    handle = stage.start(graph("w > v", {"w": first, "v": signal("go")}))
    stage.until_event(handle, "NodeWaiting", "w")
    stage.pass_time(11)
    stage.until_event(handle, "NodeWaiting", "v")
    handle.signal("go", "late")
    ended = stage.end_of(handle)
    assert ended.context["$w"]["error"]["code"] == "TIMEOUT"
    assert ended.context["$v"] == "late"


def test_the_time_limit_may_stand_at_the_node(stage: Stage) -> None:
    handle = stage.start(graph("w", {"w": signal("go", timeout=None) | {"timeout": "5s"}}))
    stage.until_event(handle, "NodeWaiting", "w")
    stage.pass_time(6)
    assert stage.end_of(handle).error["code"] == "TIMEOUT"


def test_waits_take_signals_in_the_order_in_which_they_began_to_wait(stage: Stage) -> None:
    handle = stage.start(graph("a, b > c", {"a": signal("go"), "b": signal("first"), "c": signal("go")}))
    stage.until_event(handle, "NodeWaiting", "a")
    stage.until_event(handle, "NodeWaiting", "b")
    stage.pass_time(1)
    handle.signal("first")
    stage.until_event(handle, "NodeWaiting", "c")
    handle.signal("go", 1)
    handle.signal("go", 2)
    ended = stage.end_of(handle)
    assert (ended.context["$a"], ended.context["$c"]) == (1, 2)


def test_every_item_waits_for_its_own_signal(stage: Stage) -> None:
    document = graph(
        "s > w > e > g",
        {
            "s": split([{"id": "x"}, {"id": "y"}, {"id": "z"}]),
            "w": signal("approved-{{ $item.id }}"),
            "e": echo("{{ $item.id }}: {{ $w }}"),
            "g": aggregator(),
        },
    )
    handle = stage.start(document)
    stage.until_event(handle, "NodeWaiting", "w", times=3)
    assert sorted(wait.sentence for wait in handle.why() if wait.kind == "signal") == [
        f"node 'w' waits for the signal 'approved-{key}'" for key in "xyz"
    ]
    for key in "zxy":
        handle.signal(f"approved-{key}", key.upper())
    assert stage.end_of(handle).output == ["x: X", "y: Y", "z: Z"]


def test_a_node_with_several_dependencies_may_wait_for_a_signal(stage: Stage) -> None:
    document = dependencies(
        {"id": "a", "handler": "task", "config": {"task": "echo", "input": 1}},
        {"id": "b", "handler": "task", "config": {"task": "echo", "input": 2}},
        {
            "id": "w",
            "handler": "wait",
            "config": {"resume": "signal", "signal": "go", "timeout": 60},
            "dependencies": ["a", "b"],
        },
        {"id": "o", "handler": "output", "dependencies": ["a", "w"]},
    )
    handle = stage.start(document)
    stage.until(
        "w waits for its signal",
        handle,
        lambda: {wait.kind for wait in handle.why()} == {"signal", "barrier"},
    )
    handle.signal("go", "now")
    assert stage.end_of(handle).output == {"a": 1, "w": "now"}


def test_a_join_that_waits_for_a_signal_in_vain_times_out(stage: Stage) -> None:
    document = dependencies(
        {"id": "a", "handler": "log", "config": {"message": "a"}},
        {"id": "b", "handler": "log", "config": {"message": "b"}},
        {
            "id": "w",
            "handler": "wait",
            "config": {"resume": "signal", "signal": "go", "timeout": 60},
            "dependencies": ["a", "b"],
        },
    )
    handle = stage.start(document)
    stage.until_state(handle, "w", "WAITING")
    stage.until("it waits for the signal", handle, lambda: handle.why()[0].kind == "signal")
    stage.pass_time(61)
    assert stage.end_of(handle).error["code"] == "TIMEOUT"


def test_a_signal_during_a_pause_counts_after_it(stage: Stage) -> None:
    handle = stage.start(graph("w > b", {"w": signal("go")}))
    stage.until_event(handle, "NodeWaiting", "w")
    handle.pause()
    handle.signal("go", 1)
    assert handle.status().state == "PAUSED"
    handle.resume()
    assert stage.end_of(handle).context["$w"] == 1


def test_a_loser_of_a_race_takes_no_signal(stage: Stage) -> None:
    document = graph(
        "w > m, v > m > x",
        {
            "w": signal("go"),
            "v": signal("other"),
            "m": race(losers="cancel", mode="first"),
            "x": signal("go"),
        },
    )
    handle = stage.start(document)
    stage.until_event(handle, "NodeWaiting", "w")
    stage.until_event(handle, "NodeWaiting", "v")
    handle.signal("other")
    stage.until_event(handle, "NodeWaiting", "x")
    handle.signal("go", "for x")
    ended = stage.end_of(handle)
    assert (ended.states["w"], ended.context["$x"]) == ("CANCELLED", "for x")


def test_a_large_payload_travels_whole(stage: Stage) -> None:
    handle = stage.start(graph("w > b", {"w": signal("go"), "b": echo("{{ $w.text.length }}")}))
    stage.until_event(handle, "NodeWaiting", "w")
    handle.signal("go", {"text": "x" * 400_000})
    ended = stage.end_of(handle)
    assert ended.output == 400_000
    assert len(ended.context["$w"]["text"]) == 400_000


def test_a_rerun_waits_for_a_signal_of_its_own(stage: Stage) -> None:
    handle = stage.start(graph("w > b", {"w": signal("go"), "b": echo("{{ $w }}")}))
    handle.signal("go", "old")
    assert stage.end_of(handle).output == "old"
    again = handle.rerun("w")
    stage.until_event(again, "NodeWaiting", "w")
    again.signal("go", "new")
    assert stage.end_of(again).output == "new"


def test_a_cancelled_execution_leaves_its_wait_cancelled(stage: Stage) -> None:
    handle = stage.start(graph("w > b", {"w": signal("go")}))
    stage.until_event(handle, "NodeWaiting", "w")
    handle.cancel()
    ended = stage.end_of(handle)
    assert (ended.state, ended.states["w"]) == ("CANCELLED", "CANCELLED")
