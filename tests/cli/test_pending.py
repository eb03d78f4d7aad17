"""``start --delay`` and ``--at``, ``trigger``, and what other commands say of what has not begun."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Invoke
from tests.cli.documents import HELLO, write
from tests.cli.programs import Programs

SCRIPT = "workflow later(inputs) {\n  return inputs.n\n}\n"


@pytest.fixture
def hello(invoke: Invoke, folder: Path) -> Invoke:
    write(folder, hello_yaml=HELLO)
    (folder / "later.flow").write_text(SCRIPT)
    assert invoke("deploy", "hello.yaml").exit_code == 0
    assert invoke("deploy", "later.flow").exit_code == 0
    return invoke


def start(invoke: Invoke, *options: str, name: str = "hello") -> str:
    result = invoke("start", name, *options, "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["status"] == "PENDING"
    execution: str = told["execution_id"]
    return execution


def asked(invoke: Invoke, *arguments: str) -> Any:
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize("name", ["hello", "later"])
@pytest.mark.parametrize("option", [("--delay", "1h"), ("--at", "2130-01-31T09:00+01:00")])
def test_why_tells_when_it_starts(hello: Invoke, name: str, option: tuple[str, str]) -> None:
    execution = start(hello, *option, name=name)
    [wait] = asked(hello, "why", execution)["waits"]
    assert wait["kind"] == "timer"
    assert wait["seconds_left"] > 3000
    if option[0] == "--at":
        assert wait["due"].startswith("2130-01-31T08:00:00")
    assert "it starts when it is due, or when it is triggered: in" in hello("why", execution).stdout
    assert asked(hello, "show", execution)["status"] == "PENDING"
    assert hello("show", execution).exit_code == 0
    assert [each["execution_id"] for each in asked(hello, "ls", "--state", "pending")["executions"]] == [
        execution
    ]


def test_impossible_times_are_refused(hello: Invoke) -> None:
    for options in (("--delay", "soon"), ("--at", "soon"), ("--delay", "1h", "--at", "2130-01-01")):
        result = hello("start", "hello", *options)
        assert result.exit_code != 0
        assert "delay" in result.output or "start_at" in result.output


def test_cancel_ends_it_before_it_begins(hello: Invoke) -> None:
    execution = start(hello, "--delay", "1h")
    assert asked(hello, "cancel", execution)["status"] == "CANCELLED"
    result = hello("trigger", execution)
    assert result.exit_code != 0
    assert "it was cancelled" in result.output


def test_trigger_begins_it_now_and_a_worker_runs_it(hello: Invoke, programs: Programs) -> None:
    execution = start(hello, "--delay", "1h", "--input", '{"name": "Ada"}')
    told = asked(hello, "trigger", execution, "--input", '{"name": "Grace"}')
    assert told == {"id": execution, "state": "RUNNING", "execution_id": execution, "status": "RUNNING"}
    result = programs.begin("resume", execution, "--json").result()
    assert (result["status"], result["output"]) == ("COMPLETED", "Hello Grace")


def test_what_is_submitted_waits_for_its_trigger(hello: Invoke, programs: Programs) -> None:
    told = asked(hello, "submit", "hello", "--input", '{"name": "Ada"}', "--key", "k-1")
    assert told["status"] == "PENDING"
    execution = told["execution_id"]
    assert hello("submit", "hello", "--input", '{"name": "Ada"}', "--key", "k-1").stdout.strip() == execution
    [wait] = asked(hello, "why", execution)["waits"]
    assert wait["kind"] == "trigger"
    assert asked(hello, "trigger", execution)["status"] == "RUNNING"
    result = programs.begin("resume", execution, "--json").result()
    assert (result["status"], result["output"]) == ("COMPLETED", "Hello Ada")


def test_submitting_what_is_not_deployed_is_refused(hello: Invoke) -> None:
    result = hello("submit", "helo")
    assert result.exit_code != 0
    assert "did you mean 'hello'" in result.output
