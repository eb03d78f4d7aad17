"""What operators mean: precedence, arithmetic, text, equality, order, logic."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dalsegno.lang import ExpressionError, ExpressionFailed
from tests.lang.evaluation import run
from tests.rows import rows

PRECEDENCE = [
    ("1 + 2 * 3", 7),
    ("(1 + 2) * 3", 9),
    ("2 ** 3 ** 2", 512),
    ("2 * 3 ** 2", 18),
    ("2 ** -1", 0.5),
    ("(-2) ** 2", 4),
    ("-(2 ** 2)", -4),
    ("10 - 4 - 3", 3),
    ("100 / 10 / 2", 5),
    ("1 + 2 == 3", True),
    ("1 < 2 == true", True),
    ("'a' in ['a'] == true", True),
    ("true || false && false", True),
    ("null ?? false || true", True),
    ("false ? 1 : true ? 2 : 3", 2),
    ("null ?? 1 ? 'yes' : 'no'", "yes"),
    ("!false == true", True),
    ("not 1 == 2", True),
    ("not true or true", True),
    ("not false and false", False),
    ("!true || true", True),
    ("true and not false", True),
    ("1 == 1 and 2 == 2 or false", True),
    ("typeof 1 + 'x'", "numberx"),
    ("- - 3", 3),
    ("not not 1", True),
]

ARITHMETIC = [
    ("7 % 3", 1),
    ("-7 % 3", -1),
    ("7 % -3", 1),
    ("-7.5 % 2", -1.5),
    ("4 / 2", 2),
    ("1 / 4", 0.25),
    ("0.5 + 0.5", 1),
    ("0.1 + 0.2", 0.1 + 0.2),
    ("9007199254740993", 9007199254740993),
    ("9007199254740993 + 1", 9007199254740994),
    ("9223372036854775807 + 1", 9223372036854775808.0),
    ("0xff", 255),
    ("0b1010", 10),
    ("1_000_000", 1000000),
    ("1e3", 1000),
    ("1.5e-3", 0.0015),
    (".5 + 1", 1.5),
    ("2 ** 0.5", math.sqrt(2)),
    ("2 ** 62", 2**62),
    ("(-1) ** 3", -1),
    ("(-1) ** 99999999999", -1),
    ("0 ** 0", 1),
    ("3 ** 0", 1),
    ("+3", 3),
    ("1 / (0 * -1) < 0", True),
    ("-0 == 0", True),
    ("1 / -0 < 0", True),
    ("1 / 0 > 10 ** 300", True),
    ("0 / 0 == 0 / 0", False),
    ("isNaN(5 % 0)", True),
    ("String(-0)", "0"),
    ("2 ** 99999999 == 1 / 0", True),
]

TEXT = [
    ("1 + 'a'", "1a"),
    ("'a' + 1.0", "a1"),
    ("'a' + 1.5", "a1.5"),
    ("'' + null", "null"),
    ("'' + true", "true"),
    ("'' + [1, {a: 'ü'}]", '[1,{"a":"ü"}]'),
    ("'' + 1e21", "1000000000000000000000"),
    ("'' + 1e-7", "0.0000001"),
    ("`a${1 + 1}b${`n${null}`}`", "a2bnnull"),
    ("`$5 \\${x} \\u0041`", "$5 ${x} A"),
    (r"'\n\t\\\'\x41\u{1F600}\ud83d\ude00'", "\n\t\\'A😀😀"),
    ("'two\nlines'", "two\nlines"),
]

EQUALITY = [
    ("1 == 1.0", True),
    ("1 == '1'", False),
    ("1 == true", False),
    ("0 == false", False),
    ("null == false", False),
    ("null == undefined", True),
    ("[1, [2]] == [1, [2]]", True),
    ("{a: 1, b: 2} == {b: 2, a: 1}", True),
    ("{a: 1} == {a: 1, b: 2}", False),
    ("[1] == [true]", False),
    ("'a' === 'a'", True),
    ("'a' !== 'b'", True),
    ("Math.max == Math.max", True),
    ("(x => x) == (x => x)", False),
]

ORDER = [
    ("1 < 2.5", True),
    ("'a' < 'b'", True),
    ("'B' < 'a'", True),
    ("2 >= 2", True),
    ("0 / 0 < 1", False),
]

MEMBERSHIP = [
    ("2 in [1, 2]", True),
    ("'a' in {a: 1}", True),
    ("'b' in {a: 1}", False),
    ("'b' in 'abc'", True),
    ("[1] in [[1]]", True),
    ("3 not in [1, 2]", True),
    ("[1, 2] contains 2", True),
    ("'abc' contains 'bc'", True),
    ("{k: 1} contains 'k'", True),
    ("'abc' not contains 'x'", True),
    ("'abc' startsWith 'ab'", True),
    ("'abc' endsWith 'bc'", True),
    ("'abc' matches '^a.c$'", True),
    ("'abc' not matches 'z'", True),
    ("$fetch.none contains 'x'", False),
]

LOGIC = [
    ("0 || 'x'", "x"),
    ("'' || null", None),
    ("1 && 'x'", "x"),
    ("0 ?? 1", 0),
    ("null ?? undefined ?? 3", 3),
    ("!0", True),
    ("![]", False),
    ("!{}", False),
    ("!(0 / 0)", True),
    ("!''", True),
]


@rows(
    ("source", "expected"),
    [*PRECEDENCE, *ARITHMETIC, *TEXT, *EQUALITY, *ORDER, *MEMBERSHIP, *LOGIC],
)
def test_value(source: str, expected: Any) -> None:
    result = run(source)
    assert result == expected
    assert type(result) is type(expected)


TYPE_ERRORS = [
    "1 + null",
    "true + 1",
    "[] + []",
    "{} + 1",
    "'a' - 1",
    "'2' * 2",
    "null / 2",
    "1 < '2'",
    "null > 1",
    "true < 2",
    "[1] < [2]",
    "-'1'",
    "+'1'",
    "1 in 5",
    "5 contains 1",
    "1 matches 'a'",
    "[1] + 1",
    "(x => x) + 'a'",
]


@rows("source", TYPE_ERRORS)
def test_wrong_kinds_are_type_errors(source: str) -> None:
    with pytest.raises(ExpressionFailed) as caught:
        run(source)
    assert caught.value.code == "TypeError"


@pytest.mark.parametrize("source", ["1 / 0", "0 / 0", "[1, {a: 1 / 0}]", "2 ** 99999999", "Number('x')"])
def test_what_is_no_number_cannot_leave(source: str) -> None:
    with pytest.raises(ExpressionFailed) as caught:
        run(source)
    assert caught.value.code == "TypeError"


def test_the_place_of_a_foreign_value_is_named() -> None:
    with pytest.raises(ExpressionFailed, match=r"\.list\[1\]\.rate"):
        run("{list: [0, {rate: 1 / 0}]}")


@pytest.mark.parametrize("sign", ["-", "!", "+", "typeof "])
def test_a_sign_before_a_power_needs_parentheses(sign: str) -> None:
    with pytest.raises(ExpressionError, match=r"\*\*"):
        run(f"{sign}2 ** 2")


def test_operators_are_functions_too() -> None:
    assert run("[add(1, 2), sub(3, 1), mul(2, 3), div(6, 3)]") == [3, 2, 6, 2]
    assert run("[eq(1, 1), ne(1, 1), lt(1, 2), lte(2, 2), gt(1, 2), gte(1, 2)]") == [
        True, False, True, True, False, False,
    ]  # fmt: skip
    assert run("[not(0), and(1, 0, 2), or(0, 5)]") == [True, 0, 5]
