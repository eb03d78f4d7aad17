"""No call of the library, no operator and no instruction takes time or memory beyond its limits.

Each has a row here, or the test fails: one that is added needs its charge and its row.
"""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import pytest

from dalsegno.lang import Limits, Machine, compile
from dalsegno.lang.runtime.code import Op
from dalsegno.lang.runtime.instructions import UNARY_NAMES
from dalsegno.lang.runtime.operators import LOOSE, STRICT
from dalsegno.lang.stdlib import FUNCTIONS, MUTATORS, arrays
from dalsegno.lang.stdlib.callbacks import CALLBACK_METHODS
from dalsegno.lang.stdlib.orchestration_names import ORCHESTRATION
from dalsegno.lang.stdlib.strings import METHODS, NUMBER_METHODS
from tests.lang.adversarial import (
    KEPT_BYTES,
    LARGE,
    LIMITS,
    MEDIUM,
    NOW,
    ONCE_KIB,
    ONCE_SECONDS,
    REPEATED,
    REPEATED_SECONDS,
    TINY,
    again_and_again,
    kept,
    once,
    rows_of,
    run_expression,
    values,
)

Table = dict[str, tuple[str, ...]]

GROUPS = "'(' + '('.repeat(400) + 'a*' + ')'.repeat(400) + ')'"
MANY_STATES = "'(a|b)*a(a|b){150}c'"
STATES_OF_ONE = "'((((a?)?)?){150})c'"

