"""Document checks: what is constant is judged, what holds a template is left to the run."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.ports.node import NodeError
from tests.nodes.fakes import REGISTRY, problems_of


@pytest.mark.parametrize(
    ("node_type", "parameters", "place", "message"),
    [
        ("wait", {"amout": 1}, "amout", "did you mean 'amount'"),
        ("manual", {"x": 1}, "x", "this takes none"),
        ("wait", {"amount": True}, "amount", "not a boolean"),
        ("wait", {"amount": "soon"}, "amount", "should be a number, not 'soon'"),
        ("wait", {"amount": -1}, "amount", "greater than or equal to 0"),
        ("wait", {"unit": "secnds"}, "unit", "did you mean 'seconds'"),
        ("wait", {"resume": "until"}, "", "'until' is missing"),
        ("wait", {"resume": "until", "until": "tomorrow"}, "until", "point in time"),
        ("conditional", {}, "expression", "is missing"),
        ("conditional", {"expression": "true", "operator": "xor"}, "operator", "'and'"),
        ("split", {"max_concurrency": 0, "input_array": []}, "max_concurrency", "greater than or equal to 1"),
        ("split", {"input_array": [], "on_item_error": "halt!"}, "on_item_error", "did you mean 'halt'"),
        ("switch", {"rules": [{"valu": 1}]}, "rules/0/valu", "'rules[0].valu'; did you mean 'value'"),
        (
            "switch",
            {"rules": [{"value": 1, "operator": "contain"}]},
            "rules/0/operator",
            "did you mean 'contains'",
        ),
        ("switch", {"rules": {"a": "$b.c"}}, "rules", "should be a list"),
        ("switch", {"rules": [], "routes": "{{ x }}"}, "routes", "should be a list"),
        ("merge", {"timeout": "{{ x }}"}, "timeout", "is not a duration"),
        ("merge", {"timeout": 0}, "timeout", "greater than 0"),
        ("merge", {"mode": "zip"}, "mode", "'append', 'combine' or 'first'"),
        ("edit", {"assignments": [{"value": 1}]}, "assignments/0/name", "is missing"),
        ("edit", {"assignments": [{"name": "a..b"}]}, "assignments/0/name", "is not a path"),
        (
            "edit",
            {"assignments": [{"name": "a", "type": "strin"}]},
            "assignments/0/type",
            "did you mean 'string'",
        ),
        ("task", {}, "task", "is missing"),
        ("schedule", {"cron": "whenever"}, "cron", "five fields"),
        ("schedule", {"cron": "0 99 * * *"}, "cron", "bad hour (field 2)"),
        ("schedule", {"cron": "0 9 * * *", "timezone": "Mars/Base"}, "timezone", "no time zone 'Mars/Base'"),
        ("http", {"url": "http://x", "method": "FETCH"}, "method", "'GET'"),
        ("http", {"url": "http://x", "raise_on_status": "4xx,9xx"}, "raise_on_status", "'9xx'"),
        ("http", {"url": "http://x", "timeout": "fast"}, "timeout", "is not a duration"),
        ("http", {"url": "http://x", "headers": {"a b": "1"}}, "headers/a b", "not a header name"),
        ("http", {"url": "http://x", "headers": {"HOST": "a"}}, "headers/HOST", "belongs to the connection"),
        (
            "http",
            {"url": "http://x", "headers": {"Host": "{{ $json.host }}", "X-A": "{{ $json.a }}"}},
            "headers/Host",
            "belongs to the connection",
        ),
        (
            "http",
            {"url": "http://x", "auth": {"type": "header", "name": "Host", "value": "internal"}},
            "auth",
            "belongs to the connection",
        ),
        (
            "http",
            {"url": "http://x", "auth": {"type": "bearer", "token": "a\r\nHost: b"}},
            "auth",
            "line break",
        ),
        ("http", {"url": "http://x", "headers": {"a": "1\r\nb: 2"}}, "headers", "line break"),
        ("http", {"url": "http://x", "auth": {"type": "bearer"}}, "auth", "needs 'token'"),
        (
            "http",
            {"url": "http://x", "auth": {"type": "bearer", "tokn": "t"}},
            "auth/tokn",
            "did you mean 'token'",
        ),
        (
            "http",
            {"url": "http://x", "pagination": {}},
            "pagination",
            "either 'next_url_path' or 'page_param'",
        ),
        ("sort", {"rules": [{"field": "a", "direction": "up"}]}, "rules/0/direction", "'asc' or 'desc'"),
        ("sort", {"rules": [{"feld": "a"}]}, "rules/0/feld", "did you mean 'field'"),
        ("sort", {"rules": ["a", "b..c"]}, "rules/1", "is not a path"),
        ("filter", {"rules": [], "expression": "true"}, "", "either 'expression' or 'rules'"),
        ("group", {"rules": ["a"], "field": "b"}, "", "only one of 'field', 'expression' and 'rules'"),
        ("group", {"expression": "item", "field": "b"}, "", "only one of"),
        ("group", {"rules": [{}]}, "rules/0/field", "is missing"),
        ("group", {"rules": "a"}, "rules", "should be a list"),
        ("dedupe", {"rules": ["a"], "fields": ["b"]}, "", "only one of 'fields', 'expression' and 'rules'"),
        ("dedupe", {"rules": ["a"], "expression": "item"}, "", "only one of"),
        ("dedupe", {"rules": [3]}, "rules/0", "should be"),
        ("dedupe", {"rules": [{"field": "a", "direction": "asc"}]}, "rules/0/direction", "unknown parameter"),
        ("datetime", {"timezone": "Nowhere"}, "timezone", "no time zone"),
        ("datetime", {"operation": "parse"}, "", "'date' is missing"),
    ],
)
def test_constant_mistakes_are_reported_with_their_place(
    node_type: str, parameters: dict[str, Any], place: str, message: str
) -> None:
    found = problems_of(node_type, parameters)
    assert place in found, found
    assert message in found[place]


@pytest.mark.parametrize(
    ("node_type", "parameters"),
    [
        ("wait", {"amount": "{{ $trigger.seconds }}"}),
        ("wait", {"amount": "$trigger.seconds", "unit": "{{ unit }}"}),
        ("wait", {"resume": "until", "until": "$trigger.when"}),
        ("split", {"input_array": "$fetch.body", "max_concurrency": "{{ 2 }}"}),
        ("switch", {"rules": "{{ $trigger.rules }}"}),
        ("switch", {"rules": [{"value": 1, "operator": "{{ $trigger.operator }}"}]}),
        ("http", {"url": "http://x", "headers": "$trigger.headers", "auth": {"type": "{{ t }}"}}),
        ("http", {"url": "http://x", "raise_on_status": "{{ $trigger.statuses }}"}),
        ("edit", {"assignments": [{"name": "{{ $trigger.field }}", "value": "x"}]}),
        ("datetime", {"timezone": "$trigger.zone"}),
    ],
)
def test_values_that_hold_templates_are_left_to_the_run(node_type: str, parameters: dict[str, Any]) -> None:
    assert problems_of(node_type, parameters) == {}


def test_an_escaped_dollar_is_no_template() -> None:
    assert "unit" in problems_of("wait", {"unit": "$$unit"})
    assert "unit" in problems_of("wait", {"unit": "$5"})


def test_all_problems_come_at_once() -> None:
    assert set(problems_of("wait", {"amount": "x", "unit": "y", "z": 1})) == {"amount", "unit", "z"}


def test_at_run_time_a_bad_rendered_value_fails_without_retry() -> None:
    with pytest.raises(NodeError, match="parameter 'amount' should be a number") as caught:
        REGISTRY.get("wait").parse({"amount": "soon"})
    failure = caught.value.failure
    assert (failure.code, failure.retryable) == ("INVALID_PARAMETERS", False)
    assert failure.details is not None
    assert failure.details["problems"][0]["path"] == ["amount"]


@pytest.mark.parametrize(
    "parameters", [{"auth": "sekret"}, {"headers": "sekret"}, {"auth": {"type": "sekret"}}]
)
def test_secrets_do_not_appear_in_messages(parameters: dict[str, Any]) -> None:
    with pytest.raises(NodeError) as caught:
        REGISTRY.get("http").parse({"url": "http://x", **parameters})
    assert "sekret" not in str(caught.value.failure)
