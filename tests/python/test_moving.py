"""Workflows that wait, moved to another version of their function: places, variables, blocks, functions, refusals."""

from __future__ import annotations

import linecache
import sys
import types
from itertools import count
from typing import Any

import pytest

from dalsegno.lang import Err, ErrorValue, Ok, SnapshotError
from dalsegno.lang.python import (
    DurableTask,
    PythonMachine,
    PythonProgram,
    UnsupportedPython,
    compile_workflow,
    gather,
    race,
    timeout,
)
from dalsegno.lang.python.snapshot.moving import WorkflowMover, WorkflowVersion
from dalsegno.lang.runtime.effects import Awaitable
from dalsegno.lang.runtime.movement import Movement
from tests.rows import rows

_numbers = count(1)


async def _unused(value: Any = None) -> Any:
    raise AssertionError(value)


def version(body: str, module_text: str = "") -> PythonProgram:
    """Compile ``async def flow(items)`` with this body, in a module of its own."""
    number = next(_numbers)
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    text = f"async def flow(items):\n{lines}{module_text}"
    file = f"<moved {number}>"
    module = types.ModuleType("moved_workflows")
    sys.modules["moved_workflows"] = module
    names = {"a": DurableTask(_unused, "a"), "b": DurableTask(_unused, "b")}
    vars(module).update({**names, "gather": gather, "race": race, "timeout": timeout})
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), vars(module))
    return compile_workflow(module.flow)


def _answer(machine: PythonMachine, answer: Any) -> None:
    assert machine.awaiting is not None
    outcome = Err(answer) if isinstance(answer, ErrorValue) else Ok(answer)
    machine.resume(dict.fromkeys(_leaves(machine.awaiting), outcome))


def _leaves(awaited: Awaitable) -> list[str]:
    if awaited.id:
        return [awaited.id]
    items = awaited.items[:1] if awaited.shape == "time-limited" else awaited.items
    return [name for item in items for name in _leaves(item)]


def moved(old: str, new: str, answers: tuple[Any, ...] = (), **options: Any) -> tuple[Movement, Any]:
    """Move a workflow after so many answers; return the report, and the result of going on with 10, 20, …"""
    before, after = version(old), version(new)
    machine = PythonMachine.start(before, [1, 2, 3])
    for answer in answers:
        _answer(machine, answer)
    assert machine.status == "suspended", machine.error
    machine.take_effects()
    movement = WorkflowMover(WorkflowVersion(before), WorkflowVersion(after)).move(machine.dumps(), **options)
    if not movement.maps:
        return movement, None
    machine = PythonMachine.loads(after, movement.data)
    for number in range(1, 20):
        if machine.status != "suspended":
            break
        _answer(machine, 10 * number)
    assert machine.status == "completed", machine.error
    return movement, machine.result


