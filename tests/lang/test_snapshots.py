"""Snapshots: small, complete, kept in identity, and refused when they are not what they should be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dalsegno.lang import (
    Err,
    ErrorValue,
    FlowProgram,
    FlowSyntaxError,
    Machine,
    Ok,
    SnapshotError,
    StartTask,
    compile,
)
from dalsegno.lang.flow.snapshot.write import MOST_TRACEBACKS
from tests.lang.driver import CONTEXT, START, Route, Stored, StoredApart, World, drive
from tests.rows import rows

WAIT = "await Task.run('t', 1)"


def suspended(source: str, inputs: Any = None) -> tuple[FlowProgram, Machine]:
    program = compile(source, "test")
    machine = Machine.start(program, inputs, CONTEXT, now=START)
    assert machine.status == "suspended", machine.error
    machine.take_effects()
    return program, machine


def resumed(source: str, inputs: Any = None, outcome: Any = None) -> Any:
    """The result after one stop with a snapshot."""
    program, machine = suspended(source, inputs)
    loaded = Machine.loads(program, machine.dumps())
    assert loaded.awaiting is not None
    loaded.resume({loaded.awaiting.id: Ok(outcome)}, now=START)
    assert loaded.status == "completed", loaded.error
    return loaded.result


@rows(
    ("source", "expected"),
    [
        # cells are shared by closures
        (
            (f"let n = 0; let up = () => {{ n++; return n }}; let get = () => n; up(); {WAIT}; up(); "
            f"return [n, get()]"),
            [2, 2],
        ),
        (
            (f"function c() {{ let n = 0; return [() => {{ n++ }}, () => n] }} let [a, b] = c(); "
            f"{WAIT}; a(); a(); return b()"),
            2,
        ),
        (
            (f"let fs = []; for (let i = 0; i < 3; i++) {{ fs.push(() => {{ i += 10; return i }}) }} "
            f"{WAIT}; fs[0](); return fs.map(f => f())"),
            [20, 11, 12],
        ),
        # functions keep their identity
        (f"let f = () => 1; let g = f; let h = () => 1; {WAIT}; return [f == g, f == h]", [True, False]),
        (f"let f = n => n < 2 ? 1 : n * f(n - 1); {WAIT}; return f(5)", 120),
        (f"let o = {{f: x => x + 1}}; let l = [o.f]; {WAIT}; return [o.f == l[0], l[0](1)]", [True, 2]),
        # promises keep theirs
        (f"let p = Task.run('a', 1); let q = p; {WAIT}; return [p == q, p.id, q == 'p0']", [True, "p0", True]),
        # special numbers
        (
            (f"let a = 0 / 0, b = 1 / 0, c = -1 / 0, d = -0.0; {WAIT}; return ['' + a, '' + b, '' + c, "
            f"1 / d < 0, a == a]"),
            ["NaN", "Infinity", "-Infinity", True, False],
        ),
        (f"let l = [0 / 0, [1 / 0]]; {WAIT}; return ['' + l[0], '' + l[1][0]]", ["NaN", "Infinity"]),
        (f"let big = inputs.big, f = 1.0, g = 1e300; {WAIT}; return [big, f, g]", [10**30, 1, 1e300]),
        # errors
        (
            (f"let e = null; try {{ null.x }} catch (p) {{ e = p }} {WAIT}; return [e.code, "
            f"e.stack.length, e == e]"),
            ["TYPE_ERROR", 1, True],
        ),
        # library functions and options
        (f"let m = Math.max, w = Task.with({{queue: 'q'}}); {WAIT}; w.run('b', 2); return m(1, 2)", 2),
        # variables without a value
        (f"let f = () => later; {WAIT}; let later = 3; return f()", 3),
        (f"try {{ {WAIT}; x }} catch (e) {{ return e.code }} let x = 1", "ReferenceError"),
        # operands
        (f"return [1, {{a: [2, {WAIT}]}}, 3].length + 'x'", "3x"),
        (f"function f(a, b, c) {{ return [a, b, c] }} return f([1], {WAIT}, {{x: 1}})", [[1], None, {"x": 1}]),
        # objects that look like marks
        (
            (f"let o = {{'$': 1, a: {{'$': [1]}}}}; let l = [{{'$': -1}}]; let p = {{'$': 0, q: "
            f"Task.run('a', 1)}}; {WAIT}; return [o, l, p['$']]"),
            [{"$": 1, "a": {"$": [1]}}, [{"$": -1}], 0],
        ),
        # loops
        (f"let s = ''; for (let k in ['a', 'b']) {{ {WAIT}; s += k; break }} return s", "0"),
        (f"let s = ''; for (let [k, v] of {{a: 1}}) {{ {WAIT}; s += k + v }} return s", "a1"),
    ],
)  # fmt: skip
def test_state_survives(source: str, expected: Any) -> None:
    assert resumed(source, {"big": 10**30}) == expected


def test_a_snapshot_is_json_and_small() -> None:
    source = (
        "let order = inputs; let total = 0; for (let item of order.items) { total += await "
        "Task.run('price', item) } return total"
    )
    inputs = {"id": "o-1", "items": [{"sku": "a", "count": 1}, {"sku": "b", "count": 2}]}
    _, machine = suspended(source, inputs)
    data = machine.dumps()
    assert isinstance(json.loads(data), list)
    assert len(data) < 600


def test_dumps_is_stable() -> None:
    program, machine = suspended(f"let o = {{a: [1, 2, 3]}}; let f = () => o; {WAIT}; return f()")
    data = machine.dumps()
    assert machine.dumps() == data
    assert Machine.loads(program, data).dumps() == data


def test_variables_out_of_scope_are_not_stored() -> None:
    _, machine = suspended(
        f"{{ let secret = 'gone-gone-gone' }} for (let x of [1]) {{ let y = 'gone' }} {WAIT}"
    )
    assert b"gone" not in machine.dumps()


def test_inputs_that_the_program_never_mentions_again_are_not_stored() -> None:
    _, machine = suspended(f"{WAIT}; return 1", {"secret": 1})
    assert b"secret" not in machine.dumps()


def test_effects_and_logs_that_nobody_took_are_kept() -> None:
    program = compile(f"log('hello'); Task.with({{queue: 'q'}}).run('a', {{x: 1}}); Timer.delay(5); {WAIT}")
    machine = Machine.start(program, None, CONTEXT, now=START)
    loaded = Machine.loads(program, machine.dumps())
    assert loaded.take_effects() == machine.take_effects()
    assert loaded.take_logs() == [("info", "hello")]
    assert Machine.loads(program, loaded.dumps()).take_effects() == []


def test_ended_machines_can_be_stored() -> None:
    done = compile("return {a: [1]}")
    machine = Machine.loads(done, Machine.start(done, now=START).dumps())
    assert (machine.status, machine.result) == ("completed", {"a": [1]})
    failed = compile("throw {code: 'X', message: 'm', data: {d: 1}}", "test")
    before = Machine.start(failed, now=START)
    machine = Machine.loads(failed, before.dumps())
    assert (machine.status, machine.error) == ("failed", before.error)
    assert machine.error == ErrorValue("X", "m", None, {"d": 1}, ("main (test:1)",))
    assert machine.resume({}, now=START) is False


def test_tracebacks_of_errors_are_kept_within_bounds() -> None:
    """Beside the errors, so that earlier releases read these as ever."""
    program, machine = suspended(
        """
        let kept = []
        for (let i = 0; i < 20; i++) {
          try { await Task.run("t", i) } catch (e) { kept.push(e) }
        }
        await Task.run("t", "last")
        throw kept[0]
        """
    )
    for number in range(20):
        assert machine.awaiting is not None
        error = ErrorValue("TASK_FAILED", f"no {number}", traceback=f"Traceback {number}")
        machine.resume({machine.awaiting.id: Err(error)}, now=START)
        machine.take_effects()
        machine = Machine.loads(program, machine.dumps())
    assert machine.awaiting is not None
    stored = machine.dumps()
    assert stored.count(b'"e","TASK_FAILED"') == 20
    assert stored.count(b"Traceback ") == MOST_TRACEBACKS
    machine.resume({machine.awaiting.id: Ok(None)}, now=START)
    assert machine.error is not None
    assert (machine.error.message, machine.error.traceback) == ("no 0", "Traceback 0")


def test_a_machine_goes_on_in_memory_after_it_was_stored() -> None:
    _, machine = suspended(
        "let l = [1]; l.push(await Task.run('t', 1)); l.push(await Task.run('t', 2)); return l"
    )
    machine.dumps()
    machine.resume({"p0": Ok("a")}, now=START)
    machine.dumps()
    machine.resume({"p1": Ok("b")}, now=START)
    assert machine.result == [1, "a", "b"]


def test_a_remembered_encoding_is_not_used_after_a_change() -> None:
    source = "let l = inputs.l; while (true) { l.push(await Task.run('t', 1)); l[0] += 1 }"
    program, machine = suspended(source, {"l": [0, *["text " * 20] * 20]})
    for number in range(4):
        data = machine.dumps()
        assert Machine.loads(program, data).variables()["l"][0] == number
        machine.resume({f"p{number}": Ok(number)}, now=START)
    assert machine.variables()["l"][-4:] == [0, 1, 2, 3]


# large values


class Blobs:
    """A place for large values that counts what is asked of it."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}
        self.puts = 0

    def put(self, data: bytes) -> str:
        self.puts += 1
        name = f"b{hash(data):x}"
        self.stored[name] = data
        return name


