"""The limit to approach on PostgreSQL: chains without an engine.

One asyncio loop runs chains and group-commits what the engine writes for them: the token is consumed, its successor
inserted, one event recorded, the ending noted. One statement per batch, two connections that take turns. No leases, no
joins, no retries, no recovery. ``python -m bench.postgres.run bare chain`` measures both in the same minute.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import time
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import asyncpg

SCHEMA = """
CREATE TABLE bare_token (id text PRIMARY KEY, execution text, node int, context bytea);
CREATE TABLE bare_event (execution text, seq int, at float8, data bytea, PRIMARY KEY (execution, seq));
CREATE TABLE bare_ending (execution text PRIMARY KEY, output bytea);
"""
WRITE = """
WITH consumed AS (DELETE FROM bare_token WHERE id = ANY ($1::text[])),
spawned AS (
    INSERT INTO bare_token SELECT * FROM unnest($2::text[], $3::text[], $4::int[], $5::bytea[])
),
ended AS (INSERT INTO bare_ending SELECT * FROM unnest($6::text[], $7::bytea[]))
INSERT INTO bare_event SELECT * FROM unnest($8::text[], $9::int[], $10::float8[], $11::bytea[])
"""
CONNECTIONS = 2
LARGEST_BATCH = 250

Token = tuple[str, str, int, bytes]
Event = tuple[str, int, float, bytes]
Ending = tuple[str, bytes]


class Step(NamedTuple):
    consumed: str
    spawned: Token | None
    event: Event
    ending: Ending | None


class BareStore:
    """Commits whatever gathered while the connections were at work."""

    def __init__(self, connections: Sequence[asyncpg.Connection]) -> None:
        self.idle = list(connections)
        self.waiting: list[tuple[Step, asyncio.Future[None]]] = []
        self.flights: set[asyncio.Task[None]] = set()

    async def commit(self, step: Step) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append((step, done))
        if self.idle:
            flight = asyncio.get_running_loop().create_task(self._fly(self.idle.pop()))
            self.flights.add(flight)
            flight.add_done_callback(self.flights.discard)
        await done

    async def _fly(self, connection: asyncpg.Connection) -> None:
        while self.waiting:
            batch, self.waiting = self.waiting[:LARGEST_BATCH], self.waiting[LARGEST_BATCH:]
            await connection.execute(WRITE, *columns([step for step, _ in batch]))
            for _, done in batch:
                done.set_result(None)
        self.idle.append(connection)


def columns(steps: Sequence[Step]) -> list[list[object]]:
    """As the statement takes them."""
    spawned = [step.spawned for step in steps if step.spawned is not None]
    endings = [step.ending for step in steps if step.ending is not None]
    return [
        [step.consumed for step in steps],
        *([row[at] for row in spawned] for at in range(4)),
        *([row[at] for row in endings] for at in range(2)),
        *([step.event[at] for step in steps] for at in range(4)),
    ]


async def chain(store: BareStore, name: str, steps: int) -> None:
    token, context = name, {}
    for number in range(steps):
        output = {"i": 1234}
        context = {**context, f"$s{number}": output}
        written = json.dumps(context).encode()
        following = blake2b(f"{token}/{number}".encode(), digest_size=16).hexdigest()
        is_last = number + 1 == steps
        step = Step(
            token,
            None if is_last else (following, name, number + 1, written),
            (name, number + 1, time.time(), json.dumps(output).encode()),
            (name, written) if is_last else None,
        )
        await store.commit(step)
        token = following


async def measure(url: str, chains: int, steps: int, schema: str = "") -> float:
    """Steps per second. ``schema``: one that is made for this, also if an earlier run has left it; else the default."""
    settings = {"search_path": schema} if schema else {}
    connections = [await asyncpg.connect(url, server_settings=settings) for _ in range(CONNECTIONS)]
    try:
        if schema:
            await connections[0].execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}")
        await connections[0].execute(SCHEMA)
        store = BareStore(connections)
        began = time.perf_counter()
        await asyncio.gather(*(chain(store, f"e{number}", steps) for number in range(chains)))
        return chains * steps / (time.perf_counter() - began)
    finally:
        for connection in connections:
            await connection.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.postgres.bare", description=__doc__)
    parser.add_argument("--store", required=True, help="URL of an empty database.")
    parser.add_argument("--executions", type=int, default=500)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    rate = asyncio.run(measure(chosen.store, chosen.executions, chosen.steps))
    used = resource.getrusage(resource.RUSAGE_SELF)
    told = {
        "steps_per_s": rate,
        "p50_ms": None,
        "p99_ms": None,
        "cpu_s": used.ru_utime + used.ru_stime,
        "rss_mb": used.ru_maxrss / 1024,
    }
    print(json.dumps(told) if chosen.json else f"{rate:,.0f} steps/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
