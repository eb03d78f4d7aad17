"""A simulated process: the real engine with its worker, timers and reconciler, and a heartbeat without a thread."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any

from dalsegno.adapters.memory import MemoryArchive, MemoryBlobs
from dalsegno.engine.engine import Engine
from dalsegno.engine.settings import EngineSettings
from dalsegno.engine.stack import Stack
from dalsegno.engine.worker import Worker
from dalsegno.ports.broker import Broker
from dalsegno.testing.simulation.ledger import ProcessLedger
from dalsegno.testing.simulation.loop import OWNER, Life
from dalsegno.testing.simulation.nodes import simulation_registry

LEASE_SECONDS = 20.0
SETTINGS = EngineSettings(lease_seconds=LEASE_SECONDS, reconcile_every=5.0, untouched_after=30.0)


class Process:
    """``kill`` stops it where it stands; ``roles`` that end by themselves are findings."""

    def __init__(self, name: str, ledger: ProcessLedger, broker: Broker, concurrency: int) -> None:
        self.life = Life(name)
        self.ledger = ledger
        truth = ledger.truth
        stack = Stack(
            "simulation:",
            ledger,
            broker,
            MemoryArchive(truth.store, truth.clock),
            MemoryBlobs(truth.store),
            truth.clock,
            ledger.close,
        )
        self.engine = Engine(stack, simulation_registry(), settings=SETTINGS)
        self.engine.worker = Worker(
            name, ledger, broker, self.engine.committer, self.engine.steps, concurrency=concurrency
        )
        self.roles: list[asyncio.Task[Any]] = []

    def start(self) -> None:
        worker = self.engine.worker
        assert worker is not None
        self.ledger.heartbeat(self.life.name, LEASE_SECONDS)
        self.roles += [
            self.spawn(self._beat()),
            self.spawn(self.engine.timers.run()),
            self.spawn(self.engine.reconciler.run()),
            self.spawn(worker.run()),
        ]

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task of this process: it goes no further once the process is dead."""
        context = contextvars.copy_context()
        context.run(OWNER.set, self.life)
        return asyncio.get_running_loop().create_task(work, context=context)

    def kill(self) -> None:
        self.life.dead = True

    def broken_roles(self) -> list[BaseException]:
        ended = [role for role in self.roles if role.done() and not role.cancelled()]
        return [role.exception() or AssertionError("a role returned") for role in ended]

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(LEASE_SECONDS / 4)
            self.ledger.heartbeat(self.life.name, LEASE_SECONDS)
