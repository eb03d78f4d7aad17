"""Waits inside ``with timeout(…)`` are told by what the workflow waits for, and when it gives up."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.cli.documents import write

PROGRAM = """
from dalsegno import App, first, gather, race, signal, sleep, timeout

app = App()


@app.task
def quick(x):
    return x


@app.workflow
async def approval():
    with timeout("1h"), timeout("2h"):
        return await signal("go")


@app.workflow
async def job():
    with timeout("1h"):
        return await gather(quick(1), sleep("3h"))


@app.workflow
async def contest():
    return await race(signal("go"), sleep("1h"))
"""


@pytest.fixture
def waiting(invoke: Invoke, folder: Path, request: pytest.FixtureRequest) -> str:
    write(folder, limited_py=PROGRAM)
    result = invoke("run", f"limited.py:{request.param}", "--timeout", "2s", "--json")
    return str(json.loads(result.stdout)["execution_id"])


@pytest.mark.parametrize("waiting", ["approval"], indirect=True)
def test_a_signal_gives_up_when_the_limit_around_it_is_over(invoke: Invoke, waiting: str) -> None:
    shown = invoke("show", waiting).stdout
    assert re.search(r"signal go  has not arrived · gives up in (59:\d\d|1:00:00)", shown)
    assert "fires in" not in shown
    assert "signal go, with a time limit (line 15)" in shown
    (why,) = invoke("why", waiting).stdout.strip().splitlines()
    assert re.search(r"signal 'go' has not arrived; it gives up in (59:\d\d|1:00:00)", why)


@pytest.mark.parametrize("waiting", ["job"], indirect=True)
def test_other_waits_have_the_limit_beside_them(invoke: Invoke, waiting: str) -> None:
    shown = invoke("show", waiting).stdout
    assert re.search(r"timer\s+fires in 2:59:\d\d\s*$", shown, re.MULTILINE)
    assert re.search(r"gives up when the timeout\(\) around it expires\s+in (59:\d\d|1:00:00)", shown)
    assert "all of 2, with a time limit (line 21)" in shown
    why = json.loads(invoke("why", waiting, "--json").stdout)["waits"]
    assert sorted((wait["kind"], wait["node"]) for wait in why) == [("deadline", ""), ("timer", "")]


@pytest.mark.parametrize("waiting", ["contest"], indirect=True)
def test_a_timer_that_the_workflow_races_itself_stays_a_timer(invoke: Invoke, waiting: str) -> None:
    shown = invoke("show", waiting).stdout
    assert re.search(r"signal go  has not arrived\s*$", shown, re.MULTILINE)
    assert re.search(r"timer\s+fires in (59:\d\d|1:00:00)", shown)
    assert "race of 2 (line 26)" in shown
