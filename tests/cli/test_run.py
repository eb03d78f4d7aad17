"""``run``: results, exit codes, inputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.cli.documents import BAD, FAILING, HELLO, LONG_WAIT, STEPS, TASKS, write


def test_completed_run_prints_one_object_with_exactly_the_promised_keys(invoke: Invoke, folder: Path) -> None:
    write(folder, hello_yaml=HELLO)
    result = invoke("run", "hello.yaml", "--input", '{"name": "Ada"}', "--json")
    told = json.loads(result.stdout)
    assert result.exit_code == 0
    assert list(told) == [
        "id", "state", "execution_id", "status", "workflow", "version", "kind",
        "output", "context", "error", "nodes",
    ]  # fmt: skip
    assert (told["workflow"], told["version"], told["state"]) == ("hello", 1, "COMPLETED")
    assert told["output"] == "Hello Ada"
    assert told["context"]["$greet"]["text"] == "Hello Ada"
    assert told["context"]["$trigger"] == {"name": "Ada"}
    assert told["error"] is None
    assert told["nodes"] == {"greet": {"state": "COMPLETED", "runs": 1}}


def test_a_run_leaves_other_executions_in_the_store_alone(invoke: Invoke, folder: Path) -> None:
    write(folder, failing_yaml=FAILING, hello_yaml=HELLO)
    invoke("deploy", "failing.yaml")
    other = json.loads(invoke("start", "failing", "--json").stdout)["execution_id"]
    assert invoke("run", "hello.yaml", "--json").exit_code == 0
    waiting = json.loads(invoke("why", other, "--json").stdout)
    assert [wait["kind"] for wait in waiting["waits"]] == ["queued"]


def test_progress_goes_to_stderr_and_the_result_to_stdout(invoke: Invoke, folder: Path) -> None:
    write(folder, hello_yaml=HELLO)
    result = invoke("run", "hello.yaml")
    assert "COMPLETED" in result.stdout
    assert '"Hello you"' in result.stdout
    assert "started" not in result.stdout
    assert "started" in result.stderr
    assert "finished" in result.stderr


def test_quiet_run_says_nothing_on_stderr(invoke: Invoke, folder: Path) -> None:
    write(folder, hello_yaml=HELLO)
    assert invoke("run", "hello.yaml", "--quiet").stderr == ""


def test_failed_run_exits_with_one_and_tells_the_error(invoke: Invoke, folder: Path) -> None:
    write(folder, failing_yaml=FAILING)
    result = invoke("run", "failing.yaml", "--json")
    told = json.loads(result.stdout)
    assert result.exit_code == 1
    assert told["status"] == "FAILED"
    assert told["output"] is None
    assert told["error"]["node"] == "broken"
    assert told["error"]["code"] == "TASK_NOT_FOUND"
    assert told["nodes"]["broken"] == {"state": "FAILED", "runs": 1}
    assert told["nodes"]["never"]["runs"] == 0


def test_failed_run_tells_people_where_and_how_to_retry(invoke: Invoke, folder: Path) -> None:
    write(folder, failing_yaml=FAILING)
    result = invoke("run", "failing.yaml")
    assert "error at node 'broken'" in result.stdout
    assert "dalsegno retry" in result.stdout


def test_invalid_document_exits_with_two_and_lists_findings(invoke: Invoke, folder: Path) -> None:
    write(folder, bad_yaml=BAD)
    result = invoke("run", "bad.yaml", "--json")
    told = json.loads(result.stdout)
    assert result.exit_code == 2
    assert told["error"]["code"] == "DS-110"
    found = {finding["pointer"]: finding for finding in told["findings"]}
    assert found["/nodes/0/type"]["line"] == 4
    assert set(found["/nodes/0/type"]) >= {"pointer", "rule", "severity", "message"}
    assert not (folder / "dalsegno.db").exists() or "bad" not in invoke("ls").stdout


def test_document_without_a_name_is_called_after_its_file(invoke: Invoke, folder: Path) -> None:
    write(folder, nightly_yaml=HELLO.replace("name: hello\n", ""))
    assert json.loads(invoke("run", "nightly.yaml", "--json").stdout)["workflow"] == "nightly"


def test_document_comes_from_stdin(invoke: Invoke) -> None:
    told = json.loads(invoke("run", "-", "--json", "--store", "memory:", stdin=HELLO).stdout)
    assert told["output"] == "Hello you"


def test_input_comes_from_a_file_or_stdin(invoke: Invoke, folder: Path) -> None:
    write(folder, hello_yaml=HELLO, who_json='{"name": "Bo"}')
    from_file = invoke("run", "hello.yaml", "--input", "@who.json", "--json")
    from_stdin = invoke("run", "hello.yaml", "--input", "-", "--json", stdin='{"name": "Cy"}')
    assert json.loads(from_file.stdout)["output"] == "Hello Bo"
    assert json.loads(from_stdin.stdout)["output"] == "Hello Cy"


def test_same_key_is_the_same_execution(invoke: Invoke, folder: Path) -> None:
    write(folder, hello_yaml=HELLO)
    first = json.loads(invoke("run", "hello.yaml", "--key", "k", "--json").stdout)
    second = json.loads(invoke("run", "hello.yaml", "--key", "k", "--json").stdout)
    assert first == second


def test_store_comes_from_the_environment(
    invoke: Invoke, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, hello_yaml=HELLO)
    monkeypatch.setenv("DALSEGNO_STORE", "sqlite:///elsewhere.db")
    invoke("run", "hello.yaml")
    assert (folder / "elsewhere.db").exists()
    assert not (folder / "dalsegno.db").exists()


def test_tasks_of_an_app_run_in_whatever_queue_the_document_names(
    invoke: Invoke, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, steps_yaml=STEPS, cli_tasks_py=TASKS, go_="")
    (folder / "go").touch()
    result = invoke("run", "steps.yaml", "--app", "cli_tasks:app", "--json")
    told = json.loads(result.stdout)
    assert told["output"] == [number * number for number in range(8)]
    assert told["nodes"]["work"] == {"state": "COMPLETED", "runs": 8}


def test_timeout_stops_with_124_and_explains_how_to_go_on(invoke: Invoke, folder: Path) -> None:
    write(folder, sleeper_yaml=LONG_WAIT)
    result = invoke("run", "sleeper.yaml", "--timeout", "100ms")
    assert result.exit_code == 124
    assert "dalsegno resume" in result.stderr
    assert "--store sqlite:///dalsegno.db" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "nowhere.yaml"], "there is no file nowhere.yaml"),
        (["run", "."], "is a directory"),
        (["run", "hello.yaml", "--input", "{name: Ada"], "the input is not JSON"),
        (["run", "hello.yaml", "--input", "@nowhere.json"], "there is no file nowhere.json"),
        (["run", "hello.yaml", "--store", "mongodb://x"], "mongodb"),
        (["run", "hello.yaml", "--store", "sqlite:///no/such/folder/x.db"], "does not exist"),
        (["run", "hello.yaml", "--tag", "colour"], "not KEY=VALUE"),
        (["run", "hello.yaml", "--timeout", "soon"], "not a duration"),
        (["run", "hello.yaml", "--app", "no_such_module:app"], "no module 'no_such_module'"),
        (["run", "hello.yaml", "--app", "json:nothing"], "no attribute 'nothing'"),
        (["run", "hello.yaml", "--app", "json:dumps"], "not a dalsegno.App"),
        (["run", "-", "--input", "-"], "cannot be both"),
        (["run"], "Missing argument"),
        (["run", "hello.yaml", "--colour"], "No such option"),
        (["resume", "0123"], "there is no store"),
        (["start", "nobody"], "there is no store"),
        (["ls", "--state", "ASLEEP"], "ASLEEP"),
        (["ls", "--store", "mine.db"], "did you mean 'sqlite:///mine.db'?"),
        (["ls", "--store", "/tmp/mine.db"], "did you mean 'sqlite:////tmp/mine.db'?"),
        (["nodes", "htpp"], "no node type 'htpp'; did you mean 'http'?"),
        (["frobnicate"], "No such command"),
        (["rnu"], "Did you mean 'run'?"),
    ],
)
def test_bad_requests_get_a_readable_sentence_and_exit_code_two(
    invoke: Invoke, folder: Path, arguments: list[str], said: str
) -> None:
    write(folder, hello_yaml=HELLO)
    for_people = invoke(*arguments)
    assert for_people.exit_code == 2
    assert said in for_people.stderr.replace("\n", " ")
    assert for_people.stdout == ""
    for_programs = invoke(*arguments, "--json")
    assert for_programs.exit_code == 2
    told = json.loads(for_programs.stdout)
    assert set(told["error"]) == {"code", "message"}
    assert said in told["error"]["message"]
