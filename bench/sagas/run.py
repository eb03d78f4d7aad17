"""Sagas that are cancelled, terminated, paused and killed at random moments, beside a provider that cannot refund for a
while: every charge ends with a shipped order, or is refunded exactly once, and every history is exact.

    python -m bench.sagas.run --store sqlite --sagas 1000 --down 120
    python -m bench.sagas.run --store postgres --sagas 1000 --down 120 --seed 7

``make soak-sagas`` runs both. Workers are processes that are killed with SIGKILL and started again. What the executions
leave as dead letters is retried at the end, as an operator would. Ends with code 1 if a charge is lost or a
history is not exact.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from bench.postgres.server import private_postgres
from bench.sagas.provider import Provider
from dalsegno import App
from dalsegno.cli.modules import load_app
from dalsegno.engine.operations.dead_letters import DeadLetter, DeadLetters
from dalsegno.errors import DalSegnoError, UsageError
from dalsegno.model.execution import ENDED
from dalsegno.ports.archive import ExecutionFilter
from dalsegno.testing.stored_histories import stored_problems
from tests.servers.process import die_with_parent

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "bench" / "sagas" / "orders.py"
AT_ONCE = 60
"""Sagas under way."""
NO_REFUNDS = 30.0
"""Seconds after which nobody seems to ask for a refund."""
AGAIN = 0.3
"""Of the executions that go on with a clean-up: so many are terminated."""
PATIENCE = 600.0
"""Seconds until everything must have ended."""


class Workers:
    """Two processes, one of which is killed now and then."""

    def __init__(self, url: str, folder: Path, chance: random.Random, **environment: str) -> None:
        self._url, self._folder, self._chance = url, folder, chance
        self._environment = {**os.environ, "DALSEGNO_EGRESS_ALLOW": "127.0.0.1", **environment}
        self._processes: dict[Path, subprocess.Popen[bytes]] = {}
        self.kills = 0

    def _start(self) -> None:
        command = [sys.executable, "-m", "dalsegno", "worker", "--store", self._url, "--app", str(PROGRAM)]
        log = self._folder / f"worker-{self.kills}-{len(self._processes)}.log"
        with log.open("wb") as written:
            self._processes[log] = subprocess.Popen(
                command,
                env=self._environment,
                stdout=written,
                stderr=written,
                cwd=ROOT,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - as bench.hostile does
            )

    async def start(self) -> None:
        """Both, and waits until they work."""
        self._start()
        self._start()
        for log in self._processes:
            await self._serves(log)

    async def _serves(self, log: Path) -> None:
        await _until(lambda: " serves " in log.read_text())

    async def run(self, kill_every: float, most: int | None) -> None:
        """A worker is killed after it has begun to work: a slow machine is not to be killed idle."""
        while most is None or self.kills < most:
            log = self._chance.choice(list(self._processes))
            await self._serves(log)
            await asyncio.sleep(kill_every * self._chance.uniform(0.5, 1.5))
            process = self._processes.pop(log)
            process.kill()
            await asyncio.to_thread(process.wait)
            self.kills += 1
            self._start()

    def stop(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()


class Sagas:
    def __init__(self, app: App, chance: random.Random, look_every: float = 2.0) -> None:
        """``look_every``: seconds between two looks for dead letters in the end."""
        self.app = app
        self.client = app.engine.client
        self.chance = chance
        self.executions: dict[str, str] = {}
        """By order."""
        self.asked: Counter[str] = Counter()
        self.letters = 0
        self.look_every = look_every

    async def buy(self, number: int) -> None:
        order, workflow = f"o{number}", self.chance.choice(("buy", "buy", "buy_soon"))
        patience = self.chance.choice((0.0, 0.5, 2.0, 6.0))
        execution = await self.client.start(workflow, {"order": order, "patience": patience})
        self.executions[order] = execution
        for act in self._acts():
            await asyncio.sleep(self.chance.choice((0.0, 0.05, 0.5, 1.0, 3.0)) * self.chance.random())
            await self._do(act, execution)

    def _acts(self) -> list[str]:
        acts = (
            "",
            "cancel",
            "cancel cancel",
            "terminate",
            "pause resume",
            "pause cancel",
            "cancel pause resume",
        )
        more = ("pause terminate", "cancel terminate", "pause cancel resume cancel")
        return self.chance.choice((*acts, *more)).split()

    async def _do(self, act: str, execution: str) -> None:
        calls: dict[str, Callable[[str], Awaitable[None]]] = {
            "cancel": self.client.cancel,
            "terminate": self.client.terminate,
            "pause": self.client.pause,
            "resume": self.client.resume,
        }
        try:
            await calls[act](execution)
            self.asked[act] += 1
        except UsageError:
            self.asked[f"{act}, too late"] += 1

    async def settle(self) -> None:
        """Resumes what is paused, waits for what runs, and retries what is dead, until nothing is left."""
        dead, until = DeadLetters(self.app.engine), time.monotonic() + PATIENCE
        left: list[Any] = []
        while time.monotonic() < until:
            letters = [letter for letter in await dead.all(1000) if not await self._drop_lost(dead, letter)]
            for letter in letters:
                await self._take_up(dead, letter.id)
            self.letters += len(letters)
            left = [view for state in ("PENDING", "RUNNING", "PAUSED") for view in await self._in(state)]
            for view in left:
                if view.state == "PAUSED":
                    await self._do("resume", view.id)
            if not left and not letters:
                return
            print(f"{len(left)} have not ended, {len(letters)} dead letters retried", flush=True)
            await asyncio.sleep(self.look_every)
        raise SystemExit(
            f"{len(left)} executions have not ended after {PATIENCE:.0f} s, such as {left[0].id}"
        )

    async def _drop_lost(self, dead: DeadLetters, letter: DeadLetter) -> bool:
        """Drop an execution whose workers were killed again and again before its first turn: it did nothing."""
        if letter.kind == "execution" and letter.code == "WORKER_LOST":
            await dead.drop(letter.id)
            return True
        return False

    async def _take_up(self, dead: DeadLetters, letter: str) -> None:
        """Some executions that go on with a clean-up are terminated, too, before a worker has them or after."""
        execution = await dead.retry(letter)
        if self.chance.random() < AGAIN:
            await asyncio.sleep(self.chance.choice((0.0, 0.0, 0.02, 0.2)))
            await self._do("terminate", execution)

    async def _in(self, state: str) -> list[Any]:
        return await self.client.executions(ExecutionFilter(states=(state,)), limit=200)  # type: ignore[arg-type]

    async def wrong(self, provider: Provider) -> Iterator[str]:
        states = await self.app.engine.stack.archive.states(list(self.executions.values()))
        return _wrong(self.executions, states, provider)


def _wrong(executions: dict[str, str], states: Any, provider: Provider) -> Iterator[str]:
    for order, execution in executions.items():
        charges, refunds = len(provider.done["charge"][order]), len(provider.done["refund"][order])
        state = states[execution]
        wanted = charges if state != "COMPLETED" else 0
        if charges > 1 or refunds != wanted or state not in ENDED:
            yield f"order {order} ({execution}, {state}): charged {charges} times, refunded {refunds} times"


async def soak(
    url: str,
    folder: Path,
    sagas: int,
    down: float,
    seed: int,
    kill_every: float = 5.0,
    look_every: float = 2.0,
    kills: int | None = None,
    lease: float = 60.0,
) -> dict[str, Any]:
    chance, provider = random.Random(seed), Provider(down)
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        stack.callback(provider.close)
        workers = Workers(url, folder, chance, PROVIDER=provider.url, LEASE=str(lease))
        stack.callback(workers.stop)
        app = await stack.enter_async_context(_deployed(url))
        await workers.start()
        killing = asyncio.ensure_future(workers.run(kill_every, kills))
        stack.callback(killing.cancel)
        work, room = Sagas(app, chance, look_every), asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> None:
            async with room:
                await work.buy(number)
            if number % 100 == 99:
                print(
                    f"{number + 1} sagas, {workers.kills} kills, {provider.refused} refunds refused",
                    flush=True,
                )

        await asyncio.gather(*(one(number) for number in range(sagas)))
        latest = time.monotonic() + down + NO_REFUNDS
        await _until(
            lambda: workers.kills >= (kills or 0) and (provider.has_recovered() or time.monotonic() > latest)
        )
        killing.cancel()
        await work.settle()
        wrong = [*await work.wrong(provider), *await stored_problems(work.client)]
        states = await app.engine.stack.archive.states(list(work.executions.values()))
    return {
        "sagas": sagas,
        "seconds": round(time.monotonic() - began),
        "kills": workers.kills,
        "asked": dict(work.asked),
        "states": dict(Counter(states.values())),
        "charged": sum(map(len, provider.done["charge"].values())),
        "refunded": sum(map(len, provider.done["refund"].values())),
        "refunds_refused": provider.refused,
        "dead_letters_retried": work.letters,
        "wrong": wrong,
    }


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - neither processes nor the provider's threads tell this loop
        await asyncio.sleep(0.1)


@asynccontextmanager
async def _deployed(url: str) -> AsyncIterator[App]:
    """The program's application on this store, which only starts and asks: its work is done by the workers."""
    app = load_app(str(PROGRAM))
    app.url = url
    async with app.running(worker=False, scheduler=True):
        yield app


@contextmanager
def store(kind: str) -> Iterator[str]:
    with ExitStack() as stack:
        if kind == "postgres":
            yield stack.enter_context(private_postgres(4)).url
        else:
            yield f"sqlite:///{stack.enter_context(tempfile.TemporaryDirectory())}/sagas.db"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--sagas", type=int, default=1000)
    parser.add_argument(
        "--down", type=float, default=120.0, help="seconds without refunds, from the first on"
    )
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    folder = ROOT / "build" / f"sagas-{given.store}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with store(given.store) as url:
        try:
            found = asyncio.run(soak(url, folder, given.sagas, given.down, given.seed))
        except DalSegnoError as error:
            raise SystemExit(f"the soak itself failed: {error}") from error
    print(json.dumps(found, indent=2))
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