STRINGS: Table = {
    "split": ("t.split('a')", "t.split('')", "w.split('')", "t.split(k)", "(t + ',').split(',')"),
    "trim": ("b.trim()", "t.trim()"),
    "trimStart": ("b.trimStart()",),
    "trimEnd": ("b.trimEnd()", "(t + ' ').trimEnd()"),
    "toUpperCase": ("t.toUpperCase()", "w.toUpperCase()", "'\\u0390'.repeat(t.length / 10).toUpperCase()"),
    "toLowerCase": ("t.toLowerCase()", "w.toLowerCase()", "'\\u03a3'.repeat(t.length / 10).toLowerCase()"),
    "startsWith": ("t.startsWith(u)",),
    "endsWith": ("t.endsWith(u)",),
    "includes": ("t.includes(k)", "t.includes(p)", "t.includes('aaaab')"),
    "indexOf": ("t.indexOf(k)", "t.indexOf(p)", "t.indexOf('aaaaaaaaab')"),
    "lastIndexOf": ("t.lastIndexOf(k)", "t.lastIndexOf(p)", "t.lastIndexOf('baaaa')", "t.lastIndexOf('b')"),
    "replace": ("t.replace('a', t)", "t.replace(k, '')"),
    "replaceAll": ("t.replaceAll('a', 'bb')", "t.replaceAll('', 'b')", "w.replaceAll('\\u{1F600}', 'a')"),
    "replaceMatches": (
        "t.replaceMatches('a', 'b')", "t.replaceMatches('a*c|a', 'b')", "t.replaceMatches('', '-')",
        "t.replaceMatches('(a*)', '\\\\1\\\\1')", "w.replaceMatches('.', '')",
        "'a'.replaceMatches('a', '\\\\\\\\'.repeat(t.length / 4))",
        f"t.replaceMatches({GROUPS}, '\\\\1\\\\2\\\\3')",
    ),
    "matches": (f"t.matches({MANY_STATES})", f"t.matches({STATES_OF_ONE})", "w.matches('\\\\pN')", "t.matches('c')",
                "'x'.matches('[\\\\pL\\\\pN]{100}')", "'x'.matches('\\\\pL{' + (i + 1) + '}')"),
    "match": (f"t.match({GROUPS})", f"t.match({STATES_OF_ONE})", "t.match('(a)?'.repeat(240))"),
    "substring": ("t.substring(1)", "w.substring(1)", "t.substring(t.length, 0)"),
    "slice": ("t.slice(1)", "w.slice(1)", "t.slice(-t.length + 1)"),
    "padStart": ("t.padStart(t.length * 2, t)", "'a'.padStart(t.length, '\\u{1F600}')"),
    "padEnd": ("t.padEnd(t.length * 2, t)", "'a'.padEnd(t.length, 'bc')"),
    "repeat": ("t.repeat(2)", "'\\u{1F600}'.repeat(t.length)", "w.repeat(3)"),
    "concat": ("t.concat(t)", "t.concat(w, l)"),
    "at": ("w.at(-1)",),
    "charAt": ("w.charAt(1)",),
    "codePointAt": ("w.codePointAt(1)",),
    "toString": ("t.toString()",),
}  # fmt: skip
NUMBERS: Table = {
    "toFixed": ("(0.1 + i).toFixed(100)", "(1e20 / 3).toFixed(100)"),
    "toString": ("(1e300 + i).toString()", "(i / 3e-300).toString()"),
}
LISTS: Table = {
    "concat": ("l.concat(l)", "l.concat(s, 1)"),
    "includes": ("l.includes(-1)", "s.includes(k)", "s.includes(u + '')", "[g].includes([g])"),
    "indexOf": ("l.indexOf(-1)", "s.indexOf(u + '')"),
    "lastIndexOf": ("l.lastIndexOf(-1)", "s.lastIndexOf(k)", "s.lastIndexOf(u + '')"),
    "slice": ("l.slice(1)",),
    "join": ("l.join(t)", "s.join('')", "l.join('')", "l.join(',')"),
    "flat": ("g.flat(100)", "[s, s].flat()", "e.flat()"),
    "unique": ("l.unique()", "s.unique()", "[t, u + 'a', w].unique()", "e.unique()", "[g, g].unique()"),
    "at": ("l.at(-1)",),
    "toString": ("l.toString()", "s.toString()", "g.toString()"),
}
MUTATING: Table = {
    "push": ("x = l; x.push(...l);", "l.push(i);", "[].push(...l)"),
    "pop": ("l.pop();", "Inputs.l.pop()"),
    "shift": ("l.shift();", "Inputs.l.shift()"),
    "unshift": ("l.unshift(i);", "Inputs.l.unshift(1)"),
    "reverse": ("l.reverse();", "Inputs.l.reverse()"),
    "sort": (
        "Inputs.l.sort()",
        "[...s, ...s].sort()",
        "Object.keys(o).sort()",
        "[t, u + '', t, u + ''].sort()",
    ),
    "splice": ("l.splice(1, 1, i, i);", "Inputs.l.splice(1)"),
    "fill": ("Inputs.l.fill(t)", "l.fill(0);"),
}
CALLBACKS: Table = {
    "map": ("l.map(v => [v, v])", "s.map(v => v)", "s.map(v => v.slice(1))"),
    "flatMap": ("s.flatMap(v => l)", "l.flatMap(v => [v, v])"),
    "filter": ("l.filter(v => true)", "s.filter(v => v == u + '')"),
    "forEach": ("l.forEach(v => v)",),
    "find": ("l.find(v => v < 0)",),
    "findIndex": ("l.findIndex(v => v < 0)",),
    "some": ("l.some(v => v < 0)",),
    "every": ("l.every(v => v >= 0)",),
    "reduce": ("l.reduce((a, v) => a + v, '')", "s.reduce((a, v) => a + v)"),
    "sort": ("l.slice(0, 5000).sort((v, w) => v - w)", "[...s].sort((v, w) => v < w ? -1 : 1)"),
}
_ON_A_NUMBER = (
    "abs", "sign", "round", "floor", "ceil", "trunc", "sqrt", "cbrt", "exp", "log", "log2", "log10", "sin", "cos",
    "tan", "asin", "acos", "atan",
)  # fmt: skip
LIBRARY: Table = {
    **{f"Math.{name}": (f"Math.{name}(i + 1e300)",) for name in _ON_A_NUMBER},
    "Math.max": ("Math.max(...l)", "Math.max(l)"),
    "Math.min": ("Math.min(...l)", "Math.min(l)"),
    "Math.pow": ("Math.pow(10, 18)", "Math.pow(1e300, 1e300)"),
    "Math.hypot": ("Math.hypot(l)", "Math.hypot(...l)"),
    "Math.atan2": ("Math.atan2(i, 1e300)",),
    "Math.random": ("Math.random()",),
    "Object.keys": ("Object.keys(o)",),
    "Object.values": ("Object.values(o)",),
    "Object.entries": ("Object.entries(o)",),
    "Object.fromEntries": ("Object.fromEntries(e)", "Object.fromEntries([[t, 1], [u + '', 2]])"),
    "Object.assign": ("Object.assign(o, o, o)", "Object.assign({}, o)"),
    "Object.has": ("Object.has(o, t)", "Object.has({[t]: 1}, u)"),
    "JSON.parse": (
        "JSON.parse(j)", "JSON.parse('\"' + t + '\"')", "JSON.parse(JSON.stringify(o))", "JSON.parse(b + '1')",
        "JSON.parse('[' + '1,'.repeat(t.length / 4) + '1]')", "JSON.parse('\"' + '\\\\ud83d\\\\ude00' + t + '\"')",
        "JSON.parse('[' + '\"ab\",'.repeat(t.length / 10) + '1]')",
    ),
    "JSON.stringify": (
        "JSON.stringify(s)", "JSON.stringify(g)", "JSON.stringify(d)", "JSON.stringify(l, null, 10)",
        "JSON.stringify('\\u0000'.repeat(t.length / 2))", "JSON.stringify(w)", "JSON.stringify(o)",
    ),
    "Array.isArray": ("Array.isArray(l)",),
    "Date.now": ("Date.now()",),
    "now": ("now()",),
    "Date.format": (
        "Date.format(null, '%A'.repeat(100))", "Date.format(i, null, 'Asia/Tokyo')",
        "(() => { try { return Date.format(0, null, 'X' + i) } catch (e) { return e.message } })()",
        "(() => { try { return Date.format(t) } catch (e) { return e.message } })()",
        "(() => { try { return Date.format(0, null, t) } catch (e) { return e.message } })()",
    ),
    "Date.parse": (
        "Date.parse('2024-01-01T00:00:00+02:00')",
        "(() => { try { return Date.parse(b) } catch (e) { return e.message } })()",
    ),
    "Number": ("Number(b)", "Number(t)", "Number(b + '1')", "Number('9'.repeat(400))"),
    "String": ("String(l)", "String(s)", "String(g)", "String(1e300 + i)"),
    "Boolean": ("Boolean(l)",),
    "parseInt": ("parseInt(b)", "parseInt(b + '1')", "parseInt(l)"),
    "parseFloat": ("parseFloat(b)", "parseFloat('1'.repeat(300) + t)"),
    "isNaN": ("isNaN(t)",),
    "Number.isNaN": ("Number.isNaN(t)",),
    "Number.isInteger": ("Number.isInteger(1e300)",),
    "Number.isFinite": ("Number.isFinite(1e300)",),
    "random": ("random()",),
    "uuid": ("uuid()",),
    "hash": ("hash(t)", "hash(w, 'sha512')", "hash(o)", "hash(g)", "hash(s)"),
    "log": ("log(t);", "log(t, t, t, t);", "log(...s);", "log('x');"),
    "add": ("add(t, t)",),
    "sub": ("sub(i, 1e300)",),
    "mul": ("mul(i, 1e300)",),
    "div": ("div(i, 3)",),
    "eq": ("eq(t, u)",),
    "ne": ("ne(t, u)",),
    "lt": ("lt(t, u)",),
    "lte": ("lte(t, u)",),
    "gt": ("gt(t, u)",),
    "gte": ("gte(t, u)",),
    "not": ("not(l)",),
    "and": ("and(...l)",),
    "or": ("or(...l)",),
}  # fmt: skip
_JOINED = ("Promise.any", "Promise.race", "Promise.any_kv", "Promise.race_kv", "Task.any", "Task.race")
ASKING: Table = {
    "Task.run": (
        "Task.run('t', t)",
        "Task.run('t', s)",
        "Task.run('t', g)",
        "Task.run('t', o)",
        "Task.run('t', 1)",
    ),
    "Task.with": ("Task.with({queue: 'q', priority: 1})", "Task.with({key: t}).run('t', 1)"),
    "Task.delay": (
        "Task.delay('1h30m')",
        "(() => { try { return Task.delay(b) } catch (e) { return e.message } })()",
    ),
    "Task.all": ("Task.all(l)",),
    "Node.run": ("Node.run('http', {body: s})", "Node.run('http', {url: t})"),
    "Node.with": ("Node.with({timeout: '1h'})",),
    "Workflow.run": ("Workflow.run('w', s)", "Workflow.run('w', g)"),
    "Workflow.start": ("Workflow.start('w', [t, t, t])",),
    "Workflow.with": ("Workflow.with({tags: {a: t}})",),
    "Timer.delay": (
        "Timer.delay(5)",
        "(() => { try { return Timer.delay(t) } catch (e) { return e.message } })()",
    ),
    "Timer.until": ("Timer.until('2030-01-01')",),
    "Signal.next": ("Signal.next('s')",),
    "Signal.when": ("Signal.when('s', {timeout: '1h'})",),
    "wait_for_signal": ("wait_for_signal('s')",),
    "Request.next": ("Request.next('s')",),
    "Request.when": ("Request.when('s', {timeout: '1h'})",),
    "Request.reply": (
        "(() => { try { return Request.reply({id: 'a', name: 'b'}, t) } catch (e) { return e.message } })()",
        "(() => { try { return Request.reply({id: 'a', name: 'b'}, o) } catch (e) { return e.message } })()",
        "(() => { try { return Request.reply(o, g) } catch (e) { return e.message } })()",
    ),
    "Request.reject": (
        "Request.reject({id: 'a', name: 'b'}, t)",
        "(() => { try { return Request.reject(o, t) } catch (e) { return e.message } })()",
    ),
    "approval": (
        "approval({message: t, form: s})",
        "approval(t, {approvers: s, timeout: '1h'})",
        "(() => { try { return approval(o) } catch (e) { return e.message } })()",
        "(() => { try { return approval('?', {timeout: t}) } catch (e) { return e.message } })()",
    ),
    "Promise.all": ("Promise.all(l)", "Promise.all(o)", "await Promise.all(s)"),
    "Promise.allSettled": ("Promise.allSettled(l)", "await Promise.allSettled([1, 2])"),
    **{name: (f"{name}(l)",) for name in _JOINED},
    "set_tags": (
        "set_tags({a: 'b'});",
        "(() => { try { return set_tags({a: s}) } catch (e) { return e.message } })()",
        "(() => { try { return set_tags(o) } catch (e) { return e.message } })()",
    ),
    "publish": (
        "publish('a', s);",
        "publish('a', g);",
        "(() => { try { return publish(t, 1) } catch (e) { return e.message } })()",
    ),
    "progress": (
        "progress(1, 2, t);",
        "(() => { try { return progress(s) } catch (e) { return e.message } })()",
    ),
    "Stream.write": (
        "Stream.write('a', s);",
        "(() => { try { return Stream.write(t, 1) } catch (e) { return e.message } })()",
    ),
    "Stream.close": (
        "Stream.close('a');",
        "(() => { try { return Stream.close(t) } catch (e) { return e.message } })()",
    ),
    "log": ("log('error', s);",),
    "checkpoint": (
        "checkpoint('a');",
        "(() => { try { return checkpoint(s) } catch (e) { return e.message } })()",
    ),
}
OPERATORS: Table = {
    "+": ("t + u", "w + 'a'", "t + l", "i + 'a'", "'' + g", "s + ''"),
    "-": ("i - 1e300",),
    "*": ("9007199254740993 * 9007199254740993",),
    "/": ("i / 3",),
    "%": ("1e300 % 7",),
    "**": ("2 ** 62", "3 ** 0.5", "(2 ** 62) ** (2 ** 62)"),
    "==": (
        "t == u",
        "s == [...s]",
        "g == [...g]",
        "o == {...o}",
        "l == [...l]",
        "d == [...d]",
        "{[t]: 1} == {[u]: 1}",
    ),
    "!=": ("t != u", "g != [...g]"),
    "<": ("t < u",),
    "<=": ("t <= u",),
    ">": ("t > u",),
    ">=": ("t >= u",),
    "in": ("k in t", "-1 in l", "t in {[u]: 1}"),
}
EXPRESSIONS: Table = {
    "contains": ("$n.t contains $n.k", "$n.l contains -1", "$n.s contains ($n.u + '')"),
    "matches": (f"$n.t matches {MANY_STATES}", f"$n.t matches {STATES_OF_ONE}"),
    "startsWith": ("$n.t startsWith $n.u",),
    "endsWith": ("$n.t endsWith $n.u",),
}
"""Operators that scripts do not have."""
EXPRESSIONS |= {f"not {sign}": sources for sign, sources in EXPRESSIONS.items()}
OPERATORS["not in"] = OPERATORS["in"]
UNARY: Table = {"!": ("!l",), "-": ("-(i + 0.5)",), "+": ("+i",), "typeof": ("typeof l",)}
CONDITIONS: Table = {
    "==": ("$n.b == 5", "$n.t == $n.u", "$n.g == $n.g"),
    "!=": ("$n.b != 5", "$n.s != $n.s"),
    "<": ("$n.b < 5", "$n.t < $n.u"),
    "<=": ("$n.b <= 5", "$n.t <= $n.u"),
    ">": ("5 > $n.b", "$n.t > $n.u"),
    ">=": ("5 >= $n.b", "$n.t >= $n.u"),
    "in": ("5 in $n.s", "$n.k in $n.t"),
    "contains": ("$n.s contains 5", "$n.t contains $n.k"),
}
CONDITIONS |= {f"not {sign}": CONDITIONS[sign] for sign in ("in", "contains")}
INSTRUCTIONS: Table = {
    "FUNCTION": ("() => i", "() => [i, x];"),
    "MEMBER": ("t.length",),
    "INDEX": ("({[t]: 1})[u]", "l[5]", "w[1]"),
    "TRY_INDEX": ("({[t]: 1})?.[u]",),
    "LIST": ("[]", "[i]", "[[i]]"),
    "APPEND": ("[i, i, i, i]", "[t, t, t]"),
    "EXTEND": ("[...l]", "[...s, ...s]"),
    "OBJECT": ("({})", "({a: i})", "({a: {b: {c: i}}})"),
    "PUT": ("({['key ' + i]: i})", "({a: i, b: i, c: i, d: i, e: i, f: i})", "({[t + i]: 1})"),
    "MERGE": ("({...o})", "({...o, ...o})"),
    "TEXT": ("`${t}${t}`", "`${l}`", "`${i}`", "`${w}`"),
    "CALL": ("((...r) => r.length)(...l)", "((a, ...r) => r)(1, 2, 3)"),
    "REST": ("(() => { let [a, ...r] = l; return r })()",),
    "TRY_FIELD": ("(() => { let {a = 1} = o; return a })()",),
    "ASSIGN": (
        "x = o; x['key ' + i] = i;",
        "x = l; x[0] = i;",
        "o[t] = 1; x = o[u];",
        "x = {a: {b: l}}; x.a.b[0] = i;",
    ),
    "READ_PLACE": ("x = {[t]: 1}; x[u] += 1;",),
    "MUTATE": ("x = {a: l}; x.a.push(i);",),
    "ITERATE": ("for (let [a, c] of o) { break } x = 1;", "for (let a in o) { break } x = 1;"),
    "THROW": ("try { throw {message: t} } catch (e) { x = e } x = 1;",),
    "FAIL": ("try { let q = o[t] } catch (e) { x = e } x = 1;", "try { null.a } catch (e) { x = e } x = 1;"),
    "AWAIT": ("await Promise.all(l)", "await 5"),
    "SCOPE": ("(() => { let a = i; return () => a })()",),
    "RENEW": ("(() => { let f = []; for (let a = 0; a < 3; a++) { f.push(() => a) } return f })()",),
}
CONSTANT_TIME = {
    "CONSTANT", "ROOT", "EXTERNAL", "LOAD", "STORE", "BUILTIN", "TRY_MEMBER", "OUTPUT", "UNARY", "BINARY", "JUMP",
    "JUMP_IF_FALSE", "KEEP_IF_FALSE", "KEEP_IF_TRUE", "KEEP_IF_PRESENT", "METHOD", "CHECK_METHOD", "PASSED",
    "DUPLICATE", "DROP", "CHECK_LIST", "CHECK_OBJECT", "RETURN", "LOAD_BOXED", "STORE_BOXED", "LOAD_CAPTURED",
    "STORE_CAPTURED", "LOAD_GLOBAL", "STORE_GLOBAL", "NEXT", "FINISH",
}  # fmt: skip
"""Instructions that touch one value, or whose work is that of what they call: operators, methods, results."""

