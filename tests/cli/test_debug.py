"""``debug``: the recorded turns of scripts and Python workflows, forwards, backwards, and again."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dalsegno import App
from dalsegno.cli.modules import load_app
from tests.cli.conftest import Invoke
from tests.cli.documents import HELLO, write
from tests.cli.programs import Programs, without_styles
from tests.waiting import until

ORDER = """\
```
journal: all
```
async function main() {
  let total = await Task.run("charge", inputs.cents)
  const first = total
  for (const cents of [1, 2]) {
    total = total + await Task.run("charge", cents)
  }
  const note = await Signal.when("go", {timeout: "1h"})
  return {total, first, by: note.by}
}
"""


@pytest.fixture(autouse=True)
def journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workflows that say nothing keep their last turns."""
    monkeypatch.setenv("DALSEGNO_JOURNAL", "failures")


async def charge(cents: int) -> int:
    if cents < 0:
        raise ValueError("cents must not be negative")
    return cents


def an_app(folder: Path) -> App:
    app = App(f"sqlite:///{folder / 'dalsegno.db'}")
    app.task(charge)
    return app


@pytest.fixture
def waiting(folder: Path) -> str:
    """An execution that has run four turns, and waits for a signal."""
    with an_app(folder).running() as app:
        app.deploy_script(ORDER, "order")
        handle = app.start("order", {"cents": 7})
        until(lambda: (seen := handle.picture()) is not None and seen.line == 10, "it waits for the signal")
    return handle.id


@pytest.fixture
def ended(folder: Path, waiting: str) -> str:
    with an_app(folder).running() as app:
        app.handle(waiting).signal("go", {"by": "ann"})
        assert app.handle(waiting).wait(60).state == "COMPLETED"
    return waiting


def debugged(invoke: Invoke, execution: str, *commands: str, options: tuple[str, ...] = ()) -> str:
    result = invoke("debug", execution, *options, stdin="".join(f"{line}\n" for line in commands))
    assert result.exit_code == 0, result.output
    return result.stdout