@rows(
    ("old", "new", "expected"),
    [
        # edits around the await, in straight-line code
        ("x = await a()\nreturn x", "y = 1\nx = await a()\nreturn x + 1", 11),
        ("x = await a()\nreturn x", "x = await a()\nz = await b()\nreturn [x, z]", [10, 20]),
        ("x = await a(1)\nreturn x", "x = await a(2)\nreturn x", 10),
        ("k = 5\nx = await a()\nreturn x + k", "k = 7\nx = await a()\nprint(k)\nreturn x * k", 50),
        ("return len(items) + await a()", "return len(items) - await a()", -7),
        ("x, y = await a(), await a()\nreturn x", "print(1)\nx, y = await a(), await a()\nreturn [x, y]", [10, 20]),
        ("x = await gather(a(), b())\nreturn x", "y = 0\nx = await gather(a(), b())\nreturn x[::-1]", [10, 10]),
        ("return a(1)", "print(1)\nreturn a(2)", 10),
        # loops and blocks
        (
            "s = 0\nfor i in items:\n    s += i * await a()\nreturn s",
            "s = 0\nfor i in items:\n    s += i * await a()\n    print(s)\nreturn [s]",
            [10 + 2 * 20 + 3 * 30],
        ),
        ("return [await a(i) for i in items]", "t = 1\nreturn [await a(i) * 2 for i in items]", [20, 40, 60]),
        (
            "with timeout(60):\n    x = await a()\nreturn x",
            "y = 1\nwith timeout(60):\n    y = 2\n    x = await a()\nreturn x + 1",
            11,
        ),
        ("try:\n    pass\nfinally:\n    await a()\nreturn 5", "try:\n    k = 1\nfinally:\n    await a()\nreturn 6", 6),
        (
            "try:\n    return 7\nfinally:\n    await a()",
            "try:\n    print(1)\n    return 8\nfinally:\n    print(2)\n    await a()",
            7,
        ),
        (
            "while True:\n    try:\n        break\n    finally:\n        await a()\nreturn 1",
            "while True:\n    try:\n        print(1)\n        break\n    finally:\n        await a()\nreturn 2",
            2,
        ),
        # functions: frames, closures, lambdas
        (
            "async def f(x):\n    return x + await a()\ny = await f(3)\nreturn y",
            "async def f(x):\n    print(x)\n    return x * await a()\ny = await f(4)\nreturn [y]",
            [30],
        ),
        (
            "n = 0\nasync def f():\n    nonlocal n\n    n += await a()\nawait f()\nreturn n",
            "n = 0\nm = 1\nasync def f():\n    nonlocal n\n    print(n)\n    n += 1 + await a()\nawait f()\nreturn n",
            11,
        ),
        (
            "n = 2\ndef f(x):\n    return x + n\ny = await a()\nreturn f(y)",
            "n = 2\ndef f(x):\n    return x * n\ny = await a()\nreturn f(y)",
            20,
        ),
        (
            "fs = [lambda: 1, lambda: items]\nawait a()\nreturn fs[1]()",
            "k = lambda: 5\nfs = [lambda: 1, lambda: items]\nawait a()\nreturn [fs[1](), fs[0]()]",
            [[1, 2, 3], 1],
        ),
        # a label finds it in other blocks
        (
            "x = await a().named('it')\nreturn x",
            "if items:\n    x = await b().named('it')\n    return x + 1",
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
        ("x = await a()\nreturn x", "x = await b()\nreturn x", "is gone, or inside other blocks"),
        ("x = await a()\nreturn x", "x = await a()\ny = await a()\nreturn x", "may be any of those in line"),
        ("await a(1)\nawait a(2)", "await a(2)\nawait a(1)", "may be"),
        ("x = await a()\nreturn x", "while True:\n    x = await a()\n    return x", "inside other blocks"),
        ("await a()", "try:\n    await a()\nexcept ValueError:\n    pass", "inside other blocks"),
        ("await a()", "async def f():\n    await a()\nawait f()", "inside other blocks"),
        ("return a()", "x = await a()\nreturn x", "is gone, or inside other blocks"),
        # variables
        ("await a()\nreturn 1", "y = 2\nawait a()\nreturn y", "the variable 'y', which the old one does not have"),
        ("y = 1\nawait a()\nreturn 1", "y = 1\nawait a()\nreturn y", "no longer needed and did not store"),
        ("x = 1\nawait a()\nreturn x", "z = 1\nawait a()\nreturn z", "reads the variable 'z'"),
        (
            "if len(items) > 5:\n    y = 1\nawait a()\nprint(y)",
            "y = 1\nawait a()\nprint(y)",
            "reads the variable 'y', which has no value in the old one",
        ),
        # operands
        ("return len(items) + await a()", "return sum(items) + await a()", "has computed other values"),
        ("return [items.pop(), await a()]", "return [items.pop(), items.pop(), await a()]", "computed other values"),
        # blocks that keep state
        ("for i in items:\n    await a()", "for i in items[1:]:\n    await a()", "goes through, or enters"),
        ("with timeout(5):\n    await a()", "with timeout(6):\n    await a()", "goes through, or enters"),
        # functions
        (
            "n = 1\ndef f():\n    return 1\nawait a()\nreturn f()",
            "n = 1\ndef f():\n    return n\nawait a()\nreturn f()",
            "now uses the variable 'n'",
        ),
        (
            "def f(x=1):\n    return x\nawait a()\nreturn f()",
            "def f(x=1, y=2):\n    return x\nawait a()\nreturn f()",
            "'f', which has changed",
        ),
        ("f = lambda: 1\nawait a()\nreturn f()", "f = lambda: 2\nawait a()\nreturn f()", "which has changed"),
        (
            "async def f():\n    await a()\nawait b()\nawait f()",
            "async def f(x):\n    await a()\nawait b()\nawait f(1)",
            "'f', which has changed",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(old: str, new: str, message: str) -> None:
    movement, _ = moved(old, new)
    assert not movement.maps
    assert message in str(movement.reasons[0])
    assert movement.data == b""


def test_the_report_gives_both_lines_of_every_frame() -> None:
    old = "async def f():\n    await a()\nawait f()"
    new = "# a comment\nasync def f():\n    print(1)\n    await a()\nawait f()"
    movement, _ = moved(old, new)
    assert [(frame.function, frame.old_line, frame.new_line) for frame in movement.frames] == [
        ("flow", 4, 6),
        ("f", 3, 5),
    ]


def test_a_class_that_is_gone_is_named() -> None:
    before = version("kind = Kind\nawait a()\nreturn kind", "class Kind:\n    pass\n")
    machine = PythonMachine.start(before, [])
    data = machine.dumps()
    after = version("kind = race\nawait a()\nreturn kind")
    movement = WorkflowMover(WorkflowVersion(before), WorkflowVersion(after)).move(data)
    assert "'moved_workflows.Kind'" in str(movement.reasons[0])


def test_a_snapshot_of_another_version_is_refused() -> None:
    before, after = version("await a()"), version("await b()")
    machine = PythonMachine.start(before, [])
    with pytest.raises(SnapshotError, match="another version"):
        WorkflowMover(WorkflowVersion(after), WorkflowVersion(before)).move(machine.dumps())


def test_only_a_workflow_that_waits_is_moved() -> None:
    before = version("return 1")
    machine = PythonMachine.start(before, [])
    assert "completed" in str(
        WorkflowMover(WorkflowVersion(before), WorkflowVersion(before)).move(machine.dumps()).reasons[0]
    )


@rows(
    ("body", "problems"),
    [
        ("await a().named('x')\nawait b().named('y')", []),
        ("await a().named('x')\nasync def f():\n    await b().named('x')\nawait f()", []),
        (
            "await a().named('x')\nif items:\n    await b().named('x')",
            ["the label 'x' is that of line 2, too"],
        ),
        ("await a().named(str(items))", ["a label must be written out"]),
    ],
)
def test_labels_are_texts_and_differ_within_a_function(body: str, problems: list[str]) -> None:
    found: list[str] = []
    try:
        version(body)
    except UnsupportedPython as refused:
        found = [problem.message for problem in refused.problems]
    assert len(found) == len(problems)
    assert all(expected in message for expected, message in zip(problems, found, strict=True))


def test_a_label_is_a_text_at_run_time_too() -> None:
    machine = PythonMachine.start(version("p = a()\np.named(3)\nawait p"), [])
    assert machine.error is not None
    assert machine.error.message == "a label must be a text, not int"


def test_a_migration_gives_variables_and_keeps_identities() -> None:
    old = "k = [1]\nsame = k\nawait a()\nreturn [k, same]"
    new = "k = [1]\nsame = k\ntotal = 0\nawait a()\nsame.append(total)\nreturn k"
    seen: list[dict[str, Any]] = []

    def migration(variables: dict[str, Any]) -> dict[str, Any]:
        seen.append(variables)
        return {"total": len(variables["k"]) + 4}

    movement, result = moved(old, new, migration=migration)
    assert movement.maps, [str(reason) for reason in movement.reasons]
    assert seen == [{"k": [1], "same": [1]}]
    assert result == [1, 5]


@rows(
    ("given", "message"),
    [
        ({}, "reads the variable 'y', which the old one does not have"),
        ({"z": 1, "y": 1}, "gives the variable 'z', which the new version does not have"),
        ({"y": (each for each in [1])}, "y"),
        (None, "its migration failed: TypeError"),
    ],
)
def test_a_migration_may_fail(given: Any, message: str) -> None:
    movement, _ = moved("await a()", "y = 1\nawait a()\nreturn y", migration=lambda variables: given)
    assert not movement.maps
    assert message in str(movement.reasons[0])


def test_a_migration_changes_what_a_nested_function_shares() -> None:
    old = "n = 1\ndef f():\n    return n\nawait a()\nreturn f()"
    new = "n = 1\ndef f():\n    return n + 1\nawait a()\nreturn [f(), n]"
    movement, result = moved(old, new, migration=lambda variables: {"n": variables["n"] + 10})
    assert movement.maps, [str(reason) for reason in movement.reasons]
    assert result == [12, 11]
