"""The machine's own protocol: what it waits for, what a resume may bring, interruption, snapshots' size."""

from __future__ import annotations

from typing import Any

from dalsegno.lang import Err, ErrorValue, Machine, Ok, WaitingSignal, compile
from tests.lang.driver import START


def start(source: str, **options: Any) -> Machine:
    return Machine.start(compile(source, "test"), now=START, **options)


def test_awaiting_tells_what_to_wait_for() -> None:
    machine = start(
        "await Promise.all({a: Task.run('t', 1), b: Promise.race([Timer.delay(5), 7, Signal.next('s')])})"
    )
    awaited = machine.awaiting
    assert awaited is not None
    assert (awaited.kind, awaited.keys, awaited.id) == ("all", ("a", "b"), "")
    task, race = awaited.items
    assert (task.kind, task.id, task.name) == ("task", "p0", "t")
    assert [(item.kind, item.id, item.name, item.due) for item in race.items] == [
        ("timer", "p1", None, START + 5),
        ("signal", "p2", "s", None),
    ]
    assert start("return 1").awaiting is None


def test_resume_with_too_little_changes_nothing() -> None:
    machine = start("return await Promise.all([Task.run('a', 1), Task.run('b', 2)])")
    before = machine.dumps()
    assert machine.resume({}, now=START) is False
    assert machine.resume({"p0": Ok(1)}, now=START) is False
    assert machine.resume({"p7": Ok(1), "nonsense": Ok(2), "x9": Ok(3), "": Ok(4)}, now=START) is False
    assert machine.dumps() == before
    assert machine.resume({"p1": Ok("b"), "p0": Ok("a"), "zzz": Ok(0)}, now=START) is True
    assert machine.result == ["a", "b"]
    assert machine.resume({"p0": Ok(1)}, now=START) is False
    assert machine.result == ["a", "b"]


def test_any_and_race_go_by_the_order_of_completion() -> None:
    source = "return await Promise.race([Task.run('a', 1), Task.run('b', 2)])"
    machine = start(source)
    machine.resume({"p1": Ok("b"), "p0": Ok("a")}, now=START)
    assert machine.result == "b"
    machine = start(source.replace("race", "any"))
    machine.resume({"p1": Err(ErrorValue("X", "x")), "p0": Ok("a")}, now=START)
    assert machine.result == "a"


def test_a_race_is_never_decided_by_half_of_what_is_known() -> None:
    """p1 completed first, but when p0 was awaited nobody asked about p1: the machine must ask again."""
    machine = start(
        "let a = Task.run('a', 1), b = Task.run('b', 1); await a; return await Promise.race([a, b])"
    )
    assert machine.resume({"p0": Ok("a")}, now=START)
    assert machine.status == "suspended"
    assert machine.resume({"p1": Ok("b"), "p0": Ok("a")}, now=START)
    assert machine.result == "b"


def test_what_is_known_is_not_asked_for_twice_within_a_resume() -> None:
    machine = start(
        "let ps = [Task.run('a', 1), Task.run('b', 1)]; await Promise.all(ps); return [await ps[0], await ps[1]]"
    )
    machine.resume({"p1": Ok("b"), "p0": Ok("a")}, now=START)
    assert (machine.status, machine.result) == ("completed", ["a", "b"])


def test_interrupt_throws_at_the_await() -> None:
    source = "try {\n  await Signal.next('s')\n} catch (e) {\n  return [e.code, e.stack, await Task.run('undo', 1)] }"
    machine = start(source)
    assert machine.interrupt(ErrorValue("CancelledError", "cancelled"), now=START + 1)
    assert machine.status == "suspended"
    machine.resume({"p1": Ok("undone")}, now=START + 2)
    assert machine.result == ["CancelledError", ["main (test:2)"], "undone"]
    assert machine.interrupt(ErrorValue("CancelledError", "cancelled"), now=START) is False


def test_interrupt_without_catch_fails_the_machine() -> None:
    machine = start("await Promise.all([Task.run('a', 1)])")
    assert machine.interrupt(ErrorValue("TimeoutError", "too late"), now=START)
    assert (machine.status, machine.error and machine.error.code) == ("failed", "TimeoutError")


def test_reachable_promises() -> None:
    source = """
    let kept = Task.run('a', 0)
    Task.run('forgotten', 1)
    let many = []
    for (let i = 0; i < 100; i++) { many.push(Task.run('m', i)) }
    let f = null
    { let inner = Task.run('inner', 1); let closed = Task.run('closed', 1); f = () => closed }
    let group = Promise.all([Task.run('g', 1)])
    await Signal.next('s')
    """
    machine = start(source)
    assert machine.reachable() == ((0, 1), (2, 102), (103, 106))
    assert machine.waiting_signals() == (WaitingSignal("p105", "s"),)


def test_waiting_signals_are_in_the_order_of_their_making() -> None:
    machine = start(
        "let l = [Signal.next('b'), Signal.next('a')]; Signal.next('lost'); let x = "
        "Signal.when('c', {timeout: 5}); await l[1]"
    )
    assert machine.waiting_signals() == (
        WaitingSignal("p0", "b"),
        WaitingSignal("p1", "a"),
        WaitingSignal("p3", "c", START + 5),
    )


def test_logs_are_taken_once() -> None:
    machine = start("log('a', 1, {b: 2}); log('warning', 'careful'); log('info'); return 1")
    assert machine.take_logs() == [("info", 'a 1 {"b":2}'), ("warning", "careful"), ("info", "info")]
    assert machine.take_logs() == []


def test_ten_thousand_promises_make_a_small_snapshot() -> None:
    source = """
    let ps = []
    for (let i = 0; i < 10000; i++) { ps.push(Task.run('t', i)) }
    let results = await Promise.all(ps)
    return results.length
    """
    machine = start(source)
    assert len(machine.take_effects()) == 10_000
    assert len(machine.dumps()) < 1_000
    assert machine.reachable() == ((0, 10_000),)
    machine = Machine.loads(compile(source, "test"), machine.dumps())
    assert machine.resume({f"p{n}": Ok(n) for n in range(10_000)}, now=START)
    assert machine.result == 10_000


def test_line_of_a_waiting_machine() -> None:
    machine = start("let x = 1\nlet y =\n  await Task.run('t',\n  {})\nreturn y")
    assert machine.line == 3
