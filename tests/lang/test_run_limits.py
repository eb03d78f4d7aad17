"""Whatever a script does, it ends: with a result, its own error, or `LimitExceeded`, which it cannot catch."""

from __future__ import annotations

import time
from typing import Any

import pytest

from dalsegno.lang import Limits, Machine, Ok, compile
from tests.lang.driver import START, play

ENDLESS = [
    "while (true) { }",
    "for (;;) { }",
    "let i = 0; while (true) { i = i + 1 }",
    "function f() { return f() } f()",
    "function f() { g() } function g() { f() } f()",
    "let f = () => [1].map(f); f()",
    "[1].map(function loop(x) { while (true) { } })",
    "while (true) { try { throw 1 } catch (e) { } }",
    "while (true) { try { continue } finally { } }",
    "while (true) { await 5 }",
    "while (true) { await Promise.all([]) }",
    "let list = [1]; for (let x of list) { while (true) { list.push(x) } }",
]
TOO_LARGE = [
    "'x'.repeat(1e9)",
    "let s = 'x'; while (true) { s = s + s }",
    "let s = 'x'; while (true) { s += s }",
    "let s = 'x'; while (true) { s = `${s}${s}` }",
    "let l = [1]; while (true) { l = [...l, ...l] }",
    "let l = [1]; while (true) { l.push(...l) }",
    "let l = [1]; while (true) { l = l.concat(l) }",
    "let l = []; while (true) { l.push('x'.repeat(1000000)) }",
    "let l = []; while (true) { l.push(l) }",
    "let o = {}; while (true) { o = {a: o, b: o}; JSON.stringify(o) }",
    "let l = []; while (true) { l = [l, l]; if (l == [l]) { } }",
    "let l = [1]; for (let i = 0; i < 40; i++) { l = [l, l] } Task.run('t', l)",
    "let p = Task.run('t', 1); while (true) { p = Promise.all([p, p]) }",
    "let p = Task.run('t', 1); while (true) { p = Promise.all([p]) }",
    "while (true) { Task.run('t', 'x'.repeat(100000)) }",
    "while (true) { log('x'.repeat(100000)) }",
    "'a'.padStart(1e12)",
]


@pytest.mark.parametrize("source", [*ENDLESS, *TOO_LARGE])
def test_limits_end_it(source: str) -> None:
    guarded = (
        f"try {{ {source} }} catch (e) {{ log('caught') }} finally {{ log('cleanup') }} return 'survived'"
    )
    limits = Limits(instructions=300_000)
    started = time.process_time()
    machine = Machine.start(compile(guarded), now=START, limits=limits)
    assert machine.error is not None
    assert machine.error.code == "LimitExceeded"
    assert machine.error.stack
    assert machine.take_logs()[:1] in ([], [("info", "x" * 100000)])
    assert time.process_time() - started < 10


@pytest.mark.parametrize("grow", ["l = [l, l]", "l = [l, l, l, l]", "l = {a: l, b: l}"])
def test_a_result_too_large_to_write_out_is_refused(grow: str) -> None:
    source = f"let l = [1]\nfor (let i = 0; i < 40; i++) {{ {grow} }}\nreturn l"
    machine = Machine.start(compile(source, "test"), now=START, limits=Limits(instructions=50_000))
    assert machine.error is not None
    assert (machine.error.code, machine.error.stack) == ("LimitExceeded", ("main (test:3)",))


SAYS_WHAT_TO_DO = [
    ("while (true) { }", ("more than 9,000 instructions in one turn (from one await to the next): "
     "move long computations into a task, or raise Limits(instructions=…)")),
    ("function f(n) { return 1 + f(n) } f(0)", ("more than 500 calls inside each other: end the recursion earlier, "
     "write it as a loop, or raise Limits(stack_depth=…)")),
    ("'x'.repeat(1e9)", "keep large data elsewhere and pass a reference, or raise Limits(result_bytes=…)"),
    ("let l = []; while (true) { l.push('x'.repeat(1000000)) }",
     "in one turn (from one await to the next): keep large data elsewhere, or raise Limits(allocated_bytes=…)"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "advice"), SAYS_WHAT_TO_DO)
def test_a_limit_names_its_setting_and_the_way_out(source: str, advice: str) -> None:
    machine = Machine.start(compile(source), now=START, limits=Limits(instructions=9_000))
    assert machine.error is not None
    assert advice in machine.error.message


