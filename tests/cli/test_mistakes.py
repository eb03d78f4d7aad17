"""Mistakes in workflows and on the command line: each answer says what is wrong and what to do next."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dalsegno.cli.views.executions import print_events
from dalsegno.model.event import Event
from dalsegno.model.execution import ExecutionView
from tests.cli.conftest import Invoke
from tests.cli.documents import write

MODULE = """\
from dalsegno import App, signal

app = App()


@app.task
async def fetch(number: int) -> int:
    return number


@app.workflow
async def two(n: int):
    return n


@app.workflow
async def preset(n: int = 7):
    return n


@app.workflow
async def unnamed():
    return missing


@app.workflow
async def forgot():
    return fetch(1) + 1


@app.workflow
async def not_json():
    return object()


@app.workflow
async def waits():
    return await signal("go")


@app.workflow
async def task_breaks():
    return await fetch("x")
"""
BAD_WORKFLOW = """\
from dalsegno import App, sleep

app = App()


@app.workflow
async def hasty():
    sleep(5)
    yield 1
"""
BAD_SYNTAX = """\
from dalsegno import App

app = App(
def broken():
"""
ASKING = """\
name: asking
nodes:
  - {id: gate, type: approval, parameters: {message: "Pay?"}}
"""
WAITING = 'return await Signal.next("go")\n'

# -- errors of the code -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["unnamed", "forgot", "not_json"])
def test_an_error_of_the_code_is_to_be_mended_and_started_anew(
    invoke: Invoke, folder: Path, name: str
) -> None:
    write(folder, m_py=MODULE)
    said = invoke("run", f"m.py:{name}").stdout
    assert "FAILED" in said
    assert "dalsegno retry" not in said
    assert "fix the cause, then start it again with `dalsegno run …`" in said


@pytest.mark.parametrize("source", ["return inputs.nothing", "return [1].nope()", "return Math.max + 1"])
def test_an_error_of_a_scripts_own_text_is_no_reason_to_retry(
    invoke: Invoke, folder: Path, source: str
) -> None:
    write(folder, s_flow=f"{source}\n")
    said = invoke("run", "s.flow").stdout
    assert "dalsegno retry" not in said
    assert "A retry keeps this version and its input: fix the cause" in said


def test_what_a_task_meets_may_go_better(invoke: Invoke, folder: Path) -> None:
    write(folder, m_py=MODULE)
    assert "dalsegno retry" in invoke("run", "m.py:task_breaks").stdout


# -- validate ---------------------------------------------------------------------------------------------------


def test_a_python_file_is_validated_by_its_workflows(invoke: Invoke, folder: Path) -> None:
    write(folder, m_py=MODULE, bad_py=BAD_WORKFLOW)
    good = invoke("validate", "m.py")
    assert good.exit_code == 0
    assert "m.py: two, preset, unnamed, forgot, not_json, waits, task_breaks, 7 workflows" in good.stdout
    bad = invoke("validate", "bad.py", "--json")
    assert bad.exit_code == 2
    told = json.loads(bad.stdout)
    assert told["files"] == [{"file": "bad.py", "kind": "python", "valid": False, "name": None}]
    assert [(each["rule"], each["line"]) for each in told["findings"]] == [
        ("unsupported-python", 8),
        ("unsupported-python", 9),
    ]


@pytest.mark.parametrize("arguments", [("validate", "syn.py"), ("run", "syn.py")])
def test_a_syntax_error_shows_its_line(invoke: Invoke, folder: Path, arguments: tuple[str, ...]) -> None:
    write(folder, syn_py=BAD_SYNTAX)
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert "SyntaxError: '(' was never closed" in result.output
    assert "    app = App(\n             ^" in result.output
    assert "syn.py:3:10" in result.output


# -- names ------------------------------------------------------------------------------------------------------


def test_misspelt_workflows_are_suggested(invoke: Invoke, folder: Path) -> None:
    write(folder, m_py=MODULE)
    assert invoke("run", "m.py:two", "--input", "1").exit_code == 0
    for arguments in (
        ("run", "m.py:tow"),
        ("start", "tow", "--app", "m.py"),
        ("schedule", "add", "s", "--workflow", "tow", "--every", "1h"),
        ("versions", "tow"),
    ):
        result = invoke(*arguments)
        assert result.exit_code == 2
        assert "did you mean 'two'?" in result.output, arguments


def test_an_unknown_alias_leads_to_the_versions(invoke: Invoke, folder: Path) -> None:
    write(folder, m_py=MODULE)
    invoke("run", "m.py:two", "--input", "1")
    for arguments in (("start", "two@stabel"), ("start", "two", "--version", "stabel"), ("start", "two@9")):
        result = invoke(*arguments)
        assert "workflow 'two' has no" in result.output
        assert "`dalsegno versions two` lists its versions and aliases." in result.output


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("start", "two"), "input"),
        (("trigger", "last"), "input"),
        (("schedule", "add", "s", "--workflow", "two", "--every", "1h"), "input"),
        (("rerun", "last", "a"), "context"),
        (("signal", "last", "go"), "payload"),
        (("approve", "last"), "data"),
        (("reject", "last"), "data"),
        (("webhook", "test", "w"), "data"),
        (("task", "complete", "t"), "output"),
    ],
)
def test_an_option_that_is_no_json_is_refused_with_an_example(
    invoke: Invoke, folder: Path, arguments: tuple[str, ...], option: str
) -> None:
    write(folder, m_py=MODULE)
    invoke("run", "m.py:two", "--input", "1")
    refused = invoke(*arguments, f"--{option}", "{x: 1")
    assert refused.exit_code == 2, refused.output
    assert f"the {option} is not JSON" in refused.stderr
    example = refused.stderr.partition(f"--{option} '")[2].partition("'")[0]
    assert json.loads(example)


def test_an_execution_that_has_ended_is_named_in_the_hint(invoke: Invoke, folder: Path) -> None:
    write(folder, m_py=MODULE)
    execution = json.loads(invoke("run", "m.py:two", "--input", "1", "--json").stdout)["id"]
    assert f"`dalsegno show {execution}` shows" in invoke("pause", "last").stderr


def test_deployed_workflows_are_listed_once(invoke: Invoke, folder: Path) -> None:
    write(folder, m_py=MODULE)
    invoke("run", "m.py:two", "--input", "1")
    refused = invoke("versions", "quite_another")
    assert (refused.exit_code, refused.stderr.count("'two'")) == (2, 1)


# -- schedules --------------------------------------------------------------------------------------------------


def test_a_schedule_with_an_input_that_its_function_cannot_take_is_refused(
    invoke: Invoke, folder: Path
) -> None:
    write(folder, m_py=MODULE)
    add = ("schedule", "add", "s", "--app", "m.py", "--every", "1h", "--workflow")
    result = invoke(*add, "two", "--input", '"x"')
    assert result.exit_code == 2
    assert "workflow 'two': 'n' does not fit int" in result.output
    assert invoke(*add, "two").exit_code == 2
    assert invoke(*add, "two", "--input", "3").exit_code == 0


def test_a_triggered_run_of_a_schedule_is_counted(invoke: Invoke, folder: Path) -> None:
    write(folder, m_py=MODULE)
    invoke("schedule", "add", "s", "--app", "m.py", "--every", "1h", "--workflow", "preset")
    assert json.loads(invoke("schedule", "show", "s", "--json").stdout)["started"] == 0
    assert invoke("schedule", "trigger", "s", "--app", "m.py").exit_code == 0
    assert json.loads(invoke("schedule", "show", "s", "--json").stdout)["started"] == 1
    assert "1 start\n" in invoke("schedule", "show", "s").stdout
    assert json.loads(invoke("resume", "last", "--app", "m.py", "--json").stdout)["output"] == 7


# -- people who are waited for ----------------------------------------------------------------------------------


def test_a_signal_that_nobody_waits_for_is_told_to_be_kept(invoke: Invoke, folder: Path) -> None:
    write(folder, s_flow=WAITING)
    invoke("run", "s.flow", "--timeout", "1s")
    said = invoke("signal", "last", "og").stdout
    assert "it is kept: nothing waits for 'og' now (it waits for 'go')" in said
    told = invoke("why", "last").stdout
    assert "signal 'go' has not arrived" in told
    assert "signal 'og' has arrived and is kept: nothing waits for it now" in told
    assert "kept" not in invoke("signal", "last", "go").stdout


def test_a_signal_for_a_graph_is_told_to_be_kept(invoke: Invoke, folder: Path) -> None:
    write(
        folder, a_yaml="name: a\nnodes:\n  - {id: w, type: wait, parameters: {resume: signal, signal: go}}\n"
    )
    invoke("run", "a.yaml", "--timeout", "1s")
    assert "nothing waits for 'og' now (it waits for 'go')" in invoke("signal", "last", "og").stdout
    assert "kept" not in invoke("signal", "last", "go").stdout


def test_run_and_show_give_the_command_that_decides(invoke: Invoke, folder: Path) -> None:
    write(folder, asking_yaml=ASKING)
    told = invoke("run", "asking.yaml", "--timeout", "1s").stderr
    [execution] = re.findall(r"started +(\w+)", told)
    assert told.count(f"decide it: dalsegno approve {execution} gate\n") == 1
    said = invoke("show", "last").stdout
    assert "waiting for a decision" in said
    assert f"decide it: dalsegno approve {execution} gate\n" in said


def test_piped_run_of_a_script_gives_the_command_that_sends(invoke: Invoke, folder: Path) -> None:
    write(folder, s_flow=WAITING)
    told = invoke("run", "s.flow", "--timeout", "1s").stderr
    [execution] = re.findall(r"started +(\w+)", told)
    assert told.count(f"send it: dalsegno signal {execution} go\n") == 1


# -- times ------------------------------------------------------------------------------------------------------


def test_a_start_is_listed_with_the_time_at_which_it_was(
    capsys: pytest.CaptureFixture[str],
) -> None:
    began = 1_000.0
    view = _view(began)
    events = [
        Event(view.id, 1, "TaskStarted", "slow", "", began + 0.223, b'{"started_at":1000.02}', None),
        Event(view.id, 2, "TaskCompleted", "slow", "", began + 0.5, b'{"started_at":1000.02}', None),
    ]
    print_events(view, events)
    told = capsys.readouterr().out
    assert re.search(r"1 +\+20 ms +TaskStarted", told), told
    assert re.search(r"2 +\+500 ms +TaskCompleted", told), told


def _view(created_at: float) -> ExecutionView:
    return ExecutionView(
        "e", "w", 1, "", "RUNNING", b"{}", created_at, created_at, 0, 0, 2, 0, (),
        None, None, None, None, None, None, None, None, "script",
    )  # fmt: skip
