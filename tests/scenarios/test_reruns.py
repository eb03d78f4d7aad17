"""Retry and rerun: a new execution that starts in the middle, with the record of the old one."""

from __future__ import annotations

import pytest

from dalsegno.errors import Conflict, InvalidInput, KeyReused
from tests.scenarios.documents import aggregator, conditional, echo, fail, graph, hold, merge, split, task
from tests.scenarios.stage import Stage

CHAIN = {
    "a": task("note", {"a": 1}),
    "b": task("note", {"b": "{{ $a.a + 1 }}"}),
    "c": task("note", {"c": "{{ $b.b + $a.a + $trigger.t }}"}),
}


def test_rerun_runs_the_node_and_what_is_downstream_with_the_recorded_context(stage: Stage) -> None:
    first = stage.run(graph("a > b > c", CHAIN), {"t": 100})
    assert first.output == {"c": 103}
    stage.seen.clear()
    again = stage.end_of(first.handle.rerun("b"))
    assert stage.seen == [{"b": 2}, {"c": 103}]
    assert again.output == {"c": 103}
    assert again.id != first.id
    view = again.handle.status()
    assert (view.parent, view.relation) == (first.id, "rerun")
    assert again.nodes == {"a": ("SKIPPED", 0), "b": ("COMPLETED", 1), "c": ("COMPLETED", 1)}


def test_rerun_with_an_edited_context(stage: Stage) -> None:
    first = stage.run(graph("a > b > c", CHAIN), {"t": 100})
    again = stage.end_of(first.handle.rerun("b", context={"a": {"a": 10}}))
    assert again.output == {"c": 121}
    assert again.context["$a"] == {"a": 10}
    edited = stage.end_of(first.handle.rerun("c", context={"$trigger": {"t": 0}, "$b": {"b": 5}}))
    assert edited.output == {"c": 6}


def test_a_merge_downstream_is_prefilled_with_what_does_not_run_again(stage: Stage) -> None:
    nodes = {"b": task("note", "b"), "c": task("note", "c"), "m": merge()}
    first = stage.run(graph("a > b > m, a > c > m, m > end", nodes))
    stage.seen.clear()
    again = stage.end_of(first.handle.rerun("c"))
    assert stage.seen == ["c"]
    assert again.context["$m"] == ["b", "c"]
    assert again.output == "end"


def test_a_slot_that_was_skipped_stays_skipped(stage: Stage) -> None:
    nodes = {"g": conditional("false"), "m": merge()}
    first = stage.run(graph("a > g > x > m, a > c > m", nodes))
    assert first.output == ["c"]
    again = stage.end_of(first.handle.rerun("c"))
    assert again.output == ["c"]


def test_the_merge_itself_can_be_rerun(stage: Stage) -> None:
    first = stage.run(graph("a > b > m, a > c > m, m > end", {"m": merge()}))
    again = stage.end_of(first.handle.rerun("m", context={"b": "edited"}))
    assert again.context["$m"] == ["edited", "c"]
    assert again.nodes["m"] == ("COMPLETED", 1)
    assert again.output == "end"


def test_two_nodes_can_be_rerun_together(stage: Stage) -> None:
    nodes = {"b": task("note", "b"), "c": task("note", "c"), "d": task("note", "d"), "m": merge()}
    first = stage.run(graph("a > b > m, a > c > m, a > d > m", nodes))
    stage.seen.clear()
    again = stage.end_of(first.handle.rerun("b", "d"))
    assert sorted(stage.seen) == ["b", "d"]
    assert again.output == ["b", "c", "d"]


def test_a_whole_split_can_be_rerun(stage: Stage) -> None:
    nodes = {"s": split("$a"), "a": echo([1, 2]), "w": task("note", "{{ $item }}"), "g": aggregator()}
    first = stage.run(graph("a > s > w > g", nodes))
    stage.seen.clear()
    again = stage.end_of(first.handle.rerun("s"))
    assert sorted(stage.seen) == [1, 2]
    assert again.output == [1, 2]
    with pytest.raises(InvalidInput, match="only the whole split can be rerun: choose 's'"):
        first.handle.rerun("w")
    with pytest.raises(InvalidInput, match="choose 's'"):
        first.handle.rerun("g")


