"""Whatever the text, compiling and evaluating end in a value or in our own errors."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dalsegno.lang import (
    ExpressionError,
    ExpressionFailed,
    Limits,
    RootNames,
    compile_expression,
    compile_string,
)
from tests.effort import examples
from tests.lang.evaluation import DATA, NAMES, NOW

SMALL = Limits(instructions=20_000, stack_depth=60, allocated_bytes=1_000_000, result_bytes=200_000)

WORDS = [
    "$fetch", "fetch", "$http-1", "$node", "$item", "input", "item", ".name", ".body", ".list", "?.x", "[0]", "['a']",
    "(", ")", "[", "]", "{", "}", ",", ":", "?", "=>", "...", "+", "-", "*", "/", "%", "**", "==", "!=", "<", ">=",
    "&&", "||", "??", "!", "not", "and", "or", "in", "contains", "matches", "startsWith", "typeof", "1", "0", "2.5",
    "'s'",    "`t`", "`${", "true", "null", "x", "x =>", "(x, y) =>", "Math.max(", ".map(",
    ".sort()", "{a: 1}", "\"q", "$", ".",
]  # fmt: skip

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.sampled_from([10**400, -(10**400)])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)

BINARY = [
    "+",
    "-",
    "*",
    "/",
    "%",
    "**",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "&&",
    "||",
    "??",
    "in",
    "contains",
    "matches",
]
METHODS = [
    "length", "map(x => x)", "filter(x => x)", "sort()", "sort((a, b) => a - b)", "slice(1)", "join('-')", "flat()",
    "unique()", "repeat(3)", "padStart(9, 'ab')", "split('')", "toUpperCase()", "replace('a', 'b')", "toFixed(2)",
    "reduce((a, b) => a + b)", "indexOf(1)", "includes('a')", "concat([1], 2)", "at(0)", "match('a')", "reverse()",
]  # fmt: skip
CALLS = ["Math.round", "Math.sqrt", "Number", "String", "JSON.stringify", "JSON.parse", "Object.entries", "hash",
         "Date.format", "Math.max", "Math.sign", "Math.floor",
         "parseInt", "Date.parse", "Object.fromEntries", "not"]  # fmt: skip


def combine(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return (
        st.tuples(inner, st.sampled_from(BINARY), inner).map(lambda t: f"({t[0]}) {t[1]} ({t[2]})")
        | st.tuples(inner, st.sampled_from(METHODS)).map(lambda t: f"({t[0]}).{t[1]}")
        | st.tuples(st.sampled_from(CALLS), inner).map(lambda t: f"{t[0]}({t[1]})")
        | st.tuples(st.sampled_from(["!", "-", "+", "typeof "]), inner).map(lambda t: f"{t[0]}({t[1]})")
        | st.tuples(inner, inner, inner).map(lambda t: f"({t[0]}) ? ({t[1]}) : ({t[2]})")
        | st.tuples(inner, inner).map(lambda t: f"({t[0]})?.[{t[1]}]")
        | st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
    )


LEAVES = VALUES.map(lambda value: json.dumps(value, ensure_ascii=False)) | st.sampled_from(
    ["$a", "$b.x", "$c?.y"]
)
EXPRESSIONS = st.recursive(LEAVES, combine, max_leaves=8)


def attempt(source: str, names: RootNames, values: dict[str, Any], condition: bool) -> None:
    try:
        compiled = compile_expression(source, names=names, condition=condition)
        result = compiled.evaluate(values.__getitem__, now=NOW, limits=SMALL, local={"item": 1, "index": 0})
    except (ExpressionError, ExpressionFailed) as problem:
        check_place(problem)
    else:
        json.dumps(result, allow_nan=False)


def check_place(problem: ExpressionError | ExpressionFailed) -> None:
    assert problem.code
    assert problem.line >= 1
    assert problem.column >= 1
    assert problem.excerpt.endswith("^")


@examples(500)
@given(source=st.text(max_size=40), condition=st.booleans())
def test_arbitrary_text(source: str, condition: bool) -> None:
    attempt(source, NAMES.with_variables(), DATA, condition)


@examples(1_000)
@given(
    words=st.lists(st.sampled_from(WORDS), max_size=14),
    space=st.sampled_from(["", " "]),
    condition=st.booleans(),
)
def test_arbitrary_words(words: list[str], space: str, condition: bool) -> None:
    attempt(space.join(words), NAMES.with_variables(), DATA, condition)


@examples(1_000)
@given(source=EXPRESSIONS, a=VALUES, b=VALUES, condition=st.booleans())
def test_arbitrary_expressions(source: str, a: Any, b: Any, condition: bool) -> None:
    before = json.dumps([a, b])
    attempt(source, RootNames.of(["a", "b", "c"]), {"a": a, "b": b}, condition)
    assert json.dumps([a, b]) == before


@examples(500)
@given(parts=st.lists(st.sampled_from([*WORDS, "{{", "}}", "$$", "text ", "$HOME"]), max_size=12))
def test_arbitrary_templates(parts: list[str]) -> None:
    source = "".join(parts)
    try:
        compiled = compile_string(source, NAMES.with_variables())
        if not isinstance(compiled, str):
            compiled.evaluate(DATA.__getitem__, now=NOW, limits=SMALL, local={"item": 1, "index": 0})
    except (ExpressionError, ExpressionFailed) as problem:
        check_place(problem)


@examples(300)
@given(value=VALUES)
def test_json_round_trip(value: Any) -> None:
    compiled = compile_expression("JSON.parse(JSON.stringify($a)) == $a", names=RootNames.of(["a"]))
    assert compiled.evaluate({"a": value}.__getitem__, now=NOW) is True
