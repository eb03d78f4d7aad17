"""Templates: native values, interpolation, what stays text, errors with their place, and speed."""

from __future__ import annotations

import time
from typing import Any

import pytest

from dalsegno.graph.templates import TemplateErrors, TemplateReference, compile_template
from dalsegno.lang import ExpressionFailed, Limits, RootNames
from tests.rows import rows

NAMES = RootNames.of([("u", "User X"), ("http-1", None), ("evil", None), ("late", None)])
DATA: dict[str, Any] = {
    "u": {
        "name": "Bob",
        "age": 31,
        "big": 1e21,
        "tiny": 1e-7,
        "half": 2.5,
        "whole": 3.0,
        "yes": True,
        "nil": None,
        "tags": ["a", {"b": None}],
        "a$b": "dollar",
    },
    "http-1": {"body": {"id": 5}},
    "evil": {"text": "{{ $u.name }} $u.name"},
    "$trigger": {"id": "t1"},
    "$item": 4,
    "$index": 0,
}


def render(value: Any) -> Any:
    return compile_template(value, NAMES, "/parameters").render(DATA.__getitem__, now=0.0)


NATIVE = [
    ("{{ $u.age }}", 31),
    ("{{$u.age + 1}}", 32),
    ("{{ $u.tags }}", ["a", {"b": None}]),
    ("{{ {a: {b: 1}} }}", {"a": {"b": 1}}),
    ("{{ '}}' + \"{{\" }}", "}}{{"),
    ("{{ `${`}}`}` }}", "}}"),
    ("$u.age", 31),
    ("$u.tags[1].b", None),
    ("$u?.none", None),
    ('$u["name"]', "Bob"),
    ("$User X.name", "Bob"),
    ("$node['User X'].name", "Bob"),
    ("$http-1.body.id", 5),
    ("$node.http-1.body.id", 5),
    ("{{ $node.http-1.body.id }}", 5),
    ("{{ $node.http-1.body.id-1 }}", 4),
    ("$node.User X.name", "Bob"),
    ("{{ $node.User X.name }}", "Bob"),
    ("{{ $u.a$b }}", "dollar"),
    ("$u['a$b']", "dollar"),
    ("$trigger.id", "t1"),
    ("$item", 4),
    ("{{ $late?.x }}", None),
]

TEXT = [
    ("Hi $u.name.", "Hi Bob."),
    ("Hi $u.name, you are $u.age!", "Hi Bob, you are 31!"),
    ("Hi $u.name.Welcome", "Hi Bob.Welcome"),
    (" {{ $u.age }}", " 31"),
    ("{{ $u.name }}{{ $u.age }}", "Bob31"),
    ("a {{ $u.nil }} b", "a  b"),
    ("{{ $u.yes }} ", "true "),
    ("n=$u.big $u.tiny $u.half $u.whole", "n=1000000000000000000000 0.0000001 2.5 3"),
    ("j={{ $u.tags }}", 'j=["a",{"b":null}]'),
    ("$http-1.body.id-2", "5-2"),
    ("cost $u.age$ end", "cost 31$ end"),
    ("$u.age$", "31$"),
    ("$u.age$$", "31$"),
    ("$u.name$u.age", "Bob31"),
    ("$u.name$trigger.id$HOME", "Bobt1$HOME"),
    ("$u.tags[0]$u.name.", "aBob."),
    ("$u.name$ and {{ $u.a$b }}", "Bob$ and dollar"),
    ("is $node.http-1.body.id.", "is 5."),
    ("is $node.http-1.body.id-2", "is 5-2"),
    ("by $node.User X.name, $node.u.age", "by Bob, 31"),
    ("x $u.none y", "x  y"),
    ("x $late.y", "x "),
    ('see $node["User X"].name\'s', "see Bob's"),
    ("$u.name ", "Bob "),
    ("https://x/{{ $trigger.id }}?q={{ $u.tags[0] }}", "https://x/t1?q=a"),
]

UNTOUCHED = [
    "$HOME",
    "$5",
    "costs $5.00",
    "$unknown.x and $",
    "plain",
    "",
    "}} {",
    "input.id",
    "u.name",
    "a $ b",
    "$username",
    "see $node.nobody.x",
    "$node.http-2.x",
    "$node.http-10.x",
    "see $node.trigger.id",
]


@rows(("source", "expected"), NATIVE)
def test_a_single_expression_yields_the_native_value(source: str, expected: Any) -> None:
    assert render(source) == expected


@rows(("source", "expected"), TEXT)
def test_values_are_interpolated_into_text(source: str, expected: str) -> None:
    assert render(source) == expected


