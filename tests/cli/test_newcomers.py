"""What somebody meets in the first hour: hints that fit, ids that can be copied, lines without holes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.cli.documents import FAILING, PROGRAM, write
from tests.cli.programs import Programs, without_styles

LASTING = """\
import io

from dalsegno import App

app = App()
other = App()


class LimitExceeded(Exception):
    pass


@app.task
async def fetch(number: int) -> int:
    return number


@app.workflow
async def holds_a_file():
    with io.StringIO("text") as file:
        await fetch(1)
        return file.read()


@app.workflow
async def raises():
    raise ValueError("bad luck")


@app.workflow
async def raises_its_own():
    raise LimitExceeded("a quota of the provider")
"""
BAD_PARAMETERS = """\
name: bad-parameters
nodes:
  - {id: nap, type: wait, parameters: {amount: "{{ $trigger.amount }}", unit: hours}}
"""
THROWING = 'throw {code: "LUCK", message: "out of luck"}\n'
UNKNOWN = 'return await Task.run("fetsch", 1)\n'
LONG_NAME = "a-workflow-with-quite-a-long-name-that-no-narrow-screen-has-room-for"


@pytest.mark.parametrize("columns", [30, 50, 60, 80, 120])
def test_ids_are_whole_at_any_width(
    invoke: Invoke, folder: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    write(folder, long_flow=f"workflow {LONG_NAME.replace('-', '_')}(inputs) {{ return 1 }}\n")
    execution = json.loads(invoke("run", "long.flow", "--json").stdout)["execution_id"]
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    monkeypatch.setenv("COLUMNS", str(columns))
    rows = without_styles(invoke("ls").stdout).splitlines()
    assert any(execution in row for row in rows)
    assert len(rows) == 2
    if columns >= 40:
        assert all(len(row) <= columns for row in rows)


def test_pipe_gets_every_column_whole(invoke: Invoke, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = LONG_NAME.replace("-", "_")
    write(folder, long_flow=f"workflow {name}(inputs) {{ return 1 }}\n")
    invoke("run", "long.flow")
    monkeypatch.setenv("COLUMNS", "40")
    [head, row] = invoke("ls").stdout.splitlines()
    assert head.split() == ["execution", "workflow", "kind", "started", "took"]
    assert f" {name} v1 " in row


def test_retry_is_not_offered_for_what_cannot_change(invoke: Invoke, folder: Path) -> None:
    write(folder, lasting_py=LASTING)
    said = invoke("run", "lasting.py:holds_a_file").stdout
    assert "dalsegno retry" not in said
    assert "The same would fail again" in said


def test_retry_is_not_offered_where_recorded_outputs_do_not_fit(invoke: Invoke, folder: Path) -> None:
    write(folder, bad_yaml=BAD_PARAMETERS)
    said = invoke("run", "bad.yaml", "--input", '{"amount": "soon"}').stdout
    assert "INVALID_PARAMETERS" in said
    assert "The same would fail again" in said


def test_retry_is_offered_for_what_may_go_better(invoke: Invoke, folder: Path) -> None:
    write(folder, lasting_py=LASTING, failing_yaml=FAILING, throwing_flow=THROWING)
    for target in ("lasting.py:raises", "lasting.py:raises_its_own", "failing.yaml", "throwing.flow"):
        assert "dalsegno retry" in invoke("run", target).stdout, target


def test_given_application_is_searched_and_told(invoke: Invoke, folder: Path) -> None:
    write(folder, lasting_py=LASTING, unknown_flow=UNKNOWN)
    assert "--app module:attr" in invoke("run", "unknown.flow").stderr
    said = invoke("run", "unknown.flow", "--app", "lasting").stderr
    assert "--app module:attr" not in said
    assert "Looked for in lasting: it has the workflows" in said
    assert "and the tasks 'fetch'" in said
    empty = invoke("run", "unknown.flow", "--app", "lasting:other").stderr
    assert "it has no workflows and no tasks" in empty


@pytest.mark.parametrize(
    ("app", "said"),
    [
        ("lasting:nothing", "'lasting' holds: app, other. Write --app lasting:app."),
        ("lasting:fetch", "'lasting' holds: app, other. Write --app lasting:app."),
        ("empty", "'empty' contains no dalsegno.App"),
    ],
)
def test_module_without_the_application_tells_what_it_holds(
    invoke: Invoke, folder: Path, app: str, said: str
) -> None:
    write(folder, lasting_py=LASTING, empty_py="n = 1\n", unknown_flow=UNKNOWN)
    refused = invoke("run", "unknown.flow", "--app", app)
    assert refused.exit_code == 2
    assert said in refused.stderr


def test_application_of_another_workflow_tells_its_own(invoke: Invoke, folder: Path) -> None:
    write(folder, lasting_py=LASTING, shop_py=PROGRAM)
    refused = invoke("run", "lasting.py:raises", "--app", "shop.py").stderr
    assert "has not registered 'raises'" in refused
    assert "It has the workflows shop." in refused


def test_resume_with_another_application_tells_what_it_has(programs: Programs, folder: Path) -> None:
    write(folder, shop_py=PROGRAM, lasting_py=LASTING)
    order = ("--input", '{"cents": 5}')
    started = programs.begin("run", "shop.py:shop", *order, "--timeout", "1s", "--json").finish()[1]
    execution = json.loads(started)["execution_id"]
    code, _, said = programs.begin("resume", execution, "--app", "lasting.py").finish()
    assert code == 2
    assert "lasting.py does not import it; it has the workflows 'holds_a_file'" in said


def test_event_without_a_node_has_no_hole_before_its_message(invoke: Invoke, folder: Path) -> None:
    write(folder, throwing_flow=THROWING)
    invoke("run", "throwing.flow")
    [line] = [line for line in invoke("show", "last").stdout.splitlines() if "ExecutionFailed" in line]
    assert line.endswith("ExecutionFailed   out of luck")
