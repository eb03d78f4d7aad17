"""What a commit of 500 chain transitions costs on PostgreSQL, per transition.

A transition of a chain consumes its token, spawns the next one and keeps it, records one event of about 150 bytes and
moves its execution's counters; the last one finishes. ``--items`` ends 500 items of one split per commit instead.

    python bench/server_commit.py postgresql://user@host/database
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from typing import Any

from dalsegno.adapters.postgres import PostgresLedger, PostgresStore
from dalsegno.model.barrier import BarrierSpec
from dalsegno.model.effect import (
    CreateExecution,
    Effect,
    EndIfLast,
    FinishExecution,
    OpenBarrier,
    OpenScope,
    SpawnToken,
)
from dalsegno.model.event import NewEvent
from dalsegno.model.execution import NewExecution
from dalsegno.model.ids import derive, new_execution_id
from dalsegno.model.token import NewToken
from dalsegno.model.transition import Applied, Transition

WORKER = "bench-worker"
WIDTH = 500
EVENT = (
    b'{"queued": 1700000000.123, "started": 1700000000.124, "ended": 1700000000.125, "output": '
    + b"x" * 60
    + b"}"
)
DATA = b'{"context": "' + b"c" * 200 + b'"}'


def start(execution: str, *effects: Effect, keep: tuple[str, ...]) -> Transition:
    now = time.time()
    new = NewExecution(execution, "chain", 1, "d" * 64, b'{"n": 1}', now)
    started = NewEvent("ExecutionStarted", "", "", now, b"{}")
    return Transition(execution, (CreateExecution(new), *effects), (started,), keep=keep, worker=WORKER)


def step(execution: str, token: str, number: int, last: bool) -> tuple[Transition, str]:
    event = NewEvent("NodeCompleted", f"n{number}", "", time.time(), EVENT, token)
    if last:
        finish = FinishExecution(
            "COMPLETED", NewEvent("ExecutionCompleted", "", "", time.time()), b'"done"', DATA
        )
        ending = EndIfLast("", NewToken(derive(token, "finish"), "", "finish", "", b""), "0", DATA, finish)
        return Transition(execution, (ending,), (event,), token, 1, worker=WORKER), ""
    following = derive(token, f"n{number}-n{number + 1}")
    spawn = SpawnToken(NewToken(following, "", "node", f"n{number + 1}", DATA))
    return Transition(execution, (spawn,), (event,), token, 1, keep=(following,), worker=WORKER), following


async def timed(ledger: Any, batch: list[Transition]) -> float:
    began = time.perf_counter()
    outcomes = await ledger.commit(batch)
    spent = time.perf_counter() - began
    assert all(isinstance(outcome, Applied) for outcome in outcomes), outcomes[:3]
    return spent / len(batch) * 1e6


async def chains(ledger: Any, steps: int) -> dict[str, list[float]]:
    """Microseconds per transition, by kind of transition."""
    tokens = {new_execution_id(time.time()): "t0" for _ in range(WIDTH)}
    starts = [
        start(name, SpawnToken(NewToken("t0", "", "node", "n0", DATA)), keep=("t0",)) for name in tokens
    ]
    costs: dict[str, list[float]] = {"start": [await timed(ledger, starts)], "step": [], "last": []}
    for number in range(steps):
        last = number == steps - 1
        pairs = [step(name, token, number, last) for name, token in tokens.items()]
        costs["last" if last else "step"].append(await timed(ledger, [pair[0] for pair in pairs]))
        tokens = dict(zip(tokens, (pair[1] for pair in pairs), strict=True))
    return costs


async def items(ledger: Any, count: int) -> dict[str, list[float]]:
    """The items of one split end, ``WIDTH`` in one commit."""
    execution = new_execution_id(time.time())
    collect = BarrierSpec(
        "b", "", "collect", count, NewToken("j", "", "join", "collect", b""), live_at_once=True
    )
    await timed(ledger, [start(execution, OpenBarrier(collect), keep=())])
    costs: dict[str, list[float]] = {"open item": [], "end item": []}
    for first in range(0, count, WIDTH):
        numbers = range(first, first + WIDTH)
        for chunk in range(first, first + WIDTH, 100):
            opened: list[Effect] = []
            for index in range(chunk, chunk + 100):
                opened += [
                    OpenScope(f"/s:{index}", "b", index),
                    SpawnToken(NewToken(f"i{index}", f"/s:{index}", "node", "n", DATA)),
                ]
            keep = tuple(f"i{index}" for index in range(chunk, chunk + 100))
            cost = await timed(ledger, [Transition(execution, tuple(opened), keep=keep, worker=WORKER)])
            costs["open item"].append(cost / 100)
        ends = []
        for index in numbers:
            token, scope = f"i{index}", f"/s:{index}"
            finisher = NewToken(f"f{index}", scope, "finish", "", b"")
            event = NewEvent("NodeCompleted", "n", scope, time.time(), EVENT, token)
            ending = EndIfLast(scope, finisher, slot_data=b'{"x": 1}')
            ends.append(Transition(execution, (ending,), (event,), token, 1, scope, worker=WORKER))
        costs["end item"].append(await timed(ledger, ends))
    return costs


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--items", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    ledger = PostgresLedger(await PostgresStore.open(options.url))
    for _ in range(options.rounds):
        costs = await (items(ledger, 4 * WIDTH) if options.items else chains(ledger, 10))
        print("  ".join(f"{kind} {statistics.median(spent):6.1f} µs" for kind, spent in costs.items()))
    await ledger.close()


if __name__ == "__main__":
    asyncio.run(main())
