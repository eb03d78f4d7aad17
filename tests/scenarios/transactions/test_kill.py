"""``kill -9`` between work and step: nothing is there twice."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import Any

from dalsegno import App
from tests.scenarios.transactions.own_table import fetch
from tests.servers.forking import Forked

PROGRAM = """
import asyncio, sys
from dalsegno import App, TaskContext
from dalsegno.model.failure import RetryPolicy

url = sys.argv[1]
app = App(url)
INSERT = "INSERT INTO paid (name) VALUES ('{}')"

if url.startswith("postgres"):
    @app.task(retries=RetryPolicy(max_attempts=100, initial_delay=0))
    async def pay(ctx, name: str) -> str:
        async with ctx.transaction() as connection:
            await connection.execute(INSERT.format(name))
        return name
else:
    @app.task(retries=RetryPolicy(max_attempts=100, initial_delay=0))
    def pay(ctx, name: str) -> str:
        ctx.transaction(lambda connection: connection.execute(INSERT.format(name)))
        return name

@app.workflow
async def paying(number: int) -> int:
    for turn in range(5):
        await pay(f"{number}-{turn}")
    return number

async def main():
    async with app.running():
        handles = [await app.with_options(idempotency_key=str(n)).astart(paying, n) for n in range(int(sys.argv[2]))]
        print("started", flush=True)
        for handle in handles:
            await handle.aresult(120)
        print("done", flush=True)

asyncio.run(main())
"""


def test_kill_minus_nine_pays_once(store_url: str, tmp_path: Path) -> None:
    """The table has no key: whatever happened twice would be there twice."""
    program = tmp_path / "paying.py"
    program.write_text(PROGRAM)
    till_url, executions, kills = store_url, 20, 6
    _prepare(till_url)
    chance = random.Random(7)
    for _ in range(kills):
        process = _run(program, till_url, executions)
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "started"
        time.sleep(chance.uniform(0.0, 0.4))
        process.kill()
        process.communicate()
    process = _run(program, till_url, executions)
    out, _ = process.communicate(timeout=240)
    assert out.split() == ["started", "done"]

    rows = _ask(till_url, "SELECT name FROM paid ORDER BY name")
    assert sorted(name for (name,) in rows) == sorted(
        f"{n}-{turn}" for n in range(executions) for turn in range(5)
    )


def _run(program: Path, url: str, executions: int) -> subprocess.Popen[str]:
    return Forked(str(program), [url, str(executions)], stdout=subprocess.PIPE)


def _prepare(url: str) -> None:
    _ask(url, "DROP TABLE IF EXISTS paid")
    _ask(url, "CREATE TABLE paid (name TEXT)")


def _ask(url: str, statement: str) -> list[tuple[Any, ...]]:
    if url.startswith("postgres"):
        return asyncio.run(fetch(url, statement))
    app = App(url)
    with app.running():
        pass  # the file is a store before it holds a table of the user's
    with sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30) as connection:
        return connection.execute(statement).fetchall()
