"""What limits cost: claims with 1, 100 and 10,000 keys, and past 100,000 tokens that cannot start.

    python bench/limits.py [--blocked 100000]

Each line is one situation in a fresh SQLite file: the processor time of a claim that has room for a hundred tokens, and
of a round of claiming them and committing their steps. The first line, tokens without keys, is what others compare to.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from dalsegno.adapters.sqlite import SqliteLedger, SqliteStore
from dalsegno.model.effect import CreateExecution, SpawnToken
from dalsegno.model.execution import NewExecution
from dalsegno.model.limits import Allowance, Rate
from dalsegno.model.token import Lease, NewToken
from dalsegno.model.transition import Transition
from dalsegno.wiring import SystemClock

ROOM = 100
ROUNDS = 30
ONE = Allowance(concurrency=1)
KeyOf = Callable[[int], str | None]


@dataclass
class Situation:
    name: str
    key_of: KeyOf
    allows: Allowance | None = None
    blocked: int = 0
    """Tokens of keys whose only slot is taken, in line before all others."""
    blocked_keys: int = 1


def start(number: int, key: str | None, allows: Allowance | None, priority: int = 0) -> Transition:
    """An execution with one token."""
    now = time.time()
    new = NewExecution(f"run-{number}", "bench", 1, "hash", b"{}", now)
    token = NewToken(f"t{number}", "", "node", "a", b"{}", "default", priority, key, allowance=allows)
    return Transition(new.id, (CreateExecution(new), SpawnToken(token)))


def step(lease: Lease) -> Transition:
    return Transition(lease.execution, (), (), lease.token, lease.fence, "", True)


async def fill(ledger: SqliteLedger, starts: Iterator[Transition]) -> None:
    batch: list[Transition] = []
    for each in starts:
        batch.append(each)
        if len(batch) == 500:
            await ledger.commit(batch)
            batch = []
    if batch:
        await ledger.commit(batch)


async def block(ledger: SqliteLedger, situation: Situation) -> None:
    """Every one of these keys has its slot taken and the rest of its tokens in line, all more urgent than others."""
    keys = [f"full-{number}" for number in range(situation.blocked_keys)]
    many = situation.blocked + len(keys)
    named = (start(10_000_000 + n, keys[n % len(keys)], ONE, priority=5) for n in range(many))
    await fill(ledger, named)
    while await ledger.claim("holder", ("default",), 1000):
        pass


async def measure(situation: Situation) -> tuple[float, float]:
    """Milliseconds of processor time of a claim, and of a whole round."""
    with tempfile.TemporaryDirectory(prefix="dalsegno-bench-", dir=".") as folder:
        store = SqliteStore.open(Path(folder) / "bench.db", SystemClock())
        ledger = SqliteLedger(store)
        if situation.blocked:
            await block(ledger, situation)
        count = ROOM * (ROUNDS + 2)
        await fill(ledger, (start(n, situation.key_of(n), situation.allows) for n in range(count)))
        claims, rounds = [], []
        for _ in range(ROUNDS):
            began = time.process_time()
            leases = await ledger.claim("w1", ("default",), ROOM)
            claims.append(time.process_time() - began)
            assert len(leases) >= min(
                ROOM, situation.allows.concurrency or ROOM if situation.allows else ROOM
            )
            await ledger.commit([step(lease) for lease in leases])
            rounds.append(time.process_time() - began)
        store.close()
    return median(claims) * 1000, median(rounds) * 1000


def situations(blocked: int) -> list[Situation]:
    plenty, paced = Allowance(concurrency=1000), Allowance(rate=Rate(100_000, 60.0))
    return [
        Situation("no keys", lambda n: None),
        Situation("1 key, concurrency 1,000", lambda n: "k", plenty),
        Situation("100 keys", lambda n: f"k{n % 100}", plenty),
        Situation("10,000 keys", lambda n: f"k{n % 10_000}", plenty),
        Situation("100 keys with a rate", lambda n: f"k{n % 100}", paced),
        Situation(f"no keys, past {blocked:,} blocked tokens of 1 key", lambda n: None, None, blocked),
        Situation(f"no keys, past {blocked:,} of 10,000 keys", lambda n: None, None, blocked, 10_000),
        Situation(
            f"100 keys, past {blocked:,} of 10,000 keys", lambda n: f"k{n % 100}", plenty, blocked, 10_000
        ),
    ]


async def main() -> None:
    parser = argparse.ArgumentParser(description="What limits by key cost.")
    parser.add_argument("--blocked", type=int, default=100_000)
    for situation in situations(parser.parse_args().blocked):
        claim, whole = await measure(situation)
        print(f"{situation.name:<55} claim {claim:7.2f} ms   round {whole:7.2f} ms", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
