"""Every rule of validation: what it calls itself, where it points, and what it tells the author."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.errors import InvalidDefinition
from dalsegno.graph.build import load_graph
from tests.graph.bad_documents import DOCUMENTS, node
from tests.graph.bad_expressions import EXPRESSIONS, saying
from tests.graph.catalog import CATALOG
from tests.graph.documents import document, findings_of
from tests.rows import rows

CASES = {**DOCUMENTS, **EXPRESSIONS}


@rows("case", CASES.values(), ids=CASES.keys())
def test_bad_document_is_refused_with_place_rule_and_advice(case: tuple[Any, str, str, str]) -> None:
    source, pointer, rule, words = case
    with pytest.raises(InvalidDefinition) as refused:
        load_graph(source, CATALOG)
    found = [(finding.pointer, finding.rule) for finding in refused.value.findings]
    assert (pointer, rule) in found, refused.value.findings
    messages = [
        item.message for item in refused.value.findings if (item.pointer, item.rule) == (pointer, rule)
    ]
    assert any(words in message for message in messages), messages


WARNINGS = {
    "trigger only": (document("t", t="manual"), "/nodes", "trigger-only", "completes as soon as"),
    "any merge with timeout": (
        document("a > m", m={"type": "merge", "parameters": {"wait_mode": "wait_for_any", "timeout": 3}}),
        "/nodes/1/parameters/timeout",
        "no-effect",
        "the first arrival",
    ),
    "repeated into merge": (
        document("x > a > c, x > b > c > m, x > m", m="merge"),
        "/edges/4",
        "repeated-into-merge",
        "'c' can run more than once",
    ),
    "misspelt field": (node(retrys={}), "/nodes/0/retrys", "unknown-field", "did you mean 'retry'?"),
    "grace in settings": (
        {**document("a"), "settings": {"cancel_grace": "5s"}},
        "/settings/cancel_grace",
        "no-effect",
        "without a clean-up",
    ),
    "grace at the top": (
        {**document("a"), "cancel_grace": "5s"},
        "/cancel_grace",
        "no-effect",
        "without a clean-up",
    ),
    "unknown setting": (
        {**document("a"), "settings": {"a/b": 1}},
        "/settings/a~1b",
        "unknown-field",
        "no setting 'a/b'",
    ),
    "setting of the document": (
        {**document("a"), "settings": {"timeout": "5s"}},
        "/settings/timeout",
        "unknown-field",
        "at the top",
    ),
    "error edge under halt": (
        document("a > b, a !> c", a={"error": {"type": "halt"}}),
        "/edges/1",
        "error-edge-unused",
        "'halt', not 'branch'",
    ),
    "edge never taken": (
        document("c > a, c > b, c > d", c="conditional"),
        "/edges/2",
        "edge-never-taken",
        "does not name it",
    ),
    "retry said twice": (
        node(type="http", parameters={"url": "u", "retry": 2}, retry={"max_attempts": 5}),
        "/nodes/0/parameters/retry",
        "retry-twice",
        "wins",
    ),
}


@pytest.mark.parametrize("case", WARNINGS.values(), ids=WARNINGS.keys())
def test_doubtful_document_is_accepted_with_a_warning(case: tuple[Any, str, str, str]) -> None:
    source, pointer, rule, words = case
    warnings = load_graph(source, CATALOG).warnings
    assert [(warning.pointer, warning.rule) for warning in warnings] == [(pointer, rule)], warnings
    assert words in warnings[0].message
    assert warnings[0].severity == "warning"


def test_all_problems_are_reported_at_once() -> None:
    source = {
        "name": "",
        "timeout": "never",
        "nodes": [
            {"id": "a", "type": "lgo", "retry": 1},
            {"id": "a", "type": "log", "parameters": {"message": "{{ }}", "colour": 1}},
            {"id": "b", "type": "http", "credentials": {"token": "x"}},
        ],
        "edges": [{"id": "e", "src": "a", "dst": "q"}, {"id": "f", "src": "b", "dst": "b"}],
    }
    assert {finding.rule for finding in findings_of(source)} == {
        "bad-name",
        "bad-duration",
        "unknown-type",
        "bad-retry",
        "duplicate-id",
        "bad-expression",
        "bad-parameter",
        "bad-credentials",
        "dangling-edge",
        "self-loop",
    }


def test_every_independent_cycle_is_reported_once() -> None:
    source = document("a > b > a, c > d > e > c, x > y")
    cycles = [finding.message for finding in findings_of(source) if finding.rule == "cycle"]
    assert len(cycles) == 2
    assert "a → b → a" in cycles[0]
    assert "c → d → e → c" in cycles[1]


def test_long_cycle_is_printed_short() -> None:
    names = " > ".join(f"n{index}" for index in range(500))
    (cycle,) = (item for item in findings_of(document(f"{names} > n0")) if item.rule == "cycle")
    assert len(cycle.message) < 300
    assert "more …" in cycle.message


def test_what_follows_from_one_mistake_is_not_reported_as_another() -> None:
    """Behind a dangling edge nothing is called unreachable, behind contradictory scopes nothing contradictory."""
    source = document("t > a, b > c", t="manual")
    source["edges"][1]["src"] = "nope"
    assert [finding.rule for finding in findings_of(source)] == ["dangling-edge", "unreachable"]
    twice = document("x > s > a > m > n > o, x > m, x > o", s="split")
    assert [finding.rule for finding in findings_of(twice)] == ["two-scopes"]


def test_beside_a_cycle_references_and_scopes_are_checked() -> None:
    source = document(
        "x > a > b > c > a, x > y > z > g, x > s > i > h > o",
        x=saying("$b.v"),
        y=saying("$z.v"),
        z=saying("$item"),
        g="aggregator",
        s="split",
        h="aggregator",
        o=saying("$i.v"),
    )
    source["output"] = "$i.v + $b.v"
    found = {(finding.rule, finding.pointer) for finding in findings_of(source)}
    places = {entry["id"]: f"/nodes/{index}" for index, entry in enumerate(source["nodes"])}
    assert found == {
        ("cycle", "/edges/3"),
        ("reference-not-before", f"{places['x']}/parameters/message"),
        ("reference-not-before", f"{places['y']}/parameters/message"),
        ("item-outside-split", f"{places['z']}/parameters/message"),
        ("aggregator-outside-split", places["g"]),
        ("reference-out-of-scope", f"{places['o']}/parameters/message"),
        ("reference-out-of-scope", "/output"),
    }


def test_on_a_cycle_and_behind_it_only_the_cycle_is_reported() -> None:
    """What runs before what, and in which split, is unknown there."""
    source = document(
        "x > s > a > b > a, b > c > g > d, x > d, p > q > p, c > m, x > m",
        s="split",
        a=saying("$b.v $c.v $item"),
        b=saying("$a.v"),
        c=saying("$a.v $d.v $q.v $item"),
        g="aggregator",
        d=saying("$c.v $item $s.v"),
        q=saying("$x.v $item"),
    )
    source["output"] = "$a.v"
    assert [finding.rule for finding in findings_of(source)] == ["cycle", "cycle"]


def test_message_of_the_exception_names_every_place() -> None:
    with pytest.raises(InvalidDefinition, match="2 problems") as refused:
        load_graph(node(id="item", timeout="x"), CATALOG)
    assert "/nodes/0/id" in str(refused.value)
    assert "/nodes/0/timeout" in str(refused.value)
