"""What a command leaves for others to do is said, and so is what it did not do."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Invoke
from tests.cli.documents import write

FORGETFUL = """
from dalsegno import App, signal, start
app = App()


@app.workflow
async def waiting(x):
    return await signal("go")


@app.workflow
async def forgetful(x):
    start(waiting, x)
    start(waiting, x)
    return "gone"


@app.workflow
async def tidy(x):
    return "all done"
"""


def test_run_says_how_what_it_left_running_goes_on(invoke: Invoke, folder: Path) -> None:
    write(folder, mail_py=FORGETFUL)
    ran = invoke("run", "mail.py:forgetful", "--input", "1")
    assert ran.exit_code == 0
    assert "2 executions that it started have not ended. A worker continues that, or:" in ran.stderr
    left = [line.split()[2] for line in ran.stderr.splitlines() if line.startswith("  dalsegno resume ")]
    assert len(left) == 2
    invoke("signal", left[0], "go", "--payload", "5")
    assert json.loads(invoke("resume", left[0], "--app", "mail.py", "--json").stdout)["output"] == 5


def test_run_says_nothing_where_nothing_is_left(invoke: Invoke, folder: Path) -> None:
    write(folder, mail_py=FORGETFUL)
    assert "not ended" not in invoke("run", "mail.py:tidy", "--input", "1").stderr


def test_run_says_that_a_memory_store_keeps_nothing(invoke: Invoke, folder: Path) -> None:
    write(folder, mail_py=FORGETFUL)
    ran = invoke("run", "mail.py:forgetful", "--input", "1", "--store", "memory:")
    assert "a memory: store ends with its process" in " ".join(ran.stderr.split())


def test_a_signal_that_was_sent_before_says_so(invoke: Invoke, folder: Path) -> None:
    write(folder, wait_flow='return await Signal.next("go")')
    ran = invoke("run", "wait.flow", "--timeout", "1s", "--json").stdout
    started = json.loads(ran)["execution_id"]
    send = ("signal", started, "item", "--payload", "1", "--id", "a")
    assert "sent signal 'item' to" in invoke(*send).stdout
    again = invoke(*send)
    assert again.exit_code == 0
    assert f"signal 'item' with the id 'a' was sent to {started} before (event" in again.stdout
    assert again.stdout.rstrip().endswith("): nothing changed")
    assert "sent signal" in invoke("signal", started, "item", "--payload", "1", "--id", "b").stdout
