"""Functions: hoisting, closures over cells, parameters, recursion, and the library's functions that call back."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.lang import Machine, compile
from tests.lang.driver import error_of, play, result_of
from tests.rows import rows

PROGRAMS: list[tuple[str, Any]] = [
    # hoisting
    ("return f(); function f() { return 1 }", 1),
    (
        ("function even(n) { return n == 0 || odd(n - 1) } function odd(n) { return n != 0 && even(n "
        "- 1) } return even(10)"),
        True,
    ),
    ("function f() { return x } let x = 5; return f()", 5),
    ("{ return g(); function g() { return 2 } }", 2),
    ("function f() { return inner(); function inner() { return 3 } } return f()", 3),
    ("function f() { return 1 } { function f() { return 2 } } return f()", 1),
    # what they return
    ("function f() { } return f()", None),
    ("function f() { return } return f()", None),
    ("let f = () => { 5 }; return f()", None),
    ("let f = () => ({a: 1}); return f()", {"a": 1}),
    ("let f = function (x) { return x + 1 }; return f(1)", 2),
    ("return (() => 5)()", 5),
    ("return (x => y => x + y)(1)(2)", 3),
    # parameters
    ("function f(a, b) { return [a, b] } return [f(1), f(1, 2, 3)]", [[1, None], [1, 2]]),
    ("function f(a, b = a + 1) { return [a, b] } return [f(1), f(1, 5), f(1, null)]", [[1, 2], [1, 5], [1, None]]),
    ("function f(a, ...rest) { return [a, rest] } return [f(), f(1), f(1, 2, 3)]", [[None, []], [1, []], [1, [2, 3]]]),
    ("function f({a, b = 2}, [c]) { return a + b + c } return f({a: 1}, [4])", 7),
    ("let f = ({x}) => x; return f({x: 3})", 3),
    ("function f(x) { x = x + 1; return x } let y = 1; return [f(y), y]", [2, 1]),
    ("function f(g = () => 7) { return g() } return f()", 7),
    # closures
    (
        ("function counter() { let n = 0; return () => { n++; return n } } let a = counter(), b = "
        "counter(); return [a(), a(), b()]"),
        [1, 2, 1],
    ),
    ("let fs = []; for (let i = 0; i < 3; i++) { fs.push(() => i) } return fs.map(f => f())", [0, 1, 2]),
    ("let fs = []; for (let i = 0; i < 3; i++) { fs.push(() => i); i += 0 } return fs.map(f => f())", [0, 1, 2]),
    (
        ("let fs = []; for (let i = 0; i < 2; i++) { fs.push(() => { i += 10; return i }) } return "
        "[fs[0](), fs[0](), fs[1]()]"),
        [10, 20, 11],
    ),
    ("let fs = []; for (let x of [1, 2]) { fs.push(() => x) } return fs.map(f => f())", [1, 2]),
    ("let fs = []; let n = 0; while (n < 2) { let m = n; fs.push(() => m); n++ } return fs.map(f => f())", [0, 1]),
    ("let x = 1; let f = () => x; x = 2; return f()", 2),
    ("let x = 1; let f = () => { x = 5 }; f(); return x", 5),
    ("let get, set; { let hidden = 1; get = () => hidden; set = v => { hidden = v } } set(9); return get()", 9),
    ("function f(x) { return () => { x += 1; return x } } let g = f(1); g(); return g()", 3),
    ("let f = n => n < 2 ? 1 : n * f(n - 1); return f(10)", 3628800),
    (
        ("function a() { let x = 1; function b() { let y = 2; function c() { return x + y } return c "
        "} return b()() } return a()"),
        3,
    ),
    ("function outer() { return () => () => total } let total = 4; return outer()()()", 4),
    ("let x = 'outer'; function f() { let g = () => x; let x = 'inner'; return g() } return f()", "inner"),
    ("try { throw 1 } catch (e) { return [1].map(() => e) }", [1]),
    # functions are values with identity
    (
        ("let f = () => 1; let g = f; let h = () => 1; return [f == g, f == h, f === f, "
        "[f].includes(g)]"),
        [True, False, True, True],
    ),
    ("let o = {run: x => x + 1}; return [o.run(1), o['run'](2)]", [2, 3]),
    ("return typeof (() => 1) + typeof Math.max", "functionfunction"),
    ("let f = Math.max; return f(1, 5, 3)", 5),
    ("let ops = {add, mul}; return ops.add(2, 3) + ops.mul(2, 3)", 11),
    # calling back
    ("return [1, 2, 3].map((x, i) => x * i)", [0, 2, 6]),
    ("return [1, 2, 3, 4].filter(x => x % 2 == 0)", [2, 4]),
    ("return [1, 2, 3].reduce((a, b) => a + b)", 6),
    ("return [1, 2].reduce((a, b, i) => a + b * i, 10)", 12),
    ("return [[1, 2, 3].find(x => x > 1), [1].find(x => x > 1)]", [2, None]),
    ("return [[1, 2].findIndex(x => x == 2), [1].findIndex(x => x == 2)]", [1, -1]),
    ("return [[1, 2].some(x => x > 1), [1, 2].every(x => x > 1)]", [True, False]),
    ("return [1, 2].flatMap(x => [x, x * 10])", [1, 10, 2, 20]),
    ("let s = 0; [1, 2].forEach(x => { s += x }); return s", 3),
    ("return [3, 1, 2].sort((a, b) => b - a)", [3, 2, 1]),
    ("return [{k: 1, n: 'a'}, {k: 0, n: 'b'}, {k: 1, n: 'c'}].sort((a, b) => a.k - b.k).map(x => x.n).join('')", "bac"),
    ("return ['1', '2'].map(Number)", [1, 2]),
    ("return [1, 2].map(x => [3, 4].map(y => x * y))", [[3, 4], [6, 8]]),
    ("function f(x) { return x * 2 } return [1, 2].map(f)", [2, 4]),
    ("return [1, 2, 3].map(x => { if (x == 2) { return 'two' } return x })", [1, "two", 3]),
    (
        ("let out = []; [1, 2, 3].forEach(x => { for (let y of [1, 2]) { if (y > 1) { break } "
        "out.push(x) } }); return out"),
        [1, 2, 3],
    ),
    # async changes nothing
    ("async function f() { return 1 } return f()", 1),
    ("let f = async x => x + 1; return await f(1)", 2),
    # operators as functions
    (
        ("return [add(1, 2), sub(5, 3), mul(2, 3), div(6, 2), eq(1, 1), ne(1, 1), lt(1, 2), lte(2, "
        "2), gt(1, 2), gte(1, 2)]"),
        [3, 2, 6, 3, True, False, True, True, False, False],
    ),
    ("return [not(0), and(1, 2), and(0, 2), or(0, 3), or(1, 2)]", [True, 2, 0, 3, 1]),
]  # fmt: skip


@rows(("source", "expected"), PROGRAMS)
def test_program_returns(source: str, expected: Any) -> None:
    assert result_of(source) == expected


FAILURES = [
    ("let x = 5; x()", "NOT_A_FUNCTION"),
    ("null()", "NOT_A_FUNCTION"),
    ("let o = {}; o.f()", "PROPERTY_NOT_FOUND"),
    ("'abc'.nope()", "NOT_A_FUNCTION"),
    ("null.f()", "TYPE_ERROR"),
    ("[1].map()", "WRONG_ARG_COUNT"),
    ("[1].map(5)", "WRONG_ARG_TYPE"),
    ("Math.abs()", "WRONG_ARG_COUNT"),
    ("[].reduce((a, b) => a)", "TypeError"),
    ("[1, 2].sort((a, b) => 'x')", "WRONG_ARG_TYPE"),
    ("function f({a}) { return a } f(5)", "TYPE_ERROR"),
]


@pytest.mark.parametrize(("source", "code"), FAILURES)
def test_program_fails(source: str, code: str) -> None:
    assert error_of(source).code == code


def test_the_stack_names_functions_and_lines() -> None:
    source = (
        "function a() {\n  return b(1)\n}\nlet b = x => {\n  throw {code: 'X'}\n}\n[1].map(\n  y => a())\n"
    )
    error = error_of(source)
    assert error.stack == ("b (test:5)", "a (test:2)", "arrow function (test:8)", "main (test:7)")


def test_functions_see_no_variables_of_the_workflow_beside_them() -> None:
    source = "workflow w(ctx, inputs) { let local = 1; return beside() } function beside() { return local }"
    assert error_of(source).message == "Undefined variable 'local'"
    source = "workflow w(order) { return beside() } function beside() { return order }"
    assert error_of(source).message == "Undefined variable 'order'"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("return [inputs.n, Inputs.n, Context.executionId, context.attempt]", [5, 5, "e-1", 1]),
        ("async function main() { return inputs.n }", 5),
        ("workflow name(inputs) { return inputs.n }", 5),
        ("workflow(ctx, inputs) { return [ctx.workflow, inputs.n] }", ["test", 5]),
        ("workflow w({n, m = 2}) { return n + m }", 7),
        ("workflow w(ctx, {n}) { let f = () => n; return [f(), ctx.version] }", [5, 1]),
        (
            ("workflow w(order) { return [order.n, inputs.n, beside(order)] } function beside(o) { "
            "return o.n * 2 }"),
            [5, 5, 10],
        ),
        ("workflow w() { inputs.n += 1; return inputs.n }", 6),
        ("inputs = {n: 1}; return inputs.n", 1),
        ("workflow w(inputs) { inputs.n = 1; return [inputs.n, Inputs.n] }", [1, 5]),
        ("let inputs = 3; return inputs", 3),
    ],
)  # fmt: skip
def test_program_forms_see_inputs_and_context(source: str, expected: Any) -> None:
    assert result_of(source, {"n": 5}) == expected


def test_lower_case_names_of_the_library_give_way_to_variables() -> None:
    assert result_of("let math = {max: () => 'mine'}; return math.max(1)") == "mine"
    assert result_of("return math.max(1, 2) + string(3) + json.stringify([1])") == "23[1]"
    source = "let task = {run: (a, b) => a}; return task.run('x', 1)"
    assert play(source).effects == []
    assert (
        len(play("task.run('x', {}); timer.delay(1); signal.next('s'); workflow.run('w', {})").effects) == 4
    )


def test_variables_by_name_innermost_first() -> None:
    source = """
    g = 1
    let x = 'outer', big = [1, 2]
    function f(p) { let x = 'inner'; { let gone = 1 } let q = Task.run('t', {}); return await q }
    return f(5)
    """
    machine = Machine.start(compile(source), now=0.0)
    shown = machine.variables()
    assert shown == {"g": 1, "x": "inner", "big": [1, 2], "p": 5, "q": "<task t>", "f": "<function f>"}
    assert machine.line == 4


def test_variables_of_all_kinds_can_be_shown() -> None:
    source = """
    let nan = 0 / 0, all = Promise.all([Task.run('a', 1)]), w = Task.with({queue: 'q'}), m = Math.max, unset
    let e = null
    try { nope() } catch (problem) { e = problem }
    for (let x of [1]) { await Task.run('t', 1) }
    """
    shown = Machine.start(compile(source), now=0.0).variables()
    assert shown.pop("e")["code"] == "ReferenceError"
    assert shown == {
        "nan": "NaN",
        "all": "<all of task a>",
        "w": "<Task with options>",
        "m": "<function Math.max>",
        "unset": None,
        "x": 1,
    }