TABLES: dict[str, Table] = {
    "string": STRINGS, "number": NUMBERS, "list": LISTS, "mutator": MUTATING, "callback": CALLBACKS,
    "function": LIBRARY, "request": ASKING, "operator": OPERATORS, "unary": UNARY, "instruction": INSTRUCTIONS,
}  # fmt: skip
ROWS = [(f"{kind} {name}", source) for kind, table in TABLES.items() for name, source in rows_of(table)]


@cache
def inputs(size: int) -> dict[str, Any]:
    return values(size)


@pytest.mark.parametrize(
    ("rows", "known"),
    [
        (STRINGS, METHODS), (NUMBERS, NUMBER_METHODS), (LISTS, arrays.METHODS), (MUTATING, MUTATORS),
        (CALLBACKS, CALLBACK_METHODS), (LIBRARY, FUNCTIONS), (ASKING, ORCHESTRATION),
        ({**OPERATORS, **EXPRESSIONS}, STRICT),
        (UNARY, UNARY_NAMES), ({**INSTRUCTIONS, **dict.fromkeys(CONSTANT_TIME, ())}, Op.__members__),
    ],
    ids=["string", "number", "list", "mutator", "callback", "function", "request", "operator", "unary", "instruction"],
)  # fmt: skip
def test_everything_has_a_row(rows: Table, known: Any) -> None:
    assert set(rows) == set(known), "add a row with adversarial sizes for what is new"


