"""What statements do when they run: declarations, assignments, branches, loops, blocks."""

from __future__ import annotations

from typing import Any

from tests.lang.driver import error_of, play, result_of
from tests.rows import rows

PROGRAMS: list[tuple[str, Any]] = [
    # the end
    ("let x = 1", None),
    ("return", None),
    ("return 5", 5),
    ("1 + 1", None),
    ("if (true) { return 1 } return 2", 1),
    # declarations
    ("let x; return x", None),
    ("const c; return c", None),
    ("let a = 1, b = a + 1; return [a, b]", [1, 2]),
    ("let x = 1; { let x = 2; { let x = 3 } } return x", 1),
    ("let x = 1; { x = 2 } return x", 2),
    ("let seen = []; for (let i of [1, 2]) { let x; seen.push(x); x = i } return seen", [None, None]),
    ("const list = [1]; list.push(2); return list", [1, 2]),
    ("const o = {a: 1}; o.a = 2; return o", {"a": 2}),
    # destructuring
    ("let {a, b: c, d = 4} = {a: 1, b: 2}; return [a, c, d]", [1, 2, 4]),
    ("let {d = 4} = {d: null}; return d", None),
    ("let [x, y] = [1]; return [x, y]", [1, None]),
    ("let [x, [y, z = 9]] = [1, [2]]; return [x, y, z]", [1, 2, 9]),
    ("let [first, ...rest] = [1, 2, 3]; return [first, rest]", [1, [2, 3]]),
    ("let {a: {b: [c]}} = {a: {b: [7]}}; return c", 7),
    ("let a, b; [a, b] = [1, 2]; [a, b] = [b, a]; return [a, b]", [2, 1]),
    ("let {x = y, y = 5} = {y: 2, x: 1}; return [x, y]", [1, 2]),
    # assignment
    ("let x = 1; x += 2; x *= 5; x -= 1; x /= 2; x %= 4; return x", 3),
    ("let s = 'a'; s += 1; s += null; return s", "a1null"),
    ("let x = 1; x++; x++; x--; return x", 2),
    ("let x = null; x ??= 5; x ??= 6; return x", 5),
    ("let x = 0; x ||= 7; x ||= 8; return x", 7),
    ("let x = 1; x &&= 2; let y = 0; y &&= 2; return [x, y]", [2, 0]),
    ("let x = 1; x ??= nope(); return x", 1),
    ("let o = {}; o.a = 1; o['b'] = 2; o[`c`] = 3; return o", {"a": 1, "b": 2, "c": 3}),
    ("let o = {a: {b: [{c: 0}]}}; o.a.b[0].c = 1; o.a.b[0].c += 4; return o", {"a": {"b": [{"c": 5}]}}),
    ("let o = {n: 1}; o.n++; o['n']++; return o.n", 3),
    ("let o = {}; o.count ??= 0; o.count ??= 9; o.count += 1; return o", {"count": 1}),
    ("let o = {a: 0, b: 1}; o.a ||= 5; o.b &&= 6; return o", {"a": 5, "b": 6}),
    ("let l = [1, 2, 3]; l[1] = 9; l[0] += 10; return l", [11, 9, 3]),
    ("let l = [[1]]; let i = 0; l[i][i] = 5; return l", [[5]]),
    ("let o = {}; o[1] = 'a'; o[1.5] = 'b'; return o", {"1": "a", "1.5": "b"}),
    ("let n = 0; function k() { n++; return 'x' } let o = {x: 1}; o[k()] += 1; return [n, o]", [1, {"x": 2}]),
    ("let n = 0; function k() { n++; return 0 } let l = [null]; l[k()] ??= 4; return [n, l]", [1, [4]]),
    # branches
    ("let x = 3; if (x > 2) { return 'a' } else { return 'b' }", "a"),
    ("let x = 1; if (x > 2) { return 'a' } else if (x > 0) { return 'b' } else { return 'c' }", "b"),
    ("let x = -1; if (x > 2) { return 'a' } else if (x > 0) { return 'b' } else { return 'c' }", "c"),
    ("if ('') { return 1 } if ([]) { return 2 }", 2),
    # loops
    ("let n = 0; while (n < 5) { n++ } return n", 5),
    ("let n = 0; while (true) { n++; if (n == 3) { continue } if (n > 6) { break } } return n", 7),
    ("let s = 0; for (let x of [1, 2, 3]) { s += x } return s", 6),
    ("let s = []; for (let x of {a: 1, b: 2}) { s.push(x) } return s", [["a", 1], ["b", 2]]),
    ("let s = ''; for (let [k, v] of {a: 1, b: 2}) { s += k + v } return s", "a1b2"),
    (
        ("let s = ''; for (const {id, n = 0} of [{id: 1}, {id: 2, n: 5}]) { s += id + ':' + n + ' ' } "
        "return s"),
        "1:0 2:5 ",
    ),
    ("let s = []; for (let k in {b: 1, a: 2}) { s.push(k) } return s", ["b", "a"]),
    ("let s = []; for (let i in ['x', 'y']) { s.push(i) } return s", [0, 1]),
    ("let s = []; for (let x of []) { s.push(x) } for (let k in {}) { s.push(k) } return s", []),
    ("let x = 9; for (x of [1, 2]) { } return x", 2),
    ("let s = 0; for (let i = 0; i < 4; i++) { s += i } return s", 6),
    ("let s = 0; for (let i = 0, j = 10; i < j; i++, j--) { s += j - i } return s", 30),
    ("let i = 0; for (;;) { i++; if (i > 3) { break } } return i", 4),
    ("let s = 0; for (let i = 0; i < 9; i++) { if (i % 2) { continue } s += i } return s", 20),
    (
        ("let s = ''; for (let x of [1, 2]) { for (let y of [3, 4]) { if (y == 4) { break } s += x * "
        "y + ' ' } } return s"),
        "3 6 ",
    ),
    ("let l = [1, 2]; for (let x of l) { if (l.length < 9) { l.push(x) } } return l", [1, 2, 1, 2]),
    ("for (let x of [1, 2, 3]) { for (let y of [1, 2]) { if (x == 2) { return [x, y] } } }", [2, 1]),
    ("let o = {a: 1}; for (let [k, v] of o) { o.b = 2 } return o", {"a": 1, "b": 2}),
    ("let l = [{n: 1}]; for (let x of l) { x.n = 5 } return l", [{"n": 1}]),
    ("let out = []; for (let i of [1, 2]) { let f = () => i; i = i * 10; out.push(f()) } return out", [10, 20]),
    # blocks and objects at the start of a statement
    ("{ let x = 1 } return 2", 2),
    ("{} return 1", 1),
    # implicit workflow-wide variables
    ("x = 1; function f() { x = x + 1; y = 5 } f(); return [x, y]", [2, 5]),
    ("function f() { return total } total = 7; return f()", 7),
    ("o = {a: 1}; o.a = 2; l = []; l.push(3); return [o, l]", [{"a": 2}, [3]]),
    ("hash = 5; return hash", 5),
    ("function f() { return math } math = 3; return f()", 3),
    ("[a, b] = [1, 2]; return a + b", 3),
    # names
    ("let letter = 1, nullable = 2, awaiting = 3, $x = 4, _y = 5; return letter + nullable + awaiting + $x + _y", 15),
    ("return undefined", None),
]  # fmt: skip


