"""The limit to approach: chains without an engine.

One asyncio loop runs 500 chains of 10 steps and group-commits to SQLite what the engine writes for them: the token is
consumed, its successor inserted, one event recorded. No leases, no joins, no retries, no recovery. Run it in the same
minute as ``dalsegno bench chain`` and compare.

    python bench/bare_chain.py [chains] [steps]
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path

SCHEMA = """
CREATE TABLE token (id TEXT PRIMARY KEY, execution TEXT, node INTEGER, context BLOB) WITHOUT ROWID;
CREATE TABLE event (execution TEXT, seq INTEGER, node INTEGER, at REAL, data BLOB, PRIMARY KEY (execution, seq))
    WITHOUT ROWID;
"""


class BareStore:
    """A writer thread that commits whatever gathered while the previous commit was under way."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("PRAGMA synchronous = FULL")
        self.connection.executescript(SCHEMA)
        self.thread = ThreadPoolExecutor(1)
        self.waiting: list[tuple[tuple, asyncio.Future[None]]] = []
        self.flying = False

    async def commit(self, row: tuple) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append((row, done))
        if not self.flying:
            self.flying = True
            asyncio.get_running_loop().create_task(self._fly())
        await done

    async def _fly(self) -> None:
        loop = asyncio.get_running_loop()
        while self.waiting:
            batch, self.waiting = self.waiting, []
            await loop.run_in_executor(self.thread, self._write, [row for row, _ in batch])
            for _, done in batch:
                done.set_result(None)
        self.flying = False

    def _write(self, rows: list[tuple]) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany("DELETE FROM token WHERE id = ?", [(row[0],) for row in rows])
        following = [row[1] for row in rows if row[1] is not None]
        self.connection.executemany("INSERT INTO token VALUES (?, ?, ?, ?)", following)
        self.connection.executemany("INSERT INTO event VALUES (?, ?, ?, ?, ?)", [row[2] for row in rows])
        self.connection.execute("COMMIT")


async def chain(store: BareStore, name: str, steps: int) -> None:
    token, context = name, {}
    for step in range(steps):
        output = {"i": 1234}
        context = {**context, f"$s{step}": output}
        following = blake2b(f"{token}/{step}".encode(), digest_size=16).hexdigest()
        spawned = (following, name, step + 1, json.dumps(context).encode()) if step + 1 < steps else None
        event = (name, step + 1, step, time.time(), json.dumps(output).encode())
        await store.commit((token, spawned, event))
        token = following


async def main(chains: int, steps: int) -> None:
    with tempfile.TemporaryDirectory(dir=".") as folder:
        store = BareStore(Path(folder) / "bare.db")
        began = time.perf_counter()
        await asyncio.gather(*(chain(store, f"e{number}", steps) for number in range(chains)))
        rate = chains * steps / (time.perf_counter() - began)
        print(f"{rate:,.0f} steps/s")


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:3]]
    asyncio.run(main(*(given + [500, 10][len(given) :])))
