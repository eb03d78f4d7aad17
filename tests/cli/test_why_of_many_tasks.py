"""``why`` of a program that waits for many tasks of one name: some run, some wait, some are lost."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path

from tests.cli.conftest import Invoke
from tests.cli.documents import write
from tests.cli.programs import Programs
from tests.waiting import until

MANY = """\
import time

from dalsegno import App, gather

app = App("sqlite:///dalsegno.db")


@app.task
def work(n: int) -> int:
    time.sleep(60)
    return n


@app.workflow
async def many() -> list[int]:
    return await gather(*(work(n) for n in range(6)))
"""


def _told(invoke: Invoke) -> Counter[tuple[str, bool]]:
    """How many of which state, and whether their process is gone."""
    waits = json.loads(invoke("why", "last", "--json").stdout)["waits"]
    return Counter(
        {(wait["sentence"].partition(";")[0], wait["process_gone"]): wait["count"] for wait in waits}
    )


def test_each_is_told_as_what_it_is(programs: Programs, folder: Path, invoke: Invoke) -> None:
    write(folder, many_py=MANY)
    running = "task 'work' is running (attempt 1)", False
    lost = "task 'work' was running (attempt 1)", True
    waiting = "task 'work' waits for a worker that serves queue 'default'", False
    assert programs.begin("deploy", "many.py").finish()[0] == 0
    assert invoke("start", "many").exit_code == 0

    first = programs.begin("worker", "--app", "many.py", "--concurrency", "2")
    until(lambda: _told(invoke) == {running: 2, waiting: 4}, "two of six run")
    programs.begin("worker", "--app", "many.py", "--concurrency", "2")
    until(lambda: _told(invoke) == {running: 4, waiting: 2}, "four of six run")
    first.send(signal.SIGKILL)
    first.process.communicate()

    until(lambda: _told(invoke) == {running: 2, lost: 2, waiting: 2}, "two are lost")