@rows("source", UNTOUCHED)
def test_other_text_stays_what_it_is(source: str) -> None:
    template = compile_template(source, NAMES, "")
    assert template.constant
    assert template.render(DATA.__getitem__, now=0.0) is source


def test_two_dollars_write_one() -> None:
    assert render("$$u.name costs $$5") == "$u.name costs $5"
    assert render("$$") == "$"
    assert render("$$$u.name") == "$Bob"
    assert compile_template("$$", NAMES, "").constant


def test_values_from_data_are_never_read_as_expressions() -> None:
    assert render("$evil.text") == "{{ $u.name }} $u.name"
    assert render("x {{ $evil.text }}") == "x {{ $u.name }} $u.name"


def test_nested_values_keep_their_shape_and_share_what_is_constant() -> None:
    constant = {"deep": [1, 2, 3]}
    value = {"a": [1, "{{ $u.age }}", {"b": "Hi $u.name"}], "c": constant, "d": None}
    before = repr(value)
    result = render(value)
    assert result == {"a": [1, 31, {"b": "Hi Bob"}], "c": {"deep": [1, 2, 3]}, "d": None}
    assert result["c"] is constant
    assert repr(value) == before
    assert list(result) == ["a", "c", "d"]


def test_a_template_without_expressions_renders_the_same_object() -> None:
    value = {"a": [1, "x", {"b": "$HOME"}]}
    template = compile_template(value, NAMES, "")
    assert template.constant
    assert template.roots == frozenset()
    assert template.render(DATA.__getitem__, now=0.0) is value


def test_all_errors_are_collected_with_their_pointers() -> None:
    with pytest.raises(TemplateErrors) as caught:
        compile_template(
            {"a/b": "{{ 1 + }}", "ok": "{{ 1 }}", "c": ["x", "a {{ nope }}", "{{ $u"]}, NAMES, "/p"
        )
    found = [(pointer, error.column) for pointer, error in caught.value.errors]
    assert found == [("/p/a~1b", 7), ("/p/c/1", 6), ("/p/c/2", 1)]


def test_references_know_their_place() -> None:
    template = compile_template(
        {"x": "a\n{{ $u.name }} $http-1.body", "y": ["{{ $trigger.id }}"]}, NAMES, "/p"
    )
    assert template.references == (
        TemplateReference("/p/x", "u", 2, 4),
        TemplateReference("/p/x", "http-1", 2, 15),
        TemplateReference("/p/y/0", "$trigger", 1, 4),
    )
    assert template.roots == {"u", "http-1", "$trigger"}


def test_a_failure_while_rendering_names_the_parameter() -> None:
    template = compile_template({"list": ["{{ $u.none }}"]}, NAMES, "/nodes/0/parameters")
    with pytest.raises(ExpressionFailed, match=r"\$u\.none") as caught:
        template.render(DATA.__getitem__, now=0.0)
    assert caught.value.pointer == "/nodes/0/parameters/list/0"
    assert caught.value.column == 7


@pytest.mark.parametrize("source", ["$u.none", "$late", "{{ $late.x }}", "a {{ $u.none }}"])
def test_braces_and_exact_references_must_exist(source: str) -> None:
    with pytest.raises(ExpressionFailed) as caught:
        render(source)
    assert caught.value.code == "PROPERTY_NOT_FOUND"


def test_the_size_of_a_text_is_limited() -> None:
    template = compile_template("$u.name " * 100, NAMES, "")
    with pytest.raises(ExpressionFailed) as caught:
        template.render(DATA.__getitem__, now=0.0, limits=Limits(allocated_bytes=300))
    assert caught.value.code == "LimitExceeded"


def test_deep_parameters_are_refused() -> None:
    value: Any = "x"
    for _ in range(5_000):
        value = [value]
    with pytest.raises(TemplateErrors, match="nested"):
        compile_template(value, NAMES, "")


def test_local_variables_reach_expressions() -> None:
    names = NAMES.with_variables("item")
    template = compile_template("{{ item.price * 2 }}", names, "")
    assert template.render(DATA.__getitem__, now=0.0, local={"item": {"price": 4}}) == 8


def test_ten_thousand_templates_compile_quickly() -> None:
    started = time.process_time()
    names = RootNames.of((f"node{number}", f"Node {number}") for number in range(10_000))
    for number in range(10_000):
        compile_template(
            {"url": f"https://x/{{{{ $node{number}.id }}}}", "method": "GET"}, names, f"/nodes/{number}"
        )
    assert time.process_time() - started < 5  # ten times the goal
