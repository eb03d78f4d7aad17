"""Values that leave a program are measured before they are written, and stored once however often they are used."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from dalsegno.errors import LimitExceeded
from dalsegno.lang import ExpressionFailed, Limits, Machine, Ok, RootNames, compile, compile_expression
from dalsegno.lang.runtime.limits import Heavy, Meter
from dalsegno.lang.values.sizes import Measure

NOW = 1_700_000_000.0
BIG = "x" * 15_000_000
MANY = "[" + ", ".join(["$n.big"] * 80) + "]"


def turn(source: str, inputs: Any = BIG, limits: Limits | None = None) -> Machine:
    return Machine.start(compile(source), inputs, now=NOW, limits=limits or Limits())


@pytest.mark.parametrize(
    "leaving",
    [
        "return l", "Task.run('t', l)", "Workflow.start('w', {deep: {deeper: l}})", "Node.run('n', {a: l})",
        "for (let i = 0; i < 80; i++) { Task.run('t', Inputs) }", "log(...l)", "return JSON.stringify(l)",
    ],
)  # fmt: skip
def test_eighty_references_to_a_large_text_do_not_leave_a_script(leaving: str) -> None:
    source = f"let l = []\nfor (let i = 0; i < 80; i++) {{ l.push(Inputs) }}\n{leaving}\nreturn 'sent'"
    machine = turn(source)
    assert machine.error is not None
    assert machine.error.code == "LimitExceeded"


def test_eighty_references_to_a_large_text_are_no_result_of_an_expression() -> None:
    expression = compile_expression(MANY, names=RootNames.of(["n"]))
    with pytest.raises(ExpressionFailed, match=r"more than 67,108,864 characters of JSON.*allocated_bytes"):
        expression.evaluate({"n": {"big": BIG}}.__getitem__, now=NOW)


def test_a_value_that_doubles_forty_times_is_measured_at_once() -> None:
    started = time.process_time()
    for leaving in ("return l", "Task.run('t', l)", "return JSON.stringify(l)", "return l == [...l]"):
        turn(f"let l = [1]; for (let i = 0; i < 40; i++) {{ l = [l, l] }} {leaving}")
    assert time.process_time() - started < 1


@pytest.mark.parametrize("holds", ["l.push(Inputs)", "l.push({text: Inputs})"])
def test_a_large_text_is_stored_once_however_often_it_is_referred_to(holds: str) -> None:
    text = "x" * 500_000
    program = compile(
        f"let l = []; for (let i = 0; i < 40; i++) {{ {holds} }} await Task.run('t', 1); return l[39]"
    )
    machine = Machine.start(program, text, now=NOW)
    blobs: dict[str, bytes] = {}

    def put(data: bytes) -> str:
        return blobs.setdefault(f"blob-{len(blobs)}", data) and f"blob-{len(blobs) - 1}"

    snapshot = machine.dumps(put)
    assert len(snapshot) < 50_000
    assert sum(map(len, blobs.values())) < 1_100_000
    assert len(machine.dumps()) < 1_100_000
    again = Machine.loads(program, machine.dumps())
    again.resume({"p0": Ok(1)}, now=NOW)
    assert again.result in (text, {"text": text})


def test_a_snapshot_that_is_too_large_is_refused_before_it_is_encoded() -> None:
    source = "let a = Inputs + 'a'; let b = Inputs + 'b'; await Task.run('t', 1); return a + b"
    machine = turn(source, "x" * 2_000_000)
    encoded: list[int] = []

    def put(data: bytes) -> str:
        encoded.append(len(data))
        return "blob"

    with pytest.raises(LimitExceeded, match="would take more than 3,000,000 bytes"):
        machine.dumps(put, most=3_000_000)
    assert sum(encoded) <= 3_000_000
    assert len(machine.dumps()) > 4_000_000


def test_slices_are_copies_and_charged_as_such() -> None:
    source = "let l = []; for (let i = 0; i < 120; i++) { l.push(Inputs.slice(1)) } return l.length"
    machine = turn(source)
    assert machine.error is not None
    assert "slice() would exceed" in machine.error.message
    with pytest.raises(Heavy):
        turn(source, limits=Limits(is_light=True))


def test_a_limit_that_more_work_or_memory_would_not_lift_fails_a_light_turn_too() -> None:
    machine = turn("function f() { return 1 + f() } f()", limits=Limits(is_light=True))
    assert machine.error is not None
    assert machine.error.code == "LimitExceeded"


def test_wide_text_is_charged_by_the_bytes_it_takes() -> None:
    wide = turn(
        "let l = []; while (true) { l.push('\\u{1F600}'.repeat(100000)) }",
        limits=Limits(allocated_bytes=4_000_000),
    )
    assert wide.error is not None
    assert wide.frames[-1].slots[0] is not None  # type: ignore[union-attr]
    kept = [value for value in wide.variables()["l"] if value]
    assert 8 <= len(kept) <= 10


@pytest.mark.parametrize(
    "value",
    [
        ["\x01" * 2_000], ["\x01"] * 500, {f"\x02{number}": 1 for number in range(500)}, ["a\nb\"c\\d" * 300],
        ["caf\u00e9\x03\u4e2d" * 300], ["\ud800\x03" * 600], [{"text": "\x1f" * 70_000}] * 3, ["plain text"] * 500,
    ],
)  # fmt: skip
def test_escapes_count_as_the_characters_they_are_written_with(value: Any) -> None:
    measured = Measure(Meter(Limits()), "the value")(value)
    written = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    assert written - 1 <= measured <= written + 2 * len(value)


def test_control_characters_beyond_the_limit_do_not_leave_an_expression() -> None:
    expression = compile_expression("[$n.text]", names=RootNames.of(["n"]))
    with pytest.raises(ExpressionFailed, match=r"more than 1,000,000 characters of JSON"):
        expression.evaluate(
            {"n": {"text": "\x01" * 200_000}}.__getitem__, now=NOW, limits=Limits(allocated_bytes=1_000_000)
        )
