"""The library, call by call."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.lang import ExpressionError, ExpressionFailed
from tests.lang.evaluation import run
from tests.rows import rows

LISTS = [
    ("[1, 2].concat([3], 4)", [1, 2, 3, 4]),
    ("[1, [2]].includes([2])", True),
    ("[1, 2, 1].indexOf(1)", 0),
    ("[1, 2, 1].lastIndexOf(1)", 2),
    ("[1].indexOf('1')", -1),
    ("[1, 2, 3, 4].slice(1, -1)", [2, 3]),
    ("[1, 2, 3].slice(-2)", [2, 3]),
    ("[1, null, 'a', [2]].join('-')", "1--a-[2]"),
    ("[1, 2].join()", "1,2"),
    ("[1, 2, 3].reverse()", [3, 2, 1]),
    ("[1, 2].push(3, 4)", 4),
    ("[1, 2].pop()", 2),
    ("[].pop()", None),
    ("[1, 2].shift()", 1),
    ("[1, 2].unshift(0)", 3),
    ("[1, 2, 3, 4].splice(1, 2)", [2, 3]),
    ("[1, 2, 3].fill(0, 1)", [1, 0, 0]),
    ("[3, 10, 2].sort()", [2, 3, 10]),
    ("['b', 'a'].sort()", ["a", "b"]),
    ("[2, null, 1].sort()", [1, 2, None]),
    ("[[1, [2]], 3].flat()", [1, [2], 3]),
    ("[[1, [2]], 3].flat(9)", [1, 2, 3]),
    ("[1, 1.0, '1', [1], [1.0], {a: 1, b: 2}, {b: 2, a: 1}].unique()", [1, "1", [1], {"a": 1, "b": 2}]),
    ("[1, 2].at(-1)", 2),
    ("[1, 2, 3].map(x => x * 2)", [2, 4, 6]),
    ("['a', 'b'].map((x, i) => x + i)", ["a0", "b1"]),
    ("[1, 2, 3].filter(x => x > 1)", [2, 3]),
    ("[1, 2, 3].find(x => x > 1)", 2),
    ("[1].find(x => x > 1)", None),
    ("[1, 2].findIndex(x => x == 2)", 1),
    ("[1, 2].findIndex(x => x == 9)", -1),
    ("[1, 2].some(x => x > 1)", True),
    ("[].some(x => true)", False),
    ("[1, 2].every(x => x > 1)", False),
    ("[].every(x => false)", True),
    ("[1, 2, 3].reduce((sum, x) => sum + x)", 6),
    ("[1, 2, 3].reduce((sum, x, i) => sum + x * i, 10)", 18),
    ("[].reduce((sum, x) => sum, 'empty')", "empty"),
    ("[1, 2].flatMap(x => [x, x])", [1, 1, 2, 2]),
    ("[1].forEach(x => x)", None),
    (
        "[{n: 2, k: 'a'}, {n: 1, k: 'b'}, {n: 2, k: 'c'}].sort((p, q) => p.n - q.n).map(x => x.k)",
        ["b", "a", "c"],
    ),
    ("[5, 3, 9, 1, 7, 2, 8].sort((a, b) => b - a)", [9, 8, 7, 5, 3, 2, 1]),
    ("[].sort((a, b) => a - b)", []),
    ("['1', '2'].map(Number)", [1, 2]),
    ("[-1, 2].map(Math.abs)", [1, 2]),
    ("[[1, 2], [3]].map(x => x.map(y => y + x.length))", [[3, 4], [4]]),
    ("Array.isArray([])", True),
]

STRINGS = [
    ("'a,b,,c'.split(',')", ["a", "b", "", "c"]),
    ("'abc'.split('')", ["a", "b", "c"]),
    ("'abc'.split()", ["abc"]),
    ("'a,b,c'.split(',', 2)", ["a", "b"]),
    ("'  x '.trim()", "x"),
    ("' x '.trimStart()", "x "),
    ("' x '.trimEnd()", " x"),
    ("'ß'.toUpperCase()", "SS"),
    ("'ABC'.toLowerCase()", "abc"),
    ("'abc'.startsWith('ab')", True),
    ("'abc'.endsWith('bc')", True),
    ("'abc'.includes('d')", False),
    ("'abcb'.indexOf('b')", 1),
    ("'abcb'.lastIndexOf('b')", 3),
    ("'aaa'.replace('a', 'b')", "baa"),
    ("'aaa'.replaceAll('a', 'b')", "bbb"),
    ("'a1b22'.replaceMatches('[0-9]+', '#')", "a#b#"),
    ("'abc'.matches('B')", False),
    ("'k=v'.match('(.)=(.)')", ["k=v", "k", "v"]),
    ("'x'.match('y')", None),
    ("'abcdef'.substring(4, 1)", "bcd"),
    ("'abcdef'.substring(-3, 2)", "ab"),
    ("'abcdef'.slice(-3, -1)", "de"),
    ("'5'.padStart(3, '0')", "005"),
    ("'5'.padEnd(4, 'ab')", "5aba"),
    ("'abc'.padStart(2)", "abc"),
    ("'ab'.repeat(3)", "ababab"),
    ("'ab'.repeat(0)", ""),
    ("'a'.concat(1, null)", "a1null"),
    ("'abc'.charAt(9)", ""),
    ("'abc'.at(-1)", "c"),
    ("'a'.codePointAt(0)", 97),
    ("'abc'.length", 3),
    ("'a' .concat('b') . toUpperCase()", "AB"),
]

NUMBERS = [
    ("Math.round(2.5)", 3),
    ("Math.round(-2.5)", -2),
    ("Math.round(0.49999999999999994)", 0),
    ("Math.floor(-1.5)", -2),
    ("Math.ceil(1.2)", 2),
    ("Math.trunc(-1.7)", -1),
    ("Math.abs(-3)", 3),
    ("Math.sign(-3)", -1),
    ("Math.max(1, 3, 2)", 3),
    ("Math.min(...[4, 2])", 2),
    ("Math.max([1, 5])", 5),
    ("Math.sqrt(16)", 4),
    ("Math.pow(2, 10)", 1024),
    ("Math.hypot(3, 4)", 5),
    ("math.max(1, 2)", 2),
    ("Math.log(1)", 0),
    ("Math.PI > 3.14", True),
    ("isNaN(Math.sqrt(-1))", True),
    ("Number('12.50')", 12.5),
    ("Number(' 7 ')", 7),
    ("Number('0x10')", 16),
    ("Number('')", 0),
    ("Number(true)", 1),
    ("isNaN(Number('abc'))", True),
    ("parseInt('42px')", 42),
    ("parseFloat('3.5em')", 3.5),
    ("Number.isInteger(3.0)", True),
    ("String(1.50)", "1.5"),
    ("String([1, 'a'])", '[1,"a"]'),
    ("Boolean('')", False),
    ("(1.005).toFixed(2)", "1.00"),
    ("(2.5).toFixed(0)", "3"),
    ("(-2.5).toFixed(0)", "-2"),
    ("(3).toFixed(2)", "3.00"),
    ("(255).toString()", "255"),
]

OBJECTS = [
    ("Object.keys({b: 1, a: 2})", ["b", "a"]),
    ("Object.values({b: 1, a: 2})", [1, 2]),
    ("Object.entries({b: 1})", [["b", 1]]),
    ("Object.fromEntries([['a', 1], ['b', 2]])", {"a": 1, "b": 2}),
    ("Object.assign({a: 1}, null, {b: 2})", {"a": 1, "b": 2}),
    ("JSON.parse('{\"a\": [1, 2.0, null]}')", {"a": [1, 2, None]}),
    ("JSON.stringify({a: [1, 2.0, 'é\\n', null, true]})", '{"a":[1,2,"é\\n",null,true]}'),
    ("JSON.stringify([1, {}], null, 2)", "[\n  1,\n  {}\n]"),
    ("json.parse('1')", 1),
]

OTHERS = [
    ("Date.now()", 1_700_000_000_500),
    ("now()", 1_700_000_000_500),
    ("Date.format(0)", "1970-01-01T00:00:00.000Z"),
    ("Date.format(null, '%Y-%m-%d')", "2023-11-14"),
    ("Date.format('2024-02-29T12:00:00', '%d.%m.%Y %H:%M', 'Europe/Berlin')", "29.02.2024 13:00"),
    ("Date.parse('1970-01-01T00:00:01Z')", 1000),
    ("hash('a')", "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"),
    ("hash({a: 1, b: 2}) == hash({b: 2, a: 1})", True),
    ("uuid()", "00000000-0000-4000-8000-000000000000"),
    ("random()", 0),
    ("log('x')", None),
    ("typeof null + typeof [] + typeof {} + typeof 'x' + typeof true + typeof (x => x)",
     "nulllistobjectstringbooleanfunction"),
]  # fmt: skip

FUNCTIONS = [
    ("(x => x + 1)(2)", 3),
    ("((a, b = a * 2) => [a, b])(1)", [1, 2]),
    ("((a, b) => [a, b])(1)", [1, None]),
    ("((a, b) => [a, b])(1, 2, 3)", [1, 2]),
    ("((a, ...rest) => [a, rest])(1, 2, 3)", [1, [2, 3]]),
    ("((...all) => all)()", []),
    ("(({a, b: c, d = 4}) => [a, c, d])({a: 1, b: 2})", [1, 2, 4]),
    ("(([x, y = 9, ...z]) => [x, y, z])([1])", [1, 9, []]),
    ("(({a: [b]}) => b)({a: [5]})", 5),
    ("(a => b => c => a + b + c)(1)(2)(3)", 6),
    ("(() => ({a: 1}))().a", 1),
    ("{f: x => x * 2}.f(4)", 8),
    ("(f => f(f, 5))((self, n) => n < 2 ? 1 : n * self(self, n - 1))", 120),
    ("Object.entries({a: 1, b: 2}).map(([k, v]) => `${k}=${v}`).join('&')", "a=1&b=2"),
    ("[...[1, 2], ...'ab']", [1, 2, "a", "b"]),
    ("{...{a: 1, b: 1}, b: 2, ...null, ['c' + 1]: 3, 'd e': 4,}", {"a": 1, "b": 2, "c1": 3, "d e": 4}),
    ("[1, 2,].length", 2),
    ("Math.max(1, 2,)", 2),
    ("/* c */ 1 // d", 1),
]


@rows(
    ("source", "expected"),
    [*LISTS, *STRINGS, *NUMBERS, *OBJECTS, *OTHERS, *FUNCTIONS],
    ids=lambda value: str(value)[:60],
)
def test_call(source: str, expected: Any) -> None:
    assert run(source) == expected


ERRORS = [
    ("'a'.repeat()", "WRONG_ARG_COUNT"),
    ("'a'.trim(1)", "WRONG_ARG_COUNT"),
    ("Math.abs()", "WRONG_ARG_COUNT"),
    ("Math.abs('1')", "WRONG_ARG_TYPE"),
    ("'a'.repeat(-1)", "WRONG_ARG_TYPE"),
    ("'a'.split(1)", "WRONG_ARG_TYPE"),
    ("[1].map(1)", "WRONG_ARG_TYPE"),
    ("[1].map()", "WRONG_ARG_COUNT"),
    ("[1, 2].sort((a, b) => 'x')", "WRONG_ARG_TYPE"),
    ("[1, 'a'].sort()", "TypeError"),
    ("[].reduce((a, b) => a)", "TypeError"),
    ("JSON.parse('{')", "WRONG_ARG_TYPE"),
    ("JSON.parse('NaN')", "WRONG_ARG_TYPE"),
    ("JSON.stringify(1 / 0)", "TypeError"),
    ("'a' matches '('", "WRONG_ARG_TYPE"),
    ("JSON.parse('\"\\\\ud800\"')", "WRONG_ARG_TYPE"),
    ("Date.format('nonsense')", "WRONG_ARG_TYPE"),
    ("Date.format(0, '%Q')", "WRONG_ARG_TYPE"),
    ("Date.format(0, '%Y', 'Mars/Base')", "WRONG_ARG_TYPE"),
    ("Date.format(0, '%Y', '../etc/passwd')", "WRONG_ARG_TYPE"),
    ("Date.format(1e300)", "WRONG_ARG_TYPE"),
    ("Object.keys([])", "WRONG_ARG_TYPE"),
    ("hash('a', 'crc')", "WRONG_ARG_TYPE"),
    ("[...5]", "TYPE_ERROR"),
    ("{...[1]}", "TYPE_ERROR"),
    ("(([a]) => a)(1)", "TYPE_ERROR"),
    ("(({a}) => a)([])", "TYPE_ERROR"),
    ("(({a}) => a)({})", "PROPERTY_NOT_FOUND"),
    ("[1].map(x => x.y)", "TYPE_ERROR"),
    ("x => x", "TypeError"),
    ("[Math.max]", "TypeError"),
]


@rows(("source", "code"), ERRORS)
def test_misuse_has_its_code(source: str, code: str) -> None:
    with pytest.raises(ExpressionFailed) as caught:
        run(source)
    assert caught.value.code == code


SYNTAX = [
    ("", 1), ("   ", 4), ("1 +", 4), ("1 2", 3), ("(1", 1), ("1)", 2), ("[1}", 3), ("'abc", 1), ("`abc", 1),
    ("`${1", 2),
    ("a = 1", 3), ("* 2", 1), ("{a: }", 5), ("1 ? 2", 6), ("(...a, b) => 1", 2), ("0x", 1), ("1abc", 1), ("1__0", 1),
    ("'\\u12'", 2), ("'\\ud800'", 2), ("a.", 3), ("#", 1), ("/* x", 1), ("1e999", 1), ("f(,)", 3),
    ("1 ! 2", 3), ("x => {1}", 8),
]  # fmt: skip


@rows(("source", "column"), SYNTAX)
def test_a_syntax_error_has_its_place(source: str, column: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        run(source)
    assert caught.value.column == column
    assert caught.value.excerpt.endswith("^")
