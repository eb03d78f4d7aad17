"""``ls``, ``show``, ``why``, ``watch``, ``pause``, ``cancel``, ``retry``, ``rerun``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.cli.documents import CUSTOM, CUSTOM_TYPES, FAILING, HELLO, LONG_WAIT, write


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
    assert "--limit shows more" in invoke("ls", "--limit", "1").stdout
    assert "--limit shows more" not in invoke("ls", "--limit", "2").stdout


def test_why_tells_the_countdown(invoke: Invoke, sleeping: str) -> None:
    told = json.loads(invoke("why", sleeping, "--json").stdout)
    assert (told["execution_id"], told["status"]) == (sleeping, "RUNNING")
    waits = told["waits"]
    assert [(wait["kind"], wait["node"]) for wait in waits] == [("timer", "nap")]
    assert 3500 < waits[0]["seconds_left"] <= 3600
    assert "node 'nap' sleeps" in invoke("why", sleeping).stdout


def test_watch_says_that_it_watches(invoke: Invoke, sleeping: str) -> None:
    invoke("pause", sleeping)
    watched = invoke("watch", sleeping, "--timeout", "100ms")
    assert watched.stderr.startswith(f"watching {sleeping} (sleeper v1)")
    assert f"no longer watching; execution {sleeping} is PAUSED" in " ".join(watched.stderr.split())


def test_why_names_a_queue_that_nobody_serves(invoke: Invoke, folder: Path) -> None:
    write(folder, hello_yaml=HELLO)
    invoke("deploy", "hello.yaml")
    execution = invoke("start", "hello").stdout.strip()
    assert "no worker serves queue 'default'" in invoke("why", execution).stdout
    (wait,) = json.loads(invoke("why", execution, "--json").stdout)["waits"]
    assert (wait["served"], wait["process_gone"]) == (False, False)
    assert "dalsegno worker" in wait["hint"]


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
    assert all(line == line.rstrip() for line in shown.splitlines())


def test_cancel_ends_it_and_records_the_reason(invoke: Invoke, sleeping: str) -> None:
    told = json.loads(invoke("cancel", sleeping, "--reason", "enough", "--json").stdout)
    assert (told["id"], told["state"]) == (sleeping, "CANCELLED")
    again = invoke("cancel", sleeping)
    assert again.exit_code == 2
    assert "it has ended (CANCELLED)" in again.stderr
    resumed = invoke("resume", sleeping, "--json")
    assert resumed.exit_code == 1
    assert json.loads(resumed.stdout)["status"] == "CANCELLED"


def test_paused_execution_waits_for_resume(invoke: Invoke, sleeping: str) -> None:
    assert json.loads(invoke("pause", sleeping, "--json").stdout)["status"] == "PAUSED"
    assert json.loads(invoke("why", sleeping, "--json").stdout)["waits"][0]["kind"] == "paused"
    invoke("resume", sleeping, "--timeout", "50ms")
    assert json.loads(invoke("show", sleeping, "--json").stdout)["status"] == "RUNNING"


def test_a_pause_is_ended_without_running_anything_here(invoke: Invoke, sleeping: str) -> None:
    invoke("pause", sleeping)
    ended = invoke("resume", sleeping, "--detach")
    assert (ended.exit_code, ended.stdout) == (0, f"resumed {sleeping}\n")
    assert json.loads(invoke("show", sleeping, "--json").stdout)["status"] == "RUNNING"
    again = invoke("resume", sleeping, "--detach")
    assert again.exit_code == 2
    assert "is not paused: it is RUNNING" in again.stderr


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
    misspelt = invoke("rerun", "last", "gret")
    assert misspelt.exit_code == 2
    assert "did you mean 'greet'?" in misspelt.stderr
    not_json = invoke("rerun", "last", "greet", "--context", "{bad")
    assert "--context" in not_json.stderr
    assert "--input" not in not_json.stderr
    wrong = invoke("rerun", first, "nobody")
    assert wrong.exit_code == 2
    assert "no node 'nobody'" in wrong.stderr


def test_show_tells_what_it_can_where_a_node_type_is_missing(invoke: Invoke, folder: Path) -> None:
    write(folder, custom_yaml=CUSTOM, cli_types_py=CUSTOM_TYPES)
    app = ["--app", "cli_types"]
    invoke("deploy", "custom.yaml", *app)
    assert invoke("start", "custom").exit_code == 2
    execution = invoke("start", "custom", *app).stdout.strip()
    assert json.loads(invoke("resume", execution, *app, "--json").stdout)["output"] == 8
    shown = invoke("show", execution)
    assert shown.exit_code == 0
    assert "no node type 'twice'" in shown.stdout
    assert "--app module:attr" in shown.stdout
    assert "ExecutionCompleted" in shown.stdout
    told = json.loads(invoke("show", execution, "--json").stdout)
    assert (told["status"], told["output"], told["nodes"]) == ("COMPLETED", 8, {})
    assert told["findings"][0]["rule"] == "unknown-type"
    known = json.loads(invoke("show", execution, *app, "--json").stdout)
    assert known["nodes"]["one"]["state"] == "COMPLETED"
    assert json.loads(invoke("watch", execution, *app, "--json").stdout)["output"] == 8


def test_events_keep_number_time_and_kind_whole(
    invoke: Invoke, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, failing_yaml=FAILING)
    invoke("run", "failing.yaml")
    monkeypatch.setenv("COLUMNS", "60")
    lines = invoke("show", "last").stdout.splitlines()
    events = lines[next(n for n, line in enumerate(lines) if line.startswith("latest of")) + 1 :]
    failed = next(line for line in events if "NodeFailed" in line)
    assert "(registered here: none)" in failed
    assert failed.index("NodeFailed") == events[0].index("ExecutionStarted")
