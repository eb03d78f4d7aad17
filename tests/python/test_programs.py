"""Programs as bytes: stored once, loaded beside the running code, old code going on with its own source."""

from __future__ import annotations

import importlib
import linecache
import sys

import pytest

from dalsegno.lang.errors import SnapshotError
from dalsegno.lang.python import PythonMachine, PythonProgram, compile_workflow
from dalsegno.lang.runtime.effects import Ok
from tests.python import cleaning_up, failures, functions, loops, statements
from tests.python.driving import Driver, outcome
from tests.python.tasks import double, echo
from tests.rows import rows

# ruff: noqa: F841 - variables to be looked at


async def simple(x):
    """Doubles twice.

    And says so.
    """
    first = await double(x)
    pick = lambda n: n + first  # noqa: E731
    return pick(await double(first))


def test_a_program_knows_its_name_kind_and_description():
    program = compile_workflow(simple)
    assert (program.kind, program.name) == ("python", "simple")
    assert compile_workflow(simple, "other").name == "other"
    assert program.description.startswith("Doubles twice.")
    assert program.source.text.startswith("async def simple(x):")
    assert program.source.line(program.source.first_line) == "async def simple(x):"


def test_a_stored_program_runs_as_the_compiled_one_did():
    program = PythonProgram.load(compile_workflow(simple).dump(), lambda *_: simple)
    assert Driver(program).run(3).result == 18
    assert program.hash == compile_workflow(simple).hash


STORED = (statements, loops, functions, failures, cleaning_up)


@rows("function", [case for kind in STORED for case in kind.CASES], ids=lambda function: function.__name__)
def test_every_program_survives_storing(function):
    program = compile_workflow(function)
    loaded = PythonProgram.load(program.dump(), lambda *_: function)
    assert loaded.stored == program.stored
    expected = outcome(Driver(program, "hot").run(3))
    assert outcome(Driver(loaded, "stored", lossy=True).run(3)) == expected


def test_a_program_is_found_by_its_module_alone():
    data = compile_workflow(simple).dump()
    assert Driver(PythonProgram.load(data)).run(3).result == 18


def test_a_module_that_is_not_imported_is_named():
    program = compile_workflow(simple)
    stored = program.stored
    other = type(stored)(
        **{name: getattr(stored, name) for name in stored.__struct_fields__} | {"module": "far.away"}
    )
    data = PythonProgram(other, program.surroundings).dump()
    with pytest.raises(SnapshotError, match=r"module 'far\.away' is not imported in this process"):
        PythonProgram.load(data)


@pytest.mark.parametrize("data", [b"", b"garbage", b"dalsegno-python\n", b"dalsegno-python\n" + b"x" * 100])
def test_damaged_programs_are_refused(data):
    with pytest.raises(SnapshotError):
        PythonProgram.load(data)


# -- versions ---------------------------------------------------------------------------------------------------

FIRST = """
from tests.python.tasks import double, echo

def tool(x):
    return x + 1

def far(x):
    return x

async def flow(x):
    a = await double(x)
    # a comment
    b = await double(tool(a))
    return ["old", a, b]

async def unrelated(x):
    return 1
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A function that (re)writes and (re)imports a module."""
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "versioned_module.py"
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(text):
        path.write_text(text)
        linecache.clearcache()
        importlib.invalidate_caches()
        if "versioned_module" in sys.modules:
            return importlib.reload(sys.modules["versioned_module"])
        return importlib.import_module("versioned_module")

    yield write
    sys.modules.pop("versioned_module", None)


def hash_of(module):
    return compile_workflow(module.flow).hash


def test_the_hash_changes_with_what_the_workflow_does_and_with_nothing_else(module):
    base = hash_of(module(FIRST))
    assert hash_of(module(FIRST)) == base
    assert hash_of(module("\n\n" + FIRST.replace("# a comment", "# another"))) == base
    assert hash_of(module(FIRST.replace("return 1", "return 2"))) == base
    assert hash_of(module(FIRST.replace("    return x\n\nasync", "    return -x\n\nasync"))) == base
    assert hash_of(module(FIRST.replace('"old"', '"new"'))) != base
    assert hash_of(module(FIRST.replace("double(x)", "echo(x)"))) != base
    changed_tool = hash_of(module(FIRST.replace("return x + 1", "return x + 2")))
    assert changed_tool != base
    calls_far = FIRST.replace("return x + 1", "return far(x) + 1")
    assert hash_of(module(calls_far)) != hash_of(
        module(calls_far.replace("    return x\n", "    return 5\n"))
    )


def test_names_that_the_running_code_lacks_are_known(module):
    text = FIRST.replace("tool(a)", "max(tool(a), (lambda: far(a))())")
    stored = compile_workflow(module(text).flow).dump()
    assert lacking(stored, module(text)) == frozenset()
    here = module(text)
    del here.tool, here.far, here.echo
    assert lacking(stored, here) == {"tool", "far"}
    here.tool = None
    assert lacking(stored, here) == {"far"}


