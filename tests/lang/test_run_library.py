"""The library as scripts use it: every documented name once, by every route."""

from __future__ import annotations

from typing import Any

from dalsegno.lang import Machine, compile
from tests.lang.driver import START, error_of, play, result_of
from tests.rows import rows

CALLS: list[tuple[str, Any]] = [
    # lists
    ("[1, 2].length", 2),
    ("[1].concat([2], 3)", [1, 2, 3]),
    ("[1, [2]].includes([2])", True),
    ("[1, 2].indexOf(2)", 1),
    ("[1, 2, 3].slice(-2)", [2, 3]),
    ("[1, null, 'a'].join('-')", "1--a"),
    ("[1, 2].reverse()", [2, 1]),
    ("[1, 2].push(3)", 3),
    ("[1, 2].pop()", 2),
    ("[1, 2].map(x => x + 1)", [2, 3]),
    ("[1, 2].filter(x => x > 1)", [2]),
    ("[1, 2].find(x => x > 1)", 2),
    ("[1, 2].some(x => x > 1)", True),
    ("[1, 2].every(x => x > 1)", False),
    ("[1, 2].reduce((a, b) => a + b)", 3),
    ("[2, 10, 1].sort()", [1, 2, 10]),
    ("[1, [2, [3]]].flat()", [1, 2, [3]]),
    ("[1, 1, {a: 1}, {a: 1}].unique()", [1, {"a": 1}]),
    # strings
    ("'a,b'.split(',')", ["a", "b"]),
    ("' a '.trim()", "a"),
    ("'a'.toUpperCase() + 'B'.toLowerCase()", "Ab"),
    ("'abc'.startsWith('ab') && 'abc'.endsWith('bc')", True),
    ("'aab'.replace('a', 'x')", "xab"),
    ("'hello'.substring(1, 3)", "el"),
    ("'5'.padStart(3, '0')", "005"),
    ("'ab'.repeat(2)", "abab"),
    ("'añ😀'.length + 'añ😀'[2]", "3😀"),
    ("'a-1'.matches('^[a-z]-\\\\d$')", True),
    # the rest
    ("[Math.round(2.5), Math.round(-2.5), Math.floor(1.9), Math.max(1, 2), Math.abs(-1)]", [3, -2, 1, 2, 1]),
    ("JSON.parse(JSON.stringify({b: 1, a: [true, null]}))", {"b": 1, "a": [True, None]}),
    ("[Object.keys({b: 1, a: 2}), Object.values({b: 1}), Object.entries({b: 1})]", [["b", "a"], [1], [["b", 1]]]),
    ("[Number('5'), Number('1.50'), String(5.0), String(null), Boolean('')]", [5, 1.5, "5", "null", False]),
    ("Date.now()", int(START * 1000)),
    ("now() == Date.now()", True),
    ("(() => { const now = 5; return now })()", 5),
    ("Date.format(0, '%Y-%m-%d')", "1970-01-01"),
    ("hash('a').length", 64),
    ("log('x')", None),
    ("[typeof 1, typeof 'a', typeof null, typeof true, typeof [], typeof {}]",
     ["number", "string", "null", "boolean", "list", "object"]),
    # operators
    ("[7 % 3, -7 % 3, 2 ** 10, (-2) ** 2, 7 / 2, 6 / 2]", [1, -1, 1024, 4, 3.5, 3]),
    ("['a' + 1, 1 + 'a', 'x' + null, 'x' + true, 'x' + [1, {a: 2}], 'x' + 2.0]",
     ["a1", "1a", "xnull", "xtrue", 'x[1,{"a":2}]', "x2"]),
    ("[1 == 1.0, '1' == 1, null == false, {a: 1, b: 2} == {b: 2, a: 1}, [1] == [1], 1 === 1, 1 !== 2]",
     [True, False, False, True, True, True, True]),
    ("[1 < 2, 'a' < 'b', 2 >= 2]", [True, True, True]),
    ("['a' in {a: 1}, 2 in [1, 2], 'b' in 'abc']", [True, True, True]),
    ("[null ?? 1, 0 ?? 1, 0 || 2, 1 && 3, '' && 4, !'']", [1, 0, 2, 3, "", True]),
    ("[({a: {b: 1}})?.a?.b, null?.a.b.c, ({})?.x, [1]?.[5]]", [1, None, None, None]),
    ("[[1, 2][5], 'ab'[9]]", [None, None]),
    ("(1 / 0 > 5) + ''", "true"),
    ("[...[1, 2], ...'ab']", [1, 2, "a", "b"]),
    ("({a: 1, ...{b: 2, a: 3}, ['c' + 1]: 4, 'd e': 5})", {"a": 3, "b": 2, "c1": 4, "d e": 5}),
    ("1_000 + 0xff + 0b11 + 1e2 + .5", 1358.5),
    ("`a${1 + 1}b${`c${3}`}`", "a2bc3"),
]  # fmt: skip


@rows(("source", "expected"), CALLS)
def test_expression(source: str, expected: Any) -> None:
    assert result_of(f"return {source}") == expected
    assert result_of(f"let result = {source}; await Timer.delay(1); return result") == expected


FAILURES: list[tuple[str, str, str]] = [
    ("({a: 1}).b", "PROPERTY_NOT_FOUND", "'b'"),
    ("inputs.customer.name", "PROPERTY_NOT_FOUND", "inputs.customer: property 'customer' not found"),
    ("({a: 1}).b == 1", "PROPERTY_NOT_FOUND", "'b'"),
    ("({a: 1}).b ?? 1", "PROPERTY_NOT_FOUND", "'b'"),
    ("null.b", "TYPE_ERROR", "cannot read 'b' of null"),
    ("(5).b", "TYPE_ERROR", "cannot read 'b' of number"),
    ("true[0]", "TYPE_ERROR", "of boolean"),
    ("1 - 'a'", "TypeError", "two numbers"),
    ("[] + []", "TypeError", "cannot add"),
    ("1 < 'a'", "TypeError", "cannot order"),
    ("-'a'", "TypeError", "needs a number"),
    ("'a'.repeat(-1)", "WRONG_ARG_TYPE", "not negative"),
    ("'a'.matches('(')", "WRONG_ARG_TYPE", "regular expression"),
    ("JSON.parse('{')", "WRONG_ARG_TYPE", "JSON.parse"),
]


@rows(("source", "code", "words"), FAILURES)
def test_failing_expression(source: str, code: str, words: str) -> None:
    error = error_of(f"return {source}", {})
    assert (error.code, words in error.message) == (code, True), error


def test_chance_and_time_come_from_outside() -> None:
    program = compile("return [uuid(), random(), Math.random(), Date.now()]")
    machine = Machine.start(program, now=1.5, entropy=bytes)
    assert machine.result == ["00000000-0000-4000-8000-000000000000", 0, 0, 1500]
    different = [Machine.start(program, now=1.5).result for _ in range(2)]
    assert different[0][0] != different[1][0]


def test_time_moves_on_between_resumes_only() -> None:
    source = "let a = Date.now(); let b = Date.now(); await Timer.delay(2); return [b - a, Date.now() - a]"
    assert play(source).result == [0, 2000]
