"""``run``, ``resume``, ``retry``, ``signal`` of scripts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.cli.documents import SCRIPT, SCRIPT_TASKS, SHORT_SCRIPT, THROWING_SCRIPT, lines, write
from tests.cli.programs import Programs, without_styles
from tests.waiting import until

APP = ("--app", "script_tasks.py")


@pytest.fixture
def waiting(invoke: Invoke, folder: Path) -> str:
    """A script that was left where it waits for its signal."""
    write(folder, order_flow=SCRIPT, script_tasks_py=SCRIPT_TASKS)
    told = json.loads(
        invoke("run", "order.flow", "--input", '{"cents": 7}', *APP, "--timeout", "3s", "--json").stdout
    )
    assert told["status"] == "RUNNING"
    return str(told["execution_id"])


def test_completed_script_prints_one_object_with_exactly_the_promised_keys(
    invoke: Invoke, folder: Path
) -> None:
    write(folder, double_flow=SHORT_SCRIPT, script_tasks_py=SCRIPT_TASKS)
    result = invoke("run", "double.flow", "--input", '{"n": 4}', *APP, "--json")
    told = json.loads(result.stdout)
    assert result.exit_code == 0
    assert list(told) == [
        "id", "state", "execution_id", "status", "workflow", "version", "kind", "output", "error", "tasks",
    ]  # fmt: skip
    assert (told["workflow"], told["kind"], told["state"], told["output"]) == (
        "double",
        "script",
        "COMPLETED",
        8,
    )
    assert told["tasks"] == {"charge": {"state": "COMPLETED", "runs": 1}}


def test_run_tells_its_lines_where_there_is_no_terminal(invoke: Invoke, folder: Path) -> None:
    write(folder, double_flow=SHORT_SCRIPT, script_tasks_py=SCRIPT_TASKS)
    said = invoke("run", "double.flow", "--input", '{"n": 4}', *APP).stderr
    assert "  line 2: waits for task charge\n" in said
    assert "  charge completed in " in said
    assert said.count("started") == said.count("finished") == 1


def test_signal_lets_a_suspended_script_go_on(invoke: Invoke, waiting: str) -> None:
    sent = invoke("signal", waiting, "go", "--payload", '{"by": "Ann"}', "--id", "once")
    assert sent.exit_code == 0
    assert sent.stdout == f"sent signal 'go' to {waiting}\n"
    invoke("signal", waiting, "go", "--payload", '{"by": "Bob"}', "--id", "once")
    told = json.loads(invoke("resume", waiting, *APP, "--json").stdout)
    assert told["output"] == {"paid": 7, "sum": 3, "by": "Ann"}
    late = invoke("signal", waiting, "go")
    assert late.exit_code == 2
    assert "it has ended (COMPLETED)" in late.stderr


def test_signal_needs_json(invoke: Invoke, waiting: str) -> None:
    result = invoke("signal", waiting, "go", "--payload", "{by")
    assert result.exit_code == 2
    assert "the payload is not JSON" in result.stderr
    assert "--payload" in result.stderr


def test_resume_without_the_tasks_is_refused_with_their_lines(invoke: Invoke, waiting: str) -> None:
    result = invoke("resume", waiting)
    assert result.exit_code == 2
    assert "workflow 'order' v1:3:" in result.stderr
    assert "there is no task 'charge'" in result.stderr
    assert "--app" in result.stderr


def test_unknown_task_is_refused_before_anything_is_stored(invoke: Invoke, folder: Path) -> None:
    write(folder, double_flow=SHORT_SCRIPT)
    result = invoke("run", "double.flow", "--json")
    assert result.exit_code == 2
    [finding] = json.loads(result.stdout)["findings"]
    assert (finding["rule"], finding["line"]) == ("unknown-task", 2)
    assert "^" in finding["excerpt"]
    assert "no executions" in invoke("ls").stdout


def test_syntax_error_shows_its_place(invoke: Invoke, folder: Path) -> None:
    write(folder, bad_flow="let x = 1\nlet y = = 2\n")
    result = invoke("run", "bad.flow")
    assert result.exit_code == 2
    assert "bad.flow:2:9" in result.stderr
    assert "    let y = = 2\n            ^" in result.stderr


def test_failed_script_tells_its_own_lines_and_retry_starts_it_again(invoke: Invoke, folder: Path) -> None:
    write(folder, price_flow=THROWING_SCRIPT, script_tasks_py=SCRIPT_TASKS)
    failed = invoke("run", "price.flow", "--input", '{"prize": 1}', *APP)
    assert failed.exit_code == 1
    assert "property 'price' not found" in failed.stdout
    assert "PROPERTY_NOT_FOUND" in failed.stdout
    first, second = [line for line in failed.stdout.splitlines() if line.startswith("  at ")]
    assert first.endswith("price:2")
    assert second.endswith("price:5")
    assert "return order.price" in failed.stdout
    assert "A retry keeps this version and its input" in failed.stdout
    before = json.loads(invoke("show", "last", "--json").stdout)["execution_id"]
    again = json.loads(invoke("retry", before, *APP, "--yes", "--json").stdout)
    assert (again["status"], again["error"]["code"]) == ("FAILED", "PROPERTY_NOT_FOUND")
    shown = json.loads(invoke("show", again["execution_id"], "--json").stdout)
    assert (shown["parent"], shown["relation"], shown["input"]) == (before, "retry", {"prize": 1})


def test_rerun_of_a_script_from_a_node_is_refused(invoke: Invoke, waiting: str) -> None:
    result = invoke("rerun", waiting, "charge", *APP)
    assert result.exit_code == 2
    assert "a script has no nodes" in result.stderr


def test_killed_script_goes_on_and_repeats_only_what_was_running(programs: Programs, folder: Path) -> None:
    source = 'const a = await Task.run("charge", 1)\nreturn a + await Task.run("slow", 2)\n'
    write(folder, kill_flow=source, script_tasks_py=SCRIPT_TASKS)
    first = programs.begin("run", "kill.flow", *APP)
    until(lambda: lines(folder / "runs.txt"), "the slow task has begun")
    first.process.kill()
    first.end()
    (folder / "go").touch()
    told = programs.begin("resume", "last", *APP, "--json").result()
    assert (told["exit_code"], told["output"]) == (0, 3)
    runs = lines(folder / "runs.txt")
    assert len(runs) == 2
    assert len(set(runs)) == 1  # the same task, with the same key
    events = programs.begin("show", "last", "--json", "--events", "100").result()["events"]
    assert [event["node"] for event in events if event["kind"] == "TaskCompleted"] == ["charge", "slow"]


def test_terminal_shows_the_line_and_what_is_awaited(programs: Programs, folder: Path) -> None:
    write(folder, order_flow=SCRIPT, script_tasks_py=SCRIPT_TASKS)
    code, _, shown = programs.on_terminal(
        "run", "order.flow", "--input", '{"cents": 7}', *APP, "--timeout", "2s", COLUMNS="100"
    )
    picture = without_styles(shown)
    assert code == 124
    assert '▶ 6 │ const go = await Signal.when("go", {timeout: "1h"})' in picture.replace("│   ", "│ ")
    assert "signal go" in picture
    assert "gives up in 59:5" in picture
    assert "send it: dalsegno signal" in picture
    assert "charge" in picture
    assert "3 done" in picture


def test_retry_says_what_runs_again_and_wants_a_yes(invoke: Invoke, folder: Path) -> None:
    tasks = (
        "from dalsegno import App\n\napp = App()\n\n\n@app.task\nasync def charge(order):\n    return order\n"
    )
    source = 'await Task.run("charge", 1)\nawait Task.run("charge", 2)\nthrow "no"\n'
    write(folder, twice_flow=source, charging_py=tasks)
    app = ("--app", "charging.py")
    assert invoke("run", "twice.flow", *app).exit_code == 1
    refused = invoke("retry", "last", *app, "--from-start")
    assert refused.exit_code == 2
    said = " ".join(refused.stderr.split())
    assert "starts 'twice' over, with new idempotency keys. It runs again: 'charge' (2 times)." in said
    assert "--yes" in said
    assert len(json.loads(invoke("ls", "--json").stdout)) == 1
    over = invoke("retry", "last", *app, "--from-start", "--yes", "--json")
    assert json.loads(over.stdout)["status"] == "FAILED"


def test_retry_names_tasks_that_failed_and_may_have_had_their_effect(invoke: Invoke, folder: Path) -> None:
    tasks = (
        "from dalsegno import App\n\napp = App()\n\n\n@app.task\nasync def charge(order):\n"
        "    if order > 1:\n        raise ConnectionError('its answer was lost')\n"
    )
    write(folder, lost_flow='await Task.run("charge", inputs)\n', charging_py=tasks)
    write(folder, both_flow='await Task.run("charge", 1)\nawait Task.run("charge", 2)\n')
    app = ("--app", "charging.py")
    for script, counted in (("lost", "(failed)"), ("both", "(2 times, 1 failed)")):
        assert invoke("run", f"{script}.flow", "-i", "2", *app).exit_code == 1
        refused = invoke("retry", "last", *app, "--from-start")
        assert refused.exit_code == 2
        said = " ".join(refused.stderr.split())
        assert f"It runs again: 'charge' {counted}. A task that failed may have had its effect." in said
        again = json.loads(invoke("retry", "last", *app, "--from-start", "--yes", "--json").stdout)
        assert (again["status"], again["error"]["message"]) == ("FAILED", "its answer was lost")


SHIPPING = """
from pathlib import Path

