"""Instances of ordinary classes live across an await; a snapshot can name only classes that the workflow reaches."""

from __future__ import annotations

import gc
import re
from typing import Any

import pytest

from dalsegno.errors import UsageError
from dalsegno.lang.errors import SnapshotError
from dalsegno.lang.python import PythonMachine, compile_workflow, register_type
from dalsegno.lang.python.snapshot import registry
from dalsegno.lang.runtime.effects import Ok
from tests.python import instances
from tests.python.driving import MODES, drive
from tests.python.test_snapshot_names import FORBIDDEN, edited, row_of, suspended
from tests.rows import rows

HOME = instances.__name__


@pytest.fixture(autouse=True)
def nothing_called():
    gc.collect()
    instances.CALLED.clear()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("workflow", "value", "result"),
    [
        (instances.keeps_plain, "v", ["v", "<v>", True, True, "v", True, False]),
        (instances.keeps_state, "v", ["v", True, False]),
        (instances.keeps_reduced, "v", [["v", ["v"]]]),
        (instances.keeps_ring, ["a", "b", "c"], [["a", "b", "c"], True, True]),
        (instances.keeps_of_another_module, "t", ["t", "t", "Book"]),
    ],
)
def test_an_instance_comes_back_as_it_was(workflow, value, result, mode):
    machine = drive(workflow, value, mode, lossy=True)  # a set may come back in another order
    assert (machine.status, machine.result) == ("completed", result), machine.error


def test_the_class_is_asked_for_its_state_and_given_it():
    drive(instances.keeps_state, "v", "stored")
    assert instances.CALLED[0] == ["state", "v"]


@pytest.mark.parametrize(
    ("workflow", "said", "cure"),
    [
        (instances.keeps_sly, "variable 'sly' is of type {home}.Sly", "app.register_type(Sly, dump, load)"),
        (
            instances.keeps_freeing,
            "variable 'freeing' is of type {home}.Freeing",
            "Freeing frees something when an instance goes (__del__). Make it again after the await",
        ),
        (
            instances.keeps_locked,
            "variable 'locked' holds, at .parts['lock'], a value of type _thread.lock",
            "Make it again after the await",
        ),
        (
            instances.keeps_handle,
            "variable 'handle' holds, at .lock, a value of type _thread.lock",
            "register_type",
        ),
    ],
)
def test_an_instance_that_cannot_be_stored_is_named_with_its_line(workflow, said, cure):
    error = drive(workflow, "v", "hot").error
    assert error.code == "NotStorable"
    assert error.message.startswith(said.format(home=HOME))
    line = int(re.search(r"in line (\d+)", error.message)[1])
    assert line in (workflow.__code__.co_firstlineno + 2, workflow.__code__.co_firstlineno + 3)
    assert cure in error.message


# -- hostile snapshots --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tag", ["ob", "os", "or"])
@pytest.mark.parametrize(
    "name",
    [
        *FORBIDDEN,
        "threading.Thread",
        "pathlib.Path",
        "tempfile.TemporaryDirectory",
        "builtins.object",
        "builtins.type",
        "builtins.list",
        "dalsegno.app.App",
        "dalsegno.lang.python.runtime.machine.PythonMachine",
        "tests.python.strangers.Stranger",
        f"{HOME}.echo",
        f"{HOME}.Freeing",
        f"{HOME}.nothing",
    ],
)
def test_a_class_that_the_code_does_not_reach_has_no_instances(name, tag):
    program, document = suspended(instances.calls_the_kept, "v")
    row = row_of(document, "ob")
    row[:] = {
        "ob": ["ob", name, "", False, 0, None],
        "os": ["os", name, "", None, "x"],
        "or": ["or", name, "call", [len(document["rows"])], None],
    }[tag]
    document["rows"].append(["t", "x"])
    with pytest.raises(SnapshotError):
        PythonMachine.loads(program, edited(document))
    assert instances.CALLED == []


@pytest.mark.parametrize(
    "row",
    [
        ["or", f"{HOME}.Plain", "call", [1], None],
        ["or", f"{HOME}.Plain", "new", [1], None],
        ["ob", f"{HOME}.Reduced", "", False, 0, None],
        ["ob", f"{HOME}.Plain", "list", False, 0, [1]],
        ["ob", f"{HOME}.Plain", "nothing", False, 0, [1]],
        ["or", f"{HOME}.Reduced", "call", "text", None],
    ],
)
def test_a_class_is_not_called_unless_it_says_so_itself(row):
    program, document = suspended(instances.calls_the_kept, "v")
    document["rows"][:] = [row, ["t", "x"]]
    with pytest.raises(SnapshotError):
        PythonMachine.loads(program, edited(document))
    assert instances.CALLED == []


def test_a_property_of_an_ordinary_class_is_not_set_by_a_snapshot():
    program, document = suspended(instances.calls_the_kept, "v")
    row = row_of(document, "ob")
    row[:] = [*row[:4], 2, "value", "shown", None, "v", "called"]
    machine = PythonMachine.loads(program, edited(document))
    machine.resume({"p0": Ok(1)})
    assert machine.result == "<v>"
    assert instances.CALLED == []


def test_an_attribute_never_replaces_the_class():
    program, document = suspended(instances.calls_the_kept, "v")
    row = row_of(document, "ob")
    row[:] = [*row[:4], 2, "value", "__class__", None, "v", [0]]
    machine = PythonMachine.loads(program, edited(document))
    machine.resume({"p0": Ok(1)})
    assert machine.result == "<v>"


# -- registered types ---------------------------------------------------------------------------------------------


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(registry, "_by_class", {})
    monkeypatch.setattr(registry, "_by_name", {})
    register_type(
        instances.Handle, lambda handle: {"name": handle.name}, lambda state: instances.Handle(**state)
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.usefixtures("registered")
def test_a_registered_type_is_stored_as_its_program_says(mode):
    assert drive(instances.keeps_handle, "h", mode).result == ["h", True]


@pytest.mark.usefixtures("registered")
def test_a_process_that_has_not_registered_the_type_says_what_to_do(monkeypatch):
    program = compile_workflow(instances.keeps_handle)
    data = PythonMachine.start(program, "h").dumps()
    monkeypatch.setattr(registry, "_by_name", {})
    with pytest.raises(
        SnapshotError, match=rf"holds a '{HOME}\.Handle', which this process has not registered"
    ):
        PythonMachine.loads(program, data)


@pytest.mark.usefixtures("registered")
def test_load_must_give_an_instance(monkeypatch):
    program = compile_workflow(instances.keeps_handle)
    data = PythonMachine.start(program, "h").dumps()
    register_type(instances.Handle, lambda handle: handle.name, lambda state: state)
    with pytest.raises(SnapshotError, match="gave dict"):
        PythonMachine.loads(program, data)


@rows("name", [*FORBIDDEN, f"{HOME}.Plain", "random.SystemRandom", "threading.Lock"])
@pytest.mark.usefixtures("registered")
def test_only_registered_types_are_loaded(name):
    program, document = suspended(instances.keeps_handle, "h")
    row_of(document, "rt")[1] = name
    with pytest.raises(SnapshotError, match="has not registered"):
        PythonMachine.loads(program, edited(document))


def test_registering_takes_a_class_and_two_functions():
    wrong: Any = "Handle"
    with pytest.raises(UsageError, match="takes a class, not str"):
        register_type(wrong, str, str)
    with pytest.raises(UsageError, match="two functions, dump and load"):
        register_type(instances.Handle, str, wrong)
