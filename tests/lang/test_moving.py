"""Scripts that wait, moved to another version of their source: places, variables, loops, functions, refusals."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.lang import Machine, Ok, compile, validate
from dalsegno.lang.flow.snapshot.moving import ScriptMover, ScriptVersion
from dalsegno.lang.runtime.movement import Movement
from tests.lang.driver import CONTEXT, START
from tests.rows import rows

INPUTS = {"a": 1, "items": [1, 2, 3]}


def moved(old: str, new: str, answers: tuple[Any, ...] = ()) -> tuple[Movement, Any]:
    """Move a script after so many answers; return the report, and the result of going on with 10, 20, …"""
    before, after = compile(old, "test"), compile(new, "test")
    machine = Machine.start(before, INPUTS, CONTEXT, now=START)
    for answer in answers:
        _answer(machine, answer)
    assert machine.status == "suspended", machine.error
    machine.take_effects()
    movement = ScriptMover(ScriptVersion(before), ScriptVersion(after)).move(machine.dumps(), from_version=4)
    if not movement.maps:
        return movement, None
    machine = Machine.loads(after, movement.data)
    for number in range(1, 20):
        if machine.status != "suspended":
            break
        _answer(machine, 10 * number)
    assert machine.status == "completed", machine.error
    return movement, machine.result


def _answer(machine: Machine, answer: Any) -> None:
    assert machine.awaiting is not None
    machine.resume({machine.awaiting.id: Ok(answer)}, now=START)


A = "await Task.run('a', 1)"
B = "await Task.run('b', 1)"


@rows(
    ("old", "new", "expected"),
    [
        # edits around the await, in straight-line code
        (f"let x = {A}; return x", f"let y = 1; let x = {A}; return x + 1", 11),
        (f"let x = {A}; return x", f"let x = {A}; let z = {B}; return [x, z]", [10, 20]),
        (f"let k = 5; let x = {A}; return x + k", f"let x = 0; let k = 7; x = {A}; return x * k", 50),
        (f"let x = {A}; return x", "let x = await Task.run('a', 2); return x", 10),
        (f"return 1 + {A}", f"return 1 - {A}", -9),
        (f"let x = {A}; let y = {A}; return y", f"log('new'); let x = {A}; let y = {A}; return x + y", 30),
        # loops keep their place
        (
            f"let s = 0; for (let i of inputs.items) {{ s += i * {A} }} return s",
            f"let s = 0; for (let i of inputs.items) {{ s += i * {A}; log(s) }} return [s]",
            [10 + 2 * 20 + 3 * 30],
        ),
        (
            f"for (let i = 0; i < 3; i++) {{ {A} }} return i0",
            f"let n = 4; for (let i = 0; i < 3; i++) {{ {A}; n = i }} return n",
            2,
        ),
        # functions: frames, closures, callbacks of the library
        (
            f"function f(x) {{ let y = {A}; return x + y }} return f(1) + f(2)",
            f"function f(x) {{ let y = {A}; return x * y }} return f(1) + f(2)",
            10 + 2 * 20,
        ),
        (
            f"let n = 0; let up = () => {{ n += 1 }}; {A}; up(); return n",
            f"let n = 0; let up = () => {{ n += 5 }}; {A}; up(); up(); return n",
            10,
        ),
        (
            f"return inputs.items.map(x => x + {A})",
            f"log('x'); return inputs.items.map(x => x - {A})",
            [1 - 10, 2 - 20, 3 - 30],
        ),
        # the state of a finally block
        (
            f"try {{ let x = 1 }} finally {{ {A} }} return 5",
            f"try {{ let x = 1; let y = 2 }} finally {{ {A}; log('done') }} return 6",
            6,
        ),
        (f"try {{ return 7 }} finally {{ {A} }}", f"try {{ log('x'); return 8 }} finally {{ {A} }}", 7),
        # a label finds it in other blocks
        (
            "let x = await Task.run('a', 1).named('it'); return x",
            "if (1) { let x = await Task.run('other', 1).named('it'); return x + 1 }",
            11,
        ),
    ],
)  # fmt: skip
def test_what_maps(old: str, new: str, expected: Any) -> None:
    movement, result = moved(old, new)
    assert movement.maps, [str(reason) for reason in movement.reasons]
    assert result == expected


@rows(
    ("old", "new", "message"),
    [
        # the place
        (f"let x = {A}; return x", f"let x = {B}; return x", "is gone, or inside other blocks"),
        (f"let x = {A}; return x", f"let x = {A}; let y = {A}; return x", "may be any of those in line"),
        (
            "await Task.run('a', 1); await Task.run('a', 2)",
            "await Task.run('a', 2); await Task.run('a', 1)",
            "may be",
        ),
        (f"let x = {A}; return x", f"while (true) {{ let x = {A}; return x }}", "inside other blocks"),
        (f"{A}; return 1", f"try {{ {A} }} catch (e) {{ }} return 1", "inside other blocks"),
        (f"{A}; return 1", f"function f() {{ {A} }} f(); return 1", "inside other blocks"),
        # variables
        (f"{A}; return 1", f"let y = 2; {A}; return y", "reads the variable 'y', which has no value"),
        (f"{A}; let y = 1; return y", f"let y = 2; {A}; return y", "reads the variable 'y'"),
        (f"{A}; return 1", f"y = 2; {A}; return y", "reads the variable 'y'"),
        (f"let x = 1; {A}; return x", f"let z = 1; {A}; return z", "reads the variable 'z'"),
        # operands
        (f"return inputs.a + {A}", f"return inputs.b + {A}", "has computed other values"),
        (f"return [1, {A}]", f"return [1, 2, {A}]", "has computed other values"),
        # blocks that keep state
        (
            f"for (let i of inputs.items) {{ {A} }}",
            f"for (let i of [inputs.a]) {{ {A} }}",
            "goes through, or enters, something else",
        ),
        (f"try {{ return 7 }} finally {{ {A} }}", f"try {{ log(1) }} finally {{ {A} }}", "inside other blocks"),
        # functions
        (
            f"let n = 1; let f = () => 1; {A}; return f()",
            f"let n = 1; let f = () => n; {A}; return f()",
            "now uses the variable 'n'",
        ),
        (f"let f = () => 1; {A}; return f()", f"let g = () => 1; {A}; let f = 2; return f", "let"),
    ][:-1],
)  # fmt: skip
def test_what_is_refused(old: str, new: str, message: str) -> None:
    movement, _ = moved(old, new)
    assert not movement.maps
    assert message in str(movement.reasons[0])
    assert movement.data == b""


def test_the_report_gives_both_lines_of_every_frame() -> None:
    old = "function f() {\n  await Task.run('a', 1)\n}\nf()\n"
    new = "// a comment\nfunction f() {\n  log('x')\n  await Task.run('a', 1)\n}\nf()\n"
    movement, _ = moved(old, new)
    assert [(frame.function, frame.old_line, frame.new_line) for frame in movement.frames] == [
        ("main", 4, 6),
        ("f", 2, 4),
    ]


def test_a_refusal_names_both_lines_and_what_to_do() -> None:
    movement, _ = moved(f"{A}\nreturn 1", f"let y = 2\n{A}\nreturn y")
    (reason,) = movement.reasons
    assert (reason.old_line, reason.new_line) == (1, 2)
    assert str(reason).startswith("line 1, line 2 of the new version: the new version reads the variable 'y'")
    assert "migration" in reason.advice


def test_only_a_script_that_waits_is_moved() -> None:
    program = compile("return 1", "test")
    machine = Machine.start(program, now=START)
    movement = ScriptMover(ScriptVersion(program), ScriptVersion(compile("return 2", "test"))).move(
        machine.dumps()
    )
    assert "only a script that waits" in str(movement.reasons[0])


def test_a_label_is_a_text() -> None:
    machine = Machine.start(compile("await Task.run('a', 1).named(3)"), now=START)
    assert machine.error is not None
    assert machine.error.code == "WRONG_ARG_TYPE"


@pytest.mark.parametrize("answers", [0, 1, 2])
def test_a_loop_is_moved_in_each_of_its_turns(answers: int) -> None:
    old = f"let s = []; for (let i of [1, 2, 3]) {{ s.push([i, {A}]) }} return s"
    new = f"let s = []; let t = 0; for (let i of [1, 2, 3]) {{ log(i); s.push([i, {A}]) }} return s"
    _, result = moved(old, new, tuple(100 for _ in range(answers)))
    assert [i for i, _ in result] == [1, 2, 3]
    assert [found for _, found in result] == [100] * answers + [10, 20, 30][: 3 - answers]


M = "function migrate(v, version) {{ return {{{}}} }} "


@rows(
    ("old", "new", "expected"),
    [
        # a variable that the old version does not have
        (f"{A}; return 1", M.format("y: 7") + f"let y = 2; {A}; return y", 7),
        (f"let x = 3; {A}; return x", M.format("y: v.x * version") + f"let y = 2; {A}; return y", 12),
        # one that changes its value; functions that share it see the change
        (f"let x = [1]; {A}; return x", M.format("x: {a: v.x[0]}") + f"let x = {{}}; {A}; return x.a", 1),
        (
            f"let n = 1; let f = () => n; {A}; return f()",
            M.format("n: v.n + 1") + f"let n = 1; let f = () => n; {A}; return f()",
            2,
        ),
        # one that a function captures
        (
            f"let n = 1; let f = () => {{ {A}; return n }}; return f()",
            M.format("n: v.n + 4")
            + f"let n = 1; let f = () => {{ {A}; return n }}; let r = f(); return [r, n]",
            [5, 5],
        ),
    ],
)
def test_a_migration_gives_variables(old: str, new: str, expected: Any) -> None:
    movement, result = moved(old, new)
    assert movement.maps, [str(reason) for reason in movement.reasons]
    assert result == expected


@rows(
    ("migration", "message"),
    [
        ("z: 1", "reads the variable 'y'"),
        ("y: v.nothing", "its migration failed: PROPERTY_NOT_FOUND"),
        (f"y: {B}", "may neither await nor start anything"),
        ("y: Task.run('a', 1).id", "may neither await nor start anything"),
        ("y: () => 1", "its migration failed"),
    ],
)
def test_a_migration_may_fail(migration: str, message: str) -> None:
    movement, _ = moved(f"{A}; return 1", M.format(migration) + f"let y = 2; {A}; return y")
    assert message in str(movement.reasons[0])


def test_a_migration_returns_an_object() -> None:
    new = f"function migrate(v) {{ return [1] }} let y = 2; {A}; return y"
    movement, _ = moved(f"{A}; return 1", new)
    assert "must return an object" in str(movement.reasons[0])


def test_a_migration_is_not_an_unused_function() -> None:
    assert validate("function migrate(v) { return v } return 1") == []
