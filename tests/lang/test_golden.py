"""Programs and snapshots that were stored once must run for ever. The files are never edited (see recording.py)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dalsegno.lang import FlowProgram, Machine
from tests.lang.recording import FOLDER, RECORDINGS, finish

FILES = sorted(FOLDER.glob("*.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_golden_snapshot_resumes(path: Path) -> None:
    golden = json.loads(path.read_text("utf-8"))
    program = FlowProgram.load(golden["program"].encode())
    machine = Machine.loads(program, golden["snapshot"].encode())
    assert finish(machine, golden["after"], golden["blobs"]) == golden["ending"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_golden_snapshot_can_be_stored_again(path: Path) -> None:
    golden = json.loads(path.read_text("utf-8"))
    program = FlowProgram.load(golden["program"].encode())
    machine = Machine.loads(program, golden["snapshot"].encode())
    again = Machine.loads(FlowProgram.load(program.dump()), machine.dumps())
    assert finish(again, golden["after"], golden["blobs"]) == golden["ending"]


def test_every_recording_has_its_file() -> None:
    assert {path.stem for path in FILES} >= set(RECORDINGS)
    assert all(json.loads(path.read_text("utf-8"))["ending"]["status"] == "completed" for path in FILES)
