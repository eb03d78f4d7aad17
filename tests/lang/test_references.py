"""How expressions name things: roots of a graph, members, optional chains, variables."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.lang import ExpressionError, ExpressionFailed, RootNames, compile_expression
from dalsegno.lang.expressions.compiler import Compiler
from dalsegno.lang.expressions.expression import MachineExpression, PathExpression
from dalsegno.lang.expressions.syntax.parser import parse_expression
from tests.lang.evaluation import DATA, NAMES, NOW, run
from tests.rows import rows

SPELLINGS = [
    ("$fetch.status", 200),
    ("$fetch.body.users[0].name", "Bob"),
    ('$fetch["body"]["plan"]', "pro"),
    ("$Fetch user.status", 200),
    ('$node["Fetch user"].status', 200),
    ("$node.fetch.status", 200),
    ("$node['A node']", 7),
    ("$node.http-1.body", "one"),
    ("$node.http-1.output.body", "real"),
    ("$node.http-1?.none ?? 'no'", "no"),
    ("$node.a-1", 6),
    ("$node.http.body-1", 9),
    ("$node.dotted.id.x", 1),
    ("$node.Fetch user.status + 1", 201),
    ("$node.fetch.output.status", 200),
    ("$node?.fetch.status", 200),
    ("$node . fetch . status", 200),
    ("fetch.status", 200),
    ("fetch.output.status", 200),
    ("$fetch.output.status", 200),
    ("$fetch?.output.status", 200),
    ("$fetch.output.body.plan", "pro"),
    ("$http-1.body", "one"),
    ("$http-1.output.body", "real"),
    ("http-1.body", "one"),
    ("$a-1", 6),
    ("$a - 1", 6),
    ("$dotted.id.x", 1),
    ("$trigger.user_id", "u1"),
    ("input.user_id", "u1"),
    ("$trigger.output.n", 5),
    ("$item.sku", "s"),
    ("$index + 1", 3),
    ("$json[0]", 1),
    ("$execution.id", "e-1"),
    ("item.price * 2", 8),
    ("index", 0),
    ("$fetch.list.length", 3),
    ("$fetch.name.length", 3),
    ("$fetch.name[0]", "A"),
    ("$fetch.list[99]", None),
    ("$fetch.list[-1]", None),
    ("$fetch.list[0.5]", None),
    ("'héé😀'[3]", "😀"),
    ("{if: 1, null: 2, true: 3}.null", 2),
    ("{a: {in: 1, not: 2}}.a.not", 2),
    ("{1: 'x'}[1]", "x"),
    ("{a: 1}['a']", 1),
]


@rows(("source", "expected"), SPELLINGS)
def test_spelling(source: str, expected: Any) -> None:
    assert run(source) == expected


TOLERATED = [
    "$fetch?.none",
    "$fetch?.none.deep.er",
    "$fetch.body?.none",
    "$fetch.none?.deep",
    "$fetch.null?.x",
    "$fetch.null?.x.y.z()",
    "$fetch?.['none']",
    "$late?.x",
    "$late ?? null",
    "$fetch.none.deep ?? null",
    "default($fetch.none.deep, null)",
    "$fetch.list[99]",
    "$fetch.body.users[5]?.name",
    "$fetch.null?.toUpperCase()",
    "$fetch?.none(1)",
]


@rows("source", TOLERATED)
def test_a_missing_path_is_null_where_it_is_tolerated(source: str) -> None:
    assert run(source) is None


def test_a_missing_path_is_null_in_comparisons() -> None:
    assert run("$fetch.none.deep == null") is True
    assert run("$late.x == null") is True
    assert run("'x' != $fetch.none") is True


def test_default_and_coalescing_evaluate_the_rest_only_when_needed() -> None:
    assert run("default($fetch.status, 1 + null)") == 200
    assert run("$fetch.status ?? 1 + null") == 200
    assert run("default($fetch.none, $late.x, 'third')") == "third"
    assert run("default($fetch.none, {x: 4}).x") == 4


MISSING = [
    ("$fetch.none", "PROPERTY_NOT_FOUND", "$fetch.none"),
    ("$fetch.body.none.deep", "PROPERTY_NOT_FOUND", "$fetch.body.none"),
    ("$fetch.body.users[0].none", "PROPERTY_NOT_FOUND", "$fetch.body.users[0].none"),
    ("$fetch['none'] + 1", "PROPERTY_NOT_FOUND", "none"),
    ("$late.x", "PROPERTY_NOT_FOUND", "$late"),
    ("$late", "PROPERTY_NOT_FOUND", "$late"),
    ("1 + $fetch.none", "PROPERTY_NOT_FOUND", "$fetch.none"),
    ("$fetch.null.x", "TYPE_ERROR", "$fetch.null.x"),
    ("$fetch.status.x", "TYPE_ERROR", "number"),
    ("true.x", "TYPE_ERROR", "boolean"),
    ("$fetch.null[0]", "TYPE_ERROR", "null"),
    ("$fetch.body.users[1].age.x", "TYPE_ERROR", "age.x"),
    ("$fetch.list.map", "PROPERTY_NOT_FOUND", "map"),
    ("$fetch.name.nope()", "NOT_A_FUNCTION", "nope"),
    ("$fetch.status()", "NOT_A_FUNCTION", ""),
    ("$fetch.body.none()", "PROPERTY_NOT_FOUND", "none"),
    ("$fetch.null.trim()", "TYPE_ERROR", "trim"),
    ("{a: 1}[null]", "TypeError", "key"),
]


@rows(("source", "code", "mentions"), MISSING)
def test_a_missing_path_is_an_error_elsewhere(source: str, code: str, mentions: str) -> None:
    with pytest.raises(ExpressionFailed) as caught:
        run(source)
    assert caught.value.code == code
    assert mentions in caught.value.message


def test_an_error_knows_its_place() -> None:
    with pytest.raises(ExpressionFailed) as caught:
        run("1 +\n  $fetch.none")
    assert (caught.value.line, caught.value.column) == (2, 10)
    assert caught.value.excerpt == "  $fetch.none\n         ^"


@pytest.mark.parametrize(
    "source", ["$fetch.status", "$fetch.none", "$fetch.null.x", "$fetch.list[1]", "$late.x", "$fetch.output.name",
               "$fetch.list.length", "$http-1.output.body", "$a.x",
               "$node.http-1.body", "$node.http-1.output.body", "$node.http-1.none", "$node.late.x",
               "$node.fetch.null.x", "$fetch.body[0]", "$fetch.list[7].x"],
)  # fmt: skip
@pytest.mark.parametrize("condition", [False, True])
def test_the_fast_path_agrees_with_the_machine(source: str, condition: bool) -> None:
    fast = compile_expression(source, names=NAMES, condition=condition)
    compiler = Compiler(source, NAMES, condition)
    slow = MachineExpression(compiler.unit(parse_expression(source, NAMES)), tuple(compiler.references))
    assert isinstance(fast, PathExpression)
    outcomes: list[Any] = []
    for expression in (fast, slow):
        try:
            outcomes.append((expression.evaluate(DATA.__getitem__, now=NOW), None))
        except ExpressionFailed as failed:
            outcomes.append((None, (failed.code, failed.message, failed.column)))
    assert outcomes[0] == outcomes[1]
    assert fast.references == slow.references


def test_roots_are_canonical_keys() -> None:
    source = "$Fetch user.x + http-1.y + input.z + $item + $index + $json + $execution.id + $node['A node']"
    found = compile_expression(source, names=NAMES)
    assert found.roots == {"fetch", "http-1", "$trigger", "$item", "$index", "$json", "$execution", "a"}
    assert [reference.offset for reference in found.references][:2] == [0, 16]


def test_an_id_wins_over_a_name_and_variables_over_both() -> None:
    names = RootNames.of([("x", "y"), ("y", "x")])
    assert compile_expression("$x", names=names).roots == {"x"}
    assert compile_expression("y.z", names=names).roots == {"y"}
    assert compile_expression("[1].map(x => x)", names=names).roots == frozenset()
    assert compile_expression("x", names=names.with_variables("x")).roots == frozenset()


def test_a_node_may_be_named_like_a_library_function() -> None:
    names = RootNames.of(["hash", "log", "math"])
    assert compile_expression("hash.x", names=names).roots == {"hash"}
    assert compile_expression("hash('x')", names=names).roots == frozenset()
    assert compile_expression("math.max", names=names).roots == {"math"}


@rows(
    ("source", "mentions"),
    [("$fetcj.x", "did you mean '$fetch'"), ("fetcj", "did you mean 'fetch'"), ("$node['Fetch usr']", "Fetch user"),
     ("$node.fetcj.x", "did you mean 'fetch'"), ("$node.trigger.x", "no node 'trigger'"),
     ("$node[1 + 1]", "quotes"), ("$node", "quotes"), ("Math.maxx(1)", "Math.max"), ("Math", "Math.something"),
     ("$5", "unknown root"), ("$", "unknown root"), ("default(1)", "default()")],
)  # fmt: skip
def test_an_unknown_name_is_an_error_before_anything_runs(source: str, mentions: str) -> None:
    with pytest.raises(ExpressionError, match=r".") as caught:
        run(source)
    assert mentions in caught.value.message


def test_a_variable_that_is_not_given_is_a_reference_error() -> None:
    with pytest.raises(ExpressionFailed) as caught:
        run("item", local={})
    assert caught.value.code == "ReferenceError"


def test_inputs_are_shared_and_never_changed() -> None:
    items = [3, 1, 2]
    lookup = {"fetch": {"list": items}}.__getitem__
    for source in ("$fetch.list.sort()", "$fetch.list.push(1)", "$fetch.list.reverse()", "$fetch.list.splice(0, 1)",
                   "[...$fetch.list, 4]", "$fetch.list.sort((a, b) => b - a)", "$fetch.list.fill(0)"):  # fmt: skip
        compile_expression(source, names=NAMES).evaluate(lookup, now=NOW)
    assert items == [3, 1, 2]
    assert compile_expression("$fetch.list", names=NAMES).evaluate(lookup, now=NOW) is items