LARGE = [{"row": number, "text": "some text"} for number in range(2_000)]


def test_large_values_are_stored_apart_and_loaded_on_first_use() -> None:
    source = f"let rows = inputs; let n = {WAIT}; let m = {WAIT}; return rows.length + n + m"
    program, machine = suspended(source, LARGE)
    blobs = Blobs()
    data = machine.dumps(blobs.put)
    assert len(data) < 500
    assert len(blobs.stored) == 1
    machine = Machine.loads(program, data)
    assert (machine.status, machine.missing) == ("suspended", ())
    machine.resume({"p0": Ok(1)}, now=START)
    assert machine.status == "suspended"
    again = machine.dumps(blobs.put)
    assert blobs.puts == 1
    machine = Machine.loads(program, again)
    machine.resume({"p1": Ok(2)}, now=START)
    assert (machine.status, machine.missing) == ("paused", tuple(blobs.stored))
    assert machine.resume({}, now=START) is False
    machine.provide(blobs.stored)
    assert machine.resume({}, now=START) is True
    assert machine.result == 2_003


def test_a_large_value_in_use_is_put_once_while_it_stays_the_same() -> None:
    source = "let rows = inputs; let n = 0; while (true) { n += rows.length + await Task.run('t', 1) }"
    program, machine = suspended(source, LARGE)
    blobs = Blobs()
    for number in range(5):
        machine.dumps(blobs.put)
        machine.resume({f"p{number}": Ok(1)}, now=START)
    assert blobs.puts == 1
    machine = Machine.loads(program, machine.dumps(blobs.put))
    machine.provide(blobs.stored)
    machine.resume({"p5": Ok(1)}, now=START)
    machine.dumps(blobs.put)
    assert blobs.puts == 1