def test_limits_are_per_resume() -> None:
    source = (
        "for (let i = 0; i < 5; i++) { for (let j = 0; j < 100; j++) { } await Task.run('t', i) } return 'ok'"
    )
    program = compile(source)
    limits = Limits(instructions=3_000)
    machine = Machine.start(program, now=START, limits=limits)
    for number in range(5):
        assert machine.status == "suspended"
        machine = Machine.loads(program, machine.dumps(), limits=limits)
        machine.resume({f"p{number}": Ok(None)}, now=START)
    assert machine.result == "ok"
    everything = source.replace("await Task.run('t', i)", "")
    ended = Machine.start(compile(everything), now=START, limits=limits)
    assert ended.error is not None
    assert ended.error.code == "LimitExceeded"


def test_budget_pauses_and_goes_on() -> None:
    program = compile("let s = 0; for (let i = 0; i < 50; i++) { s += i } return s")
    machine = Machine.start(program, now=START, budget=10)
    pauses = 0
    while machine.status == "paused":
        pauses += 1
        assert machine.resume({}, now=START, budget=10) is True
    assert (machine.status, machine.result) == ("completed", 1225)
    assert pauses > 20
    assert Machine.start(program, now=START, budget=10**9).result == 1225


@pytest.mark.parametrize(
    "source",
    [
        "while (true) { }",
        "let l = []; while (true) { l.push('x'.repeat(10000)) }",
        "while (true) { [1, 2].map(x => x) }",
    ],
)
def test_a_budget_does_not_stretch_the_limits(source: str) -> None:
    """Pausing, also with a snapshot, changes nothing about when a script has used up what one resume may use."""
    program = compile(source)
    limits = Limits(instructions=10_000, allocated_bytes=1_000_000)
    whole = Machine.start(program, now=START, limits=limits)
    for store in (False, True):
        machine = Machine.start(program, now=START, budget=100, limits=limits)
        while machine.status == "paused":
            machine = Machine.loads(program, machine.dumps(), limits=limits) if store else machine
            machine.resume({}, now=START, budget=100)
        assert machine.error == whole.error
        assert machine.error is not None
        assert machine.error.code == "LimitExceeded"


def test_a_budget_beyond_the_limit_does_not_pause_but_fail() -> None:
    machine = Machine.start(
        compile("while (true) { }"), now=START, budget=5_000, limits=Limits(instructions=1_000)
    )
    assert machine.status == "failed"


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_deep_values_from_outside_are_carried_but_not_sent_on() -> None:
    assert play("let x = inputs; return x.length", deep(150)).result == 1
    assert play("return inputs", deep(150), routes=False).status == "completed"
    assert play("return inputs", deep(500), routes=False).status == "failed"


def test_a_deep_value_survives_being_stored() -> None:
    source = (
        "let l = [1]; for (let i = 0; i < 3000; i++) { l = [l] } let n = 0; await Task.run('t', 1); "
        "while (typeof l == 'list') { l = l[0]; n++ } return n"
    )
    program = compile(source)
    machine = Machine.start(program, now=START)
    machine = Machine.loads(program, machine.dumps())
    machine.resume({"p0": Ok(1)}, now=START)
    assert machine.result == 3001


def test_a_value_that_refers_to_its_parts_many_times_is_stored_once() -> None:
    source = (
        "let l = ['leaf']; for (let i = 0; i < 40; i++) { l = [l, l] } await Task.run('t', 1); for "
        "(let i = 0; i < 40; i++) { l = l[i % 2] } return l"
    )
    program = compile(source)
    machine = Machine.start(program, now=START)
    for _ in range(5):
        assert len(machine.dumps()) < 10_000
        machine = Machine.loads(program, machine.dumps())
    assert len(str(machine.variables())) < 2_000_000
    machine.resume({"p0": Ok(1)}, now=START)
    assert machine.result == ["leaf"]


def test_deep_recursion_within_the_limit_works() -> None:
    assert (
        play("function f(n) { return n == 0 ? 0 : 1 + f(n - 1) } return f(400)", routes=False).result == 400
    )


def test_deeply_nested_blocks_compile() -> None:
    source = "if (true) { " * 60 + "return 1" + " }" * 60
    assert play(source, routes=False).result == 1