def test_what_follows_a_split_can_be_rerun_without_it(stage: Stage) -> None:
    nodes = {"s": split([1, 2]), "w": task("note", "{{ $item }}"), "g": aggregator(), "z": echo("{{ $g }}")}
    first = stage.run(graph("s > w > g > z", nodes))
    stage.seen.clear()
    again = stage.end_of(first.handle.rerun("z"))
    assert stage.seen == []
    assert again.output == [1, 2]


def test_retry_runs_what_failed_and_what_was_interrupted(stage: Stage) -> None:
    nodes = {
        "b": task("note", "b"),
        "f": task("fail_if", {"when": "{{ $trigger.bad }}", "value": "mended"}),
        "h": hold("h"),
        "m": merge(),
    }
    handle = stage.start(
        graph("a > b > m, a > g > f > m, a > h > m", {**nodes, "g": hold("g")}), {"bad": True}
    )
    stage.until_comers(handle, "h")
    stage.until_comers(handle, "g")
    stage.until_state(handle, "b", "COMPLETED")
    stage.door("g").open()
    failed = stage.end_of(handle)
    assert failed.states["f"] == "FAILED"
    assert failed.states["h"] == "CANCELLED"
    stage.seen.clear()
    stage.door("h").open()
    with pytest.raises(Conflict, match="cancel it first, or wait"):
        stage.start(graph("h2", {"h2": hold("h2")}, name="other")).retry()
    stage.door("h2").open()
    again = stage.end_of(handle.rerun("f", "h", context={"trigger": {"bad": False}}))
    assert again.output == ["b", "mended", "h"]
    assert stage.seen == []


def test_retry_of_a_node_that_recovers(stage: Stage) -> None:
    broken = {"now": True}

    @stage.app.task
    async def moody(value: int) -> int:
        if broken["now"]:
            raise ValueError("not today")
        return value

    failed = stage.run(graph("a > f > z", {"a": task("note", 7), "f": task("moody", "{{ $a }}")}))
    assert failed.state == "FAILED"
    broken["now"] = False
    again = stage.end_of(failed.handle.retry())
    assert again.state == "COMPLETED"
    assert again.context == {"$trigger": {}, "$a": 7, "$f": 7, "$z": "z"}
    assert stage.seen == [7]
    assert again.handle.status().relation == "retry"


def test_retry_of_a_failed_item_runs_its_whole_split(stage: Stage) -> None:
    broken = {"now": True}

    @stage.app.task
    async def moody(value: int) -> int:
        if broken["now"] and value == 2:
            raise ValueError("not today")
        return value

    nodes = {"s": split([1, 2], on_item_error="halt"), "w": task("moody", "{{ $item }}"), "g": aggregator()}
    failed = stage.run(graph("a > s > w > g", nodes))
    assert failed.state == "FAILED"
    broken["now"] = False
    assert stage.end_of(failed.handle.retry()).output == [1, 2]


def test_what_did_not_fail_cannot_be_retried(stage: Stage) -> None:
    with pytest.raises(Conflict, match="no failed or interrupted node"):
        stage.run(graph("a")).handle.retry()


@pytest.mark.parametrize(
    ("nodes", "edits", "message"),
    [
        (["nope"], {}, "has no node 'nope'"),
        (["t"], {}, "is a trigger and never runs"),
        (["a"], {"nope": 1}, "the edited context names 'nope'"),
        (["a"], {"t": float("nan")}, "not JSON"),
    ],
)
def test_bad_reruns_are_refused_and_change_nothing(
    stage: Stage, nodes: list[str], edits: dict[str, object], message: str
) -> None:
    ended = stage.run(graph("t > a", {"t": {"type": "manual", "trigger": True}}))
    with pytest.raises(Exception, match=message):
        ended.handle.rerun(*nodes, context=edits)
    assert len(stage.app.executions()) == 1


def test_large_outputs_are_carried_over(stage: Stage) -> None:
    nodes = {
        "a": echo("x" * 300_000),
        "b": echo("y" * 10_000),
        "c": task("note", "{{ [$a.length, $b.length] }}"),
    }
    first = stage.run(graph("a > b > c", nodes))
    again = stage.end_of(first.handle.rerun("c"))
    assert again.output == [300_000, 10_000]


