"""Commands about a server's workflows say what they say about a store that is opened here."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import Result

from dalsegno import App, signal
from tests.cli.conftest import Invoke
from tests.cli.documents import BAD, BROKEN, HELLO, LONG_WAIT, write
from tests.server.conftest import LiveServer
from tests.waiting import until

ASKING = """\
name: asking
nodes:
  - {id: ask, type: approval, parameters: {message: "May I?", timeout: 1h}}
"""

SCRIPT = """\
const twice = await Task.run("double", inputs.n)
const decision = await Signal.when("approved")
return {twice, by: decision.by}
"""


@pytest.fixture
def server(folder: Path) -> Iterator[str]:
    """A server on the store that is the default one here: both ways can be compared."""
    app = App(f"sqlite:///{folder / 'dalsegno.db'}")

    @app.task
    async def double(n: int) -> int:
        return n * 2

    @app.workflow
    async def greets(name: str) -> str:
        answer = await signal("answer")
        return f"{name}: {answer}"

    with LiveServer(app) as live:
        yield live.url


There = Callable[..., Result]


@pytest.fixture
def there(server: str, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> There:
    """A command with --server."""

    def run(*arguments: str) -> Result:
        return invoke(*arguments, "--server", server)

    return run


def started(there: There, *arguments: str) -> str:
    result = there("start", *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def waiting(there: There, execution: str, kind: str) -> None:
    def look() -> bool:
        waits = json.loads(there("why", execution, "--json").stdout)["waits"]
        return [wait["kind"] for wait in waits] == [kind]

    until(look, f"it waits for a {kind}")


def plain(text: str) -> str:
    """Without durations, which differ from call to call and move columns, and without where the workflows are."""
    text = re.sub(r" --(server|store) [^\s`\"]+", "", text).replace("`", "")
    text = re.sub(r"[\d:.]+ (ms|s|min|h)\b( ago)?|\d+:\d+(:\d+)?|\"seconds_left\": [\d.]+", "<time>", text)
    return re.sub(r" +", " ", text)


def test_run_deploys_starts_and_shows_the_result(folder: Path, there: There) -> None:
    write(folder, hello_yaml=HELLO)
    result = there("run", "hello.yaml", "--input", '{"name": "Ada"}')
    assert result.exit_code == 0, result.output
    assert '"Hello Ada"' in result.stdout
    assert "started" in result.stderr
    told = json.loads(there("run", "hello.yaml", "--json").stdout)
    assert (told["status"], told["output"], told["version"]) == ("COMPLETED", "Hello you", 1)
    assert told["nodes"] == {"greet": {"state": "COMPLETED", "runs": 1}}


def test_a_failed_run_has_its_exit_code_and_says_how_to_retry_there(
    folder: Path, there: There, server: str
) -> None:
    write(folder, failing_yaml=BROKEN)
    result = there("run", "failing.yaml")
    assert result.exit_code == 1
    assert "error at node 'broken'" in result.stdout
    assert f"--server {server}" in result.stdout
    again = there("retry", "last")
    assert again.exit_code == 1
    assert "error at node 'broken'" in again.stdout
    detached = json.loads(there("rerun", "last", "broken", "--detach", "--json").stdout)
    assert detached["relation"] == "rerun"


def test_run_gives_up_watching_but_not_the_execution(folder: Path, there: There) -> None:
    write(folder, sleeper_yaml=LONG_WAIT)
    result = there("run", "sleeper.yaml", "--timeout", "0.5s")
    assert result.exit_code == 124
    assert "no longer watching" in result.stderr
    assert json.loads(there("show", "last", "--json").stdout)["status"] == "RUNNING"


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_looking_says_the_same_both_ways(
    folder: Path, there: There, invoke: Invoke, as_json: list[str]
) -> None:
    write(folder, sleeper_yaml=LONG_WAIT, hello_yaml=HELLO, doubles_flow=SCRIPT, asking_yaml=ASKING)
    there("deploy", "sleeper.yaml", "hello.yaml", "doubles.flow", "asking.yaml")
    there("run", "hello.yaml")
    sleeper, script = started(there, "sleeper"), started(there, "doubles", "--input", '{"n": 4}')
    asking, python = started(there, "asking"), started(there, "greets", "--input", '"Ada"')
    waiting(there, sleeper, "timer")
    for execution in (script, asking, python):
        waiting(there, execution, "signal")
    there("signal", script, "other")  # nobody waits for it: it is kept
    for command in (
        ["ls"],
        ["ls", "--state", "completed"],
        ["versions", "hello"],
        *(["show", each] for each in (sleeper, script, asking)),
        *(["why", each] for each in (sleeper, script, asking)),
    ):
        remote, local = there(*command, *as_json), invoke(*command, *as_json)
        assert remote.exit_code == 0, remote.output
        assert plain(remote.stdout) == plain(local.stdout), command


def test_a_python_workflow_of_the_server_shows_its_variables(there: There) -> None:
    execution = started(there, "greets", "--input", '"Ada"')
    waiting(there, execution, "signal")
    shown = json.loads(there("show", execution, "--json").stdout)
    assert shown["variables"]["name"] == "Ada"
    assert "signal" in shown["source"]


def test_steering(folder: Path, there: There, server: str) -> None:
    write(folder, doubles_flow=SCRIPT)
    assert there("deploy", "doubles.flow").exit_code == 0
    execution = started(there, "doubles", "--input", '{"n": 4}')
    waiting(there, execution, "signal")
    assert f"dalsegno signal {execution} approved --server {server}" in there("why", execution).stdout
    assert there("pause", execution).stdout == f"paused {execution}\n"
    sent = there("signal", execution, "approved", "--payload", '{"by": "Ann"}')
    assert sent.stdout == f"sent signal 'approved' to {execution}\n"
    resumed = there("resume", execution, "--json")
    assert json.loads(resumed.stdout)["output"] == {"twice": 8, "by": "Ann"}
    watched = there("watch", execution)
    assert watched.exit_code == 0
    other = started(there, "doubles", "--input", '{"n": 4}')
    assert there("cancel", other, "--reason", "no need").stdout == f"cancelled {other}\n"


def test_approvals_say_the_same_both_ways(folder: Path, there: There, invoke: Invoke) -> None:
    write(folder, asking_yaml=ASKING)
    there("deploy", "asking.yaml")
    first, second = started(there, "asking"), started(there, "asking")
    for execution in (first, second):
        waiting(there, execution, "signal")
    for command in (["approvals"], ["approvals", first], ["approvals", "--workflow", "none"]):
        for as_json in ([], ["--json"]):
            remote = there(*command, *as_json)
            assert remote.exit_code == 0, remote.output
            assert plain(remote.stdout) == plain(invoke(*command, *as_json).stdout), command
    assert there("approve", first, "--by", "Ann").stdout == f"approved 'ask' of {first}\n"
    assert there("reject", second, "ask").stdout == f"rejected 'ask' of {second}\n"
    again = there("approve", first)
    assert again.exit_code == 2
    assert "dalsegno approvals" in again.stderr


def test_schedules_say_the_same_both_ways(folder: Path, there: There, invoke: Invoke) -> None:
    write(folder, hello_yaml=HELLO)
    there("deploy", "hello.yaml")
    added = there("schedule", "add", "nightly", "--workflow", "hello", "--cron", "0 2 * * *", "--tag", "a=b")
    assert added.exit_code == 0, added.output
    taken = there("schedule", "add", "nightly", "--workflow", "hello", "--every", "15m")
    assert taken.exit_code == 2
    assert "--replace" in taken.stderr
    execution = there("schedule", "trigger", "nightly").stdout.strip()
    assert there("watch", execution).exit_code == 0
    for command in (["ls"], ["show", "nightly"], ["show", "nightly", "--times", "0"]):
        for as_json in ([], ["--json"]):
            remote = there("schedule", *command, *as_json)
            assert remote.exit_code == 0, remote.output
            assert plain(remote.stdout) == plain(invoke("schedule", *command, *as_json).stdout), command
    assert there("schedule", "pause", "nightly").stdout == "nightly: paused\n"
    assert there("schedule", "resume", "nightly").stdout == "nightly: active\n"
    assert there("schedule", "rm", "nightly").stdout == "nightly: removed\n"
    gone = there("schedule", "show", "nobody")
    assert gone.exit_code == 2
    assert "dalsegno schedule ls" in gone.stderr


def test_deploying_there_says_what_changed(folder: Path, there: There, invoke: Invoke) -> None:
    write(folder, hello_yaml=HELLO)
    first = there("deploy", "hello.yaml", "--alias", "stable")
    assert "version 1 (new)" in first.stdout
    assert "stable means version 1" in first.stdout
    assert "unchanged" in there("deploy", "hello.yaml").stdout
    write(folder, hello_yaml=HELLO.replace("Hello", "Good day"))
    rehearsed = there("deploy", "hello.yaml", "--dry-run")
    assert "would be version 2 (was 1)" in rehearsed.stdout
    second = there("deploy", "hello.yaml")
    assert "version 2 (was 1)" in second.stdout
    assert "~ node greet" in second.stdout
    assert there("alias", "hello", "stable", "2").stdout == "hello@stable means version 2 (was 1)\n"
    assert json.loads(there("versions", "hello", "--json").stdout) == json.loads(
        invoke("versions", "hello", "--json").stdout
    )
    assert there("alias", "hello", "stable", "--rm").exit_code == 0


def test_a_wrong_document_is_refused_with_its_lines(folder: Path, there: There) -> None:
    write(folder, bad_yaml=BAD, bad_flow="const = 1")
    result = there("deploy", "bad.yaml")
    assert result.exit_code == 2
    assert "bad.yaml:4:5" in result.stderr
    script = there("run", "bad.flow")
    assert script.exit_code == 2
    assert "bad.flow:1" in script.stderr


def test_a_python_workflow_cannot_be_sent(folder: Path, there: There) -> None:
    write(folder, flows_py="")
    result = there("run", "flows.py:order")
    assert result.exit_code == 2
    assert "whose code must be where it runs" in result.stderr


def test_the_environment_names_the_server(
    folder: Path, server: str, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, hello_yaml=HELLO)
    monkeypatch.setenv("DALSEGNO_SERVER", server)
    assert invoke("deploy", "hello.yaml").exit_code == 0
    assert invoke("start", "hello").exit_code == 0
    assert json.loads(invoke("ls", "--json", "--store", "memory:").stdout) == {"executions": []}
    both = invoke("ls", "--server", server, "--store", "memory:")
    assert both.exit_code == 2
    assert "either --server or --store" in both.stderr


def test_a_server_that_is_not_there_is_told(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dalsegno.cli.target.server.PATIENCE", 0.2)
    result = invoke("ls", "--server", "http://127.0.0.1:9")
    assert result.exit_code == 2
    assert "the server at http://127.0.0.1:9 cannot be reached" in result.stderr
    assert "dalsegno dev" in result.stderr
    assert (
        json.loads(invoke("ls", "--server", "http://127.0.0.1:9", "--json").stdout)["error"]["code"]
        == "DS-210"
    )


def test_a_url_that_is_none_is_told(invoke: Invoke) -> None:
    result = invoke("ls", "--server", "127.0.0.1:8700")
    assert result.exit_code == 2
    assert "write it like http://127.0.0.1:8700" in result.stderr


def test_a_missing_key_is_told(invoke: Invoke, there: There) -> None:
    assert invoke("keys", "add", "someone", "--scope", "admin").exit_code == 0

    def refused() -> Result | None:
        result = there("ls")
        return result if result.exit_code != 0 else None

    result = until(refused, "the door is closed")
    assert result.exit_code == 2
    assert "DALSEGNO_KEY" in result.stderr