def test_nothing_is_lacking_of_a_workflow_with_loops_between_awaits(module):
    text = FIRST.replace("    # a comment", "    for each in range(3):\n        a += each")
    stored = compile_workflow(module(text).flow).dump()
    assert lacking(stored, module(FIRST)) == frozenset()


def test_what_a_module_lacks_that_the_workflow_reads_from_it_is_known(module):
    text = "import json, os\n" + FIRST.replace("tool(a)", "json.absent(os.path.gone.deeper(json.dumps.x(a)))")
    stored = compile_workflow(module(text).flow).dump()
    assert lacking(stored, module(text)) == {"json.absent", "os.path.gone"}


def test_names_around_a_workflow_that_the_running_code_lacks_are_known():
    def around(bind):
        if bind:
            factor = 3

        async def flow(x):
            return factor * await double(x)

        return flow

    stored = compile_workflow(around(True)).dump()
    assert PythonProgram.load(stored, lambda *_: around(True)).lacking() == frozenset()
    assert PythonProgram.load(stored, lambda *_: around(False)).lacking() == {"factor"}


def lacking(stored, running):
    return PythonProgram.load(stored, lambda _, qualname, name: getattr(running, qualname, None)).lacking()


def test_an_execution_goes_on_with_the_code_it_started_with(module):
    old = compile_workflow(module(FIRST).flow)
    stored = old.dump()
    machine = PythonMachine.start(old, 3)
    data = machine.dumps()
    changed = FIRST.replace('["old", a, b]', '"entirely different"').replace("x + 1", "x + 100")
    new_module = module(changed)
    program = PythonProgram.load(stored, lambda _, qualname, name: getattr(new_module, qualname, None))
    machine = PythonMachine.loads(program, data)
    machine.resume({"p0": Ok(6)})
    [effect] = machine.take_effects()[-1:]
    assert effect.inputs == 106  # native functions are those of the running code
    machine.resume({"p1": Ok(212)})
    assert machine.result == ["old", 6, 212]


def test_a_snapshot_of_another_version_is_refused(module):
    data = PythonMachine.start(compile_workflow(module(FIRST).flow), 3).dumps()
    newer = compile_workflow(module(FIRST.replace('"old"', '"new"')).flow)
    with pytest.raises(SnapshotError, match="belongs to another version of the workflow 'flow'"):
        PythonMachine.loads(newer, data)


def test_names_that_are_gone_are_an_error_that_says_so(module):
    first = module(FIRST.replace("b = await", "f = tool\n    b = await").replace("a, b]", "f(a), b]"))
    program = compile_workflow(first.flow)
    stored = program.dump()
    machine = PythonMachine.start(program, 3)
    machine.resume({"p0": Ok(6)})
    data = machine.dumps()
    second = module(FIRST)
    del second.tool
    with pytest.raises(SnapshotError, match=r"uses 'versioned_module\.tool', which its module does not know"):
        PythonMachine.loads(
            PythonProgram.load(stored, lambda _, qualname, name: getattr(second, qualname)), data
        )


def test_a_module_that_is_loaded_again_gives_its_new_classes(module):
    text = (
        FIRST
        + """
import dataclasses

@dataclasses.dataclass
class Box:
    n: int

async def boxed(x):
    box = Box(x)
    await echo(1)
    return box.n
"""
    )
    first = module(text)
    program = compile_workflow(first.boxed)
    assert Driver(program).run(3).result == 3
    module(text)
    assert Driver(program).run(4).result == 4