from dalsegno import App

app = App()


@app.task
async def charge(order):
    with Path("runs.txt").open("a") as file:
        file.write("run\\n")


@app.task
async def ship(order):
    if not Path("mended").exists():
        raise ValueError("no address")
    return "sent"
"""


def test_retry_goes_on_from_the_failure_and_says_so(invoke: Invoke, folder: Path) -> None:
    source = 'await Task.run("charge", 1)\nreturn await Task.run("ship", 1)\n'
    write(folder, order_flow=source, shipping_py=SHIPPING)
    app = ("--app", "shipping.py")
    failed = invoke("run", "order.flow", *app)
    assert failed.exit_code == 1
    assert "From there again: dalsegno retry" in " ".join(failed.stdout.split())
    before = json.loads(invoke("show", "last", "--json").stdout)["execution_id"]
    (folder / "mended").touch()
    again = json.loads(invoke("retry", "last", *app, "--json").stdout)
    assert (again["status"], again["output"]) == ("COMPLETED", "sent")
    assert len(lines(folder / "runs.txt")) == 1
    shown = json.loads(invoke("show", again["execution_id"], "--json").stdout)
    assert shown["continues"] == {"execution": before, "line": 2}
    assert f"continues {before} at line 2" in " ".join(invoke("show", again["execution_id"]).stdout.split())


def test_rerun_at_a_turn(invoke: Invoke, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DALSEGNO_JOURNAL", "failures")
    write(folder, double_flow=SHORT_SCRIPT, script_tasks_py=SCRIPT_TASKS)
    done = json.loads(invoke("run", "double.flow", "--input", '{"n": 4}', *APP, "--json").stdout)

    told = invoke("rerun", done["id"], "--at", "1", *APP, "--dry-run").stdout.splitlines()
    assert told[1:] == ["  at turn 1, which waits in line 2", "  keeps the results of: charge (p0)"]
    again = json.loads(invoke("rerun", done["id"], "--at", "1", *APP, "--json").stdout)
    assert (again["state"], again["output"]) == ("COMPLETED", 8)

    for arguments, said in (
        (("--at", "9"), "has no turn 9; kept are the turns 1"),
        (("--at", "1", "--set", "m=1"), "has no variable 'm'"),
        (("--at", "1", "--set", "m"), "is no NAME=JSON"),
        (("--at", "1", "--answer", "charge=x"), "is not JSON"),
        ((), "say where to begin"),
        (("charge", "--at", "1"), "say where to begin"),
        (("charge", "--set", "m=1"), "belong to a turn"),
    ):
        refused = invoke("rerun", done["id"], *arguments, *APP)
        assert refused.exit_code != 0
        assert said in " ".join((refused.stdout + refused.stderr).split()), (arguments, refused.stderr)


def test_retry_goes_on_with_the_mended_code(invoke: Invoke, folder: Path) -> None:
    source = 'let paid = await Task.run("charge", 1)\nreturn paid.to.street\n'
    write(folder, order_flow=source, shipping_py=SHIPPING)
    app = ("--app", "shipping.py")
    assert invoke("run", "order.flow", *app).exit_code == 1
    write(folder, order_flow='return await Task.run("ship", 1)\n')
    assert invoke("deploy", "order.flow").exit_code == 0
    refused = invoke("retry", "last", *app, "--version", "latest")
    assert refused.exit_code == 2
    told = " ".join(refused.stderr.split())
    assert "cannot continue in version 2 of 'order'" in told
    assert "old, line 1: let paid = await Task.run" in told
    write(folder, order_flow='// mended\nlet paid = await Task.run("charge", 1)\nreturn "mended"\n')
    assert invoke("deploy", "order.flow").exit_code == 0
    told = invoke("retry", "last", *app, "--version", "3", "--dry-run").stdout.splitlines()
    assert told[0] == "would go on with version 3 of 'order'"
    assert told[1].endswith('line 1: let paid = await Task.run("charge", 1)')
    assert told[2] == '    goes on in line 2: let paid = await Task.run("charge", 1)'
    again = json.loads(invoke("retry", "last", *app, "--version", "3", "--json").stdout)
    assert (again["status"], again["output"], again["version"]) == ("COMPLETED", "mended", 3)
    assert len(lines(folder / "runs.txt")) == 1
