"""The nodes that steer: conditional, switch, split, aggregator, merge, wait, and the small ones around them."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.errors import InternalError, NotFound
from dalsegno.nodes.control.branches import combine_payloads
from dalsegno.ports.node import FanOut, NodeError, Route, SleepUntil
from tests.nodes.fakes import NOW, REGISTRY, FakeContext, run_node

USER = {"fetch": {"body": {"plan": "pro", "age": "41", "tags": ["a", "b"]}}}


# --- conditional -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "result"),
    [
        ({"expression": "$fetch.body.plan == 'pro'"}, True),
        ({"expression": "{{ $fetch.body.plan == 'free' }}"}, False),
        ({"expression": "$fetch.body.age > 40 and not ($fetch.body.plan == 'free')"}, True),
        ({"expression": "$fetch.body.missing.deeper == null"}, True),
        ({"expression": "$fetch.body.missing"}, False),
        ({"expression": "$fetch.body.tags"}, True),
        ({"expression": True}, True),
        ({"expression": [{"op1": "$fetch.body.age", "op2": 41, "operator": "eq"}]}, True),
        (
            {
                "expression": [
                    {"op1": "{{ $fetch.body.plan }}", "op2": "free", "operator": "=="},
                    {"op1": "$fetch.body.tags", "op2": "a", "operator": "contains"},
                ],
                "operator": "or",
            },
            True,
        ),
    ],
)
async def test_conditional_goes_the_way_of_its_result(parameters: dict[str, Any], result: bool) -> None:
    edges = {"true_edge_id": "yes", "false_edge_id": "no"}
    route = await run_node("conditional", parameters | edges, roots=USER)
    assert route == Route(output={"result": result}, edges=("yes",) if result else ("no",))


async def test_a_conditional_way_without_an_edge_ends() -> None:
    assert (await run_node("conditional", {"expression": "false", "true_edge_id": "yes"})).edges == ()
    assert (await run_node("conditional", {"expression": "true"})).edges == ()


# --- switch ------------------------------------------------------------------------------------

RULES = [
    {"value": "$fetch.body.plan", "operator": "==", "compare": "free"},
    {"value": "$fetch.body.age", "operator": "gt", "compare": 40},
    {"value": "$fetch.body.plan", "operator": "eq", "compare": "pro"},
]


async def test_switch_takes_the_first_rule_that_holds() -> None:
    route = await run_node("switch", {"rules": RULES, "routes": ["e0", "e1", "e2", "other"]}, roots=USER)
    assert route == Route(output={"output_index": 1}, edges=("e1",))


async def test_switch_without_a_match_takes_the_fallback() -> None:
    route = await run_node("switch", {"rules": RULES[:1], "routes": ["e0", "other"]}, roots=USER)
    assert route == Route(output={"output_index": 1}, edges=("other",))


async def test_switch_without_match_and_fallback_ends() -> None:
    route = await run_node("switch", {"rules": RULES[:1], "routes": ["e0"]}, roots=USER)
    assert route == Route(output={"output_index": None}, edges=())


async def test_a_switch_rule_without_its_route_ends() -> None:
    assert await run_node("switch", {"rules": RULES, "routes": ["e0"]}, roots=USER) == Route(
        {"output_index": 1}, ()
    )
    assert await run_node("switch", {"rules": RULES, "routes": ["e0", None]}, roots=USER) == Route(
        {"output_index": 1}, ()
    )


@pytest.mark.parametrize(
    ("value", "operator", "compare", "holds"),
    [
        (1, "==", 1, True),
        ("1", "==", 1, True),
        ("a", "!=", "b", True),
        ("10", ">", 9, True),
        (3, "lte", 3, True),
        ("hello", "startsWith", "he", True),
        ("hello", "matches", "^h.*o$", True),
        ([1, 2], "contains", 2, True),
        (2, "in", [1, 2], True),
        (None, "is_null", None, True),
        ("", "is_empty", None, True),
        (None, ">", 1, False),
    ],
)
async def test_switch_operators(value: Any, operator: str, compare: Any, holds: bool) -> None:
    rules = [{"value": value, "operator": operator, "compare": compare}]
    route = await run_node("switch", {"rules": rules, "routes": ["yes", "no"]})
    assert route.edges == (("yes",) if holds else ("no",))


# --- split, aggregator, merge ------------------------------------------------------------------


async def test_split_fans_out_with_its_window() -> None:
    assert await run_node("split", {"input_array": "$fetch.body.tags"}, roots=USER) == FanOut(
        ["a", "b"], 1000, None
    )
    given = {"input_array": [], "max_concurrency": 5, "on_item_error": "halt"}
    assert await run_node("split", given) == FanOut([], 5, "halt")


@pytest.mark.parametrize("value", ["text", {"a": 1}, None, 5])
async def test_split_of_what_is_no_list_fails_for_good(value: Any) -> None:
    with pytest.raises(NodeError, match="should be a list") as caught:
        await run_node("split", {"input_array": value})
    assert (caught.value.failure.code, caught.value.failure.retryable) == ("NOT_A_LIST", False)


async def test_aggregator_returns_what_was_collected() -> None:
    collected = [1, None, {"error": {"message": "x"}}]
    assert await run_node("aggregator", {"timeout": "1m", "output": "$item"}, payload=collected) == collected


@pytest.mark.parametrize(
    ("mode", "payloads", "expected"),
    [
        ("append", [{"a": 1}, 2], [{"a": 1}, 2]),
        ("combine", [{"a": 1, "b": 1}, {"b": 2}], {"a": 1, "b": 2}),
        ("combine", [], {}),
        ("first", [{"a": 1}, {"b": 2}], {"a": 1}),
        ("first", [], None),
    ],
)
async def test_merge_modes(mode: Any, payloads: list[Any], expected: Any) -> None:
    assert combine_payloads(mode, payloads) == expected
    assert await run_node("merge", {"mode": mode}, payload=payloads) == expected


async def test_combining_what_is_no_object_fails_and_says_which() -> None:
    with pytest.raises(NodeError, match="payload 1 is a list") as caught:
        await run_node("merge", {"mode": "combine"}, payload=[{}, []])
    assert not caught.value.failure.retryable


# --- wait --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "due"),
    [
        ({}, NOW + 1),
        ({"amount": 2, "unit": "hours"}, NOW + 7200),
        ({"amount": 0.25, "unit": "minute"}, NOW + 15),
        ({"amount": "1.5", "unit": "days"}, NOW + 129_600),
        ({"amount": "{{ 1 + 1 }}", "unit": "day"}, NOW + 172_800),
        ({"amount": 0}, NOW),
        ({"resume": "until", "until": "2023-11-14T22:13:30Z"}, NOW + 10),
        ({"resume": "until", "until": "2023-11-14T23:13:30+01:00"}, NOW + 10),
        ({"resume": "until", "until": "2023-11-14T22:13:30"}, NOW + 10),
        ({"resume": "until", "until": "2023-11-15"}, NOW + 6400),
        ({"resume": "until", "until": NOW + 0.5}, NOW + 0.5),
        ({"resume": "until", "until": "{{ Date.now() + 5000 }}"}, NOW + 5),
        ({"resume": "until", "until": str(int(NOW))}, NOW),
        ({"resume": "until", "until": "2001-01-01T00:00:00Z"}, 978_307_200),
    ],
)
async def test_wait_computes_when_to_wake(parameters: dict[str, Any], due: float) -> None:
    parked = await run_node("wait", parameters)
    assert isinstance(parked, SleepUntil)
    assert parked.due == pytest.approx(due)


async def test_wait_tells_when_it_resumes() -> None:
    parked = await run_node("wait", {"amount": 1, "unit": "minutes"})
    assert parked.output == {"resume_at": "2023-11-14T22:14:20.000Z"}


async def test_wait_beyond_the_calendar_fails_for_good() -> None:
    with pytest.raises(NodeError, match="years 1 to 9999") as caught:
        await run_node("wait", {"amount": 1e12, "unit": "days"})
    assert not caught.value.failure.retryable


# --- log, task, input, output, triggers --------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("plan $fetch.body.plan.", "plan pro."),
        ("$fetch.body.tags", '["a","b"]'),
        (5.0, "5"),
        (None, ""),
    ],
)
async def test_log_writes_a_line(message: Any, line: str) -> None:
    ctx = FakeContext(USER)
    assert await run_node("log", {"message": message, "level": "warn"}, ctx) == {
        "message": line,
        "level": "warning",
    }
    assert ctx.lines == [("warning", line)]


class Tasks:
    async def run(self, name: str, given: Any, ctx: Any) -> Any:
        if name != "double":
            raise NotFound(f"no task '{name}' is registered here")
        return given * 2


async def test_task_runs_a_registered_task() -> None:
    ctx = FakeContext({"$trigger": {"n": 4}}, services={"tasks": Tasks()})
    assert await run_node("task", {"task": "double", "input": "$trigger.n"}, ctx) == 8
    assert await run_node("python", {"name": "double", "input": 1}, ctx) == 2


@pytest.mark.parametrize("services", [{}, {"tasks": Tasks()}])
async def test_an_unknown_task_fails_for_good(services: dict[str, Any]) -> None:
    with pytest.raises(NodeError, match="'triple'") as caught:
        await run_node("task", {"task": "triple"}, services=services)
    assert (caught.value.failure.code, caught.value.failure.retryable) == ("TASK_NOT_FOUND", False)


async def test_input_passes_the_start_payload_on_and_output_collects() -> None:
    assert await run_node("input", {}, start={"id": 1}) == {"id": 1}
    assert await run_node("output", {}, outputs={"b": 2, "a": [1]}) == {"b": 2, "a": [1]}


@pytest.mark.parametrize("name", ["manual", "schedule", "webhook"])
async def test_triggers_are_marked_and_never_executed(name: str) -> None:
    trigger = REGISTRY.get(name)
    assert trigger.spec.control == "trigger"
    with pytest.raises(InternalError):
        await trigger.execute(FakeContext(), None)
