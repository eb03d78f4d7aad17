"""Nodes that wait for something from outside: a wait for a signal, an approval, another workflow, a script."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.core.graph.external_waits import check_decision
from dalsegno.errors import InvalidInput
from dalsegno.model.definition import part_hash
from dalsegno.ports.node import AwaitSignal, NodeError, SleepUntil, StartChild, Unacceptable
from tests.nodes.fakes import REGISTRY, problems_of, run_node
from tests.rows import rows

FORM = {
    "type": "object",
    "required": ["amount"],
    "properties": {
        "amount": {"type": "number", "maximum": 100},
        "note": {"type": "string", "pattern": "^[a-z]*$"},
    },
    "additionalProperties": False,
}


# --- wait --------------------------------------------------------------------------------------


async def test_wait_for_a_signal_by_a_name_from_a_template() -> None:
    parameters = {"resume": "signal", "signal": "paid-{{ $order.id }}", "timeout": "1h30m"}
    assert await run_node("wait", parameters, roots={"order": {"id": 7}}) == AwaitSignal("paid-7", 5400.0)


async def test_wait_for_a_signal_may_last_as_long_as_it_takes() -> None:
    assert await run_node("wait", {"resume": "signal", "signal": "go"}) == AwaitSignal("go")


async def test_waiting_for_a_time_needs_no_signal() -> None:
    assert isinstance(await run_node("wait", {"amount": 1}), SleepUntil)


@pytest.mark.parametrize(
    ("parameters", "place", "message"),
    [
        ({"resume": "signal"}, "", "parameter 'signal' is missing"),
        ({"resume": "signal", "signal": ""}, "signal", "a name of 1 to 500 characters"),
        ({"resume": "signal", "signal": ["a"]}, "signal", "should be a string"),
        ({"signal": "go"}, "", "parameter 'signal' needs resume 'signal'"),
        ({"timeout": "1h"}, "", "parameter 'timeout' needs resume 'signal'"),
        ({"resume": "signal", "signal": "go", "timeout": "soon"}, "timeout", "is not a duration"),
        ({"resume": "signal", "signal": "go", "timeout": 0}, "timeout", "greater than 0"),
        ({"resume": "singal", "signal": "go"}, "resume", "did you mean 'signal'?"),
    ],
)
def test_bad_parameters_of_a_wait_for_a_signal(parameters: dict[str, Any], place: str, message: str) -> None:
    assert message in problems_of("wait", parameters)[place]


async def test_a_signal_name_that_turns_out_empty_fails_the_node() -> None:
    with pytest.raises(NodeError, match="'signal'") as caught:
        await run_node("wait", {"resume": "signal", "signal": "{{ $a }}"}, roots={"a": ""})
    assert not caught.value.failure.retryable


# --- approval ----------------------------------------------------------------------------------


async def test_an_approval_waits_for_a_signal_named_after_its_node() -> None:
    parameters = {"message": "Ship {{ $a }}?", "approvers": "ann", "form": FORM, "timeout": "2d"}
    asked = await run_node("approval", parameters, roots={"a": 3})
    assert asked == AwaitSignal(
        "approval:node", 172800.0, {"message": "Ship 3?", "approvers": ["ann"], "form": FORM}
    )


async def test_an_approval_in_an_item_names_the_item() -> None:
    assert (await run_node("approval", {}, indexes=(2, 5))).name == "approval:node:2:5"


async def test_an_approval_may_name_its_signal() -> None:
    assert (await run_node("approval", {"signal": "board"}, indexes=(2,))).name == "board"


async def test_approvers_may_come_from_a_template() -> None:
    asked = await run_node("approval", {"approvers": "{{ $team }}"}, roots={"team": ["ann", "bo"]})
    assert asked.question["approvers"] == ["ann", "bo"]


@pytest.mark.parametrize(
    ("form", "place", "message"),
    [
        ({"type": "objekt"}, "form/type", "Not a valid JSON Schema"),
        ({"properties": {"a/b": {"pattern": "(?=x)"}}}, "form/properties/a/b/pattern", "RE2"),
        ({"$ref": "https://example.com/schema"}, "form/$ref", "outside the schema"),
        ("yes", "form", "should be an object"),
    ],
)
def test_a_form_that_is_no_schema_is_refused_with_its_place(form: Any, place: str, message: str) -> None:
    assert message in problems_of("approval", {"form": form})[place]


# --- decisions ---------------------------------------------------------------------------------


def test_a_decision_becomes_the_output() -> None:
    assert check_decision(FORM, {"decision": "approved", "data": {"amount": 5}, "by": "ann"}) == {
        "decision": "approved",
        "data": {"amount": 5},
        "by": "ann",
    }


def test_a_rejection_needs_no_data() -> None:
    assert check_decision(FORM, {"decision": "rejected"})["data"] is None


def test_data_of_a_rejection_are_kept_and_need_not_fit() -> None:
    assert check_decision(FORM, {"decision": "rejected", "data": {"note": "no"}})["data"] == {"note": "no"}


@pytest.mark.parametrize("decision", ["approved", "rejected"])
def test_a_comment_needs_no_form(decision: str) -> None:
    given = {"decision": decision, "data": {"amount": 1}, "comment": "why not"}
    assert check_decision(FORM, given) == {**given, "by": None}


@rows(
    ("payload", "message"),
    [
        (None, "this is not a decision"),
        ("approved", "this is not a decision"),
        ({}, "'decision' must be 'approved' or 'rejected', not None"),
        ({"decision": "yes"}, "not 'yes'"),
        ({"decision": ["approved"]}, "'decision' must be"),
        ({"decision": "approved"}, "the decision has no data, and its form needs some"),
        ({"decision": "approved", "data": {}}, "'amount' is a required property"),
        ({"decision": "approved", "data": {"amount": 101}}, "/data/amount: 101 is greater than the maximum"),
        ({"decision": "approved", "data": {"amount": 1, "x": 1}}, "'x' is not expected here"),
        ({"decision": "approved", "data": {"amount": 1, "note": "A"}}, "does not match"),
        ({"decision": "approved", "data": {"amount": 1}, "by": 7}, "'by' must be a text"),
        ({"decision": "approved", "data": {"amount": 1}, "why": "ok"}, "no field 'why'"),
        ({"decision": "rejected", "comment": 7}, "'comment' must be a text"),
    ],
)
def test_decisions_that_do_not_fit_are_refused(payload: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_decision(FORM, payload)
    assert message in str(caught.value)


def test_without_a_form_any_data_fit() -> None:
    assert check_decision(None, {"decision": "approved", "data": [1]})["data"] == [1]


def test_a_bad_decision_is_unacceptable_to_the_node() -> None:
    receive = REGISTRY.get("approval").receive
    assert receive is not None
    with pytest.raises(Unacceptable, match="'decision' must be"):
        receive({"form": FORM}, {"decision": "perhaps"})


# --- workflow ----------------------------------------------------------------------------------


async def test_a_workflow_gets_what_came_over_the_edge_unless_told_otherwise() -> None:
    assert await run_node("workflow", {"name": "ship"}, payload={"n": 1}) == StartChild("ship", {"n": 1})
    given = await run_node("workflow", {"name": "ship", "input": None}, payload={"n": 1})
    assert given == StartChild("ship", None)


async def test_a_workflow_may_be_named_with_a_version() -> None:
    assert await run_node("workflow", {"name": "ship@stable", "wait": False}) == StartChild(
        "ship@stable", wait=False
    )
    assert (await run_node("workflow", {"name": "ship", "version": "3"})).version == 3
    assert (await run_node("workflow", {"name": "ship", "version": "stable"})).version == "stable"
    assert (await run_node("workflow", {"name": "ship", "version": "latest"})).version is None


@pytest.mark.parametrize(
    ("parameters", "place", "message"),
    [
        ({}, "name", "parameter 'name' is missing"),
        ({"name": "a@b@c"}, "name", "more than one '@'"),
        ({"name": "a", "version": "Not An Alias"}, "version", "neither a version's number nor an alias"),
        ({"name": "a", "version": True}, "version", "should be a version's number"),
        ({"name": "a", "wait": "perhaps"}, "wait", "should be a boolean"),
        ({"name": "a", "inputs": 1}, "inputs", "did you mean 'input'?"),
    ],
)
def test_bad_parameters_of_a_workflow(parameters: dict[str, Any], place: str, message: str) -> None:
    assert message in problems_of("workflow", parameters)[place]


# --- script ------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["input", "inputs"])
async def test_a_script_runs_as_the_very_definition_that_was_stored_for_it(key: str) -> None:
    source = "return `{{ $not }} ${inputs.n}`"
    asked = await run_node("script", {"source": source, key: {"n": "{{ $a }}"}}, roots={"a": 4})
    assert asked == StartChild("test/node", {"n": 4}, definition=part_hash("test/node", source))


async def test_a_script_gets_what_came_over_the_edge() -> None:
    assert (await run_node("script", {"source": "return 1"}, payload=[1])).input == [1]


def test_equal_scripts_of_two_nodes_are_two_definitions() -> None:
    assert part_hash("a/b", "return 1") != part_hash("a/c", "return 1")


def test_every_problem_of_a_script_is_told_with_its_line_and_column() -> None:
    spec = REGISTRY.find("script")
    assert spec is not None
    found = spec.check({"source": "let unused = 1\nlet x = missing\nreturn x + another"})
    assert [(problem.rule, problem.severity, problem.path) for problem in found] == [
        ("script-unused-variable", "warning", ("source",)),
        ("script-undefined-variable", "error", ("source",)),
        ("script-undefined-variable", "error", ("source",)),
    ]
    assert found[1].message.startswith("line 2, column 9: Undefined variable 'missing'")


@pytest.mark.parametrize(
    ("source", "message"),
    [("", "at least 1 character"), (7, "should be a string"), ("let = 1", "line 1, column 5")],
)
def test_a_source_that_is_no_script_is_refused(source: Any, message: str) -> None:
    assert message in problems_of("script", {"source": source})["source"]
