"""Lists and objects are values: nobody sees a change through another variable, and changing one is cheap."""

from __future__ import annotations

import time
from typing import Any

import pytest

from dalsegno.lang import Machine, compile
from dalsegno.lang.flow.runtime import instructions
from dalsegno.lang.values.kinds import Cell
from tests.lang.driver import error_of, play, result_of
from tests.rows import rows

PROGRAMS: list[tuple[str, Any]] = [
    # copies
    ("let a = {x: 1}; let b = a; b.x = 2; return [a, b]", [{"x": 1}, {"x": 2}]),
    ("let a = [1]; let b = a; a.push(2); return [a, b]", [[1, 2], [1]]),
    ("let a = {l: [1]}; let b = a.l; b.push(2); a.l.push(3); return [a, b]", [{"l": [1, 3]}, [1, 2]]),
    (
        "let a = {l: [[1]]}; let b = a; let c = a.l[0]; a.l[0][0] = 9; return [a, b, c]",
        [{"l": [[9]]}, {"l": [[1]]}, [1]],
    ),
    ("let inner = [1]; let outer = [inner, inner]; outer[0].push(2); return [inner, outer]", [[1], [[1, 2], [1]]]),
    ("function f(list) { list.push(1); return list } let a = []; let b = f(a); return [a, b]", [[], [1]]),
    ("let a = []; function f() { return a } let b = f(); b.push(1); return [a, b]", [[], [1]]),
    ("let a = {}; a.self = a; a.self.x = 1; return a", {"self": {"x": 1}}),
    ("let a = [1]; a.push(a); a[1].push(2); return a", [1, [1, 2]]),
    ("let a = [3, 1]; let b = a.sort(); b.push(9); return [a, b]", [[1, 3], [1, 3, 9]]),
    ("let a = [1, 2]; let b = a.reverse(); a.push(0); return [a, b]", [[2, 1, 0], [2, 1]]),
    ("let a = [{n: 1}]; let b = a.map(x => x); b[0].n = 2; return [a, b]", [[{"n": 1}], [{"n": 2}]]),
    ("let a = [{n: 1}]; a.forEach(x => { x.n = 2 }); return a", [{"n": 1}]),
    ("let a = {n: 1}; let f = () => a; a.n = 2; let b = f(); b.n = 3; return [a, b]", [{"n": 2}, {"n": 3}]),
    ("let a = [0]; let old = []; for (let i of [1, 2]) { old.push(a); a[0] = i } return [old, a]", [[[0], [1]], [2]]),
    ("let a = inputs; a.list.push(1); return [a.list, inputs.list]", [[0, 1], [0]]),
    ("inputs.list.push(1); return inputs.list", [0, 1]),
    ("let a = {l: []}; let {l} = a; l.push(1); return [a, l]", [{"l": []}, [1]]),
    (
        "let a = [1]; let b = [...a]; let c = {...{a}}; b.push(2); c.a.push(3); return [a, b, c]",
        [[1], [1, 2], {"a": [1, 3]}],
    ),
    (
        "let p = [1]; let q = p; try { q.push(2); throw q } catch (e) { e.push(3); return [p, q, e] }",
        [[1], [1, 2], [1, 2, 3]],
    ),
    # mutators on places
    ("let a = [1]; return [a.push(2, 3), a]", [3, [1, 2, 3]]),
    ("let a = [1, 2]; return [a.pop(), a]", [2, [1]]),
    ("let a = []; return [a.pop(), a.shift(), a]", [None, None, []]),
    ("let a = [1, 2]; return [a.shift(), a]", [1, [2]]),
    ("let a = [1]; return [a.unshift(8, 9), a]", [3, [8, 9, 1]]),
    ("let a = [1, 2, 3, 4]; return [a.splice(1, 2, 'x'), a]", [[2, 3], [1, "x", 4]]),
    ("let a = [1, 2, 3, 4]; return [a.splice(-1), a]", [[4], [1, 2, 3]]),
    ("let a = [1, 2, 3]; return [a.splice(1, 0, 7, 8), a]", [[], [1, 7, 8, 2, 3]]),
    ("let a = [1, 2, 3]; a.fill(0); return a", [0, 0, 0]),
    ("let a = [1, 2, 3]; a.fill(0, 1, 2); return a", [1, 0, 3]),
    ("let a = [3, 1, 2]; a.sort(); return a", [1, 2, 3]),
    ("let a = [3, 1, 2]; return [a.sort((x, y) => y - x), a]", [[3, 2, 1], [3, 2, 1]]),
    ("let o = {a: {l: [2, 1]}}; o.a.l.sort((x, y) => x - y); o.a.l.push(3); return o", {"a": {"l": [1, 2, 3]}}),
    ("let l = [[2, 1], [4, 3]]; let i = 1; l[i].sort((x, y) => x - y); return l", [[2, 1], [3, 4]]),
    ("let l = [[1], [2]]; let i = 1; l[i].push(3); l[0][0] += 5; return l", [[6], [2, 3]]),
    ("let o = {l: [1]}; return o.l.push(2) + o.l.length", 4),
    ("let o = {l: [{n: [5]}]}; return [o.l.pop().n.push(6), o]", [2, {"l": []}]),
    ("let items = [1, 2]; items.push(...[3, 4]); return items", [1, 2, 3, 4]),
    ("let l = [1]; function f() { l.push(2); return l.length } l.push(f()); return l", [1, 2, 2]),
    (
        ("function make() { let l = []; return {add: x => { l.push(x) }, get: () => l} } let m = "
        "make(); m.add(1); m.add(2); return m.get()"),
        [1, 2],
    ),
    ("let o = {push: x => x * 2}; return o.push(4)", 8),
    ("let o = {list: {pop: () => 'mine'}}; return o.list.pop()", "mine"),
    ("return [1, 2].pop()", 2),
    ("return [3, 1].sort()", [1, 3]),
    ("let o = {}; let r = o?.list?.push(1); return [o, r]", [{}, None]),
    ("let o = {list: []}; o?.list.push(1); o?.list?.push(2); o?.['list'].push(3); return o", {"list": [1, 2, 3]}),
    ("let o = null; return o?.list.push(1)", None),
    ("let n = 0; function k() { n++; return 0 } let l = [[]]; l?.[k()].push(1); return [n, l]", [1, [[1]]]),
    ("let a = [1, 2, 3]; let b = a.slice(); b.reverse(); return [a, b]", [[1, 2, 3], [3, 2, 1]]),
    (
        ("let seen = []; let l = [3, 1, 2]; l.sort((a, b) => { seen.push(l.length); return a - b }); "
        "return [l, seen.length > 0]"),
        [[1, 2, 3], True],
    ),
    # keys keep their order
    ("let o = {b: 1, a: 2}; o.c = 3; o.b = 9; return Object.keys(o)", ["b", "a", "c"]),
    # numbers
    (
        "return [9007199254740993, inputs.big + 0, 0.1 + 0.2, -7 % 3]",
        [9007199254740993, 2**60 + 1, 0.30000000000000004, -1],
    ),
    ("return {a: 1.0, b: 2.50}", {"a": 1, "b": 2.5}),
    ("return JSON.stringify([-0, 0 * -1, 5 / 1, 1e20])", "[0,0,5,100000000000000000000]"),
    # keys that snapshots use themselves
    (
        "let o = {'$': 1}; let l = [{'$': ['x']}]; o['$'] += 1; return [o, l, inputs.tricky]",
        [{"$": 2}, [{"$": ["x"]}], {"$": [0]}],
    ),
    ("let f = () => 1; let o = {'$': 5, f, l: [{'$': 0}]}; return [o['$'], o.f(), o.l]", [5, 1, [{"$": 0}]]),
]  # fmt: skip
INPUTS = {"list": [0], "big": 2**60 + 1, "tricky": {"$": [0]}}


