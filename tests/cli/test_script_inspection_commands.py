"""``show``, ``why``, ``ls``, ``cancel``, ``pause`` of scripts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.cli.documents import HELLO, SCRIPT, SCRIPT_TASKS, write

APP = ("--app", "script_tasks.py")
PARENT = 'const made = await Workflow.run("child", {n: 1})\nreturn made\n'
CHILD = "workflow child(inputs) { return await Signal.next('go') }\n"
CLEANING = """\
try {
  await Signal.next("never")
} finally {
  await Signal.next("cleaned")
}
"""


def left_waiting(invoke: Invoke, *arguments: str) -> str:
    told = json.loads(invoke("run", *arguments, "--timeout", "2s", "--json").stdout)
    assert told["status"] == "RUNNING", told
    return str(told["execution_id"])


@pytest.fixture
def waiting(invoke: Invoke, folder: Path) -> str:
    write(folder, order_flow=SCRIPT, script_tasks_py=SCRIPT_TASKS)
    return left_waiting(invoke, "order.flow", "--input", '{"cents": 7}', *APP)


def test_show_tells_line_variables_tasks_and_what_is_awaited(invoke: Invoke, waiting: str) -> None:
    shown = invoke("show", waiting).stdout
    assert '▶ 6 │   const go = await Signal.when("go", {timeout: "1h"})' in shown
    assert "  paid  7" in shown
    assert "  b     2" in shown
    assert "signal go" in shown
    assert "charge" in shown
    assert all(line == line.rstrip() for line in shown.splitlines())
    told = json.loads(invoke("show", waiting, "--json").stdout)
    assert (told["kind"], told["line"], told["awaiting"]) == ("script", 6, "signal go")
    assert told["source"] == 'const go = await Signal.when("go", {timeout: "1h"})'
    assert told["variables"]["paid"] == 7
    assert told["tasks"]["charge"] == {"state": "COMPLETED", "runs": 3, "failed": 0, "due": None}
    assert [(each["kind"], each["name"]) for each in told["pending"]] == [("signal", "go")]


def test_why_tells_how_to_send_the_signal(invoke: Invoke, waiting: str) -> None:
    [wait] = json.loads(invoke("why", waiting, "--json").stdout)["waits"]
    assert (wait["kind"], wait["node"]) == ("signal", "go")
    assert 3500 < wait["seconds_left"] <= 3600
    assert f"dalsegno signal {waiting} go" in wait["hint"]
    assert "it gives up in" in invoke("why", waiting).stdout


def test_why_names_tasks_that_nobody_runs(invoke: Invoke, folder: Path) -> None:
    write(folder, far_flow='return await Task.with({queue: "far"}).run("anything", 1)\n')
    invoke("deploy", "far.flow")
    execution = invoke("start", "far").stdout.strip()
    [wait] = json.loads(invoke("why", execution, "--json").stdout)["waits"]
    assert (wait["kind"], wait["served"]) == ("queued", False)
    assert "dalsegno worker" in wait["hint"]


def test_ls_shows_the_kind(invoke: Invoke, folder: Path, waiting: str) -> None:
    write(folder, hello_yaml=HELLO)
    invoke("run", "hello.yaml")
    listed = json.loads(invoke("ls", "--json").stdout)["executions"]
    assert [(each["workflow"], each["kind"]) for each in listed] == [("hello", "graph"), ("order", "script")]
    assert "script" in invoke("ls").stdout
    [only] = json.loads(invoke("ls", "--kind", "script", "--json").stdout)["executions"]
    assert only["workflow"] == "order"
    assert "Kinds: graph" in invoke("ls", "--kind", "flow").stderr


def test_parent_shows_its_child(invoke: Invoke, folder: Path) -> None:
    write(folder, parent_flow=PARENT, child_flow=CHILD)
    invoke("deploy", "child.flow")
    parent = left_waiting(invoke, "parent.flow")
    told = json.loads(invoke("show", parent, "--json").stdout)
    [child] = told["children"]
    assert (child["workflow"], child["relation"], child["status"]) == ("child", "child", "RUNNING")
    assert [(each["kind"], each["execution_id"]) for each in told["pending"]] == [
        ("child", child["execution_id"])
    ]
    assert "workflow child" in invoke("show", parent).stdout
    [wait, *of_child] = json.loads(invoke("why", parent, "--json").stdout)["waits"]
    assert {each["execution"] for each in of_child} == {child["execution_id"]}
    assert wait["kind"] == "child"
    assert child["execution_id"] in wait["sentence"]
    invoke("signal", child["execution_id"], "go", "--payload", "5")
    assert json.loads(invoke("resume", parent, "--json").stdout)["output"] == 5


def test_cancelled_script_cleans_up_and_terminate_ends_it(invoke: Invoke, folder: Path) -> None:
    write(folder, clean_flow=CLEANING)
    execution = left_waiting(invoke, "clean.flow")
    assert json.loads(invoke("cancel", execution, "--json").stdout)["status"] == "RUNNING"
    left_waiting_again = json.loads(invoke("resume", execution, "--timeout", "2s", "--json").stdout)
    assert left_waiting_again["status"] == "RUNNING"
    told = json.loads(invoke("why", execution, "--json").stdout)["waits"]
    assert {"signal", "cleanup"} <= {wait["kind"] for wait in told}
    shown = invoke("why", execution).stdout
    assert "cleaned" in shown
    assert "cleans up, without a limit" in " ".join(shown.split())
    assert json.loads(invoke("cancel", execution, "--json").stdout)["status"] == "RUNNING"
    assert json.loads(invoke("terminate", execution, "--json").stdout)["status"] == "CANCELLED"
    (letter,) = json.loads(invoke("dead", "ls", "--json").stdout)["dead"]
    assert letter["id"] == f"cleanup:{execution}"


def test_paused_script_waits_for_resume(invoke: Invoke, waiting: str) -> None:
    assert json.loads(invoke("pause", waiting, "--json").stdout)["status"] == "PAUSED"
    assert json.loads(invoke("why", waiting, "--json").stdout)["waits"][0]["kind"] == "paused"
    invoke("signal", waiting, "go", "--payload", '{"by": "Ann"}')
    assert json.loads(invoke("show", waiting, "--json").stdout)["status"] == "PAUSED"
    assert json.loads(invoke("resume", waiting, *APP, "--json").stdout)["output"]["by"] == "Ann"


def test_start_takes_a_version_or_an_alias(invoke: Invoke, folder: Path) -> None:
    write(
        folder,
        one_flow="workflow number(inputs) { return 1 }\n",
        two_flow="workflow number(inputs) { return 2 }\n",
    )
    invoke("deploy", "one.flow", "--alias", "stable")
    invoke("deploy", "two.flow")
    for target, version in (("number", 2), ("number@stable", 1), ("number@1", 1), ("number@latest", 2)):
        started = json.loads(invoke("start", target, "--json").stdout)
        assert (started["version"], started["kind"]) == (version, "script")
    assert json.loads(invoke("start", "number", "--version", "stable", "--json").stdout)["version"] == 1
    assert invoke("start", "number@nowhere").exit_code == 2