def test_a_failing_rerun_can_be_rerun_again(stage: Stage) -> None:
    first = stage.run(graph("a > f", {"f": fail()}))
    second = stage.end_of(first.handle.retry())
    assert second.state == "FAILED"
    third = stage.end_of(second.handle.retry())
    assert third.state == "FAILED"
    assert third.handle.status().parent == second.id


def test_a_rerun_of_a_rerun_knows_what_neither_of_them_ran(stage: Stage) -> None:
    first = stage.run(graph("a > b > c", CHAIN), {"t": 100})
    second = stage.end_of(first.handle.rerun("b", context={"a": {"a": 10}}))
    assert second.output == {"c": 121}
    third = stage.end_of(second.handle.rerun("c"))
    assert third.output == {"c": 121}
    assert third.context == second.context
    fourth = stage.end_of(third.handle.rerun("a"))
    assert fourth.output == {"c": 103}, "what ran again wins over an edit made before"


def test_a_node_downstream_of_another_one_runs_once(stage: Stage) -> None:
    nodes = {name: task("note", name) for name in "abc"}
    first = stage.run(graph("a > b > c", nodes))
    stage.seen.clear()
    again = stage.end_of(first.handle.rerun("b", "c"))
    assert stage.seen == ["b", "c"]
    assert again.nodes["c"] == ("COMPLETED", 1)


def test_a_gate_downstream_closes_in_a_rerun_too(stage: Stage) -> None:
    nodes = {"gate": conditional("$json == 'x'"), "m": merge()}
    first = stage.run(graph("a > x > gate, a > y > gate, gate > left > m, gate > right > m", nodes))
    assert first.output == ["left", "right"]
    again = stage.end_of(first.handle.rerun("x"))
    assert again.state == "COMPLETED"
    assert again.nodes["gate"] == ("COMPLETED", 1)
    assert again.context["$left"] == "left"


def test_the_working_payload_is_recorded_too(stage: Stage) -> None:
    edit = {"type": "edit", "parameters": {"assignments": [{"name": "x", "value": 1}]}}
    second = {"type": "edit", "parameters": {"assignments": [{"name": "y", "value": "{{ $json.x + 1 }}"}]}}
    first = stage.run(graph("e1 > a > e2", {"e1": edit, "e2": second}))
    assert first.output == {"x": 1, "y": 2}
    assert stage.end_of(first.handle.rerun("e2")).output == {"x": 1, "y": 2}


def test_a_merge_that_timed_out_can_be_retried(stage: Stage) -> None:
    nodes = {"silent": hold("silent"), "m": merge(timeout=5)}
    handle = stage.start(graph("a > b > m, a > silent > m", nodes))
    stage.until_event(handle, "NodeWaiting", "m")
    stage.until_comers(handle, "silent")
    stage.pass_time(6)
    assert stage.end_of(handle).state == "FAILED"
    stage.door("silent").open()
    assert stage.end_of(handle.retry()).output == ["b", "silent"]


def test_a_pass_through_node_rerun_hands_on_what_it_had_received(stage: Stage) -> None:
    nodes = {"c": conditional("true"), "m": merge()}
    first = stage.run(graph("a > c > m, a > b > m", nodes))
    assert first.output == ["a", "b"]
    assert stage.end_of(first.handle.rerun("b")).output == ["a", "b"]
    assert stage.end_of(first.handle.rerun("c")).output == ["a", "b"]


def test_an_edited_output_is_the_working_payload_too(stage: Stage) -> None:
    edit = {"type": "edit", "parameters": {"assignments": [{"name": "x", "value": 1}]}}
    second = {"type": "edit", "parameters": {"assignments": [{"name": "y", "value": "{{ $json.x + 1 }}"}]}}
    first = stage.run(graph("e1 > a > e2", {"e1": edit, "e2": second}))
    assert stage.end_of(first.handle.rerun("e2", context={"e1": {"x": 10}})).output == {"x": 10, "y": 11}


def test_the_items_of_a_list_node_are_recorded_as_working_payload(stage: Stage) -> None:
    keep = {"type": "filter", "parameters": {"input_array": "$trigger.items", "expression": "$item > 1"}}
    first = stage.run(graph("f > a > z", {"f": keep, "z": echo("{{ $json }}")}), {"items": [1, 2, 3]})
    assert first.output == [2, 3]
    assert stage.end_of(first.handle.rerun("z")).output == [2, 3]


