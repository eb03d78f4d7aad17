"""A simulated process: the real engine with all its roles, and a heartbeat without a thread."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from dalsegno.adapters.memory import MemoryArchive, MemoryBlobs, MemoryRecords
from dalsegno.engine.engine import Engine
from dalsegno.engine.heartbeat import Heartbeat
from dalsegno.engine.settings import EngineSettings
from dalsegno.engine.stack import Stack
from dalsegno.engine.workflows import Workflows
from dalsegno.errors import OperatorError
from dalsegno.ports.broker import Broker
from dalsegno.ports.ledger import Ledger
from dalsegno.testing.simulation.ledger import ProcessLedger
from dalsegno.testing.simulation.loop import OWNER, Life
from dalsegno.testing.simulation.nodes import simulation_registry

LEASE_SECONDS = 20.0
RECONCILE_EVERY = 5.0
UNTOUCHED_AFTER = 30.0
NO_SERVICES: Mapping[str, Any] = {}


class SimulatedHeartbeat(Heartbeat):
    """Beats from a task of its process, and so stops with it."""

    def __init__(
        self,
        ledger: Ledger,
        names: Callable[[], Iterable[str]],
        lease_seconds: float,
        info: bytes | Callable[[], bytes] = b"",
    ) -> None:
        self.ledger = ledger
        self.lease_seconds = lease_seconds
        self._names = names
        self._info = info

    def start(self) -> None:
        self.beat()
        self._task = asyncio.get_running_loop().create_task(self._beat())

    def soon(self) -> None:
        self.beat()

    def stop(self) -> None:
        self._task.cancel()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.lease_seconds / 4)
            self.beat()


class SimulatedEngine(Engine):
    make_heartbeat = SimulatedHeartbeat


class Process:
    """``kill`` stops it where it stands: nothing of it runs any more, not even its clean-up."""

    def __init__(
        self,
        name: str,
        ledger: ProcessLedger,
        broker: Broker,
        concurrency: int,
        deaths: Counter[str],
        services: Mapping[str, Any] = NO_SERVICES,
        workflows: Workflows | None = None,
    ) -> None:
        self.life = Life(name)
        truth = ledger.truth
        stack = Stack(
            "simulation:",
            ledger.as_ledger(),
            broker,
            MemoryArchive(truth.store, truth.clock),
            MemoryBlobs(truth.store),
            MemoryRecords(truth.store, truth.clock),
            truth.clock,
            ledger.close,
        )
        settings = EngineSettings(
            concurrency=concurrency,
            lease_seconds=LEASE_SECONDS,
            reconcile_every=RECONCILE_EVERY,
            untouched_after=UNTOUCHED_AFTER,
            worker_name=name,
        )
        own = {"life": self.life, "deaths": deaths, **services}
        self.engine = SimulatedEngine(stack, simulation_registry(), own, settings, workflows)

    def start(self) -> None:
        self.spawn(self._boot())

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task of this process, and so are all tasks that it creates."""
        context = contextvars.copy_context()
        context.run(OWNER.set, self.life)
        return asyncio.get_running_loop().create_task(work, context=context)

    def kill(self) -> None:
        self.life.dead = True

    async def stop(self) -> None:
        """A graceful end, as far as the store lets it."""
        with contextlib.suppress(OperatorError):
            await self.engine.stop()
        self.kill()

    async def _boot(self) -> None:
        while True:
            try:
                return await self.engine.start()
            except OperatorError:
                await asyncio.sleep(1.0)
