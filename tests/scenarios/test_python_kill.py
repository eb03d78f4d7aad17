"""A Python workflow that holds large nested values goes on in a new process after the first one was killed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.servers.forking import Forked, run_python

PROGRAM = """
import sys
import time
from dalsegno import App, signal

app = App(sys.argv[1])


@app.workflow
async def hold(count: int) -> list:
    orders = [{"number": n, "note": chr(97 + n % 26) * 40_000, "lines": list(range(300))} for n in range(count)]
    word = await signal("word")
    size = sum(len(order["note"]) + len(order["lines"]) for order in orders)
    return [word, len(orders), size, orders[-1]["note"][:3]]


with app.running():
    if len(sys.argv) == 2:
        handle = app.start(hold, 60)
        while handle.picture() is None:
            time.sleep(0.02)
        print(handle.id, flush=True)
        time.sleep(60)
    else:
        handle = app.handle(sys.argv[2])
        assert handle.picture().variables["orders"]
        handle.signal("word", "go on")
        print(handle.result(30), flush=True)
"""


@pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)
def test_large_nested_values_survive_a_kill(store_url: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    arguments = [store_url]
    with Forked(str(program), arguments, stdout=subprocess.PIPE) as first:
        try:
            assert first.stdout is not None
            execution = first.stdout.readline().strip()
        finally:
            first.kill()
    second = run_python(str(program), *arguments, execution)
    assert second.stdout.strip() == str(["go on", 60, 60 * 40_300, "hhh"]), second.stderr