def turn(invoke: Invoke, execution: str, number: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(invoke("debug", execution, "--turn", str(number), "--json").stdout)
    return found


def test_the_list_names_every_stop_and_the_end(invoke: Invoke, ended: str) -> None:
    listed = json.loads(invoke("debug", ended, "--json").stdout)
    assert listed["execution"] == ended
    assert [(one["number"], one["line"], one["awaits"], one["state"]) for one in listed["turns"]] == [
        (1, 5, "task charge", "suspended"),
        (2, 8, "task charge", "suspended"),
        (3, 8, "task charge", "suspended"),
        (4, 10, "signal go", "suspended"),
        (5, 0, "", "completed"),
    ]


def test_a_turn_shows_what_it_received_changed_and_asked_for(invoke: Invoke, ended: str) -> None:
    seen = turn(invoke, ended, 3)
    [received] = seen["received"]
    assert (received["kind"], received["name"], received["result"]["value"]) == ("task", "charge", 1)
    [asked] = seen["asked"]
    assert (asked["kind"], asked["name"], asked["input"]["value"]) == ("task", "charge", 2)
    changed = {one["name"]: one for one in seen["functions"][0]["variables"] if one["change"]}
    assert (changed["total"]["change"], changed["total"]["before"]["value"]) == ("changed", 7)
    assert changed["total"]["now"]["value"] == 8
    last = turn(invoke, ended, 5)
    assert (last["state"], last["is_before"]) == ("completed", True)
    assert last["output"]["value"] == {"total": 10, "first": 7, "by": "ann"}
    assert [(one["name"], one["result"]["value"]) for one in last["received"]] == [("go", {"by": "ann"})]


def test_commands_go_forwards_and_backwards(invoke: Invoke, waiting: str) -> None:
    shown = debugged(invoke, waiting, "n", "next 2", "n", "b", "", "g 1", "b", "g last", "quit", "n")
    heads = [line.split(" ·")[0] for line in shown.splitlines() if line.startswith("turn ")]
    assert heads == [f"turn {number} of 4" for number in (1, 2, 4, 3, 2, 1, 4)]
    assert "this is the last turn" in shown
    assert "this is the first turn that is kept" in shown
    assert "  received  task charge  7" in shown
    assert '▶ 5 │   let total = await Task.run("charge", inputs.cents)' in shown
    assert "  then      waits for signal go" in shown


def test_a_watch_finds_the_turn_in_which_a_variable_changed(invoke: Invoke, ended: str) -> None:
    shown = debugged(invoke, ended, "watch total", "watch total", "watch nothing", "g last", "rwatch first")
    heads = [line.split(" ·")[0] for line in shown.splitlines() if line.startswith("turn ")]
    assert heads == [f"turn {number} of 5" for number in (1, 2, 3, 5, 2)]
    assert "no later turn changed a variable 'nothing'" in shown
    assert "~ total  8  was 7" in shown


def test_breakpoints_stop_in_both_directions(invoke: Invoke, waiting: str) -> None:
    shown = debugged(invoke, waiting, "break 8", "break 6", "c", "c", "c", "rc", "break", "delete 8", "rc")
    heads = [line.split(" ·")[0] for line in shown.splitlines() if line.startswith("turn ")]
    assert heads == [f"turn {number} of 4" for number in (1, 2, 3, 4, 3, 1)]
    assert "breakpoint at line 8, where 2 of 4 turns stopped" in shown
    assert "no turn stopped at line 6; turns stop at awaits: 5, 8, 10" in shown
    assert "breakpoints at 6, 8" in shown


def test_views_of_one_turn(invoke: Invoke, waiting: str) -> None:
    shown = debugged(invoke, waiting, "g 4", "vars", "vars total", "where", "list", "asked", "turns", "help")
    assert "    first  7" in shown
    assert "  now       10" in shown
    assert "  before    8" in shown
    assert "#0 main  line 10  const note = await Signal.when" in shown
    assert "  asked     signal go  until " in shown
    assert "rc, reverse-continue" in shown


def test_mistakes_are_explained_and_change_nothing(invoke: Invoke, waiting: str) -> None:
    commands = ("jump", "g 99", "g nowhere", "break x", "delete 3", "vars none", "up", "watch", "list 0x")
    shown = debugged(invoke, waiting, *commands)
    assert shown.count(" after the last") == 0
    for sentence in (
        "there is no command 'jump'; help lists them",
        "turn 99 is not kept; kept: 1 to 4",
        "give the number of a turn, first, last, or the name of a checkpoint",
        "give the number of a line, not 'x'",
        "there is no breakpoint at line 3",
        "there is no variable 'none' in main",
        "it is the outermost function",
        "give the name of a variable",
    ):
        assert sentence in shown


def test_a_graph_has_no_turns(invoke: Invoke, folder: Path) -> None:
    write(folder, hello_yaml=HELLO)
    execution = json.loads(invoke("run", "hello.yaml", "--json").stdout)["execution_id"]
    refused = invoke("debug", execution)
    assert refused.exit_code == 2
    assert "which has no turns" in refused.stderr
    assert f"dalsegno show {execution}" in refused.stderr


def test_a_failed_script_shows_the_line_of_its_error(invoke: Invoke, folder: Path) -> None:
    with an_app(folder).running() as app:
        app.deploy_script(ORDER.replace("[1, 2]", "[1, -2]"), "order")
        handle = app.start("order", {"cents": 7})
        assert handle.wait(60).state == "FAILED"
    execution = handle.id
    seen = turn(invoke, execution, 4)
    assert (seen["state"], seen["line"]) == ("failed", 8)
    assert seen["error"]["message"] == "cents must not be negative"
    assert seen["received"][0]["error"]["type"] == "ValueError"
    shown = debugged(invoke, execution, "g last", "vars")
    assert "the program failed" in shown
    again = debugged(invoke, execution, "c", options=("--live",))
    assert "turn 4 again" in again
    assert "  error     ValueError: cents must not be negative" in again
    assert "it ended as it was recorded" in again
    assert "ValueError: cents must not be negative" in shown


def test_a_script_runs_a_turn_again_line_by_line(invoke: Invoke, waiting: str) -> None:
    shown = debugged(
        invoke,
        waiting,
        "s",
        "p total",
        "p total.x",
        "b 10",
        "n",
        "w",
        "v",
        "c",
        "c",
        options=("--live", "--turn", "2"),
    )
    assert "nothing is stored, and no task runs" in shown
    assert "▶ 6 │ const first = total" in shown
    assert "'total' has no .x" in shown
    assert "  asked     task charge  1" in shown
    assert "it ended as it was recorded" in shown
    assert json.loads(invoke("debug", waiting, "--json").stdout)["turns"][-1]["number"] == 4


PYTHON = """\
from dalsegno import App, signal

app = App()


@app.task
async def charge(cents: int) -> int:
    return cents


def fee(cents):
    base = cents // 10
    return base + 1


@app.workflow
async def checkout(cents: int) -> dict:
    async def pay(times: int) -> int:
        label = "x" * times
        paid = await charge(cents * times)
        return paid + len(label)

    total = await pay(1)
    total += fee(total)
    again = await pay(2)
    word = await signal("go")
    return {"total": total + again, "word": word}
"""


@pytest.fixture
def python_run(folder: Path) -> str:
    """A Python workflow that has run three turns, and waits for a signal."""
    write(folder, shop_py=PYTHON)
    app = load_app("shop.py")
    app.url = f"sqlite:///{folder / 'dalsegno.db'}"
    with app.running():
        handle = app.start("checkout", 70)
        until(lambda: (seen := handle.picture()) is not None and seen.awaiting == "signal go", "it waits")
    return handle.id


def test_python_turns_show_async_functions_and_variables(invoke: Invoke, python_run: str) -> None:
    shown = debugged(invoke, python_run, "n", "where", "up", "vars", options=("--app", "shop.py"))
    assert "  received  task charge  70" in shown
    assert "▶ #0 pay  line 20  paid = await charge(cents * times)" in shown
    assert "  #1 checkout  line 25  again = await pay(2)" in shown
    assert "  + total  79" in shown


def test_without_its_code_a_python_workflow_shows_lines_and_says_what_is_missing(
    invoke: Invoke, python_run: str
) -> None:
    sys.modules.pop("shop", None)
    shown = debugged(invoke, python_run, "vars")
    assert "▶ 20 │     paid = await charge(cents * times)" in shown
    assert "give the code with --app shop.py" in shown


def test_a_python_turn_runs_again_under_pdb(programs: Programs, python_run: str) -> None:
    commands = ("w", "n", "p total, cents", "s", "s", "s", "p base", "r", "n", "n")
    code, out, err = with_commands(
        programs, commands, "debug", python_run, "--live", "--turn", "2", "--app", "shop.py"
    )
    assert (code, err) == (0, "")
    assert "shop.py(21)pay()\n-> return paid + len(label)" in out
    assert "shop.py(23)checkout()\n-> total = await pay(1)" in out
    assert "-> total += fee(total)" in out
    assert "(71, 70)" in out
    assert "fee()->8" in out
    assert "@" not in out
    assert "  asked     task charge  140" in out
    assert "it ended as it was recorded" in out


def test_leaving_pdb_runs_nothing_further_and_stores_nothing(
    invoke: Invoke, programs: Programs, python_run: str
) -> None:
    before = invoke("debug", python_run, "--json").stdout
    code, out, _ = with_commands(
        programs, ("n", "q"), "debug", python_run, "--live", "--turn", "1", "--app", "shop.py"
    )
    assert code == 0
    assert "left before the end of the turn" in out
    assert "asked" not in out
    assert invoke("debug", python_run, "--json").stdout == before


def with_commands(programs: Programs, commands: Sequence[str], *arguments: str) -> tuple[int, str, str]:
    """Run the program as a process with these commands on its standard input."""
    process = subprocess.run(
        [sys.executable, "-m", "dalsegno", *arguments],
        cwd=programs.folder,
        env=programs.environment,
        input="".join(f"{line}\n" for line in commands),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return process.returncode, process.stdout, process.stderr


def test_a_terminal_gets_a_prompt_and_lines_that_fit(programs: Programs, waiting: str) -> None:
    terminal, side = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "dalsegno", "debug", waiting],
        cwd=programs.folder,
        env={**programs.environment, "TERM": "xterm", "PYTHONIOENCODING": "utf-8"},
        stdin=side,
        stdout=side,
        stderr=side,
    )
    os.close(side)
    os.write(terminal, b"n\nwatch total\nq\n")
    shown = b""
    with contextlib.suppress(OSError):  # Linux says so when the other side is closed
        while chunk := os.read(terminal, 65536):
            shown += chunk
    os.close(terminal)
    assert process.wait(60) == 0
    plain = without_styles(shown.decode())
    assert "(debug) " in plain
    assert "~ total  8  was 7" in plain
    assert all(len(line) <= 80 for line in plain.splitlines())


def test_a_cleanup_runs_again_with_the_request_to_cancel(invoke: Invoke, folder: Path) -> None:
    source = """\
try {
  await Signal.next("never")
} finally {
  const said = "over"
  await Task.run("charge", 5)
}
"""
    with an_app(folder).running() as app:
        app.deploy_script(source, "cleaning")
        handle = app.start("cleaning")
        until(handle.picture, "it waits")
        handle.cancel("enough")
        assert handle.wait(60).state == "CANCELLED"
    last = turn(invoke, handle.id, 3)
    assert (last["state"], last["received"][0]["name"]) == ("cancelled", "charge")
    again = debugged(invoke, handle.id, "n", "n", "n", "n", options=("--live", "--turn", "2"))
    assert '▶ 4 │ const said = "over"' in again
    assert "  asked     task charge  5" in again
    assert "it ended as it was recorded" in again


def test_live_needs_the_store(invoke: Invoke, waiting: str) -> None:
    refused = invoke("debug", waiting, "--live", "--json")
    assert refused.exit_code == 2
    assert "prints no JSON" in json.loads(refused.stdout)["error"]["message"]
