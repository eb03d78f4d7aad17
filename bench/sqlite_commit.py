"""What a commit of 500 chain transitions costs on SQLite, per transition.

A transition of a chain consumes its token, spawns the next one and keeps it, records one event of about 150 bytes and
moves its execution's counters. ``--busy`` lets a second thread burn the interpreter meanwhile, as an event loop under
load does; ``--cpu`` counts CPU time instead of waiting; ``--profile`` shows where time goes in the writer's thread.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import shutil
import tempfile
import threading
import time
from pathlib import Path

from dalsegno.adapters.sqlite import SqliteLedger, SqliteStore
from dalsegno.model.effect import CreateExecution, EndIfLast, FinishExecution, SpawnToken
from dalsegno.model.event import NewEvent
from dalsegno.model.execution import NewExecution
from dalsegno.model.ids import derive, new_execution_id
from dalsegno.model.token import NewToken
from dalsegno.model.transition import Applied, Transition

WORKER = "bench-worker"
EVENT = (
    b'{"queued": 1700000000.123, "started": 1700000000.124, "ended": 1700000000.125, "output": '
    + b"x" * 60
    + b"}"
)


CPU_ONLY = False


class SystemClock:
    def now(self) -> float:
        return time.time()


def start(execution: str, token: str, now: float) -> Transition:
    new = NewExecution(execution, "chain", 1, "d" * 64, b'{"n": 1}', now)
    spawn = SpawnToken(NewToken(token, "", "node", "n0", b'{"c": 1}'))
    began = NewEvent("ExecutionStarted", "", "", now, b"{}")
    return Transition(execution, (CreateExecution(new), spawn), (began,), keep=(token,), worker=WORKER)


def step(
    execution: str, token: str, number: int, last: bool, now: float, data: bytes
) -> tuple[Transition, str]:
    event = NewEvent("NodeCompleted", f"n{number}", "", now, EVENT, token)
    if last:
        finish = FinishExecution("COMPLETED", NewEvent("ExecutionCompleted", "", "", now), b'"done"', data)
        finisher = NewToken(derive(token, "finish"), "", "finish", "", b"")
        ending = EndIfLast("", finisher, "0", data, finish)
        return Transition(execution, (ending,), (event,), token, 1, worker=WORKER), ""
    following = derive(token, f"n{number}-n{number + 1}")
    spawn = SpawnToken(NewToken(following, "", "node", f"n{number + 1}", data))
    return Transition(execution, (spawn,), (event,), token, 1, keep=(following,), worker=WORKER), following


async def run(folder: Path, chains: int, steps: int, data: bytes) -> tuple[float, float, float]:
    """Seconds per start, per middle step and per last step."""
    store = SqliteStore.open(folder / "bench.db", SystemClock())
    ledger = SqliteLedger(store)
    ledger.heartbeat(WORKER, 60)
    now = time.time()
    names = [new_execution_id(now) for _ in range(chains)]
    tokens = [derive(name, "start") for name in names]
    costs = []
    batch = [start(name, token, now) for name, token in zip(names, tokens, strict=True)]
    costs.append(await timed(ledger, batch))
    for number in range(steps):
        made = [
            step(name, token, number, number == steps - 1, now, data)
            for name, token in zip(names, tokens, strict=True)
        ]
        tokens = [following for _, following in made]
        costs.append(await timed(ledger, [transition for transition, _ in made]))
    store.close()
    return costs[0] / chains, sum(costs[1:-1]) / (steps - 1) / chains, costs[-1] / chains


async def timed(ledger: SqliteLedger, batch: list[Transition]) -> float:
    began, burnt = time.perf_counter(), time.process_time()
    outcomes = await ledger.commit(batch)
    taken = time.process_time() - burnt if CPU_ONLY else time.perf_counter() - began
    assert all(type(outcome) is Applied for outcome in outcomes), outcomes[0]
    return taken


def burn(stop: threading.Event) -> None:
    while not stop.is_set():
        sum(range(1000))


def measure(chains: int, steps: int, rounds: int, data: bytes) -> None:
    for _ in range(rounds):
        folder = Path(tempfile.mkdtemp())
        first, middle, last = asyncio.run(run(folder, chains, steps, data))
        print(f"start {first * 1e6:6.1f} µs   step {middle * 1e6:6.1f} µs   last step {last * 1e6:6.1f} µs")
        shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chains", type=int, default=500)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", type=int, default=100, help="bytes of a token's data")
    parser.add_argument("--busy", action="store_true")
    parser.add_argument(
        "--cpu", action="store_true", help="count CPU time, not waiting: for a machine with other load"
    )
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    global CPU_ONLY  # noqa: PLW0603 - a script's option
    CPU_ONLY = options.cpu
    stop = threading.Event()
    if options.busy:
        threading.Thread(target=burn, args=(stop,), daemon=True).start()
    if options.profile:
        profile_writer()
    measure(options.chains, options.steps, options.rounds, b"x" * options.data)
    stop.set()


def profile_writer() -> None:
    """Profiles the writer's thread only."""
    from dalsegno.adapters.sqlite.connections.threads import DatabaseThread  # noqa: PLC0415 - only for this option

    work = DatabaseThread._work  # noqa: SLF001 - a profiler looks inside

    def profiled(self: DatabaseThread) -> None:
        profile = cProfile.Profile()
        profile.runcall(work, self)
        if "writer" in threading.current_thread().name:
            pstats.Stats(profile).sort_stats("tottime").print_stats(18)

    DatabaseThread._work = profiled  # type: ignore[method-assign]  # noqa: SLF001 - the same


if __name__ == "__main__":
    main()
