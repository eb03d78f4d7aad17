"""Writes golden files that do not exist yet: ``python -m tests.python.golden_writing``. It never changes one.

A file holds a stored program and a chain of snapshots: each with what the driver then told the machine, and what came
of it in the end.
"""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

import msgspec

from dalsegno.lang.python import PythonMachine, PythonProgram, compile_workflow
from dalsegno.lang.runtime.effects import Outcome
from tests.python.driving import Driver
from tests.python.golden_workflows import WORKFLOWS

FOLDER = Path(__file__).parent / "golden"


class Stop(msgspec.Struct):
    """A snapshot of a suspended machine, and what it was told next."""

    snapshot: str
    told: dict[str, dict[str, Any]]
    now: float


class Golden(msgspec.Struct):
    program: str
    stops: list[Stop]
    result: Any


class Recorder(Driver):
    """Notes every stop of a run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.recorded: list[Stop] = []

    def stop(self, machine: PythonMachine) -> PythonMachine:
        loaded = super().stop(machine)
        self.recorded.append(Stop(loaded.dumps().decode(), {}, self.now))
        return loaded

    def told(self, outcomes: dict[str, Outcome]) -> None:
        self.recorded[-1].told = {promise: as_json(outcome) for promise, outcome in outcomes.items()}
        self.recorded[-1].now = self.now


def as_json(outcome: Outcome) -> dict[str, Any]:
    return {type(outcome).__name__: msgspec.to_builtins(outcome)}


def written(function: Any) -> Golden:
    compiled = compile_workflow(function)
    stored = msgspec.structs.replace(compiled.stored, file="golden_workflows.py")  # the same on every machine
    program = PythonProgram(stored, compiled.surroundings)
    recorder = Recorder(program, "stored", signals={"go": [{"by": "ann"}]})
    machine = recorder.run(3)
    assert machine.status == "completed", machine.error
    return Golden(base64.b64encode(program.dump()).decode(), recorder.recorded, machine.result)


def main() -> None:
    for function in WORKFLOWS:
        path = FOLDER / f"{function.__name__}.json"
        if not path.exists():
            path.write_bytes(msgspec.json.format(msgspec.json.encode(written(function)), indent=1) + b"\n")
            sys.stdout.write(f"{path.name}\n")


if __name__ == "__main__":
    main()
