"""Nothing an expression can say makes the process run out of time, memory or stack."""

from __future__ import annotations

import time
from typing import Any

import pytest

from dalsegno.lang import ExpressionError, ExpressionFailed, Limits, compile_expression
from tests.lang.evaluation import NAMES, NOW, run

TOO_LARGE = [
    "'x'.repeat(1000000000)",
    "'x'.repeat(2 ** 62)",
    "'x'.padStart(1000000000)",
    "'x'.padEnd(1e18, 'ab')",
    "'a'.repeat(10000).replaceAll('a', 'x'.repeat(10000))",
    "'a'.repeat(1000000).split('').map(x => 'y'.repeat(1000000)).join('')",
    "'a'.repeat(3000000).split('').join('bbbbbbbbbb')",
    "[1,2,3,4,5,6,7,8].reduce((s, x) => s + s + s + s + s + s + s + s + s + s, 'xxxxxxxxxx')",
    "(f => f(f))(f => f(f))",
    "(f => f(f, []))((f, list) => f(f, [...list, ...list, 1]))",
    "(f => f(f, 'x'))((f, s) => f(f, s + s))",
    "'x'.repeat(16000000).concat('x'.repeat(16000000))",
    "JSON.stringify('x'.repeat(16000000).split(''))",
]


@pytest.mark.parametrize("source", TOO_LARGE)
def test_too_large_is_refused_before_it_is_made(source: str) -> None:
    started = time.process_time()
    with pytest.raises(ExpressionFailed) as caught:
        run(source)
    assert caught.value.code == "LimitExceeded"
    assert time.process_time() - started < 5


@pytest.mark.parametrize("source", ["2 ** 99999999", "9 ** 9 ** 9", "(-3) ** 99999999"])
def test_a_huge_power_is_infinite_at_once(source: str) -> None:
    with pytest.raises(ExpressionFailed, match="Infinity"):
        run(source)


def test_multiplication_leaves_exact_integers_before_they_grow() -> None:
    source = "[1,2,3,4,5,6,7,8,9,10,11,12].reduce((n, x) => n * n, 12345678901234567)"
    with pytest.raises(ExpressionFailed, match="Infinity"):
        run(source)


@pytest.mark.parametrize(
    "source",
    ["(" * 10_000 + "1" + ")" * 10_000, "[" * 10_000, "!" * 10_000 + "1", "1 ? " * 10_000, "x => " * 10_000 + "1",
     "2 ** " * 10_000 + "2", "{a:" * 5_000, "`${" * 5_000, "- " * 10_000 + "1", "f(" * 10_000,
     "1 ? 1 : " * 10_000 + "1", "not " * 10_000 + "1", "(" * 100_000, "a[" * 300 + "1" + "]" * 300],
    ids=lambda source: source[:8],
)  # fmt: skip
def test_deep_nesting_is_refused(source: str) -> None:
    with pytest.raises(ExpressionError):
        run(source)


def test_nesting_up_to_the_limit_works() -> None:
    assert run("(" * 190 + "1" + ")" * 190) == 1
    assert run("[" * 150 + "]" * 150 + ".length") == 1
    assert run("!" * 180 + "1") is True


def test_long_is_not_deep() -> None:
    assert run(" + ".join(["1"] * 10_000)) == 10_000
    assert run(" && ".join(["true"] * 10_000)) is True
    assert run("[" + ",".join(["1"] * 10_000) + "].length") == 10_000
    assert run("$fetch" + "?.a" * 5_000) is None


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "source", ["$a == $b", "JSON.stringify($a)", "'' + $a", "[$a] contains $b", "[$a, 1 + 1]"]
)
def test_deep_data_is_refused_where_it_is_walked(source: str) -> None:
    names = NAMES.of(["a", "b"])
    values = {"a": deep(5_000), "b": deep(5_000)}
    with pytest.raises(ExpressionFailed) as caught:
        compile_expression(source, names=names).evaluate(values.__getitem__, now=NOW)
    assert caught.value.code == "LimitExceeded"


def test_deep_json_text_is_refused() -> None:
    with pytest.raises(ExpressionFailed) as caught:
        run("JSON.parse('['.repeat(100000))")
    assert caught.value.code == "LimitExceeded"
    assert run("JSON.parse('\"' + '['.repeat(1000) + '\"').length") == 1000


def test_a_catastrophic_pattern_is_linear() -> None:
    started = time.process_time()
    assert run("'a'.repeat(100000) + '!' matches '^(a+)+$'") is False
    assert run("('a'.repeat(50000) + 'b').replaceMatches('(a*)*c', '')").endswith("b")
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    "source", ["'a' matches '(a{1000}){1000}'", "'a' matches '(?=a)'", "'a' matches 'a'.repeat(5000)"]
)
def test_a_pattern_that_re2_refuses_is_an_error(source: str) -> None:
    with pytest.raises(ExpressionFailed):
        run(source)


def test_instructions_and_stack_are_limited() -> None:
    with pytest.raises(ExpressionFailed, match="instructions"):
        run("[1,2,3,4].map(x => x + 1)", limits=Limits(instructions=10))
    with pytest.raises(
        ExpressionFailed, match=r"more than 50 calls inside each other.*Limits\(stack_depth=…\)"
    ):
        run("(f => f(f))(f => 1 + f(f))", limits=Limits(stack_depth=50))


def test_a_large_input_is_not_copied() -> None:
    names = NAMES.of(["big"])
    values = {"big": {"list": list(range(1_000_000))}}
    length = compile_expression("$big.list.length + 1", names=names)
    started = time.process_time()
    for _ in range(1_000):
        assert length.evaluate(values.__getitem__, now=NOW) == 1_000_001
    assert time.process_time() - started < 1