@rows(("source", "expected"), PROGRAMS)
def test_program_returns(source: str, expected: Any) -> None:
    assert result_of(source, INPUTS) == expected


def test_inputs_of_the_driver_are_never_changed() -> None:
    inputs = {"list": [1], "deep": {"x": [{"y": 1}]}}
    play("inputs.list.push(2); inputs.deep.x[0].y = 5; let i = inputs; i.deep.x.pop(); return i", inputs)
    assert inputs == {"list": [1], "deep": {"x": [{"y": 1}]}}


def test_results_of_tasks_are_shared_but_never_changed() -> None:
    answer = {"rows": [1, 2]}
    source = "let r = await Task.run('t', {}); r.rows.push(3); let s = await Task.run('t', {}); return [r, s]"
    assert result_of(source, tasks={"t": answer}) == [{"rows": [1, 2, 3]}, {"rows": [1, 2]}]
    assert answer == {"rows": [1, 2]}


def test_inputs_of_a_task_stay_what_they_were_when_it_was_started() -> None:
    ending = play("let o = {l: [1]}; let p = Task.run('t', o); o.l.push(2); Task.run('u', o); return o")
    assert [effect.inputs for effect in ending.effects] == [{"l": [1]}, {"l": [1, 2]}]  # type: ignore[union-attr]


