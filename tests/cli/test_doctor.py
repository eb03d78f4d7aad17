"""``doctor`` and what happens when something is wrong with the store, or with us."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.cli.documents import HELLO, write


def statuses(invoke: Invoke, *arguments: str) -> dict[str, str]:
    told = json.loads(invoke("doctor", "--json", *arguments).stdout)
    return {check["name"]: check["status"] for check in told["checks"]}


def test_a_healthy_store_is_well(invoke: Invoke, folder: Path) -> None:
    write(folder, hello_yaml=HELLO)
    invoke("run", "hello.yaml")
    found = statuses(invoke)
    assert {
        found[name] for name in ("python", "sqlite", "store", "journal", "schema", "workers", "executions")
    } == {"ok"}
    assert "fits this version" in invoke("doctor").stdout


def test_a_missing_store_is_a_warning_and_is_not_created(invoke: Invoke, folder: Path) -> None:
    result = invoke("doctor")
    assert result.exit_code == 0
    assert "creates it" in result.stdout
    assert not (folder / "dalsegno.db").exists()


def test_files_that_others_may_read_are_a_warning_with_a_cure(invoke: Invoke, folder: Path) -> None:
    write(folder, hello_yaml=HELLO)
    invoke("run", "hello.yaml")
    assert statuses(invoke)["permissions"] == "ok"
    key = folder / "dalsegno.db.key"
    key.touch(0o640)
    assert statuses(invoke)["permissions"] == "warn"
    assert "chmod go=" in invoke("doctor").stdout
    key.chmod(0o600)
    (folder / "dalsegno.db").chmod(0o644)
    assert statuses(invoke)["permissions"] == "warn"


def test_work_that_nobody_serves_is_a_warning_with_a_cure(invoke: Invoke, folder: Path) -> None:
    write(folder, hello_yaml=HELLO)
    invoke("deploy", "hello.yaml")
    invoke("start", "hello")
    assert statuses(invoke)["queues"] == "warn"
    assert "dalsegno worker --queues default" in invoke("doctor").stdout


def test_scripts_that_wait_for_others_are_not_stuck(invoke: Invoke, folder: Path) -> None:
    """Neither a signal nor a child leaves a token: their scripts are rows that sleep, and are not to be cancelled."""
    write(
        folder,
        child_flow="workflow child(inputs) { return await Signal.next('go') }\n",
        parent_flow='return await Workflow.run("child", {})\n',
    )
    invoke("deploy", "child.flow")
    invoke("run", "parent.flow", "--timeout", "2s")
    told = json.loads(invoke("doctor", "--json").stdout)
    [check] = [check for check in told["checks"] if check["name"] == "executions"]
    assert (check["status"], check["detail"]) == ("ok", "2 unfinished, none stuck")


def test_a_file_that_is_no_store_fails_with_a_cure(invoke: Invoke, folder: Path) -> None:
    (folder / "text.db").write_text("this is no database, and long enough to be seen as none" * 20)
    result = invoke("doctor", "--store", "sqlite:///text.db")
    assert result.exit_code == 1
    assert "fail" in result.stdout


def test_a_foreign_database_is_refused_by_every_command(invoke: Invoke, folder: Path) -> None:
    connection = sqlite3.connect(folder / "other.db")
    connection.execute("CREATE TABLE mine (x)")
    connection.close()
    assert statuses(invoke, "--store", "sqlite:///other.db")["schema"] == "fail"
    result = invoke("ls", "--store", "sqlite:///other.db", "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["code"] == "DS-240"


def test_an_unexpected_error_is_one_line_and_exit_code_three(
    invoke: Invoke, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, hello_yaml=HELLO)

    def explode(*_: object) -> None:
        raise RuntimeError("boom\nsecond line")

    monkeypatch.setattr("dalsegno.cli.run.launch.make_app", explode)
    result = invoke("run", "hello.yaml")
    assert result.exit_code == 3
    assert "unexpected RuntimeError: boom" in result.stderr
    assert "DALSEGNO_DEBUG=1" in result.stderr
    assert json.loads(invoke("run", "hello.yaml", "--json").stdout)["error"]["code"] == "DS-900"


def test_help_sorts_commands_by_purpose(invoke: Invoke) -> None:
    shown = invoke("--help").stdout
    assert shown.index("Run:") < shown.index("Inspect:") < shown.index("Definitions:")
    for name in ("run", "resume", "validate", "deploy", "start", "ls", "show", "watch", "cancel", "pause"):
        assert f"  {name} " in shown
    assert invoke("--version").stdout.startswith("dalsegno ")