def test_what_other_branches_had_left_is_part_of_the_new_result(stage: Stage) -> None:
    document = {**graph("s > a, s > b", {}), "output": "{{ [$a, $b] }}"}
    first = stage.run(document)
    again = stage.end_of(first.handle.rerun("b"))
    assert (again.state, again.output) == ("COMPLETED", ["a", "b"])
    leaves = stage.end_of(stage.run(graph("s > a, s > b", {})).handle.rerun("b"))
    assert leaves.output == {"a": "a", "b": "b"}


def test_behind_an_aggregator_the_summary_of_its_split_is_still_known(stage: Stage) -> None:
    nodes = {"s": split([1, 2]), "g": aggregator(), "z": echo("{{ [$s.total, $s.failed, $g] }}")}
    first = stage.run(graph("s > w > g > z", nodes))
    assert first.output == [2, 0, ["w", "w"]]
    assert stage.end_of(first.handle.rerun("z")).output == first.output


# -- with another version of the graph ---------------------------------------------------------------------------------


def test_a_retry_goes_on_with_the_mended_document(stage: Stage) -> None:
    first = stage.run(graph("a > b > c", {"a": task("note", {"n": 1}), "b": fail()}))
    assert first.state == "FAILED"
    stage.app.deploy(
        graph("a > b > d > c", {"a": task("note", {"n": 7}), "b": task("note", "{{ $a.n + 1 }}")})
    )

    again = stage.end_of(first.handle.retry(version="latest"))

    assert (again.state, again.handle.status().version) == ("COMPLETED", 2)
    assert stage.seen == [{"n": 1}, 2]
    assert again.nodes["a"] == ("SKIPPED", 0)
    assert again.nodes["d"] == ("COMPLETED", 1)
    over = stage.end_of(again.handle.rerun("d", version=2))
    assert (over.state, stage.seen) == ("COMPLETED", [{"n": 1}, 2])


def test_what_has_run_and_is_gone_from_the_new_version_is_refused(stage: Stage) -> None:
    first = stage.run(graph("a > b > c", {"c": fail()}))
    stage.app.deploy(graph("a > c", {"c": echo("c")}))
    client = stage.app.engine.client
    for refused in (client.rerun, client.preview_retry):
        with pytest.raises(Conflict, match="'b' has run, and the new version does not have it"):
            stage.app.host.call(refused(first.id, version=2))
    assert stage.app.host.call(client.preview_retry(first.id)).again == ("c",)
    with pytest.raises(Conflict, match="'b' has run"):
        first.handle.rerun("c", version="latest")
    assert [handle.id for handle in stage.app.executions()] == [first.id]
    assert stage.end_of(first.handle.rerun("a", version=2)).output == "c"


def test_versions_in_a_chain_of_reruns(stage: Stage) -> None:
    """Each execution of the chain is read by the version that it ran."""
    first = stage.run(graph("a > b > c", {"a": task("note", "a"), "c": fail()}))
    stage.app.deploy(graph("a > b", {"a": task("note", "a")}))
    second = stage.end_of(first.handle.rerun("b", version=2))
    assert (second.state, second.output) == ("COMPLETED", "b")
    stage.app.deploy(graph("a > b > e", {"a": task("note", "a")}))

    third = stage.end_of(second.handle.rerun("e", version=3, idempotency_key="k"))

    assert (third.state, third.output, stage.seen) == ("COMPLETED", "e", ["a"])
    assert second.handle.rerun("e", version=3, idempotency_key="k").id == third.id
    assert second.handle.rerun("e", version="latest", idempotency_key="k").id == third.id
    with pytest.raises(KeyReused, match="version 3, not 2"):
        second.handle.rerun("b", idempotency_key="k")


def test_a_graph_does_not_go_on_with_a_script(stage: Stage) -> None:
    first = stage.run(graph("a > b", {"b": fail()}))
    stage.app.deploy_script("return 1", first.handle.status().workflow)
    with pytest.raises(Conflict, match="which is a script"):
        first.handle.retry(version="latest")