@pytest.mark.parametrize(
    "source",
    [
        "let n = 0; for (let row of inputs) { if (row.row > 3) { break } n += await Task.run('t', 1) } return n",
        "return [inputs, await Task.run('t', 1)].length",
        "return inputs.slice(0, 4).concat(inputs).map(r => r.row > 3 ? 0 : await Task.run('t', 1)).length",
        "let mixed = {rows: inputs, p: Task.run('p', 1)}; await Task.run('t', 1); return mixed.rows.length",
        "let g = Promise.all([inputs, Task.run('t', 1)]); return (await g)[0].length",
        "let f = (() => { let rows = inputs; return () => rows.length })(); await Task.run('t', 1); return f()",
        "rows = inputs; await Task.run('t', 1); rows.push(5); return rows.length",
        "let s = inputs.map(r => r.text).join('').repeat(10); await Task.run('t', 1); return s.length",
        "let l = inputs; await Task.run('t', 1); l[0].row = 'changed'; return l[0]",
        "let l = inputs.map(r => r.row); l.sort((a, b) => b - a); await Task.run('t', 1); return l[0]",
    ],
)  # fmt: skip
def test_large_values_may_stand_anywhere(source: str) -> None:
    program = compile(source, "test")
    endings = [
        drive(program, World({"t": 1}), LARGE, route=route)[1] for route in (Route(), Stored(), StoredApart())
    ]
    assert endings[0].status == "completed"
    assert endings[0] == endings[1] == endings[2]


def test_large_values_stay_inside_without_a_place_for_them() -> None:
    program, machine = suspended(f"let rows = inputs; {WAIT}; return rows.length", LARGE)
    assert len(machine.dumps()) > 50_000
    machine = Machine.loads(program, machine.dumps())
    machine.resume({"p0": Ok(1)}, now=START)
    assert machine.result == 2_000


def test_a_place_for_large_values_may_come_and_go() -> None:
    program, machine = suspended(f"let rows = inputs; {WAIT}; return rows.length", LARGE)
    blobs = Blobs()
    inside = machine.dumps()
    apart = machine.dumps(blobs.put)
    assert machine.dumps() == inside
    assert machine.dumps(blobs.put) == apart
    assert len(apart) < 500 < len(inside)
    assert Machine.loads(program, apart).dumps() == apart


def test_damaged_blobs_are_refused() -> None:
    program, machine = suspended(f"let rows = inputs; {WAIT}; return rows.length", LARGE)
    blobs = Blobs()
    machine = Machine.loads(program, machine.dumps(blobs.put))
    with pytest.raises(SnapshotError):
        machine.provide(dict.fromkeys(blobs.stored, b"{broken"))