@rows(("source", "expected"), PROGRAMS)
def test_program_returns(source: str, expected: Any) -> None:
    assert result_of(source) == expected


FAILURES: list[tuple[str, str, str]] = [
    ("let {a} = 5", "TYPE_ERROR", "cannot take a number apart"),
    ("let {a} = null", "TYPE_ERROR", "cannot take a null apart"),
    ("let {a} = [1]", "TYPE_ERROR", "cannot take a list apart"),
    ("let [a] = {a: 1}", "TYPE_ERROR", "cannot take a object apart"),
    ("let [a] = 'xy'", "TYPE_ERROR", "cannot take a string apart"),
    ("let {a} = {b: 1}", "PROPERTY_NOT_FOUND", "'a'"),
    ("for (let x of 5) { }", "TYPE_ERROR", "iterate"),
    ("for (let x of null) { }", "TYPE_ERROR", "iterate"),
    ("for (let x of 'abc') { }", "TYPE_ERROR", "split"),
    ("for (let x in 5) { }", "TYPE_ERROR", "iterate"),
    ("let l = [1]; l[1] = 2", "TypeError", "out of range"),
    ("let l = [1]; l[-1] = 2", "TypeError", "out of range"),
    ("let l = [1]; l[0.5] = 2", "TypeError", "out of range"),
    ("let l = [1]; l['x'] = 2", "TypeError", "index must be a number"),
    ("let l = [1]; l.x = 2", "TypeError", "index must be a number"),
    ("let n = 5; n.x = 1", "TypeError", "cannot set 'x' of number"),
    ("let n = null; n.x = 1", "TypeError", "cannot set 'x' of null"),
    ("let s = 'abc'; s[0] = 'x'", "TypeError", "of string"),
    ("let o = {}; o.a.b = 1", "PROPERTY_NOT_FOUND", "'a'"),
    ("let o = {a: null}; o.a.b = 1", "TypeError", "cannot set 'b' of null"),
    ("let o = {}; o.a += 1", "PROPERTY_NOT_FOUND", "'a'"),
    ("let o = {}; o[null] = 1", "TypeError", "key"),
    ("const c = 1; c = 2", "TypeError", "constant"),
    ("const {c} = {c: 1}; c += 2", "TypeError", "constant"),
    ("return nope", "ReferenceError", "Undefined variable 'nope'"),
    ("nope.x = 1", "ReferenceError", "Undefined variable 'nope'"),
    ("nope += 1", "ReferenceError", "Undefined variable 'nope'"),
    ("return x; let x = 1", "ReferenceError", "'x' is used before"),
    ("let x = 1; { x = x + 1; let x = 2 }", "ReferenceError", "'x' is used before"),
    ("let x = x + 1", "ReferenceError", "'x' is used before"),
    ("let f = () => later; let v = f(); let later = 1", "ReferenceError", "'later' is used before"),
    ("return Math", "TypeError", "'Math' is not a value"),
    ("return Math.nope(1)", "PROPERTY_NOT_FOUND", "Math.nope"),
    ("return Math.maxx(1)", "PROPERTY_NOT_FOUND", "did you mean Math.max"),
    ("for (const x of [1]) { x = 2 }", "TypeError", "constant"),
]  # fmt: skip


@rows(("source", "code", "words"), FAILURES)
def test_program_fails(source: str, code: str, words: str) -> None:
    error = error_of(source)
    assert (error.code, words in error.message) == (code, True), error


def test_long_chain_of_else_if_is_not_deep() -> None:
    branches = " else ".join(f"if (inputs == {number}) {{ return {number * 2} }}" for number in range(150))
    assert play(branches, 149, routes=False).result == 298


def test_statement_after_return_is_not_run() -> None:
    assert play("return 1; log('never')").logs == []