def test_every_operator_of_conditions_that_differs_has_a_row() -> None:
    assert set(CONDITIONS) == {sign for sign in LOOSE if LOOSE[sign] is not STRICT[sign]}


@pytest.mark.parametrize(("name", "source"), ROWS)
def test_it_ends_within_its_limits(name: str, source: str) -> None:
    assert once(source, inputs(TINY)).ending in ("completed", "suspended")
    large = once(source, inputs(LARGE))
    assert large.seconds < ONCE_SECONDS
    assert large.peak < ONCE_KIB
    often = again_and_again(source, inputs(MEDIUM))
    if often.seconds >= REPEATED_SECONDS:  # a slow moment of the machine does not last
        often = again_and_again(source, inputs(MEDIUM))
    assert often.seconds < REPEATED_SECONDS
    held = kept(source, inputs(MEDIUM))
    assert held.peak < KEPT_BYTES


@pytest.mark.parametrize(
    ("sign", "source", "condition"),
    [(*row, False) for row in rows_of(EXPRESSIONS)] + [(*row, True) for row in rows_of(CONDITIONS)],
)
def test_an_operator_of_expressions_ends_within_its_limits(sign: str, source: str, condition: bool) -> None:
    assert run_expression(source, inputs(TINY), LIMITS, condition=condition) in ("completed", "TypeError")
    started = time.process_time()
    run_expression(source, inputs(LARGE), LIMITS, condition=condition)
    assert time.process_time() - started < ONCE_SECONDS
    started = time.process_time()
    run_expression(f"$n.l.map(v => {source})", inputs(MEDIUM), REPEATED, condition=condition)
    assert time.process_time() - started < REPEATED_SECONDS


def test_work_of_the_library_ends_a_slice() -> None:
    """A script that does little itself, but asks the library for much, pauses as often as one that counts."""
    program = compile("for (let i = 0; i < 20; i++) { Inputs.indexOf('aaab') } return 1")
    machine = Machine.start(program, "a" * 640_000, now=NOW, budget=20_000)
    pauses = 0
    while machine.status == "paused":
        pauses += 1
        machine.resume({}, now=NOW, budget=20_000)
    assert machine.status == "completed"
    assert pauses >= 9


def test_work_of_the_library_counts_as_instructions() -> None:
    program = compile("while (true) { Inputs.indexOf('aaab') }")
    machine = Machine.start(program, "a" * 640_000, now=NOW, limits=Limits(instructions=100_000))
    assert machine.error is not None
    assert "more than 100,000 instructions" in machine.error.message