def test_names_of_local_relative_imports_are_found_in_another_process(tmp_path, monkeypatch):
    package = tmp_path / "some_package" / "inner"
    package.mkdir(parents=True)
    (tmp_path / "some_package" / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (tmp_path / "some_package" / "things.py").write_text(
        "import dataclasses\n\n@dataclasses.dataclass\nclass Thing:\n    n: int\n"
    )
    (package / "flows.py").write_text(
        "from tests.python.tasks import echo\n\n"
        "async def flow(x):\n"
        "    from ..things import Thing\n"
        "    from .. import things as more\n"
        "    thing = Thing(x)\n"
        "    await echo(1)\n"
        "    return [thing.n, type(thing) is more.Thing]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    flows = importlib.import_module("some_package.inner.flows")
    program = compile_workflow(flows.flow)
    assert program.stored.imports == ("some_package", "some_package.things")
    data = PythonMachine.start(program, 3).dumps()
    sys.modules.pop("some_package.things")
    machine = PythonMachine.loads(PythonProgram.load(program.dump()), data)
    machine.resume({"p0": Ok(1)})
    assert machine.result == [3, True]
    for name in [name for name in sys.modules if name.startswith("some_package")]:
        del sys.modules[name]


# -- looking at a machine ---------------------------------------------------------------------------------------


async def looked_at(order, limit=3):
    count = 1
    items = [await double(n) for n in range(2)]

    async def inner(n):
        count = n * 10
        hidden = object()
        await echo(count)
        return n

    call = inner(5)
    await call


async def odd_values(x):
    data = {"x": {1, 2}, (1, 2): b"bytes", 1: "one", "1": "text"}
    values = [float("nan"), {("a", "b"): [1, len]}]
    await echo(1)
    return data, values


def test_variables_that_json_cannot_carry_are_told_in_parts():
    shown = PythonMachine.start(compile_workflow(odd_values), {"x": 1}).variables()
    assert shown["data"] == {"x": [1, 2], "(1, 2)": "Ynl0ZXM=", "1": "one", "'1'": "text"}
    assert shown["values"] == ["nan", {"('a', 'b')": [1, "<builtin_function_or_method>"]}]


def test_variables_are_flat_plain_and_innermost_wins():
    program = compile_workflow(looked_at)
    machine = PythonMachine.start(program, {"order": {"id": 1}})
    assert machine.variables() == {"order": {"id": 1}, "limit": 3, "count": 1}
    machine.resume({"p0": Ok(0)})
    machine.resume({"p1": Ok(2)})
    assert machine.status == "suspended"
    shown = machine.variables()
    assert (shown["items"], shown["count"], shown["n"]) == ([0, 2], 50, 5)
    assert shown["inner"] == "<NestedFunction>"
    assert shown["hidden"] == "<object>"


def test_the_line_is_where_the_machine_waits():
    program = compile_workflow(simple)
    machine = PythonMachine.start(program, 1)
    first = program.source.first_line
    assert machine.line == first + 5
    machine.resume({"p0": Ok(2)})
    assert machine.line == first + 7
    loaded = PythonMachine.loads(program, machine.dumps())
    assert loaded.line == first + 7
    loaded.resume({"p1": Ok(4)})
    assert loaded.line == first + 7
    assert PythonMachine.loads(program, loaded.dumps()).result == 6


def test_a_finished_machine_is_stored_too():
    program = compile_workflow(simple)
    done = Driver(program).run(3)
    again = PythonMachine.loads(program, done.dumps())
    assert (again.status, again.result, again.error) == ("completed", 18, None)
    assert not again.resume({})
    failed = Driver(compile_workflow(failures.uncaught)).run(1)
    again = PythonMachine.loads(failed.program, failed.dumps())
    assert again.status == "failed"
    assert again.error == failed.error
    assert again.reachable() == ()


def test_effects_that_nobody_took_stay_in_the_snapshot():
    program = compile_workflow(simple)
    machine = PythonMachine.start(program, 3)
    loaded = PythonMachine.loads(program, machine.dumps())
    assert loaded.take_effects() == machine.take_effects()
    assert PythonMachine.loads(program, machine.dumps()).take_effects() == []


def test_a_machine_says_that_it_runs_native_code_and_misses_nothing():
    machine = PythonMachine.start(compile_workflow(simple), 3)
    assert machine.native is True
    assert machine.missing == ()
    machine.provide({})
    assert machine.status == "suspended"


# -- blobs ------------------------------------------------------------------------------------------------------


async def bulky(x):
    text, data = "ä" * 40_000, b"\x00" * 50_000
    rows = [{"n": n, "name": f"row {n}"} for n in range(3_000)]
    first, same = rows[0], rows
    await echo(1)
    return [len(text), len(data), len(rows), rows[0] is first, same is rows, rows[-1]["name"]]


def test_large_parts_are_kept_outside_if_there_is_a_place():
    program = compile_workflow(bulky)
    machine = PythonMachine.start(program, 1)
    kept: dict[str, bytes] = {}

    def put(data: bytes) -> str:
        name = f"b{hash(data)}"
        kept[name] = data
        return name

    data = machine.dumps(put)
    assert len(data) < 35_000
    assert len(machine.dumps()) > 200_000
    given: dict[str, bytes] = {}
    while names := PythonMachine.blobs_in(data, given):
        given |= {name: kept[name] for name in names}
    assert given == kept
    assert len(given) >= 3
    with pytest.raises(SnapshotError, match="keeps a part of its state outside"):
        PythonMachine.loads(program, data)
    loaded = PythonMachine.loads(program, data, blobs=given)
    assert loaded.dumps() == machine.dumps()
    loaded.resume({"p0": Ok(1)})
    assert loaded.result == [40_000, 50_000, 3_000, True, True, "row 2999"]


def test_unchanged_parts_are_the_same_blobs_again():
    program = compile_workflow(bulky)
    first: set[bytes] = set()
    second: set[bytes] = set()
    for kept in (first, second):
        PythonMachine.start(program, 1).dumps(lambda data, kept=kept: (kept.add(data), str(len(kept)))[1])
    assert first == second
