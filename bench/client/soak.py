"""A soak of one client: thousands of calls at once beside a server that is suspended, killed and started again.

    python -m bench.client.soak --seconds 600 --callers 5000
    python -m bench.client.soak --store postgres

``make soak-client`` runs both. Every caller starts an execution, waits for its result, and does so again. One more
follows the events and waits for the result of an execution that ends with the soak. Meanwhile the server is suspended
and resumed, killed and started again, and suspended, killed and started again, in turn. One call that began during the
outage, and one that begins after it, must be answered within a second of the moment in which the server answers a plain
request on a connection of its own.
Ends with code 1 if one of the bounds below does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from urllib.request import urlopen

from bench.client.burst import resident, sockets
from bench.postgres.server import private_postgres
from dalsegno import Client, DalSegnoError, Handle
from tests.client.documents import GREET, WAITS
from tests.servers.dalsegno import DalsegnoServer
from tests.servers.workspace import Workspace

RESULT_WITHIN = 240.0
"""Seconds that a caller waits for a result, whatever outages there are."""
ANSWERED_WITHIN = 1.0
"""Seconds from the server's answer to a plain request until those to the two probes; the median of all outages."""
SLOWEST = 5.0
"""The same for each single outage: a server that was killed has work to take up again."""
GROWTH = 1.25
"""Memory at the end, compared with that after the first third."""
MOST_CONNECTIONS = 60
OUTAGE = 2.0
PAUSE = 16.0
"""Seconds between two outages. Streams live for two of these: longer than the client's patience."""
PATIENCE = 30.0


