"""``validate --against-live``, and what a worker says when it starts: names that executions in flight need."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dalsegno import App
from dalsegno.cli.modules import load_app
from tests.cli.conftest import Invoke
from tests.cli.programs import Programs
from tests.server.conftest import LiveServer

PROGRAM = """
from dalsegno import App, signal

app = App()


@app.task
async def {task}(order: str) -> str:
    return order


@app.workflow
async def buy(order: str) -> str:
    for letter in "go":
        order += letter
    await signal("go")
    return await {task}(order)
"""


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, folder: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{folder}/live.db"
    url: str = request.getfixturevalue("empty_postgres")()
    return url


Validated = Callable[..., dict[str, Any]]


@pytest.fixture
def validated(invoke: Invoke) -> Validated:
    """What is told of a program as its files are now."""

    def validate(code: int, *arguments: str) -> dict[str, Any]:
        for module in ("shop", "billing"):
            sys.modules.pop(module, None)
        said = invoke("validate", *arguments, "--against-live", "--json")
        assert said.exit_code == code, said.output
        told: dict[str, Any] = json.loads(said.stdout)
        assert told["valid"] is (code == 0)
        return told

    return validate


def warning_of_worker(programs: Programs, store: str, program: str, words: str) -> str:
    worker = programs.begin("worker", "--store", store, "--app", program)
    assert worker.process.stderr is not None
    return next(line for line in worker.process.stderr if words in line)


def test_names_that_executions_in_flight_need(
    folder: Path, store: str, validated: Validated, programs: Programs
) -> None:
    program = folder / "shop.py"
    program.write_text(PROGRAM.format(task="charge"))
    shop = load_app("shop.py")
    shop.url = store
    with shop.running(worker=False):
        shop.start("buy", "o-1")
    assert validated(0, "shop.py", "--store", store)["lacking"] == []

    program.write_text(PROGRAM.format(task="take_payment"))
    told = validated(2, "shop.py", "--store", store)

    (lacking,) = told["lacking"]
    assert (lacking["workflow"], lacking["version"], lacking["names"], lacking["executions"]) == (
        "buy",
        1,
        ["charge"],
        1,
    )
    with LiveServer(App(store)) as server:
        assert validated(2, "shop.py", "--server", server.url)["lacking"] == told["lacking"]
        program.write_text(PROGRAM.format(task="charge"))
        assert validated(0, "shop.py", "--server", server.url)["lacking"] == []
    program.write_text(PROGRAM.format(task="take_payment"))
    said = warning_of_worker(programs, store, "shop.py", "WARNING")
    assert "version 1 of 'buy' uses 'charge', which this program does not have; 1 execution in flight" in said


def test_against_live_needs_a_program(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("name: a\nnodes: [{id: it, type: output}]\n")
    refused = invoke("validate", str(tmp_path / "a.yaml"), "--against-live")
    assert (refused.exit_code, "--app" in refused.stderr) == (2, True)
    assert "none is given" in " ".join(refused.stderr.split())


TASKS = """
from dalsegno import App

app = App()


@app.task
async def {task}(order):
    return order
"""


def test_tasks_that_executions_in_flight_need(
    folder: Path, store: str, validated: Validated, programs: Programs
) -> None:
    app = App(store)
    app.deploy({"name": "pay", "nodes": [{"id": "it", "type": "task", "parameters": {"task": "charge"}}]})
    app.start("pay")
    app.close()
    (folder / "any.yaml").write_text("name: any\nnodes: [{id: it, type: output}]\n")

    def with_task(task: str, code: int, *place: str) -> list[dict[str, Any]]:
        (folder / "billing.py").write_text(TASKS.format(task=task))
        found: list[dict[str, Any]] = validated(code, "any.yaml", "--app", "billing.py", *place)["lacking"]
        return found

    with LiveServer(App(store)) as server:
        for place in (("--store", store), ("--server", server.url)):
            assert with_task("charge", 0, *place) == []
            (lacking,) = with_task("take_payment", 2, *place)
            assert (lacking["workflow"], lacking["names"], lacking["tasks"]) == ("pay", [], ["charge"])
    said = warning_of_worker(programs, store, "billing.py", "needs the task")
    assert "version 1 of 'pay' needs the task 'charge', which this program does not have; 1 execution" in said
