"""Nodes of the library run by scripts: finished parameters, expressions, what has no meaning in a script."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from dalsegno.engine.settings import EngineLimits
from dalsegno.engine.steps.budget import Meters
from dalsegno.engine.steps.contexts import RunContext
from dalsegno.engine.steps.library_nodes import run_library_node
from dalsegno.engine.steps.tasks import Tasks, make_task
from dalsegno.errors import NotFound
from dalsegno.lang import ExpressionFailed
from dalsegno.model.failure import RetryPolicy
from dalsegno.model.token import Lease
from dalsegno.nodes.http.egress import ALLOW_EVERYTHING
from dalsegno.nodes.http.service import HttpService
from dalsegno.ports.node import NodeError
from tests.nodes.fakes import REGISTRY

ITEMS = [{"id": 1, "price": 30}, {"id": 2, "price": 10}, {"id": 3, "price": 20}]
lines: list[tuple[str, ...]] = []


def context(payload: Any, services: dict[str, Any] | None = None) -> RunContext:
    lease = Lease("t1", "run", 1, "", "task", "node:x", b"", "default", 0, 1, 0, "", 0.0, "", 0)
    log = lambda *line: lines.append(line)  # noqa: E731 - a sink
    meters = Meters(EngineLimits())
    return RunContext.of_task(
        lease, None, payload, None, services or {}, log, meters, 1_700_000_000.0, "flow"
    )


async def run(type_name: str, payload: Any, **services: Any) -> Any:
    return await run_library_node(REGISTRY, type_name, context(payload, services), Meters(EngineLimits()))


def prices(output: dict[str, Any]) -> list[int]:
    return [item["price"] for item in output["items"]]


# --- list nodes and edit -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_name", "parameters", "expected"),
    [
        ("filter", {"expression": "item.price > 15"}, [30, 20]),
        ("filter", {"expression": "{{ $item.price > 15 and $index > 0 }}"}, [20]),
        ("filter", {"rules": [{"op1": "$item.price", "op2": 15, "operator": "gt"}]}, [30, 20]),
        (
            "filter",
            {
                "rules": [
                    {"op1": "$item.id", "op2": 1, "operator": "eq"},
                    {"op1": "$item.price", "op2": 10, "operator": "eq"},
                ],
                "operator": "or",
            },
            [30, 10],
        ),
        ("sort", {"rules": [{"field": "price"}]}, [10, 20, 30]),
        ("limit", {"count": 1}, [30]),
        ("dedupe", {"fields": ["id"]}, [30, 10, 20]),
        ("map", {"expression": "{price: item.price + index}"}, [30, 11, 22]),
    ],
)
async def test_list_nodes_work_on_the_list_they_are_given(
    type_name: str, parameters: dict[str, Any], expected: list[int]
) -> None:
    assert prices(await run(type_name, {"input_array": ITEMS, **parameters})) == expected


async def test_the_working_payload_may_be_given_by_its_own_name() -> None:
    assert prices(await run("sort", {"$json": ITEMS, "rules": ["price"]})) == [10, 20, 30]


async def test_expressions_see_the_working_payload() -> None:
    parameters = {"input_array": ITEMS, "expression": "item.price / $json.length"}
    assert (await run("map", parameters))["items"][0] == 10


async def test_edit_changes_what_it_is_given() -> None:
    parameters = {"$json": {"user": {"name": "ann"}}, "assignments": [{"name": "age", "value": 3}]}
    assert await run("edit", parameters) == {"user": {"name": "ann"}, "age": 3}
    assert await run("edit", {**parameters, "target_path": "$json.user"}) == {"name": "ann", "age": 3}
    assert await run("edit", {"assignments": [{"name": "a.b", "value": 1}]}) == {"a": {"b": 1}}


async def test_values_from_the_script_are_never_read_as_templates() -> None:
    text = "{{ $trigger.secret }} and $json"
    assert await run("edit", {"assignments": [{"name": "text", "value": text}]}) == {"text": text}
    assert (await run("log", {"message": text}))["message"] == text


async def test_group_and_datetime() -> None:
    grouped = await run("group", {"input_array": ITEMS, "field": "id"})
    assert grouped["count"] == 3
    moment = await run(
        "datetime", {"operation": "add", "date": "2030-01-31T00:00:00Z", "amount": 1, "unit": "days"}
    )
    assert moment["iso"].startswith("2030-02-01")


# --- choices -----------------------------------------------------------------------------------


async def test_choices_give_their_output_only() -> None:
    assert await run("conditional", {"expression": "$json.n > 1", "$json": {"n": 2}}) == {"result": True}
    rules = [{"value": 1, "compare": 2}, {"value": "a", "operator": "in", "compare": ["a"]}]
    assert await run("switch", {"rules": rules}) == {"output_index": 1}


# --- tasks, log, http --------------------------------------------------------------------------


async def test_a_task_runs_under_its_own_retry_policy() -> None:
    async def double(value: int) -> int:
        return value * 2

    tasks = Tasks()
    tasks.register(make_task(double, retry=RetryPolicy(max_attempts=4)))
    ctx = context({"task": "double", "input": 4}, {"tasks": tasks})
    assert await run_library_node(REGISTRY, "python", ctx, Meters(EngineLimits())) == 8
    assert ctx.retry == RetryPolicy(max_attempts=4)


async def test_a_log_line_names_the_node_type() -> None:
    await run("log", {"message": "hello", "level": "warn"})
    assert lines[-1] == ("run", "node:x", "warning", "hello")


@pytest.fixture
async def server() -> AsyncIterator[TestServer]:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"key": request.headers.get("Idempotency-Key")})

    application = web.Application()
    application.router.add_post("/", answer)
    running = TestServer(application, host="127.0.0.1")
    await running.start_server()
    yield running
    await running.close()


async def test_http_sends_its_request_with_a_stable_key(server: TestServer) -> None:
    service = HttpService(ALLOW_EVERYTHING)
    ctx = context(
        {"url": str(server.make_url("/")), "method": "POST", "retry": 2, "retry_delay": "3s"},
        {"http": service},
    )
    try:
        answered = await run_library_node(REGISTRY, "http", ctx, Meters(EngineLimits()))
    finally:
        await service.close()
    assert (answered["status"], answered["body"]) == (200, {"key": "t1"})
    assert ctx.retry == RetryPolicy(max_attempts=3, initial_delay=3.0)


# --- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_name", "payload", "advice"),
    [
        ("split", {"input_array": [1]}, "use a loop, or Promise.all"),
        ("aggregator", {}, "use a loop, or Promise.all"),
        ("merge", {}, "use Promise.all, Promise.any or Promise.race"),
        ("wait", {"amount": 1}, "use Timer.delay, Timer.until or Signal.when"),
        ("manual", {}, "it starts workflows"),
        ("workflow", {"name": "x"}, "use Workflow.run or Workflow.start"),
        ("script", {"source": "return 1"}, "use Workflow.run or Workflow.start"),
    ],
)
async def test_nodes_without_a_meaning_in_a_script_are_refused_with_advice(
    type_name: str, payload: dict[str, Any], advice: str
) -> None:
    with pytest.raises(NodeError, match=f"'{type_name}' cannot be used in a script") as caught:
        await run(type_name, payload)
    assert advice in str(caught.value)
    assert (caught.value.failure.code, caught.value.failure.retryable) == ("WRONG_ARG_TYPE", False)


async def test_an_unknown_type_is_not_found() -> None:
    with pytest.raises(NotFound, match="no node type 'nope'"):
        await run("nope", {})


@pytest.mark.parametrize(
    ("type_name", "payload", "code", "message"),
    [
        ("log", ["a"], "WRONG_ARG_TYPE", "must be an object"),
        ("conditional", {}, "INVALID_PARAMETERS", "parameter 'expression' is missing"),
        ("limit", {"input_array": [1], "cuont": 1}, "INVALID_PARAMETERS", "did you mean 'count'?"),
        ("filter", {"input_array": 7}, "NOT_A_LIST", "should be a list"),
        ("filter", {"input_array": [], "expression": "item.("}, "BAD_EXPRESSION", "parameter 'expression'"),
        (
            "filter",
            {"input_array": [], "expression": "await item"},
            "BAD_EXPRESSION",
            "parameter 'expression'",
        ),
        ("map", {"input_array": [], "expression": [1]}, "BAD_EXPRESSION", "as text"),
        ("map", {"input_array": [], "expression": "$fetch.body"}, "BAD_EXPRESSION", "fetch"),
        ("http", {"url": "https://example.com", "retry": "often"}, "WRONG_ARG_TYPE", "whole number"),
    ],
)
async def test_bad_parameters_fail_with_a_reason_and_are_not_retried(
    type_name: str, payload: Any, code: str, message: str
) -> None:
    with pytest.raises(NodeError) as caught:
        await run(type_name, payload, http=HttpService(ALLOW_EVERYTHING))
    assert (caught.value.failure.code, caught.value.failure.retryable) == (code, False)
    assert message in str(caught.value)


async def test_an_expression_that_fails_names_what_is_missing() -> None:
    with pytest.raises(ExpressionFailed, match="nowhere"):
        await run("map", {"input_array": ITEMS, "expression": "item.nowhere.deep"})
