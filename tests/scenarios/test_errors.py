"""Failures and what a node's strategy makes of them."""

from __future__ import annotations

from tests.scenarios.documents import (
    aggregator,
    conditional,
    echo,
    error_object,
    fail,
    graph,
    hold,
    merge,
    split,
    switch,
    task,
    wait,
)
from tests.scenarios.stage import Stage

BROKEN = error_object("broken", "BROKEN", "f")
IGNORE = {"error": {"type": "ignore"}}


def test_halt_ends_the_execution_and_cancels_what_waits(stage: Stage) -> None:
    nodes = {"h": hold("h"), "f": fail(), "w": wait(60)}
    handle = stage.start(graph("a > h > f > never, a > w > after", nodes))
    stage.until_event(handle, "NodeWaiting", "w")
    stage.until_comers(handle, "h")
    stage.door("h").open()
    ended = stage.end_of(handle)
    assert ended.state == "FAILED"
    assert ended.plain_error == BROKEN
    assert ended.nodes == {
        "a": ("COMPLETED", 1),
        "h": ("COMPLETED", 1),
        "f": ("FAILED", 1),
        "never": ("PENDING", 0),
        "w": ("CANCELLED", 0),
        "after": ("PENDING", 0),
    }
    stage.pass_time(120)
    later = stage.end_of(handle)
    assert later.nodes == ended.nodes
    assert later.count("NodeCompleted", "w") == 0


def test_halt_drops_what_was_queued_too(store_url: str) -> None:
    """One slot: the sibling of the failing node never got a worker, and is CANCELLED all the same."""
    with Stage(store_url, concurrency=1) as stage:
        handle = stage.start(graph("a > f, a > b, a > c", {"f": fail()}))
        ended = stage.end_of(handle)
        assert ended.state == "FAILED"
        assert ended.states["f"] == "FAILED"
        others = {ended.states[name] for name in ("b", "c")}
        assert others <= {"CANCELLED", "COMPLETED"}
        stage.until("the sweep has recorded everything", handle, lambda: not unswept(stage, handle.id))
        assert stage.end_of(handle).states == ended.states


def unswept(stage: Stage, execution: str) -> object:
    inspection = stage.app.host.call(stage.app.engine.stack.ledger.inspect(execution))
    return inspection.tokens if inspection is not None else ()


def test_the_context_of_a_failed_execution_is_what_branches_left_plus_the_failing_tokens(
    stage: Stage,
) -> None:
    nodes = {"h": hold("h"), "f": fail()}
    handle = stage.start(graph("a > b, a > h > f", nodes))
    stage.until_state(handle, "b", "COMPLETED")
    stage.door("h").open()
    ended = stage.end_of(handle)
    assert ended.context == {"$trigger": {}, "$a": "a", "$b": "b", "$h": "h"}


def test_a_late_step_of_an_ended_execution_commits_into_the_void(stage: Stage) -> None:
    nodes = {"h": hold("h"), "g": hold("g"), "f": fail()}
    handle = stage.start(graph("a > h > after, a > g > f", nodes))
    stage.until_comers(handle, "h")
    stage.until_comers(handle, "g")
    stage.door("g").open()
    ended = stage.end_of(handle)
    assert ended.state == "FAILED"
    stage.door("h").open()
    stage.until("the sweep has recorded everything", handle, lambda: not unswept(stage, handle.id))
    later = stage.end_of(handle)
    assert later.states == {
        "a": "COMPLETED", "h": "CANCELLED", "g": "COMPLETED", "after": "PENDING", "f": "FAILED",
    }  # fmt: skip
    assert later.count("ExecutionFailed") == 1


def test_ignore_goes_along_the_success_edges_with_the_error_in_the_context(stage: Stage) -> None:
    ended = stage.run(graph("f > next", {"f": fail(**IGNORE), "next": echo("{{ $f.error.code }}")}))
    assert ended.state == "COMPLETED"
    assert ended.output == "BROKEN"
    assert ended.context["$f"] == {"error": BROKEN}
    assert ended.nodes["f"] == ("FAILED", 1)


def test_ignore_on_a_leaf_completes_with_the_error_as_output(stage: Stage) -> None:
    ended = stage.run(graph("a > f", {"f": fail(**IGNORE)}))
    assert ended.state == "COMPLETED"
    assert ended.output == {"error": BROKEN}
    assert ended.states["f"] == "FAILED"


