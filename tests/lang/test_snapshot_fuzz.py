"""Whatever bytes are loaded as a snapshot or a program: a machine comes out, or `SnapshotError`, and nothing else."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any
from zlib import crc32

from hypothesis import given
from hypothesis import strategies as st

from dalsegno.lang import Err, ErrorValue, FlowProgram, Limits, Machine, Ok, SnapshotError, compile
from tests.effort import examples
from tests.lang.driver import CONTEXT, START, leaf_ids

SOURCE = """
let total = 0, names = [], big = {rows: [1, 2, 3, "some longer text that is written apart", "and some more of it"]}
let p = Task.run("first", 1), ps = [p, Task.run("second", 2), Task.run("third", 3)]
function add(n) { total += n; return () => total }
let later = add(1), e = null, nan = 0 / 0, w = Task.with({queue: "q"}), m = Math.max
try { null.x } catch (problem) { e = problem }
for (let row of big.rows) {
  for (let i in names) { log(i) }
  names = [1].map(x => x + (await Promise.race([Promise.all(ps), Signal.when("s", {timeout: 5}), 7, Timer.delay(9)])))
  names.sort((a, b) => 0)
  try { shared = await w.run("t", {row}) } catch (x) { names.push(x) } finally { total++ }
}
return [total, names]
"""
PROGRAM = compile(SOURCE, "test")
SMALL = Limits(instructions=3_000, stack_depth=50, allocated_bytes=1_000_000, result_bytes=100_000)


def snapshots() -> list[bytes]:
    """One after every seventh instruction of a run."""
    machine = Machine.start(PROGRAM, {"a": 1}, CONTEXT, now=START, budget=7)
    found = []
    while machine.status in ("paused", "suspended") and len(found) < 60:
        found.append(machine.dumps())
        outcomes = {name: Ok([1, 2]) for name in leaf_ids(machine.awaiting)} if machine.awaiting else {}
        machine.resume(outcomes, now=START, budget=7)
    return [*found, machine.dumps()]


VALID = snapshots()
SCALARS = st.sampled_from([None, True, 0, 1, -1, 2**40, -7, 1.5, "", "p", "$", "x", "all", "map", "sort"])
PIECES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["$", "a"]), inner, max_size=2)
    ),
    max_leaves=6,
)


def sealed(state: Any) -> bytes:
    """A snapshot with a checksum that fits, whatever is in it."""
    data = json.dumps(state).encode()
    return b'[1,"%b",%d,%b]' % (PROGRAM.fingerprint.encode(), crc32(data), data)


def state_of(data: bytes) -> Any:
    return json.loads(data)[3]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *[found for key, item in inside for found in places(item, (*path, key))]]


def replaced(value: Any, path: tuple[Any, ...], piece: Any) -> Any:
    if not path:
        return piece
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(copy[path[0]], path[1:], piece)
    return copy


def try_out(data: bytes) -> None:
    """Load it, look at it, run it a little, store it; or it is refused."""
    with suppress(SnapshotError):
        machine = Machine.loads(PROGRAM, data, limits=SMALL)
        look_at(machine)
        outcomes = {name: Ok(1) for name in leaf_ids(machine.awaiting)} if machine.awaiting else {}
        machine.resume(outcomes, now=START, budget=400)
        look_at(machine)
        if machine.status == "suspended":
            machine.interrupt(ErrorValue("CancelledError", "stop"), now=START, budget=400)
        look_at(machine)


def look_at(machine: Machine) -> None:
    assert machine.status in ("suspended", "paused", "completed", "failed")
    machine.variables()
    machine.reachable()
    machine.waiting_signals()
    machine.take_effects()
    machine.take_logs()
    assert machine.line >= 0
    Machine.loads(PROGRAM, machine.dumps(), limits=SMALL)


@examples(300)
@given(data=st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_any_bytes(data: bytes) -> None:
    try_out(data)


@examples(300)
@given(
    valid=st.sampled_from(VALID),
    position=st.integers(0, 2_000),
    length=st.integers(0, 6),
    piece=st.binary(max_size=6),
)
def test_bytes_changed(valid: bytes, position: int, length: int, piece: bytes) -> None:
    position %= len(valid)
    try_out(valid[:position] + piece + valid[position + length :])


@examples(1_500)
@given(valid=st.sampled_from(VALID), number=st.integers(0, 10_000), piece=PIECES)
def test_parts_replaced_under_a_checksum_that_fits(valid: bytes, number: int, piece: Any) -> None:
    state = state_of(valid)
    where = places(state)
    try_out(sealed(replaced(state, where[number % len(where)], piece)))


@examples(700)
@given(
    first=st.sampled_from(VALID),
    second=st.sampled_from(VALID),
    a=st.integers(0, 9_999),
    b=st.integers(0, 9_999),
)
def test_parts_taken_from_another_snapshot(first: bytes, second: bytes, a: int, b: int) -> None:
    state, other = state_of(first), state_of(second)
    where, whence = places(state), places(other)
    piece = other
    for key in whence[b % len(whence)]:
        piece = piece[key]
    try_out(sealed(replaced(state, where[a % len(where)], piece)))


def test_the_snapshots_that_are_changed_are_valid() -> None:
    for data in VALID:
        assert Machine.loads(PROGRAM, data).dumps()
        assert Machine.loads(PROGRAM, sealed(state_of(data))).status in ("suspended", "paused", "completed")


@examples(400)
@given(position=st.integers(0, 20_000), length=st.integers(0, 6), piece=st.binary(max_size=6))
def test_stored_programs_changed(position: int, length: int, piece: bytes) -> None:
    valid = PROGRAM.dump()
    position %= len(valid)
    try:
        program = FlowProgram.load(valid[:position] + piece + valid[position + length :])
    except SnapshotError:
        return
    assert program.kind == "script"


@examples(300)
@given(
    outcomes=st.dictionaries(st.text(max_size=5) | st.sampled_from(["p0", "p1", "p-1", "p٣", "p1_0"]), PIECES)
)
def test_any_answers(outcomes: dict[str, Any]) -> None:
    machine = Machine.start(
        compile("return await Promise.all([Task.run('a', 1), Task.run('b', 2)])"), now=START
    )
    answers = {
        name: Err(ErrorValue("X", "x")) if told is None else Ok(told) for name, told in outcomes.items()
    }
    machine.resume(answers, now=START)
    assert machine.status in ("suspended", "completed", "failed")
