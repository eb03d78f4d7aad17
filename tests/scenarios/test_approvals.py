"""Approvals: asking people, deciding, decisions that do not fit, time limits."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.errors import Conflict, InvalidInput
from tests.scenarios.documents import aggregator, conditional, dependencies, echo, graph, split
from tests.scenarios.stage import Stage

FORM = {"type": "object", "required": ["amount"], "properties": {"amount": {"type": "number"}}}


def approval(**parameters: Any) -> dict[str, Any]:
    return {"type": "approval", "parameters": parameters}


def test_an_open_approval_shows_what_is_asked(stage: Stage) -> None:
    node = approval(message="Pay {{ $a }}?", approvers=["ann", "bo"], form=FORM, timeout="1d")
    handle = stage.start(graph("a > gate", {"a": echo(99), "gate": node}))
    stage.until_event(handle, "NodeWaiting", "gate")
    [asked] = handle.approvals()
    assert (asked.workflow, asked.node, asked.message) == ("scenario", "gate", "Pay 99?")
    assert (asked.approvers, asked.form, asked.signal) == (("ann", "bo"), FORM, "approval:gate")
    assert (asked.since, asked.due) == (stage.clock.now(), stage.clock.now() + 86400)
    [waiting] = handle.why()
    assert waiting.sentence == "node 'gate' waits for a decision, by the signal 'approval:gate'"


def test_an_approval_passes_its_decision_on(stage: Stage) -> None:
    document = graph(
        "gate > c, c > pay, c > refuse",
        {
            "gate": approval(form=FORM),
            "c": conditional("$gate.decision == 'approved'"),
            "pay": echo("{{ $gate }}"),
        },
    )
    handle = stage.start(document)
    stage.until_event(handle, "NodeWaiting", "gate")
    handle.decide("gate", "approved", {"amount": 5}, by="ann")
    ended = stage.end_of(handle)
    assert ended.context["$pay"] == {"decision": "approved", "data": {"amount": 5}, "by": "ann"}
    assert ended.states["refuse"] == "SKIPPED"
    assert handle.approvals() == []


def test_a_rejection_is_a_success_that_a_conditional_sees(stage: Stage) -> None:
    document = graph(
        "gate > c, c > pay, c > refuse",
        {"gate": approval(form=FORM), "c": conditional("$gate.decision == 'approved'")},
    )
    handle = stage.start(document)
    stage.until_event(handle, "NodeWaiting", "gate")
    handle.decide("gate", "rejected", by="bo")
    ended = stage.end_of(handle)
    assert (ended.state, ended.states["gate"], ended.states["pay"]) == ("COMPLETED", "COMPLETED", "SKIPPED")


def test_a_decision_that_does_not_fit_is_refused_and_changes_nothing(stage: Stage) -> None:
    handle = stage.start(graph("gate", {"gate": approval(form=FORM)}))
    stage.until_event(handle, "NodeWaiting", "gate")
    before = len(handle.events())
    with pytest.raises(InvalidInput, match="'amount' is a required property"):
        handle.decide("gate", "approved", {})
    with pytest.raises(InvalidInput, match="'decision' must be 'approved' or 'rejected'"):
        handle.decide("gate", "maybe")
    assert len(handle.events()) == before
    handle.decide("gate", "approved", {"amount": 1})
    assert stage.end_of(handle).output["data"] == {"amount": 1}


def test_whoever_decides_second_is_told_so(stage: Stage) -> None:
    document = graph("gate > next", {"gate": approval(), "next": approval(signal="approval:gate")})
    handle = stage.start(document)
    stage.until_event(handle, "NodeWaiting", "gate")
    handle.decide("gate", "approved", by="ann")
    stage.until_event(handle, "NodeWaiting", "next")
    with pytest.raises(Conflict, match="open approvals of this execution: 'next'"):
        handle.decide("gate", "rejected", by="bo")
    assert handle.nodes()["next"].state == "WAITING"
    handle.decide("next", "approved")
    stage.end_of(handle)
    with pytest.raises(Conflict, match="has ended"):
        handle.decide("gate", "approved")


def test_a_signal_that_is_no_decision_is_recorded_and_the_node_waits_on(stage: Stage) -> None:
    handle = stage.start(graph("gate", {"gate": approval(form=FORM, timeout="1h")}))
    stage.until_event(handle, "NodeWaiting", "gate")
    due = handle.approvals()[0].due
    handle.signal("approval:gate", "yes!")
    handle.signal("approval:gate", {"decision": "approved", "data": {"amount": "much"}})
    stage.until_event(handle, "NodeWaiting", "gate", times=3)
    assert [asked.due for asked in handle.approvals()] == [due]
    handle.signal("approval:gate", {"decision": "approved", "data": {"amount": 7}, "by": "ann"})
    ended = stage.end_of(handle)
    assert ended.output == {"decision": "approved", "data": {"amount": 7}, "by": "ann"}
    problems = [record["error"]["message"] for record in ended.data("NodeWaiting", "gate")[1:]]
    assert "this is not a decision" in problems[0]
    assert "/data/amount: 'much' is not of type 'number'" in problems[1]
    assert ended.nodes["gate"] == ("COMPLETED", 1)


def test_useless_signals_do_not_extend_the_time_limit(stage: Stage) -> None:
    handle = stage.start(graph("gate", {"gate": approval(timeout=60)}))
    stage.until_event(handle, "NodeWaiting", "gate")
    stage.pass_time(50)
    handle.signal("approval:gate", "?")
    stage.until_event(handle, "NodeWaiting", "gate", times=2)
    stage.pass_time(11)
    ended = stage.end_of(handle)
    assert (ended.error["code"], ended.error["node"]) == ("TIMEOUT", "gate")
    assert "gave up after 1m without a decision" in ended.error["message"]


def test_an_approval_that_times_out_may_go_another_way(stage: Stage) -> None:
    node = {**approval(timeout="1h"), "error": {"type": "branch"}}
    handle = stage.start(graph("gate > ok, gate !> escalate", {"gate": node}))
    stage.until_event(handle, "NodeWaiting", "gate")
    stage.pass_time(3601)
    assert stage.end_of(handle).states == {"gate": "FAILED", "ok": "SKIPPED", "escalate": "COMPLETED"}


def test_every_item_is_decided_by_itself(stage: Stage) -> None:
    document = graph(
        "s > gate > e > g",
        {
            "s": split(["x", "y"]),
            "gate": approval(message="{{ $item }}?"),
            "e": echo("{{ $item }} {{ $gate.decision }}"),
            "g": aggregator(),
        },
    )
    handle = stage.start(document)
    stage.until_event(handle, "NodeWaiting", "gate", times=2)
    asked = {approval.indexes: (approval.message, approval.signal) for approval in handle.approvals()}
    assert asked == {(0,): ("x?", "approval:gate:0"), (1,): ("y?", "approval:gate:1")}
    with pytest.raises(InvalidInput, match="waits for 2 decisions; say which item by index"):
        handle.decide("gate", "approved")
    handle.decide("gate", "rejected", index=1)
    with pytest.raises(Conflict, match="is not waiting for a decision"):
        handle.decide("gate", "approved", index=1)
    handle.signal("approval:gate:0", {"decision": "approved"})
    assert stage.end_of(handle).output == ["x approved", "y rejected"]


def test_items_of_nested_splits_have_signals_of_their_own(stage: Stage) -> None:
    document = graph(
        "o > i > gate > g > h",
        {
            "o": split([[1, 2], [3]]),
            "i": split("{{ $item }}"),
            "gate": approval(),
            "g": aggregator(output="$gate.by"),
            "h": aggregator(),
        },
    )
    handle = stage.start(document)
    stage.until_event(handle, "NodeWaiting", "gate", times=3)
    asked = sorted(handle.approvals(), key=lambda approval: approval.indexes)
    assert [approval.signal for approval in asked] == [
        "approval:gate:0:0",
        "approval:gate:0:1",
        "approval:gate:1:0",
    ]
    for approval_ in asked:
        handle.decide("gate", "approved", by=f"{approval_.indexes}", index=approval_.indexes)
    assert stage.end_of(handle).output == [["(0, 0)", "(0, 1)"], ["(1, 0)"]]


def test_open_approvals_of_all_executions_are_listed(stage: Stage) -> None:
    plain = stage.start(
        graph("w", {"w": {"type": "wait", "parameters": {"resume": "signal", "signal": "go"}}})
    )
    document = {**graph("gate", {"gate": approval(message="{{ $trigger.n }}")}), "name": "asking"}
    handles = [stage.start(document, {"n": number}) for number in range(3)]
    for handle in handles:
        stage.until_event(handle, "NodeWaiting", "gate")
    stage.until_event(plain, "NodeWaiting", "w")
    listed = stage.app.host.call(stage.app.client.pending_approvals())
    assert {asked.execution for asked in listed} == {handle.id for handle in handles}
    assert len(stage.app.host.call(stage.app.client.pending_approvals(limit=2))) == 2
    assert stage.app.host.call(stage.app.client.pending_approvals("other")) == []
    handles[1].decide("gate", "approved")
    stage.end_of(handles[1])
    assert len(stage.app.host.call(stage.app.client.pending_approvals("asking"))) == 2


def test_a_node_with_several_dependencies_may_ask(stage: Stage) -> None:
    document = dependencies(
        {"id": "a", "handler": "log", "config": {"message": "a"}},
        {"id": "b", "handler": "log", "config": {"message": "b"}},
        {"id": "gate", "handler": "approval", "config": {"message": "go on?"}, "dependencies": ["a", "b"]},
    )
    handle = stage.start(document)
    stage.until("it asks", handle, handle.approvals)
    handle.signal("approval:gate", "useless")
    stage.until_event(handle, "NodeWaiting", "gate", times=3)
    stage.until("it asks again", handle, handle.approvals)
    handle.decide("gate", "approved")
    assert stage.end_of(handle).output["decision"] == "approved"


def test_a_decision_during_a_pause_counts_after_it(stage: Stage) -> None:
    handle = stage.start(graph("gate", {"gate": approval()}))
    stage.until_event(handle, "NodeWaiting", "gate")
    handle.pause()
    handle.decide("gate", "approved")
    handle.resume()
    assert stage.end_of(handle).output["decision"] == "approved"


def test_large_data_come_with_a_decision(stage: Stage) -> None:
    handle = stage.start(graph("gate", {"gate": approval()}))
    stage.until_event(handle, "NodeWaiting", "gate")
    handle.decide("gate", "approved", {"text": "x" * 300_000})
    assert len(stage.end_of(handle).output["data"]["text"]) == 300_000
