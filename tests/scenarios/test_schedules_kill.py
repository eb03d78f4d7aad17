"""Processes that share schedules and are killed amid the times: each time starts one execution, none is left out."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime

import pytest

from dalsegno import App
from dalsegno.handle import Handle
from dalsegno.ports.archive import ExecutionFilter
from tests.servers.forking import Forked
from tests.waiting import until

SHARING = """
import os, sys, time
from dalsegno import App
from dalsegno.engine.settings import EngineSettings

with App(sys.argv[1], settings=EngineSettings(reconcile_every=0.2)).running():
    os.write(1, b"ready\\n")
    time.sleep(120)
"""
"""A worker and a scheduler. Takes back soon what a dead one has held."""
NAMES = tuple(f"s{number}" for number in range(4))
TIMES = 5
PATIENCE = 30.0
SAYS = {"name": "says", "nodes": [{"id": "l", "type": "log", "parameters": {"message": "x"}}]}


@contextmanager
def process(url: str) -> Iterator[subprocess.Popen[str]]:
    begun = Forked("-c", [SHARING, url], stdout=subprocess.PIPE)
    try:
        yield begun
    finally:
        begun.kill()
        begun.communicate(timeout=PATIENCE)


def until_ready(begun: subprocess.Popen[str]) -> None:
    assert begun.stdout is not None
    assert begun.stdout.readline() == "ready\n"


def times_of(app: App, schedule: Handle) -> list[float]:
    """Those for which something was started and has run, in their order."""
    where = ExecutionFilter(parent=schedule.id, relations=("schedule",))
    views = app.host.call(app.client.executions(where, limit=500))
    ran = [dict(view.tags)["scheduled_at"] for view in views if view.state == "COMPLETED"]
    return sorted(datetime.fromisoformat(each).timestamp() for each in ran)


@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
def test_processes_that_share_schedules_fire_each_time_once_though_some_are_killed(store_url: str) -> None:
    app = App(store_url)
    app.deploy(SAYS)
    with ExitStack() as processes:
        sharing = [processes.enter_context(process(store_url)) for _ in range(3)]
        for each in sharing:
            until_ready(each)
        first = math.ceil(time.time()) + 1.0
        for name in NAMES:
            app.schedules.add(name, "every 1s", "says", missed="all", start=first, end=first + TIMES - 1)
        schedules = [app.handle(app.schedules.get(name).execution) for name in NAMES]
        for count, victim in ((1, sharing[0]), (2, sharing[1])):
            until(lambda count=count: len(times_of(app, schedules[0])) >= count, f"{count} have run")  # type: ignore[misc]
            os.kill(victim.pid, signal.SIGKILL)
        until_ready(processes.enter_context(process(store_url)))

        expected = [first + number for number in range(TIMES)]
        for schedule in schedules:
            assert schedule.result(PATIENCE)["started"] == TIMES
            until(lambda each=schedule: len(times_of(app, each)) >= TIMES, "all have run")  # type: ignore[misc]
            assert times_of(app, schedule) == expected
    assert len(app.executions("says", limit=500)) == TIMES * len(NAMES)
    app.close()
