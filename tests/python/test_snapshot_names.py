"""An edited snapshot names only what the workflow's own code reaches, and nothing else is called."""

from __future__ import annotations

import copy
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dalsegno.lang.errors import SnapshotError
from dalsegno.lang.python import PythonMachine, PythonProgram, compile_workflow
from dalsegno.lang.runtime.effects import Ok
from dalsegno.lang.runtime.limits import Limits
from tests.effort import examples
from tests.python import snapshot_workflows
from tests.python.driving import drive
from tests.rows import rows

HOME = snapshot_workflows.__name__
FORBIDDEN = [
    "builtins.eval",
    "builtins.exec",
    "builtins.compile",
    "builtins.__import__",
    "builtins.open",
    "builtins.getattr",
    "builtins.setattr",
    "builtins.delattr",
    "builtins.globals",
    "builtins.vars",
    "builtins.breakpoint",
    "builtins.input",
    "builtins.object.__getattribute__",
    "builtins.object.__subclasses__",
    "builtins.type.__call__",
    "os.system",
    "os.popen",
    "os.execv",
    "posix.system",
    "subprocess.run",
    "subprocess.Popen",
    "importlib.import_module",
    "operator.attrgetter",
    "operator.methodcaller",
    "types.FunctionType",
    "types.CodeType",
    f"{HOME}.run_command",
]
UNREACHED = [
    "shutil.rmtree",
    f"{HOME}.rmtree",
    "os.remove",
    "shutil.move",
    "pathlib.Path",
    "pathlib.Path.unlink",
    "tests.python.library.Hidden",
    "tests.python.strangers.Stranger",
    "threading.Thread",
    "sys",
]


def suspended(function: Any, *inputs: Any) -> tuple[PythonProgram, dict[str, Any]]:
    """A program, and the snapshot of an execution that waits, as the JSON it is."""
    program = compile_workflow(function)
    machine = PythonMachine.start(program, *inputs)
    assert machine.status == "suspended", machine.error
    machine.take_effects()
    return program, json.loads(machine.dumps()[9:])


def edited(document: dict[str, Any], **rows: Any) -> bytes:
    """Without the checksum, which anybody can compute."""
    return json.dumps({**document, **rows}).encode()


def loaded_and_resumed(program: PythonProgram, data: bytes, result: Any) -> None:
    PythonMachine.loads(program, data).resume({"p0": Ok(result)})


def row_of(document: dict[str, Any], tag: str) -> list[Any]:
    return next(row for row in document["rows"] if row[0] == tag)


@pytest.mark.parametrize("name", [*FORBIDDEN, *UNREACHED])
def test_a_function_that_the_code_does_not_reach_is_refused_and_not_called(name, tmp_path):
    program, document = suspended(snapshot_workflows.calls_after_await, "x")
    canary = tmp_path / "canary"
    row = row_of(document, "n")
    assert row[1] == f"{HOME}.harmless"
    row[1] = name
    with pytest.raises(SnapshotError):
        loaded_and_resumed(program, edited(document), f"__import__('pathlib').Path({str(canary)!r}).touch()")
    assert not canary.exists()


@pytest.mark.parametrize(
    "module", ["os", "subprocess", "importlib", "shutil", "builtins", "sys", "http.server", "pathlib"]
)
def test_a_module_that_the_code_does_not_read_is_no_value(module):
    imported = set(sys.modules)
    program, document = suspended(snapshot_workflows.calls_after_await, "x")
    document["rows"][0][:] = ["m", module]
    with pytest.raises(SnapshotError):
        PythonMachine.loads(program, edited(document))
    assert set(sys.modules) == imported


def looping_over(row: list[Any], *before: list[Any]) -> tuple[PythonProgram, bytes]:
    """A loop whose iterator is the last of these rows instead."""
    program, document = suspended(snapshot_workflows.loops, ["a", "b"])
    rows = document["rows"]
    start = len(rows)
    place = next(index for index, each in enumerate(rows) if each[0] == "it")

    def shifted(value: Any) -> Any:
        return [start + value[0]] if isinstance(value, list) and len(value) == 1 else value

    rows.extend([each[0], *map(shifted, each[1:])] for each in (*before, row))
    frame = document["frames"][0]
    frame[2] = [[len(rows) - 1] if one == [place] else one for one in frame[2]]
    return program, edited(document)


def calling(method: str, owner: list[Any], argument: list[Any]) -> tuple[PythonProgram, bytes]:
    """A loop that calls the method for each of the arguments."""
    return looping_over(
        ["it", "map", None, [1], [3]], owner, ["bm", method, [0]], argument, ["it", "iter", 0, [2]]
    )


