"""Programs and snapshots that were written once and must run for ever. The files are never edited."""

from __future__ import annotations

import base64
from pathlib import Path

import msgspec
import pytest

from dalsegno.lang.python import PythonMachine, PythonProgram
from dalsegno.lang.runtime.effects import Err, Ok
from tests.python.golden_workflows import WORKFLOWS
from tests.python.golden_writing import FOLDER, Golden

FILES = sorted(FOLDER.glob("*.json"))


def told(outcomes):
    kinds = {"Ok": Ok, "Err": Err}
    return {
        promise: msgspec.convert(value, kinds[kind])
        for promise, tagged in outcomes.items()
        for kind, value in tagged.items()
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_stored_execution_goes_on_from_every_snapshot(path: Path):
    golden = msgspec.json.decode(path.read_bytes(), type=Golden)
    program = PythonProgram.load(base64.b64decode(golden.program))
    for number in range(len(golden.stops)):
        machine = PythonMachine.loads(program, golden.stops[number].snapshot.encode())
        for stop in golden.stops[number:]:
            assert machine.status == "suspended"
            machine.resume(told(stop.told), now=stop.now)
        assert machine.error is None
        assert machine.result == golden.result


def test_every_golden_workflow_has_its_file():
    assert {path.stem for path in FILES} == {function.__name__ for function in WORKFLOWS}