@dataclass
class Figures:
    """What a soak came to."""

    callers: int
    patience: float
    seconds: float = 0.0
    finished: int = 0
    started: int = 0
    """Keys that starts were sent with."""
    stored: int = 0
    """Executions that the server has."""
    errors: Counter[str] = field(default_factory=Counter)
    outages: Counter[str] = field(default_factory=Counter)
    early: list[float] = field(default_factory=list)
    """Seconds from the server's return to the answer of a call that began before it."""
    late: list[float] = field(default_factory=list)
    """The same of a call that began with it."""
    plain: list[float] = field(default_factory=list)
    """The same of a request without this client, on a connection of its own: what the server and the machine take."""
    away: list[float] = field(default_factory=list)
    """Seconds for which the server was suspended, or gone until it was ready again."""
    memory: list[float] = field(default_factory=list)
    connections: int = 0

    def complaints(self, within: float = ANSWERED_WITHIN, slowest: float = SLOWEST) -> list[str]:
        """Bounds that do not hold."""
        found = [f"{count} calls raised {name}" for name, count in self.errors.items()]
        if (longest := max(self.away, default=0.0)) > self.patience:
            found.append(
                f"the server was away for {longest} s, longer than the client's patience: start it on a"
                " machine that does less"
            )
        if self.stored != self.started:
            found.append(f"{self.started} starts became {self.stored} executions")
        if self.connections > MOST_CONNECTIONS:
            found.append(f"{self.connections} connections were open at once")
        for name, waits in (("before", self.early), ("after", self.late)):
            ordered = sorted(round(wait - plain, 2) for wait, plain in zip(waits, self.plain, strict=False))
            if ordered and (ordered[len(ordered) // 2] > within or ordered[-1] > slowest):
                found.append(
                    f"calls that began {name} the return of the server were answered {ordered} s after a plain"
                    " request"
                )
        third = len(self.memory) // 3
        if third and self.memory[-1] > GROWTH * max(self.memory[: third + 1]):
            found.append(f"memory grew: {self.memory} MB")
        return found


class Soak:
    def __init__(
        self,
        server: DalsegnoServer,
        callers: int,
        seconds: float,
        pause: float = PAUSE,
        patience: float = PATIENCE,
    ) -> None:
        self.server = server
        self.seconds = seconds
        self.pause = pause
        self.figures = Figures(callers, patience)
        self._is_over = False

    async def run(self) -> Figures:
        async with Client(self.server.url, patience=self.figures.patience) as client:
            await client.adeploy(GREET)
            await client.adeploy(WAITS)
            first = await client.astart("greet", name="first")
            self.figures.started += 1
            began = time.monotonic()
            callers = [
                asyncio.create_task(self._call(client, number)) for number in range(self.figures.callers)
            ]
            waiting = await client.astart("waits")
            callers += [
                asyncio.create_task(self._result_of(waiting)),
                asyncio.create_task(self._follow(client, waiting)),
            ]
            watch = asyncio.create_task(self._watch())
            try:
                await self._disturb(client, first.id)
                self._is_over = True
                await waiting.asignal("go", {"by": "Ann"})
                await asyncio.gather(*callers)
            finally:
                watch.cancel()
            self.figures.seconds = round(time.monotonic() - began, 1)
            self.figures.memory.append(round(resident(), 1))
            async for _ in client.aexecutions("greet", page=500):
                self.figures.stored += 1
        return self.figures

    async def _call(self, client: Client, number: int) -> None:
        turn = 0
        while not self._is_over:
            turn += 1
            self.figures.started += 1
            with self._counting_errors():
                chosen = client.with_options(idempotency_key=f"{number}-{turn}")
                handle = await chosen.astart("greet", name=f"{number}")
                if await handle.aresult(timeout=RESULT_WITHIN) != f"Hello, {number}!":
                    self.figures.errors["another result"] += 1
                self.figures.finished += 1

    async def _result_of(self, waiting: Handle) -> None:
        with self._counting_errors():
            if await waiting.aresult() != "Ann":
                self.figures.errors["another result"] += 1

    async def _follow(self, client: Client, waiting: Handle) -> None:
        with self._counting_errors():
            numbers = [event.seq async for event in client.astream(waiting)]
            if numbers != list(range(1, len(numbers) + 1)):
                self.figures.errors["events lost or repeated"] += 1

    @contextmanager
    def _counting_errors(self) -> Iterator[None]:
        try:
            yield
        except (DalSegnoError, TimeoutError) as error:
            self.figures.errors[f"{type(error).__name__}: {str(error)[:200]}"] += 1

    async def _disturb(self, client: Client, execution: str) -> None:
        until = time.monotonic() + self.seconds
        outages = [self._suspend, self._kill, self._suspend_and_kill]
        while time.monotonic() < until or len(self.figures.outages) < len(outages):
            await asyncio.sleep(self.pause)
            outage = outages[self.figures.outages.total() % len(outages)]
            early = asyncio.create_task(self._probe_during(client, execution))
            gone = time.monotonic()
            await outage()
            returned = time.monotonic()
            self.figures.away.append(round(returned - gone, 2))
            plain = asyncio.create_task(asyncio.to_thread(self._plain_answer, execution))
            with self._counting_errors():
                await client.handle(execution).astatus()
                self.figures.late.append(round(time.monotonic() - returned, 2))
            with self._counting_errors():
                self.figures.early.append(round(max(await early - returned, 0.0), 2))
            self.figures.plain.append(round(await plain - returned, 2))
            self.figures.outages[outage.__name__.strip("_")] += 1

    async def _probe_during(self, client: Client, execution: str) -> float:
        """When a call is answered that begins in the middle of an outage."""
        await asyncio.sleep(OUTAGE / 2)
        await client.handle(execution).astatus()
        return time.monotonic()

    def _plain_answer(self, execution: str) -> float:
        """When a request is answered that needs no client of ours."""
        with urlopen(f"{self.server.url}/v1/executions/{execution}", timeout=self.figures.patience) as reply:
            reply.read()
        return time.monotonic()

    async def _suspend(self) -> None:
        self.server.suspend()
        await asyncio.sleep(OUTAGE)
        self.server.resume()

    async def _kill(self) -> None:
        await asyncio.to_thread(self.server.kill)
        await asyncio.sleep(OUTAGE)
        await asyncio.to_thread(self.server.start)

    async def _suspend_and_kill(self) -> None:
        self.server.suspend()
        await asyncio.sleep(OUTAGE)
        await asyncio.to_thread(self.server.kill)
        await asyncio.to_thread(self.server.start)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(2)
            self.figures.memory.append(round(resident(), 1))
            self.figures.connections = max(self.figures.connections, sockets())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--callers", type=int, default=5000)
    parser.add_argument("--patience", type=float, default=PATIENCE)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    chosen = parser.parse_args()
    workspace = Workspace()
    try:
        with ExitStack() as stack:
            store = None
            if chosen.store == "postgres":
                store = stack.enter_context(private_postgres()).url
            server = stack.enter_context(DalsegnoServer(workspace.new_folder("dalsegno"), store))
            figures = asyncio.run(
                Soak(server, chosen.callers, chosen.seconds, patience=chosen.patience).run()
            )
    finally:
        workspace.remove()
    print(json.dumps({**vars(figures), "memory": figures.memory[:: max(1, len(figures.memory) // 20)]}))
    wrong = figures.complaints()
    for each in wrong:
        print(each, file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