def test_an_ignored_conditional_goes_along_its_false_edge(stage: Stage) -> None:
    ended = stage.run(
        graph("c > yes, c > no", {"c": conditional("$trigger.a.b.c > 1 / 0 + null.x", **IGNORE)})
    )
    assert ended.state == "COMPLETED"
    assert ended.states == {"c": "FAILED", "yes": "SKIPPED", "no": "COMPLETED"}


def test_an_ignored_switch_goes_to_its_fallback(stage: Stage) -> None:
    nodes = {"s": switch("{{ [1] - 1 }}", "x", **IGNORE)}
    ended = stage.run(graph("s > x, s > other", nodes))
    assert ended.state == "COMPLETED"
    assert ended.states == {"s": "FAILED", "x": "SKIPPED", "other": "COMPLETED"}


def test_an_ignored_switch_without_fallback_ends_its_branch(stage: Stage) -> None:
    nodes = {"s": switch("{{ [1] - 1 }}", "x", **IGNORE)}
    ended = stage.run(graph("s > x", nodes))
    assert ended.state == "COMPLETED"
    assert ended.states == {"s": "FAILED", "x": "SKIPPED"}


def test_an_error_edge_is_not_taken_on_success(stage: Stage) -> None:
    ended = stage.run(graph("a > b, a !> rescue"))
    assert ended.output == {"b": "b"}
    assert ended.states == {"a": "COMPLETED", "b": "COMPLETED", "rescue": "SKIPPED"}


def test_branch_takes_the_error_edge_and_not_the_others(stage: Stage) -> None:
    ended = stage.run(graph("f > b, f !> rescue", {"f": fail(), "rescue": echo("{{ $f.error.message }}")}))
    assert ended.state == "COMPLETED"
    assert ended.output == {"rescue": "broken"}
    assert ended.states == {"f": "FAILED", "b": "SKIPPED", "rescue": "COMPLETED"}


def test_the_error_edge_may_be_named_by_the_node(stage: Stage) -> None:
    document = graph("f > b, f > rescue", {"f": fail(error={"type": "branch", "error_edge": "f-rescue"})})
    assert stage.run(document).output == {"rescue": "rescue"}


def test_a_failing_join_node_applies_its_own_strategy(stage: Stage) -> None:
    nodes = {"b": echo([1]), "m": merge(mode="combine", error={"type": "ignore"})}
    ended = stage.run(graph("a > b > m, a > c > m, m > end", nodes))
    assert ended.state == "COMPLETED"
    assert ended.context["$m"]["error"]["code"] == "NOT_AN_OBJECT"
    assert ended.output == "end"


def test_an_exception_of_any_kind_becomes_an_error_object(stage: Stage) -> None:
    @stage.app.task
    def divide(value: float) -> float:
        return 1 / value

    ended = stage.run(graph("f", {"f": task("divide", 0)}))
    assert ended.plain_error == error_object("division by zero", "NODE_FAILED", "f", type="ZeroDivisionError")


def test_a_template_that_fails_names_the_missing_path(stage: Stage) -> None:
    ended = stage.run(graph("a > b", {"b": echo("{{ $a.deep.missing }}"), "a": echo({"x": 1})}))
    assert ended.state == "FAILED"
    assert ended.error["type"] == "ExpressionFailed"
    assert "deep" in ended.error["message"]


def test_the_final_context_of_a_failed_execution_survives_the_sweep(stage: Stage) -> None:
    handle = stage.start(graph("s > a, s > h > f", {"h": hold("h"), "f": fail()}))
    stage.until_event(handle, "NodeCompleted", "a")
    stage.door("h").open()
    ended = stage.end_of(handle)
    assert ended.state == "FAILED"
    assert ended.context["$a"] == "a"
    while stage.app.host.call(stage.app.engine.stack.ledger.sweep()):
        pass
    assert handle.context() == ended.context


def test_the_error_of_an_ignored_split_is_in_its_summary(stage: Stage) -> None:
    nodes = {"sp": {**split("{{ 'no list' }}"), **IGNORE}, "all": aggregator()}
    ended = stage.run(graph("sp > x > all", nodes))
    assert ended.context["$all"] == []
    assert ended.context["$sp"]["total"] == 0
    assert ended.context["$sp"]["error"]["code"] == "NOT_A_LIST"