def test_an_interrupted_machine_may_miss_values_too() -> None:
    source = (
        "try { return [inputs, await Task.run('t', 1)].length } catch (e) { return inputs.length + e.code }"
    )
    program, machine = suspended(source, LARGE)
    blobs = Blobs()
    machine = Machine.loads(program, machine.dumps(blobs.put))
    machine.interrupt(ErrorValue("CancelledError", "stop"), now=START)
    assert machine.status == "paused"
    machine.provide(blobs.stored)
    machine.resume({}, now=START)
    assert machine.result == "2000CancelledError"


def test_an_answer_is_not_lost_while_values_are_missing() -> None:
    source = "return [inputs, await Promise.race([Task.run('a', 1), Task.run('b', 1)])]"
    program, machine = suspended(source, LARGE)
    blobs = Blobs()
    machine = Machine.loads(program, machine.dumps(blobs.put))
    assert machine.resume({"p1": Ok("b"), "p0": Ok("a")}, now=START) is True
    assert machine.missing
    machine.provide(blobs.stored)
    machine.resume({}, now=START)
    assert machine.result[1] == "b"


# what is refused


def test_a_snapshot_of_another_program_is_refused() -> None:
    _, machine = suspended(f"{WAIT}; return 1")
    with pytest.raises(SnapshotError, match="belongs to the compiled program"):
        Machine.loads(compile(f"{WAIT}; return 2"), machine.dumps())


def test_the_same_source_under_another_name_is_the_same_program() -> None:
    _, machine = suspended(f"{WAIT}; return 1")
    assert Machine.loads(compile(f"{WAIT}; return 1", "other"), machine.dumps()).status == "suspended"


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b"null", b"\xff\xfe", b"[1]", b'[1,"x",0,[]]', b"[" * 100_000, b'[99,"x",0,[]]',
     b"[1,2,3,4]", b"1" * 5_000],
    ids=repr,
)  # fmt: skip
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(SnapshotError):
        Machine.loads(compile("return 1"), data)


def test_a_snapshot_of_a_later_format_is_refused() -> None:
    program, machine = suspended(WAIT)
    later = machine.dumps().replace(b"[1,", b"[2,", 1)
    with pytest.raises(SnapshotError, match="format 2"):
        Machine.loads(program, later)


def test_a_changed_byte_is_noticed() -> None:
    program, machine = suspended(f"let x = 'abc'; {WAIT}")
    with pytest.raises(SnapshotError, match="checksum"):
        Machine.loads(program, machine.dumps().replace(b"abc", b"abd"))


def test_the_error_has_a_code_of_its_own() -> None:
    assert SnapshotError.code == "DS-270"


# stored programs


def test_a_stored_program_runs_without_being_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "```\nname: order\ntimeout: 5m\n```\nlet x = await Task.run('t', inputs.n)\nreturn x + -0.0"
    program = compile(source, "file")
    monkeypatch.delattr("dalsegno.lang.flow.program.parse_program")
    loaded = FlowProgram.load(program.dump())
    assert (loaded.name, loaded.hash, loaded.front_matter, loaded.source, loaded.kind) == (
        "order", program.hash, {"name": "order", "timeout": "5m"}, source, "script",
    )  # fmt: skip
    machine = Machine.start(loaded, {"n": 1}, now=START)
    assert machine.take_effects() == [StartTask("p0", "t", 1)]
    machine.resume({"p0": Ok(2)}, now=START)
    assert machine.result == 2


def test_the_hash_is_of_the_source_alone() -> None:
    assert compile("return 1", "a").hash == compile("return 1", "b").hash
    assert compile("return 1").hash != compile("return  1").hash


def test_a_program_compiled_otherwise_does_not_take_the_snapshot() -> None:
    """The same source, but other instructions: a later compiler may make them."""
    program, machine = suspended(WAIT)
    stored = json.loads(program.dump())
    stored[1] = "0123456789abcdef"
    other = FlowProgram.load(json.dumps(stored).encode())
    assert other.hash == program.hash
    with pytest.raises(SnapshotError, match="belongs to the compiled program"):
        Machine.loads(other, machine.dumps())


def test_half_a_surrogate_pair_is_refused_anywhere_in_a_source() -> None:
    with pytest.raises(FlowSyntaxError):
        compile("// \ud800\nreturn 1")


@pytest.mark.parametrize("data", [b"", b"[]", b"[2]", b"{}", b"\xff", b"[" * 50_000, b'[1,"n","s",{},[],[]]'])
def test_stored_programs_that_are_none_are_refused(data: bytes) -> None:
    with pytest.raises(SnapshotError):
        FlowProgram.load(data)


def test_a_program_of_a_later_format_is_refused() -> None:
    with pytest.raises(SnapshotError, match="format 9"):
        FlowProgram.load(compile("return 1").dump().replace(b"[1,", b"[9,", 1))
