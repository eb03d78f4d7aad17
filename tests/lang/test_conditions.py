"""Conditions of graphs: loose comparison, missing paths, the list form, comparisons by name."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.lang import ExpressionError, ExpressionFailed, compare, compile_condition
from tests.lang.evaluation import DATA, NAMES, NOW, run
from tests.rows import rows

CONDITIONS = [
    ("$fetch.age > 40", True),
    ("$fetch.age == 42", True),
    ("42.0 == $fetch.age", True),
    ("$fetch.age in [41, 42]", True),
    ("[42] contains $fetch.age", True),
    ("$fetch.name == 'Ann'", True),
    ("$fetch.age == '42'", True),
    ("'abc' == 3", False),
    ("$fetch.none", None),
    ("$fetch.none.deep.er == null", True),
    ("!$fetch.none", True),
    ("not $late.x", True),
    ("$fetch.none > 3", False),
    ("$fetch.none < 3", False),
    ("$fetch.null.x.y == null", True),
    ("$fetch.none.length > 0", False),
    ("$fetch.none.trim() == 'x'", False),
    ("$fetch.none && true", None),
    ("{{ $fetch.status == 200 }}", True),
    ("  {{ $fetch.status == 200 and not $fetch.none }} ", True),
    ("{{ {a: {b: 1}} == null }}", False),
    ("{{ $fetch.status }} == 200", True),
    ("{{ $fetch.status }} == {{ 100 * 2 }} && {{ $fetch.name }}", "Ann"),
    ("$fetch.body.users.some(u => u.nope > 1)", False),
    ("$fetch.name matches '^A' and $fetch.name startsWith 'An'", True),
    ("($fetch.status == 200 or false) and $fetch.body.plan == 'pro'", True),
]


@rows(("source", "expected"), CONDITIONS)
def test_condition(source: str, expected: Any) -> None:
    assert run(source, condition=True) == expected


def test_elsewhere_comparison_stays_strict() -> None:
    assert run("$fetch.age == 42") is False
    with pytest.raises(ExpressionFailed):
        run("$fetch.age > 40")


def test_a_condition_still_refuses_nonsense() -> None:
    with pytest.raises(ExpressionFailed, match="order"):
        run("'abc' > 3", condition=True)
    with pytest.raises(ExpressionFailed, match="nope"):
        run("$fetch.name.nope()", condition=True)


def decide(spec: Any, operator: str | None = "and") -> Any:
    return compile_condition(spec, operator, NAMES).evaluate(DATA.__getitem__, now=NOW)


LISTS: list[tuple[list[dict[str, Any]], str, bool]] = [
    ([{"op1": "$fetch.status", "operator": "eq", "op2": 200}], "and", True),
    ([{"op1": "{{ $fetch.status }}", "operator": "eq", "op2": "200"}], "and", True),
    ([{"op1": "$fetch.status", "operator": "gt", "op2": 200}], "and", False),
    ([{"op1": "$fetch.none", "operator": "is_null"}], "and", True),
    ([{"op1": "$late.x", "operator": "is_empty"}], "and", True),
    ([{"op1": "Hi $fetch.name", "operator": "==", "op2": "Hi Ann"}], "and", True),
    ([{"op1": "$fetch.list", "operator": "contains", "op2": "3"}], "and", True),
    ([{"op1": "$fetch.list", "operator": "not_contains", "op2": 9}], "and", True),
    ([{"op1": "x", "operator": "in", "op2": ["x", "y"]}], "and", True),
    ([{"op1": "x", "operator": "not_in", "op2": "{{ ['y'] }}"}], "and", True),
    ([{"op1": "$fetch.name", "operator": "starts_with", "op2": "A"},
      {"op1": "$fetch.name", "operator": "ends_with", "op2": "z"}], "and", False),
    ([{"op1": "$fetch.name", "operator": "starts_with", "op2": "A"},
      {"op1": "$fetch.name", "operator": "ends_with", "op2": "z"}], "or", True),
    ([{"op1": "$fetch.name", "operator": "matches", "op2": "^A.n$"}], "and", True),
    ([{"op1": [1], "operator": "is_not_empty"}], "and", True),
]  # fmt: skip


@rows(("spec", "operator", "expected"), LISTS)
def test_list_form(spec: Any, operator: str, expected: bool) -> None:
    assert decide(spec, operator) is expected


def test_other_forms_and_roots() -> None:
    assert decide(True) is True
    assert decide("$fetch.name", None) is True
    assert decide("$fetch.none") is False
    spec = [{"op1": "$fetch.x", "operator": "eq", "op2": "{{ $trigger.y }}"}]
    assert compile_condition(spec, "or", NAMES).roots == {"fetch", "$trigger"}


@pytest.mark.parametrize(
    ("spec", "operator", "mentions"),
    [([], "and", "empty"), ([{"op1": 1}], "and", "operator"), ([{"op1": 1, "operator": "eq"}], "and", "op2"),
     ([{"op1": 1, "operator": "like", "op2": 1}], "and", "like"), (7, "and", "condition"), ([1], "and", "comparison 1"),
     ([{"op1": 1, "operator": "eq", "op2": "{{ 1 + }}"}], "and", "comparison 1"), ([{}], "xor", "xor")],
)  # fmt: skip
def test_a_bad_condition_says_what_is_wrong(spec: Any, operator: str, mentions: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        decide(spec, operator)
    assert mentions in caught.value.message


def test_compare_by_sign_or_name() -> None:
    assert compare("==", "3", 3)
    assert compare("eq", [1], [1])
    assert compare("lte", 3, "3")
    assert not compare("gt", None, 3)
    assert compare("is_not_null", 0)
    with pytest.raises(ExpressionError, match="unknown operator"):
        compare("~", 1, 2)
    with pytest.raises(ExpressionFailed):
        compare("gt", "abc", 3)
