"""``ls``, ``show``, ``why``, ``pause``, ``cancel``, ``retry``, ``rerun``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.cli.documents import FAILING, HELLO, LONG_WAIT, write


@pytest.fixture
def sleeping(invoke: Invoke, folder: Path) -> str:
    """An execution that was left in the middle of a long wait."""
    write(folder, sleeper_yaml=LONG_WAIT)
    told = json.loads(invoke("run", "sleeper.yaml", "--timeout", "200ms", "--tag", "a=b", "--json").stdout)
    assert told["nodes"]["nap"]["state"] == "WAITING"
    return str(told["execution_id"])


def test_ls_lists_newest_first_and_filters(invoke: Invoke, folder: Path, sleeping: str) -> None:
    write(folder, hello_yaml=HELLO)
    invoke("run", "hello.yaml")
    everything = json.loads(invoke("ls", "--json").stdout)["executions"]
    assert [each["workflow"] for each in everything] == ["hello", "sleeper"]
    for option in (["--workflow", "sleeper"], ["--state", "running"], ["--tag", "a=b"]):
        assert [
            each["execution_id"] for each in json.loads(invoke("ls", *option, "--json").stdout)["executions"]
        ] == [sleeping]
    assert len(json.loads(invoke("ls", "--limit", "1", "--json").stdout)["executions"]) == 1
    assert sleeping in invoke("ls").stdout


def test_why_tells_the_countdown(invoke: Invoke, sleeping: str) -> None:
    waits = json.loads(invoke("why", sleeping, "--json").stdout)
    assert [(wait["kind"], wait["node"]) for wait in waits] == [("timer", "nap")]
    assert 3500 < waits[0]["seconds_left"] <= 3600
    assert "node 'nap' sleeps" in invoke("why", sleeping).stdout


def test_why_names_a_queue_that_nobody_serves(invoke: Invoke, folder: Path) -> None:
    write(folder, hello_yaml=HELLO)
    invoke("deploy", "hello.yaml")
    execution = invoke("start", "hello").stdout.strip()
    assert "no living worker" in invoke("why", execution).stdout.replace("\n", " ")


def test_an_execution_may_be_named_by_its_first_characters_or_as_the_last(
    invoke: Invoke, sleeping: str
) -> None:
    for name in (sleeping[:12], "last"):
        assert json.loads(invoke("show", name, "--json").stdout)["execution_id"] == sleeping
    unknown = invoke("show", "ffff", "--json")
    assert unknown.exit_code == 2
    assert json.loads(unknown.stdout)["error"]["code"] == "DS-130"


def test_show_tells_nodes_events_and_input(invoke: Invoke, sleeping: str) -> None:
    told = json.loads(invoke("show", sleeping, "--json").stdout)
    assert told["status"] == "RUNNING"
    assert told["nodes"]["nap"]["state"] == "WAITING"
    assert told["events"][0]["kind"] == "ExecutionStarted"
    assert told["tags"] == {"a": "b"}
    shown = invoke("show", sleeping).stdout
    assert "wakes in" in shown
    assert "ExecutionStarted" in shown


def test_cancel_ends_it_and_records_the_reason(invoke: Invoke, sleeping: str) -> None:
    assert json.loads(invoke("cancel", sleeping, "--reason", "enough", "--json").stdout) == {
        "execution_id": sleeping,
        "status": "CANCELLED",
    }
    again = invoke("cancel", sleeping)
    assert again.exit_code == 2
    assert "it has ended (CANCELLED)" in again.stderr
    resumed = invoke("resume", sleeping, "--json")
    assert resumed.exit_code == 1
    assert json.loads(resumed.stdout)["status"] == "CANCELLED"


def test_paused_execution_waits_for_resume(invoke: Invoke, sleeping: str) -> None:
    assert json.loads(invoke("pause", sleeping, "--json").stdout)["status"] == "PAUSED"
    assert json.loads(invoke("why", sleeping, "--json").stdout)[0]["kind"] == "paused"
    invoke("resume", sleeping, "--timeout", "50ms")
    assert json.loads(invoke("show", sleeping, "--json").stdout)["status"] == "RUNNING"


def test_retry_makes_a_new_execution_from_what_failed(invoke: Invoke, folder: Path) -> None:
    write(folder, failing_yaml=FAILING)
    failed = json.loads(invoke("run", "failing.yaml", "--json").stdout)["execution_id"]
    again = invoke("retry", failed, "--json")
    assert again.exit_code == 1
    told = json.loads(again.stdout)
    assert told["execution_id"] != failed
    assert told["nodes"]["first"]["runs"] == 0
    shown = json.loads(invoke("show", failed, "--json").stdout)
    assert [child["execution_id"] for child in shown["children"]] == [told["execution_id"]]
    assert f"retry of  {failed}" in invoke("show", told["execution_id"]).stdout


def test_rerun_with_edited_context_and_detached(invoke: Invoke, folder: Path) -> None:
    write(folder, hello_yaml=HELLO)
    first = json.loads(invoke("run", "hello.yaml", "--json").stdout)["execution_id"]
    again = json.loads(
        invoke("rerun", first, "greet", "--context", '{"trigger": {"name": "Di"}}', "--json").stdout
    )
    assert again["status"] == "COMPLETED"
    assert again["output"] == "Hello Di"
    detached = json.loads(invoke("rerun", first, "greet", "--detach", "--json").stdout)
    assert (detached["status"], detached["parent"], detached["relation"]) == ("RUNNING", first, "rerun")
    wrong = invoke("rerun", first, "nobody")
    assert wrong.exit_code == 2
    assert "no node 'nobody'" in wrong.stderr
