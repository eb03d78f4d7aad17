"""Timers on SQLite: does it matter how many are asleep?

Measures, with none and with a million parked tokens (each in an execution of its own): parking in batches of 500,
waking 2,000 that come due in the same second, claiming them, and the first page of a listing.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from dalsegno.adapters.sqlite import SqliteArchive, SqliteLedger, SqliteStore
from dalsegno.model.effect import CreateExecution, SpawnToken
from dalsegno.model.event import NewEvent
from dalsegno.model.execution import NewExecution
from dalsegno.model.ids import derive, new_execution_id
from dalsegno.model.token import NewToken
from dalsegno.model.transition import Transition
from dalsegno.ports.archive import ExecutionFilter

FILL = """
WITH RECURSIVE counter(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counter WHERE n < :count)
"""
EXECUTIONS = """
INSERT INTO execution (number, id, workflow, version, definition, state, created_at, priority, tags, input)
SELECT n, printf('%012x%020x', n, n), 'w' || (n % 10), 1, 'd', CASE n % 1000 WHEN 0 THEN 'FAILED' ELSE 'RUNNING' END,
       n, 0, '[]', '{}' FROM counter
"""
FLIGHTS = """
INSERT INTO flight (number, id, state, definition, epoch, seq, live, priority, touched_at)
SELECT n, printf('%012x%020x', n, n), 'RUNNING', 'd', 0, 1, 1, 0, n FROM counter
"""
TOKENS = """
INSERT INTO token (number, execution, id, state, scope, kind, node, queue, priority, live, ready_at, due, data)
SELECT n, n, printf('%032x', n), 'parked', '', 'node', 'wait', 'default', 0, 1, 0, :now + 86400 + (n * 7919) % 1000000,
       zeroblob(100) FROM counter
"""


class SystemClock:
    def now(self) -> float:
        return time.time()


def fill(path: Path, count: int) -> None:
    connection = sqlite3.connect(path)
    for statement in (EXECUTIONS, FLIGHTS, TOKENS):
        text = statement.replace("INSERT", FILL + "INSERT", 1)
        connection.execute(text, {"count": count, "now": time.time()})
    connection.commit()
    connection.close()


def parked(due: float) -> Transition:
    now = time.time()
    name = new_execution_id(now)
    token = NewToken(derive(name), "", "node", "wait", b"x" * 100, due=due)
    new = NewExecution(name, "timers", 1, "d" * 64, b"{}", now)
    began = NewEvent("ExecutionStarted", "", "", now, b"{}")
    return Transition(name, (CreateExecution(new), SpawnToken(token)), (began,))


async def timed(label: str, count: int, call: Awaitable[Any]) -> Any:
    began = time.perf_counter()
    result = await call
    taken = time.perf_counter() - began
    print(f"  {label:28} {taken * 1000:8.1f} ms   {taken / count * 1e6:7.1f} µs each")
    return result


async def measure(path: Path) -> None:
    store = SqliteStore.open(path, SystemClock())
    ledger, archive = SqliteLedger(store), SqliteArchive(store)
    for _ in range(3):
        await timed("park 500", 500, ledger.commit([parked(time.time() + 9e5) for _ in range(500)]))
    await ledger.commit([parked(time.time() - 1) for _ in range(2000)])
    await timed("wake 2,000", 2000, ledger.wake(2000))
    await timed("claim 500 of 2,000", 500, ledger.claim("w", ["default"], 500))
    await timed("wake with nothing due", 1, ledger.wake())
    await timed("claim with nothing ready", 1, ledger.claim("w", ["nothing"], 500))
    await timed("first page", 1, archive.executions(ExecutionFilter()))
    await timed("first page of a workflow", 1, archive.executions(ExecutionFilter(workflow="w3")))
    await timed("first page of a state", 1, archive.executions(ExecutionFilter(states=("FAILED",))))
    await timed("500 untouched", 1, ledger.untouched(time.time(), "", 500))
    await timed("lost worker (full scan)", 1, ledger.expire(dead=["w"]))
    store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parked", type=int, default=1_000_000)
    options = parser.parse_args()
    for count in (0, options.parked):
        folder = Path(tempfile.mkdtemp())
        path = folder / "timers.db"
        SqliteStore.open(path, SystemClock()).close()
        fill(path, count) if count else None
        print(f"{count:,} parked, {path.stat().st_size >> 20} MiB")
        asyncio.run(measure(path))
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
