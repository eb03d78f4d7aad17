"""Tasks that nobody registered: refused before anything starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.cli.documents import COLLECTING, TASKS, UNKNOWN_TASK, write

APP = ["--app", "cli_tasks"]


@pytest.fixture(autouse=True)
def files(folder: Path) -> None:
    write(folder, unknown_yaml=UNKNOWN_TASK, cli_tasks_py=TASKS)


def test_run_names_node_task_and_what_was_meant(invoke: Invoke) -> None:
    without = invoke("run", "unknown.yaml")
    assert without.exit_code == 2
    assert without.stdout == ""
    said = " ".join(without.stderr.split())
    assert "'count' runs the task 'wrok'" in said
    assert "--app module:attr" in said
    assert "unknown.yaml:7" in said
    told = " ".join(invoke("run", "unknown.yaml", *APP).stderr.split())
    assert "did you mean 'work'?" in told
    assert json.loads(invoke("ls", "--json").stdout)["executions"] == []


def test_run_tells_programs_the_finding(invoke: Invoke) -> None:
    result = invoke("run", "unknown.yaml", "--json")
    assert result.exit_code == 2
    (finding,) = json.loads(result.stdout)["findings"]
    assert (finding["pointer"], finding["rule"]) == ("/nodes/1/parameters/name", "unknown-task")
    assert (finding["severity"], finding["line"]) == ("error", 7)


def test_resume_and_rerun_refuse_and_a_worker_may_have_it(invoke: Invoke) -> None:
    invoke("deploy", "unknown.yaml")
    execution = invoke("start", "unknown").stdout.strip()
    refused = invoke("resume", execution, *APP)
    assert refused.exit_code == 2
    assert "did you mean 'work'?" in " ".join(refused.stderr.split())
    invoke("cancel", execution)
    assert json.loads(invoke("resume", execution, "--json").stdout)["status"] == "CANCELLED"
    for again in (["retry", execution], ["rerun", execution, "hello"]):
        assert json.loads(invoke(*again, "--json").stdout)["findings"][0]["rule"] == "unknown-task"
    assert invoke("rerun", execution, "hello", "--detach").exit_code == 0


def test_validate_and_deploy_warn_only_about_a_given_application(invoke: Invoke) -> None:
    for command in ("validate", "deploy"):
        assert "unknown-task" not in invoke(command, "unknown.yaml").stdout
        warned = invoke(command, "unknown.yaml", *APP)
        assert warned.exit_code == 0
        assert "unknown.yaml:7:7  warning  unknown-task" in warned.stdout


def test_completed_run_tells_how_much_of_it_failed(invoke: Invoke, folder: Path) -> None:
    write(folder, collecting_yaml=COLLECTING)
    result = invoke("run", "collecting.yaml")
    assert result.exit_code == 0
    assert "COMPLETED" in result.stdout
    assert "3 failed" in result.stdout


ORDER = 'await Signal.next("go")\nreturn await Task.run(inputs, 1)\n'


def test_execution_that_a_key_has_found_waits_for_a_missing_task(invoke: Invoke, folder: Path) -> None:
    """Another program has begun it; this one, which lacks its task, must not fail it for good."""
    write(folder, order_flow=ORDER)
    run = ("run", "order.flow", "--input", '"work"', "--key", "o-1", "--json", "--timeout")
    first = json.loads(invoke(*run, "1s", *APP).stdout)
    assert first["state"] == "RUNNING"
    invoke("signal", first["id"], "go")
    assert json.loads(invoke(*run, "2s").stdout)["state"] == "RUNNING"
    assert json.loads(invoke(*run, "20s", *APP).stdout)["state"] == "COMPLETED"


def test_execution_that_was_just_created_fails_at_a_missing_task(invoke: Invoke, folder: Path) -> None:
    write(folder, calls_flow="await Task.run(inputs, 1)\n")
    told = json.loads(invoke("run", "calls.flow", "--input", '"nowhere"', "--key", "k", "--json").stdout)
    assert (told["state"], told["error"]["code"]) == ("FAILED", "TASK_NOT_FOUND")
