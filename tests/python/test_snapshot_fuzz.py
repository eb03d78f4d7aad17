"""Damaged snapshots and programs: only `SnapshotError` comes out, quickly, and whatever loads can be resumed."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dalsegno.lang.errors import SnapshotError
from dalsegno.lang.python import PythonMachine, PythonProgram
from dalsegno.lang.runtime.effects import Ok
from dalsegno.lang.runtime.limits import Limits
from tests.effort import examples
from tests.python.golden_writing import FOLDER, Golden

GOLDEN = {
    path.stem: msgspec.json.decode(path.read_bytes(), type=Golden) for path in sorted(FOLDER.glob("*.json"))
}
PROGRAMS = {name: PythonProgram.load(base64.b64decode(golden.program)) for name, golden in GOLDEN.items()}
SNAPSHOTS = [(name, stop.snapshot) for name, golden in GOLDEN.items() for stop in golden.stops]
LIMITS = Limits(instructions=2_000, stack_depth=20)

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 40)
    | st.just(10**12)
    | st.floats(allow_nan=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)


def load_and_go_on(program: PythonProgram, data: bytes) -> None:
    try:
        machine = PythonMachine.loads(program, data, limits=LIMITS)
    except SnapshotError:
        return
    for _ in range(3):
        machine.resume({f"p{number}": Ok(number) for number in range(200)})
    assert machine.status in ("completed", "failed", "suspended")
    if machine.status == "suspended":
        machine.dumps()


@given(st.binary(max_size=200))
def test_random_bytes_are_no_snapshot(data):
    with pytest.raises(SnapshotError):
        PythonMachine.loads(PROGRAMS["straight"], data)


@given(JSON)
def test_random_json_is_no_snapshot(value):
    with pytest.raises(SnapshotError):
        PythonMachine.loads(PROGRAMS["straight"], json.dumps(value).encode())


@given(st.sampled_from(SNAPSHOTS), st.data())
def test_snapshots_with_a_changed_byte(snapshot, data):
    name, text = snapshot
    broken = bytearray(text.encode())
    position = data.draw(st.integers(0, len(broken) - 1))
    broken[position] = data.draw(st.integers(0, 255))
    load_and_go_on(PROGRAMS[name], bytes(broken))


def test_a_changed_byte_anywhere_in_a_snapshot_of_today_is_noticed():
    name, text = SNAPSHOTS[0]
    machine = PythonMachine.loads(PROGRAMS[name], text.encode())
    whole = machine.dumps()
    PythonMachine.loads(PROGRAMS[name], whole)
    for position in range(len(whole)):
        broken = bytearray(whole)
        broken[position] ^= 1
        with pytest.raises(SnapshotError):
            PythonMachine.loads(PROGRAMS[name], bytes(broken))


@given(st.sampled_from(SNAPSHOTS), st.data())
def test_truncated_snapshots(snapshot, data):
    name, text = snapshot
    encoded = text.encode()
    with pytest.raises(SnapshotError):
        PythonMachine.loads(PROGRAMS[name], encoded[: data.draw(st.integers(0, len(encoded) - 1))])


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON document."""
    found = [path] if path else []
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, item in entries:
        found.extend(places(item, (*path, key)))
    return found


@examples(400)
@given(st.sampled_from(SNAPSHOTS), st.data())
def test_snapshots_with_a_changed_part(snapshot, data):
    name, text = snapshot
    document = json.loads(text)
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(places(document)))
        holder = document
        for key in path[:-1]:
            holder = holder[key]
        action = data.draw(st.integers(0, 2))
        if action == 0 or isinstance(holder, dict):
            holder[path[-1]] = data.draw(JSON)
        elif action == 1:
            del holder[path[-1]]
        else:
            holder.insert(path[-1], data.draw(JSON))
        if not document:
            break
    load_and_go_on(PROGRAMS[name], json.dumps(document).encode())


@given(st.sampled_from(sorted(GOLDEN)), st.data())
def test_damaged_programs(name, data):
    stored = bytearray(base64.b64decode(GOLDEN[name].program))
    stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    try:
        program = PythonProgram.load(bytes(stored))
    except SnapshotError:
        return
    PythonMachine.start(program, 3, limits=LIMITS)


def test_a_bomb_of_a_program_is_not_unpacked():
    bomb = b"dalsegno-python\n" + zlib.compress(b"[" * 200_000_000, 9)
    with pytest.raises(SnapshotError):
        PythonProgram.load(bomb)


def test_a_snapshot_cannot_make_python_import_anything():
    name, text = next(each for each in SNAPSHOTS if each[0] == "values")
    document = json.loads(text)
    for wanted in ("subprocess.Popen", "os.system", "builtins.nothing", "tests.python.library.Hidden", "sys"):
        changed = json.loads(json.dumps(document))
        changed["rows"][0] = ["n", wanted]
        with pytest.raises(SnapshotError):
            PythonMachine.loads(PROGRAMS[name], json.dumps(changed).encode())
