"""``validate --against-live``, and what a worker says when it starts: names that executions in flight need."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.cli.conftest import Invoke

PROGRAM = """
from dalsegno import App, signal

app = App()


@app.task
async def {task}(order: str) -> str:
    return order


@app.workflow
async def buy(order: str) -> str:
    await signal("go")
    return await {task}(order)
"""


def test_names_that_executions_in_flight_need(invoke: Invoke, tmp_path: Path) -> None:
    store, program = f"sqlite:///{tmp_path}/live.db", tmp_path / "shop.py"
    program.write_text(PROGRAM.format(task="charge"))
    waits = [sys.executable, "-m", "dalsegno", "run", f"{program}:buy", "--input", '"o-1"', "--timeout", "2s"]
    assert subprocess.run([*waits, "--store", store], capture_output=True, check=False).returncode == 124

    def validated() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "dalsegno", "validate", str(program), "--against-live", "--json"]
        return subprocess.run([*command, "--store", store], capture_output=True, text=True, check=False)

    assert validated().returncode == 0
    program.write_text(PROGRAM.format(task="take_payment"))
    refused = validated()
    told = json.loads(refused.stdout)
    assert (refused.returncode, told["valid"]) == (2, False)
    (lacking,) = told["lacking"]
    assert (lacking["workflow"], lacking["version"], lacking["names"], lacking["executions"]) == (
        "buy",
        1,
        ["charge"],
        1,
    )
    command = [sys.executable, "-m", "dalsegno", "worker", "--store", store, "--app", str(program)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as worker:
        assert worker.stderr is not None
        said = next(line for line in worker.stderr if "WARNING" in line)
        worker.terminate()
    assert "version 1 of 'buy' uses 'charge', which this program does not have; 1 execution in flight" in said


def test_against_live_needs_a_program(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "a.flow").write_text("return 1\n")
    refused = invoke("validate", str(tmp_path / "a.flow"), "--against-live")
    assert (refused.exit_code, "--app" in refused.stderr) == (2, True)
