"""``dalsegno task``: what waits for a remote program is listed and settled by hand, at a store and at a server."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from dalsegno import App
from dalsegno.cli.modules import load_app
from dalsegno.engine.operations.manual_tasks import ByHand
from tests.cli.conftest import Invoke
from tests.cli.documents import write
from tests.server.conftest import LiveServer
from tests.waiting import until

OFFICE = """\
from dataclasses import dataclass

from dalsegno import App

app = App("sqlite:///dalsegno.db")


@dataclass
class Paper:
    number: int


certificate = app.remote_task("certificate", queue="office", returns=Paper, docs="Prints one.")


@app.workflow
async def certify(name: str) -> int:
    paper = await certificate(name)
    return paper.number if paper is not None else 0
"""


@dataclass
class Desk:
    invoke: Invoke
    app: App
    place: tuple[str, ...]

    def __call__(self, *arguments: str) -> Result:
        return self.invoke(*arguments, *self.place)

    def waiting(self) -> tuple[str, dict[str, Any]]:
        """An execution, and its task that waits for a program."""
        with contextlib.nullcontext(self.app) if self.place else self.app.running():
            execution = self.app.start("certify", "Ada").id
            until(lambda: self.app.host.call(ByHand(self.app.engine).page(execution)).tasks, "an open task")
        [task] = json.loads(self("task", "ls", execution, "--json").stdout)["tasks"]
        return execution, task


@pytest.fixture(params=["store", "server", "postgres"])
def desk(
    request: pytest.FixtureRequest, folder: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Desk]:
    write(folder, office_py=OFFICE)
    app = load_app("office.py:app")
    if request.param == "postgres":
        app.url = request.getfixturevalue("empty_postgres")()
        monkeypatch.setenv("DALSEGNO_STORE", app.url)
    if request.param != "server":
        yield Desk(invoke, app, ())
        return
    with LiveServer(app) as live:
        yield Desk(invoke, app, ("--server", live.url))


def test_why_names_the_program_and_not_a_worker(desk: Desk) -> None:
    execution, _ = desk.waiting()
    said = desk("why", execution).stdout
    assert "remote task 'certificate' waits for a program that claims queue 'office'" in said
    assert f"dalsegno task ls {execution}" in said
    assert "dalsegno worker" not in said


def test_task_is_shown_completed_and_then_over(desk: Desk) -> None:
    execution, task = desk.waiting()
    listed = desk("task", "ls", "--queue", "office").stdout
    assert task["id"] in listed
    assert "remote task 'certificate' of certify: waits in queue 'office', attempt 1" in listed
    shown = desk("task", "show", task["id"]).stdout
    assert 'input: "Ada"' in shown
    assert "Prints one." in shown

    wrong = desk("task", "complete", task["id"], "--output", '{"number": "x"}')
    assert (wrong.exit_code != 0, "number" in wrong.stderr) == (True, True)
    done = desk(
        "task", "complete", task["id"], "--output", '{"number": 7}', "--reason", "desk", "--by", "Eva"
    )
    assert done.stdout == f"completed {task['id']}\n"
    again = desk("task", "fail", task["id"], "--message", "late")
    said = " ".join(again.stderr.split())
    assert (again.exit_code != 0, "has ended" in said) == (True, True)
    assert task["id"] not in desk("task", "ls").stdout
    history = desk("show", execution).stdout
    assert "completed by hand by Eva (desk)" in history


def test_task_is_skipped_failed_and_refused_to_be_requeued(desk: Desk) -> None:
    _, task = desk.waiting()
    refused = desk("task", "requeue", task["id"])
    assert (refused.exit_code != 0, "waits in queue 'office' already" in refused.stderr) == (True, True)
    done = json.loads(desk("task", "skip", task["id"], "--json").stdout)
    assert done == {"id": task["id"], "state": "skipped"}

    execution, task = desk.waiting()
    assert desk("task", "fail", task["id"], "-m", "no such person", "--final").exit_code == 0
    assert "failed by hand by" in desk("show", execution).stdout


def test_run_leaves_remote_tasks_to_their_program(invoke: Invoke, folder: Path) -> None:
    write(folder, office_py=OFFICE)
    left = invoke("run", "office.py:certify", "-i", '"Ada"', "--timeout", "500ms", "--json")
    [task] = json.loads(invoke("task", "ls", json.loads(left.stdout)["id"], "--json").stdout)["tasks"]
    assert (task["state"], task["queue"], task["attempt"]) == ("queued", "office", 1)
