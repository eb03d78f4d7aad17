"""A client that starts executions of mixed kinds over HTTP, whatever happens to the server meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from dalsegno import Client
from dalsegno.errors import Conflict, DalSegnoError
from dalsegno.testing.histories import Asked
from tests.chaos import mixed_workload as mixed

KINDS = (*mixed.GRAPHS, "order", "order", "booking", "booking", "narrow", "narrow")
"""As many scripts, Python workflows and limited ones as two kinds of graphs each."""
AT_ONCE = 16
PATIENCE = 120.0


@dataclass
class Load:
    """``count`` starts, spread over ``seconds``; then everything that waits for a signal has got one."""

    server: str
    count: int
    seconds: float
    chance: random.Random
    kinds: tuple[str, ...] = KINDS
    started: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Kind and number, by execution."""
    accepted: dict[str, str] = field(default_factory=dict)
    """The id of the signal that was sent and acknowledged, by execution."""
    trouble: BaseException | None = None

    def begin(self) -> None:
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    def asked(self) -> dict[str, Asked]:
        return {execution: Asked((signal,)) for execution, signal in self.accepted.items()}

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()

    def end(self, tend: Callable[[], None]) -> None:
        """As long as there is progress. ``tend`` is called meanwhile, again and again."""
        before, end = -1, 0.0
        while not self.over:
            if len(self.started) > before:
                before, end = len(self.started), time.monotonic() + PATIENCE
            assert time.monotonic() < end, f"{before} of {self.count} executions were started"
            tend()
            self._thread.join(0.2)
        if self.trouble is not None:
            raise self.trouble

    def _run(self) -> None:
        try:
            asyncio.run(self._start_all())
        except BaseException as error:  # noqa: BLE001 - told by ``end``, in the test's own thread
            self.trouble = error

    async def _start_all(self) -> None:
        gate = asyncio.Semaphore(AT_ONCE)
        async with Client(self.server, patience=PATIENCE) as client, asyncio.TaskGroup() as starts:
            for number in range(self.count):
                await gate.acquire()
                starts.create_task(self._start(client, gate, number))
                await asyncio.sleep(self.seconds / self.count)

    async def _start(self, client: Client, gate: asyncio.Semaphore, number: int) -> None:
        """The number makes each start's idempotency key: however often it is sent, it is one."""
        try:
            kind = self.chance.choice(self.kinds)
            starter = client.with_options(idempotency_key=f"load-{number}")
            handle = await starter.astart(kind, mixed.payload(kind, number))
            assert handle.id not in self.started, "two starts gave the same execution"
            self.started[handle.id] = (kind, number)
            if kind == "order":
                # Refused if it ended before: it was sent again, and the answer to its first arrival was lost.
                with contextlib.suppress(Conflict):
                    for _ in range(2):  # the second one with the same id changes nothing
                        await handle.asignal("go", {"n": mixed.signalled(number)}, id=f"go-{number}")
                        self.accepted[handle.id] = f"go-{number}"
            if mixed.is_fleeting(kind, number):
                # Sent once: it may have ended before, or the server is away, and then it simply goes on.
                with contextlib.suppress(DalSegnoError):
                    await handle.acancel()
        finally:
            gate.release()
