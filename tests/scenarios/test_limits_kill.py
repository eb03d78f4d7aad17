"""A process that is killed, or stopped and woken again, neither leaks a slot nor lets one too many run."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import threading
from pathlib import Path

import asyncpg

from dalsegno import App
from dalsegno.engine.operations.limits import OperatorLimits
from dalsegno.engine.settings import EngineSettings
from dalsegno.wiring import is_postgres, sqlite_path
from tests.scenarios.conftest import LASTING
from tests.servers.forking import Forked
from tests.waiting import until

HOLDING = """
import os, sys, time
from dalsegno import App
from dalsegno.engine.settings import EngineSettings

app = App(sys.argv[1], settings=EngineSettings(lease_seconds=float(sys.argv[2])))

@app.task(concurrency=1)
def slow(n: int) -> str:
    os.write(1, b"running\\n")  # whole lines, from whatever thread
    time.sleep(float(sys.argv[3]))
    return "first"

with app.running():
    for n in range(3):
        os.write(1, app.start(slow, n).id.encode() + b"\\n")
    time.sleep(60)
"""
BUSY = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid() AND state <> 'idle'
"""
PATIENCE = 30


def holder(url: str, lease: float, seconds: float) -> tuple[subprocess.Popen[str], list[str]]:
    """A process that runs one of three, and what it started."""
    process = Forked("-c", [HOLDING, url, str(lease), str(seconds)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    lines = [process.stdout.readline().strip() for _ in range(4)]
    if lines.count("running") != 1:
        end(process)
        raise AssertionError(f"one of three has to run: {lines}")
    return process, [line for line in lines if line != "running"]


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=PATIENCE)


def stop(process: subprocess.Popen[str], url: str) -> None:
    """Not in the middle of a transaction: what it has locked would stay locked for everybody."""
    while True:
        process.send_signal(signal.SIGSTOP)
        until(lambda: has_stopped(process.pid), "all its threads to stop: one may be about to begin")
        if not (asyncio.run(server_is_busy(url)) if is_postgres(url) else file_is_locked(url)):
            return
        process.send_signal(signal.SIGCONT)
        threading.Event().wait(0.02)


def has_stopped(pid: int) -> bool:
    stats = [file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


def file_is_locked(url: str) -> bool:
    connection = sqlite3.connect(sqlite_path(url), timeout=0.2, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return True
    finally:
        connection.close()
    return False


async def server_is_busy(url: str) -> bool:
    """Whether any other session on this database is amid something."""
    connection = await asyncpg.connect(url)
    try:
        return bool(await connection.fetchval(BUSY))
    finally:
        await connection.close()


class Successor:
    """This process takes over. ``most``: how many it ran at the same time."""

    def __init__(self, url: str) -> None:
        self.app = App(url, settings=EngineSettings(reconcile_every=0.2))
        self.most = self.now = 0
        lock = threading.Lock()

        @self.app.task(concurrency=1)
        def slow(n: int) -> str:
            with lock:
                self.now += 1
                self.most = max(self.most, self.now)
            threading.Event().wait(0.05)
            with lock:
                self.now -= 1
            return "second"

    def results(self, executions: list[str]) -> list[str]:
        with self.app.running():
            found = [self.app.handle(execution).result(timeout=PATIENCE) for execution in executions]
            view = self.app.host.call(OperatorLimits(self.app.client.stack).get("task:slow"))
        assert (view.in_use, view.waiting) == (0, 0)
        return found


@LASTING
def test_a_killed_process_leaks_no_slot(store_url: str) -> None:
    process, executions = holder(store_url, 60.0, 60.0)
    end(process)

    successor = Successor(store_url)

    assert successor.results(executions) == ["second"] * 3
    assert successor.most == 1


@LASTING
def test_a_process_that_was_stopped_and_comes_back_takes_no_slot_twice(store_url: str) -> None:
    process, executions = holder(store_url, 1.0, 1.0)
    stop(process, store_url)
    threading.Event().wait(1.5)  # its lease has to run out, in real time
    try:
        successor = Successor(store_url)
        assert successor.results(executions) == ["second"] * 3
        assert successor.most == 1
    finally:
        process.send_signal(signal.SIGCONT)
        end(process)
