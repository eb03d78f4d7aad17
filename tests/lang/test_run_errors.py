"""Throwing, catching, cleaning up, and what an uncaught value becomes."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.lang import ErrorValue
from tests.lang.driver import Failed, error_of, play, result_of
from tests.rows import rows

PROGRAMS: list[tuple[str, Any]] = [
    # any value can be thrown and is caught as it is
    ("try { throw 5 } catch (e) { return e }", 5),
    ("try { throw null } catch (e) { return [e] }", [None]),
    ("try { throw {code: 'X', message: 'm'} } catch (e) { return e }", {"code": "X", "message": "m"}),
    ("try { throw [1, 2] } catch ([a, b]) { return a + b }", 3),
    ("try { throw {code: 'C', n: 1} } catch ({code, n}) { return [code, n] }", ["C", 1]),
    ("try { throw 1 } catch { return 'caught' }", "caught"),
    ("try { return 1 } catch (e) { return 2 }", 1),
    # errors of the language
    ("try { null.x } catch (e) { return [e.code, e.type, typeof e] }", ["TYPE_ERROR", "TYPE_ERROR", "error"]),
    ("try { ({}).x } catch (e) { return e.code }", "PROPERTY_NOT_FOUND"),
    ("try { nope } catch (e) { return [e.code, e.message] }", ["ReferenceError", "Undefined variable 'nope'"]),
    ("try { 1 - 'x' } catch (e) { return e.code }", "TypeError"),
    ("try { null.x } catch (e) { return [e.data, e.stack.length, e['code']] }", [None, 1, "TYPE_ERROR"]),
    ("try { null.x } catch ({code, message}) { return code + (message.length > 5) }", "TYPE_ERRORtrue"),
    ("try { null.x } catch (e) { return '' + e == e.message && `${e}` == e.message }", True),
    ("try { null.x } catch (e) { return JSON.parse(JSON.stringify(e)).code }", "TYPE_ERROR"),
    ("try { null.x } catch (e) { try { e.code = 1 } catch (f) { return f.code } }", "TypeError"),
    ("try { null.x } catch (e) { try { e.nope } catch (f) { return f.code } }", "PROPERTY_NOT_FOUND"),
    ("try { null.x } catch (e) { return e?.nope }", None),
    ("let a, b; try { null.x } catch (e) { a = e } try { null.x } catch (e) { b = e } return a == b", True),
    ("let a, b; try { null.x } catch (e) { a = e } try { null.y } catch (e) { b = e } return a == b", False),
    ("try { null.x } catch (e) { return [e, e].unique().length }", 1),
    (
        "try { null.x } catch (e) { return {e} }",
        {"e": {"code": "TYPE_ERROR", "message": "null.x: cannot read 'x' of null", "type": "TYPE_ERROR", "data": None}},
    ),
    # nesting and rethrowing
    ("try { try { throw 1 } catch (e) { throw e + 1 } } catch (e) { return e }", 2),
    ("try { try { throw 1 } finally { log('f') } } catch (e) { return e }", 1),
    ("function f() { throw 'deep' } function g() { f() } try { g() } catch (e) { return e }", "deep"),
    ("try { [1, 2].map(x => { if (x == 2) { throw x } return x }) } catch (e) { return e }", 2),
    ("try { [2, 1].sort((a, b) => { throw 'cmp' }) } catch (e) { return e }", "cmp"),
    ("return [1, 2].map(x => { try { if (x == 2) { throw x } return x } catch (e) { return -e } })", [1, -2]),
    ("let n = 0; while (true) { try { n++; if (n < 3) { throw n } break } catch (e) { continue } } return n", 3),
    ("let e = 'outer'; try { throw 'inner' } catch (e) { e = 'changed' } return e", "outer"),
    ("let f = null; try { throw 7 } catch (e) { f = () => e } return f()", 7),
    # finally
    ("let log = []; try { log.push(1) } finally { log.push(2) } return log", [1, 2]),
    ("let l = []; try { throw 1 } catch (e) { l.push(e) } finally { l.push(2) } return l", [1, 2]),
    ("function f() { try { return 1 } finally { log('f') } } return f()", 1),
    ("function f() { try { return 1 } finally { return 2 } } return f()", 2),
    ("function f() { try { throw 1 } finally { return 2 } } return f()", 2),
    ("function f() { try { throw 1 } catch (e) { return 'c' } finally { log('x') } } return f()", "c"),
    ("let x = 1; function f() { try { return x } finally { x = 2 } } return [f(), x]", [1, 2]),
    (
        ("let n = 0; for (let i of [1, 2, 3]) { try { if (i == 2) { continue } n += i } finally { n "
        "+= 10 } } return n"),
        34,
    ),
    ("let n = 0; for (let i of [1, 2, 3]) { try { if (i == 2) { break } n += i } finally { n += 10 } } return n", 21),
    ("let n = 0; while (true) { try { return n } finally { n++; if (n < 3) { continue } } }", 2),
    ("function f() { while (true) { try { return 1 } finally { break } } return 'after' } return f()", "after"),
    ("function f() { for (let i of [1, 2]) { try { throw i } finally { continue } } return 'end' } return f()", "end"),
    (
        ("let l = []; function f() { try { try { return 'r' } finally { l.push('a') } } finally { "
        "l.push('b') } } return [f(), l]"),
        ["r", ["a", "b"]],
    ),
    (
        ("let l = []; function f() { try { try { throw 1 } finally { l.push('a') } } catch (e) { "
        "l.push(e); return 'c' } finally { l.push('b') } } return [f(), l]"),
        ["c", ["a", 1, "b"]],
    ),
    ("function f() { try { return 1 } finally { while (true) { try { return 2 } finally { break } } } } return f()", 1),
    ("try { try { throw 1 } finally { throw 2 } } catch (e) { return e }", 2),
    ("try { try { return 'body' } finally { throw 'f' } } catch (e) { return e }", "f"),
    (
        ("let l = []; for (let i = 0; i < 2; i++) { try { try { if (i == 0) { continue } l.push(i) } "
        "finally { l.push('x') } } finally { l.push('y') } } return l"),
        ["x", "y", 1, "x", "y"],
    ),
    (
        ("function f() { try { return [1].map(x => { try { return x } finally { log('i') } })[0] } "
        "finally { log('o') } } return f()"),
        1,
    ),
    ("try { return 1 } finally { log('cleanup') }", 1),
    (
        ("function f(x) { try { if (x) { throw 'x' } return 'no' } catch (e) { return e } finally { "
        "if (x == 2) { return 'f' } } } return [f(0), f(1), f(2)]"),
        ["no", "x", "f"],
    ),
]  # fmt: skip


@rows(("source", "expected"), PROGRAMS)
def test_program_returns(source: str, expected: Any) -> None:
    assert result_of(source) == expected


UNCAUGHT: list[tuple[str, ErrorValue]] = [
    ("throw 'oops'", ErrorValue("THROWN", "oops", data="oops")),
    ("throw 5", ErrorValue("THROWN", "5", data=5)),
    ("throw null", ErrorValue("THROWN", "null")),
    ("throw [1, {a: 2}]", ErrorValue("THROWN", '[1,{"a":2}]', data=[1, {"a": 2}])),
    ("throw {a: 1}", ErrorValue("THROWN", '{"a":1}', data={"a": 1})),
    ("throw {code: 'X', message: 'm'}", ErrorValue("X", "m")),
    ("throw {code: 'X', message: 'm', data: [1], type: 'T'}", ErrorValue("X", "m", "T", [1])),
    ("throw {message: 'm'}", ErrorValue("THROWN", "m")),
    ("throw {code: 'X'}", ErrorValue("X", "X")),
    ("throw {code: 5}", ErrorValue("THROWN", '{"code":5}', data={"code": 5})),
    ("throw () => 1", ErrorValue("THROWN", "a function was thrown", data="<function arrow function>")),
    ("throw {code: 'X', data: Task.run('t', 1)}", ErrorValue("X", "X", data="p0")),
    ("try { throw {code: 'A'} } finally { log('f') }", ErrorValue("A", "A")),
    ("try { throw {code: 'A'} } catch (e) { throw {code: 'B', message: e.code} }", ErrorValue("B", "A")),
]  # fmt: skip


@rows(("source", "expected"), UNCAUGHT)
def test_uncaught_value_becomes_the_error(source: str, expected: ErrorValue) -> None:
    error = error_of(source)
    assert error.stack == ("main (test:1)",)
    assert (error.code, error.message, error.type, error.data) == (
        expected.code, expected.message, expected.type, expected.data,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("return (5).x", "(5).x: cannot read 'x' of number"),
        ("return ((null)).x", "((null)).x: cannot read 'x' of null"),
        ("return log(inputs).x", "log(inputs).x: cannot read 'x' of null"),
        ("for (let x of null) { }", "cannot iterate over null"),
        ("for (let x of 5) { }", "cannot iterate over a number"),
        ("for (let x of (() => 1)) { }", "cannot iterate over a function"),
    ],
)
def test_messages_say_what_was_written(source: str, message: str) -> None:
    assert error_of(source).message == message


def test_an_error_keeps_the_stack_of_where_it_happened() -> None:
    source = "function f() {\n  null.x\n}\ntry { f() }\ncatch (e) {\n  throw e\n}"
    assert error_of(source).stack == ("f (test:2)", "main (test:4)")


def test_a_failed_task_throws_at_its_await() -> None:
    source = "try {\n  await Task.run('pay', {})\n} catch (e) { return [e.code, e.message, e.type, e.stack] }"
    expected = ["DECLINED", "no money", "Failure", ["main (test:2)"]]
    assert result_of(source, tasks={"pay": Failed("DECLINED", "no money")}) == expected


def test_an_uncaught_failure_of_a_task_is_the_execution_s() -> None:
    failed = ErrorValue(
        "TASK_FAILED", "boom", "ValueError", {"n": 1}, (), ("builtins.ValueError",), ("boom",)
    )
    error = error_of("\nawait Task.run('t', {})", tasks={"t": failed})
    assert error.stack == ("main (test:2)",)
    assert (error.code, error.type, error.data, error.classes, error.args) == (
        "TASK_FAILED", "ValueError", {"n": 1}, ("builtins.ValueError",), ("boom",),
    )  # fmt: skip


def test_awaits_in_try_catch_and_finally() -> None:
    source = """
    let steps = []
    async function work(n) {
      try {
        steps.push(await Task.run('a', n))
        if (n == 1) { throw 'one' }
        if (n == 2) { return await Task.run('b', n) }
      } catch (e) {
        steps.push(e + await Task.run('c', n))
      } finally {
        steps.push(await Task.run('d', n))
      }
      return 'end'
    }
    let results = []
    for (let n of [0, 1, 2]) { results.push(await work(n)) }
    return {steps, results}
    """
    assert result_of(source) == {
        "steps": ["a!", "d!", "a!", "onec!", "d!", "a!", "d!"],
        "results": ["end", "end", "b!"],
    }


def test_cleanup_runs_before_the_error_leaves() -> None:
    ending = play(
        "try { await Task.run('a', 1) } finally { await Task.run('undo', 1) }", tasks={"a": Failed("X")}
    )
    assert ending.status == "failed"
    assert [effect.name for effect in ending.effects] == ["a", "undo"]  # type: ignore[union-attr]


def test_the_stack_of_a_deep_recursion_is_cut() -> None:
    error = error_of("function f(n) { if (n == 0) { throw {code: 'DEEP'} } f(n - 1) } f(100)")
    assert (error.stack[0], error.stack[-1], len(error.stack)) == ("f (test:1)", "… and 72 more", 31)


def test_a_long_text_that_is_thrown_makes_no_endless_message() -> None:
    error = error_of("throw 'x'.repeat(100000)")
    assert (len(error.message), len(error.data)) == (2_000, 100_000)
