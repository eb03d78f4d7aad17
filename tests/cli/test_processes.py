"""Signals, sudden deaths and workers elsewhere: real processes."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.cli.documents import HELLO, LONG_WAIT, STEPS, TASKS, lines, write
from tests.cli.programs import Programs, without_styles
from tests.waiting import until


def last(invoke: Invoke, name: str = "last") -> dict[str, object]:
    return dict(json.loads(invoke("show", name, "--json").stdout))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_run_says_how_to_go_on(
    programs: Programs, folder: Path, invoke: Invoke, number: signal.Signals
) -> None:
    write(folder, sleeper_yaml=LONG_WAIT)
    run = programs.begin("run", "sleeper.yaml", "--json")
    until((folder / "dalsegno.db").exists, "a store")
    until(lambda: "sleeps" in invoke("why", "last").stdout, "the nap")
    run.send(number)
    code, out, err = run.finish()
    told = json.loads(out)
    assert code == 128 + number
    assert told["status"] == "RUNNING"
    assert told["nodes"]["nap"]["state"] == "WAITING"
    assert f"dalsegno resume {told['execution_id']} --store sqlite:///dalsegno.db" in err


def test_killed_run_goes_on_at_once_where_it_stood(programs: Programs, folder: Path, invoke: Invoke) -> None:
    write(folder, steps_yaml=STEPS, cli_tasks_py=TASKS)
    runs = folder / "runs.txt"
    killed = programs.begin("run", "steps.yaml", "--app", "cli_tasks:app")
    until(lambda: len(lines(runs)) == 8, "four finished items and four in progress")
    until(lambda: last(invoke)["nodes"]["work"]["runs"] == 4, "four commits")  # type: ignore[index]
    killed.send(signal.SIGKILL)
    killed.process.communicate()
    (folder / "go").touch()
    execution = str(last(invoke)["execution_id"])
    resuming = f"its process has ended; continue with `dalsegno resume {execution}"
    assert resuming in invoke("why", execution).stdout
    assert resuming in invoke("show", execution).stdout
    gone = [
        wait
        for wait in json.loads(invoke("why", execution, "--json").stdout)["waits"]
        if wait["process_gone"]
    ]
    assert [(wait["node"], wait["count"]) for wait in gone] == [("work", 4)]
    told = programs.begin("resume", execution, "--app", "cli_tasks:app", "--json").result()
    assert told["exit_code"] == 0
    assert told["output"] == [number * number for number in range(8)]
    assert told["nodes"]["work"] == {"state": "COMPLETED", "runs": 8}
    began = Counter(lines(runs))
    assert len(began) == 8  # the idempotency key is the same in the second run
    assert sorted(began.values()) == [1, 1, 1, 1, 2, 2, 2, 2]


def test_second_interrupt_does_not_wait_for_running_steps(programs: Programs, folder: Path) -> None:
    write(folder, steps_yaml=STEPS, cli_tasks_py=TASKS)
    run = programs.begin("run", "steps.yaml", "--app", "cli_tasks:app")
    until(lambda: len(lines(folder / "runs.txt")) == 8, "items in progress")
    run.send(signal.SIGINT)
    assert run.process.stderr is not None
    until(lambda: "stopping" in run.process.stderr.readline(), "the announcement")  # type: ignore[union-attr]
    run.send(signal.SIGINT)
    assert run.process.wait(timeout=9) == 130  # running steps would have ten seconds


def test_worker_finishes_what_start_enqueued_and_ends_gracefully(
    programs: Programs, folder: Path, invoke: Invoke
) -> None:
    write(folder, hello_yaml=HELLO, cli_tasks_py=TASKS)
    invoke("deploy", "hello.yaml")
    execution = invoke("start", "hello", "--input", '{"name": "Eve"}').stdout.strip()
    worker = programs.begin("worker", "--queues", "default,heavy", "--concurrency", "3", "--app", "cli_tasks")
    watched = invoke("watch", execution, "--timeout", "30s", "--json")
    assert watched.exit_code == 0
    assert json.loads(watched.stdout)["output"] == "Hello Eve"
    worker.send(signal.SIGTERM)
    code, _, err = worker.finish()
    assert code == 0
    assert "serves default, heavy" in err
    assert "tasks: numbers, work" in err
    assert "HTTP nodes reach public addresses only; DALSEGNO_EGRESS_ALLOW lists more" in err
    assert "stopped after" in err


def test_pause_elsewhere_holds_a_run_until_resume(programs: Programs, folder: Path, invoke: Invoke) -> None:
    write(folder, steps_yaml=STEPS, cli_tasks_py=TASKS)
    run = programs.begin("run", "steps.yaml", "--app", "cli_tasks:app", "--json")
    until(lambda: len(lines(folder / "runs.txt")) == 8, "items in progress")
    execution = str(last(invoke)["execution_id"])
    invoke("pause", execution)
    (folder / "go").touch()
    until(lambda: last(invoke)["nodes"]["work"]["runs"] == 8, "running items to commit")  # type: ignore[index]
    assert last(invoke)["status"] == "PAUSED"
    assert run.process.poll() is None
    resumed = invoke("resume", execution, "--app", "cli_tasks:app", "--json")
    assert json.loads(resumed.stdout)["status"] == "COMPLETED"
    assert run.result()["status"] == "COMPLETED"


def test_live_view_is_drawn_on_a_terminal_only(programs: Programs, folder: Path) -> None:
    write(folder, steps_yaml=STEPS, cli_tasks_py=TASKS)
    (folder / "go").touch()
    code, out, shown = programs.on_terminal("run", "steps.yaml", "--app", "cli_tasks:app", NO_COLOR="1")
    assert code == 0
    assert out.startswith("✓ COMPLETED")
    drawn = without_styles(shown)
    assert "├─ ✓ each" in drawn
    assert "━━━━━━━━━━━━━━━━ 8/8" in drawn
    assert "│  └─ ✓ work" in drawn
    assert "\x1b[3" not in shown  # colours


def test_output_survives_a_terminal_that_is_not_unicode(programs: Programs, folder: Path) -> None:
    write(folder, hello_yaml=HELLO)
    run = programs.begin("run", "hello.yaml", "--input", '{"name": "Zoë ✓"}', PYTHONIOENCODING="ascii")
    code, out, _ = run.finish()
    assert code == 0
    assert out.startswith("+ COMPLETED")
    assert "Hello Zo" in out


def test_help_needs_nothing_heavy(programs: Programs) -> None:
    heavy = (
        "import sys; from dalsegno.cli.main import app\n"
        "print(sorted({'rich', 'msgspec', 'pydantic', 'yaml', 'aiohttp'} & set(sys.modules)))"
    )
    (programs.folder / "heavy.py").write_text(heavy)
    program = programs.python("heavy.py")
    assert program.finish()[1].strip() == "[]"