@pytest.mark.parametrize(
    ("method", "owner"),
    [
        ("write_text", ["P", "PosixPath", "canary"]),
        ("parse_raw", ["n", f"{HOME}.Label"]),
        ("parse_file", ["n", f"{HOME}.Label"]),
        ("__getattribute__", ["n", f"{HOME}.harmless"]),
        ("__subclasses__", ["n", "builtins.object"]),
        ("__init_subclass__", ["n", f"{HOME}.Parcel"]),
        ("__reduce_ex__", ["o", f"{HOME}.Parcel"]),
        ("__class__", ["o", f"{HOME}.Parcel"]),
    ],
)
def test_a_method_that_the_code_does_not_reach_is_refused(method, owner, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program, data = calling(method, owner, ["l", "x"])
    with pytest.raises(SnapshotError, match="does not reach"):
        loaded_and_resumed(program, data, 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "row",
    [
        ["it", "iter", None, [0], "sentinel"],
        ["it", "iter", 0, [1]],
        ["it", "zip", None, [1]],
        ["dv", "keys", [1]],
        ["di", "keys", 0, 0, [1]],
        ["nf", 1, [0]],
        ["nc", False, [0], []],
        ["cm", [0]],
        ["P", "os", "x"],
    ],
)
def test_objects_are_built_of_nothing_but_their_own_kind(row):
    """Nothing of the user's is called while they are built: no function, no property, no ``__iter__``."""
    program, data = looping_over(row, ["n", f"{HOME}.harmless"], ["o", f"{HOME}.Parcel", "text", "x"])
    if row[0] == "P":
        PythonMachine.loads(program, data)  # a path that no class of this name is known for: a pure one
        return
    with pytest.raises(SnapshotError):
        PythonMachine.loads(program, data)


@rows(
    "name",
    [*FORBIDDEN, *UNREACHED, "contextlib.contextmanager", "functools.singledispatch", f"{HOME}.harmless"],
)
def test_a_function_is_made_by_no_other_than_reached_code(name):
    program, document = suspended(snapshot_workflows.calls_after_await, "x")
    row_of(document, "n")[:] = ["cl", name, "0", "helper", 0, None, None, None]
    with pytest.raises(SnapshotError, match="no longer makes"):
        PythonMachine.loads(program, edited(document))


@pytest.mark.parametrize("row", [["lc", [0], None, False, 0, 0, [0], [0]], ["lc"], ["mf", "x"], ["mf", [0]]])
def test_caches_and_managers_are_those_of_functions(row):
    program, data = looping_over(row, ["n", "builtins.len"])
    with pytest.raises(SnapshotError):
        PythonMachine.loads(program, data)


def test_a_property_is_not_set_by_a_snapshot():
    snapshot_workflows.CALLED.clear()
    program, document = suspended(snapshot_workflows.calls_a_method, "a")
    row = row_of(document, "o")
    row[2:] = ["weight", "called"]
    with pytest.raises(SnapshotError, match="not one of its fields"):
        PythonMachine.loads(program, edited(document))
    assert snapshot_workflows.CALLED == []


@pytest.mark.parametrize(
    ("workflow", "value", "result"),
    [
        (snapshot_workflows.calls_after_await, "x", "harmless x"),
        (snapshot_workflows.loops, ["a", "b"], ["a", "b"]),
        (snapshot_workflows.calls_a_method, "a", "A!"),
        (snapshot_workflows.keeps_of_module, "x", '"x"'),
        (snapshot_workflows.keeps_of_table, "join", "a"),
        (snapshot_workflows.keeps_of_table, "upper", "A"),
        (snapshot_workflows.imports_inside, "x", "eA==b'a'"),
    ],
)
def test_what_the_code_reaches_lives_across_an_await(workflow, value, result):
    machine = drive(workflow, value, "stored")
    assert (machine.status, machine.result) == ("completed", result), machine.error


@pytest.mark.parametrize(
    ("workflow", "said"),
    [
        (snapshot_workflows.keeps_evaluator, "the function 'eval' that is about to be called is 'eval'"),
        (snapshot_workflows.keeps_reader, "variable 'tools' holds, at ['read'][0], 'getattr'"),
        (snapshot_workflows.keeps_shell_variable, "variable 'shell' is 'posix.system'"),
    ],
)
def test_a_function_that_runs_code_is_refused_at_the_await(workflow, said):
    machine = PythonMachine.start(compile_workflow(workflow), "1")
    assert machine.status == "failed"
    assert machine.error.code == "NotStorable"
    line = workflow.__code__.co_firstlineno
    assert machine.error.message.startswith(said)
    assert "may not live across the await in line" in machine.error.message
    assert any(f"line {line + after}" in machine.error.message for after in range(4))


# -- mutated snapshots --------------------------------------------------------------------------------------------

_WATCHED = (
    "os.system",
    "subprocess.Popen",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "compile",
    "exec",
    "open",
    "import",
)
_events: list[tuple[str, Any]] = []
_watching: list[bool] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching and event in _WATCHED and not (event == "open" and arguments[1] in ("r", "rb", None)):
        _events.append((event, arguments[:2]))


sys.addaudithook(_audit)

PROGRAMS = [
    suspended(workflow, value)
    for workflow, value in (
        (snapshot_workflows.calls_after_await, "x"),
        (snapshot_workflows.loops, ["a", "b"]),
        (snapshot_workflows.calls_a_method, "a"),
        (snapshot_workflows.keeps_of_module, "x"),
        (snapshot_workflows.keeps_of_table, "join"),
    )
]
ROWS = st.one_of(
    st.sampled_from([*FORBIDDEN, *UNREACHED]).map(lambda name: ["n", name]),
    st.sampled_from(["os", "subprocess", "sys", "builtins"]).map(lambda name: ["m", name]),
    st.tuples(
        st.sampled_from(["write_text", "system", "__globals__", "format", "touch"]), st.integers(0, 6)
    ).map(lambda pair: ["bm", pair[0], [pair[1]]]),
    st.tuples(st.sampled_from(["map", "iter", "filter"]), st.integers(0, 6), st.integers(0, 6)).map(
        lambda three: ["it", three[0], None, [three[1]], [three[2]]]
    ),
    st.tuples(st.integers(0, 6), st.integers(0, 6)).map(lambda pair: ["pa", [pair[0]], [pair[1]], {}]),
    st.just(["P", "PosixPath", f"{tempfile.gettempdir()}/dalsegno-canary"]),
    st.sampled_from(["Parcel", "Label", "harmless"]).map(lambda name: ["o", f"{HOME}.{name}", "weight", "x"]),
    st.just(["l", "__import__('os').system('true')"]),
    st.tuples(
        st.sampled_from(["ob", "os"]),
        st.sampled_from([*FORBIDDEN, *UNREACHED, f"{HOME}.Parcel"]),
        st.integers(0, 6),
    ).map(lambda three: [three[0], three[1], "", False, 1, "text", None, [three[2]]]),
    st.tuples(st.sampled_from([*FORBIDDEN, f"{HOME}.Label"]), st.integers(0, 6)).map(
        lambda pair: ["or", pair[0], "call", [pair[1]], None]
    ),
    st.tuples(st.sampled_from([*FORBIDDEN, *UNREACHED]), st.integers(0, 6)).map(
        lambda pair: ["rt", pair[0], [pair[1]]]
    ),
    st.tuples(st.sampled_from(["Map", "StarMap", "TakeWhile"]), st.integers(0, 6), st.integers(0, 6)).map(
        lambda three: ["is", three[0], [three[1]], [three[2]]]
    ),
    st.integers(0, 6).map(lambda place: ["lc", [place], None, False, 0, 0, [place], [place]]),
    st.sampled_from([*FORBIDDEN, *UNREACHED, "functools.wraps", "contextlib.contextmanager"]).map(
        lambda name: ["cl", name, "0", f"{name}.<locals>.helper", 0, None, None, None]
    ),
    st.integers(0, 6).map(lambda place: ["mf", [place]]),
)


@examples(300)
@given(
    st.sampled_from(range(len(PROGRAMS))),
    st.lists(st.tuples(st.integers(0, 9), ROWS), min_size=1, max_size=4),
)
def test_mutated_snapshots_call_nothing_that_runs_code(number, changes):
    program, original = PROGRAMS[number]
    document = copy.deepcopy(original)
    for place, row in changes:
        rows = document["rows"]
        if place < len(rows):
            rows[place] = row
        else:
            rows.append(row)
            document["frames"][0][2][:1] = [[len(rows) - 1]]
    program.naming.find("nowhere.Nothing")  # annotations of the module are read, by Python's own eval
    _events.clear()
    _watching.append(True)
    try:
        machine = PythonMachine.loads(program, edited(document), limits=Limits(instructions=500))
        machine.resume({f"p{promise}": Ok("__import__('os').system('true')") for promise in range(5)})
    except SnapshotError:
        pass
    finally:
        _watching.clear()
    assert _events == []
    assert not Path(tempfile.gettempdir(), "dalsegno-canary").exists()
