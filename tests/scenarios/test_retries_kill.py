"""A retry from the failure goes on in a new process after the one that ran it was killed."""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path

from tests.scenarios.conftest import ONE_STACK
from tests.servers.forking import Forked, run_python

PROGRAM = """
import sys
import time
from pathlib import Path
from dalsegno import App, WorkflowFailed, gather

url, notes, *rest = sys.argv[1:]
app = App(url)


def note(word):
    with Path(notes).open("a") as file:
        file.write(word + "\\n")


@app.task
def charge(order):
    note("charge")
    return "paid"


@app.task
def slow(order):
    time.sleep(0.2)
    note("slow")
    return "slow"


@app.task
def ship(order):
    if not rest:
        raise ValueError("no address")
    time.sleep(0.1)
    return "sent"


@app.workflow
async def buy(order: str) -> list:
    paid = await charge(order)
    found = await gather(slow(order), ship(order))
    return [paid, *found, await ship(order)]


with app.running():
    if not rest:
        handle = app.start(buy, "o-1")
        handle.wait(30)
        print(handle.id, flush=True)
    else:
        again = app.handle(rest[0]).retry(idempotency_key="once")
        print("begun", flush=True)
        print(again.result(30), flush=True)
"""
KILLS = 4
"""One fewer than a step may lose its process."""


@ONE_STACK
def test_a_retry_survives_kills(store_url: str, tmp_path: Path) -> None:
    program, notes = tmp_path / "program.py", tmp_path / "notes"
    program.write_text(PROGRAM)
    first = run_python(str(program), store_url, str(notes))
    execution = first.stdout.strip()
    chance = random.Random(7)
    for _ in range(KILLS):
        with Forked(str(program), [store_url, str(notes), execution], stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "begun\n"
                time.sleep(chance.uniform(0.0, 0.15))
            finally:
                process.kill()

    last = run_python(str(program), store_url, str(notes), execution)

    assert last.stdout.splitlines()[-1:] == [str(["paid", "slow", "sent", "sent"])], last.stderr
    assert notes.read_text().split().count("charge") == 1