def elapsed(source: str) -> float:
    program = compile(source)
    started = time.process_time()
    machine = Machine.start(program, now=0.0)
    assert machine.status == "completed", machine.error
    return time.process_time() - started


@pytest.mark.parametrize(
    "body",
    ["list.push(i)", "o.a.list.push(i)", "o['k' + i] = i", "list[0] = i", "rows[0].push({i})", "o.a.n = i"],
)
def test_changing_a_variable_in_a_loop_takes_linear_time(body: str) -> None:
    """Ten times as many turns take about ten times as long; copying each time would take a hundred."""
    start = "let list = [0]; let rows = [[]]; let o = {a: {list: [], n: 0}};"
    source = f"{start} for (let i = 0; i < %d; i++) {{ {body} }} return list.length + rows[0].length"
    elapsed(source % 500)
    short = min(elapsed(source % 1_000) for _ in range(3))
    assert min(elapsed(source % 10_000) for _ in range(2)) < 40 * short


def test_allocation_of_a_loop_that_pushes_stays_small() -> None:
    source = "let l = []; for (let i = 0; i < 100000; i++) { l.push(i) } return l.length"
    assert play(source, routes=False).result == 100_000


def test_minus_zero_stays_inside() -> None:
    ending = play("let z = 0 * -1; Task.run('t', [z]); return {z, negative: 1 / z < 0}")
    assert repr(ending.result) == "{'z': 0, 'negative': True}"
    assert repr(ending.effects[0].inputs) == "[0]"  # type: ignore[union-attr]


def test_methods_of_the_wrong_kind_are_refused() -> None:
    assert error_of("let s = 'abc'; s.push('d')").code == "NOT_A_FUNCTION"
    assert error_of("let n = null; n.push(1)").code == "TYPE_ERROR"
    assert error_of("let o = {}; o.push(1)").code == "PROPERTY_NOT_FOUND"
    assert error_of("let o = {push: 1}; o.push(1)").code == "NOT_A_FUNCTION"
    assert error_of("let l = [1]; l.pop(1)").code == "WRONG_ARG_COUNT"


@pytest.mark.parametrize("holder", [[0], {0: 0}, Cell()], ids=lambda holder: type(holder).__name__)
def test_what_nothing_else_refers_to_is_known_as_unshared(holder: Any) -> None:
    holder[0] = [1]
    assert instructions._references(holder, 0) == instructions.UNSHARED
    other = holder[0]
    assert instructions._references(holder, 0) > instructions.UNSHARED
    del other
    assert instructions._references(holder, 0) == instructions.UNSHARED
