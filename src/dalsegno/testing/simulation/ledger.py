"""Two layers around the memory ledger: one that writes down what took effect, one per process that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from msgspec import Struct

from dalsegno.adapters.memory import MemoryLedger, MemoryStore
from dalsegno.errors import Unavailable
from dalsegno.model.barrier import LeftView, SlotView
from dalsegno.model.token import Lease
from dalsegno.model.transition import Applied, Outcome, ReadyToken, Transition
from dalsegno.ports.clock import Clock
from dalsegno.ports.ledger import Inspection, OutboxEntry, Woken, WorkerView
from dalsegno.testing.simulation.faults import Faults

_T = TypeVar("_T")


class Commit(Struct, frozen=True):
    """A transition that took effect."""

    transition: Transition
    now: float


class Wake(Struct, frozen=True):
    """A parked token whose time had come."""

    execution: str
    token: str
    now: float


Decision = Commit | Wake


class RecordingLedger(MemoryLedger):
    """The truth of a simulated system, with a log of every decision in the order in which it took effect."""

    def __init__(self, clock: Clock, store: MemoryStore) -> None:
        super().__init__(clock, store)
        self.decisions: list[Decision] = []
        self.after_commit: Callable[[Transition, Applied], None] = lambda transition, applied: None
        self.complaints: list[str] = []

    async def commit(self, batch: Sequence[Transition]) -> list[Outcome]:
        outcomes = []
        for transition in batch:
            [outcome] = await super().commit([transition])
            outcomes.append(outcome)
            if isinstance(outcome, Applied):
                self.decisions.append(Commit(transition, self.now()))
                self.after_commit(transition, outcome)
        return outcomes

    async def wake(self, limit: int = 500) -> Woken:
        if not self.store.parked or self.store.parked[0][0] > self.now():
            return await super().wake(limit)
        asleep = [token for found in self.store.executions.values() for token in found.tokens.values()]
        asleep = [token for token in asleep if token.state == "parked" and token.due is not None]
        woken = await super().wake(limit)
        for token in sorted(asleep, key=lambda token: (token.due or 0.0, token.id)):
            if token.state in ("ready", "held"):
                self.decisions.append(Wake(token.execution, token.id, self.now()))
        return woken


class ProcessLedger:
    """The ledger as one process reaches it: over a wire that fails before a call, or loses its reply."""

    def __init__(self, ledger: RecordingLedger, faults: Faults) -> None:
        self.truth = ledger
        self._faults = faults

    async def _through(self, call: Callable[[], Awaitable[_T]], *, again: bool = False) -> _T:
        fault = self._faults.call()
        kind = fault.kind if fault is not None else None
        await asyncio.sleep(fault.arg if fault is not None and kind == "slow" else 0)
        if kind == "fail":
            raise Unavailable("the simulated store did not answer")
        result = await call()
        if kind == "twice" and again:
            await asyncio.sleep(0)
            await call()
        await asyncio.sleep(0)
        if kind == "lose-reply":
            raise Unavailable("the simulated store's answer was lost")
        return result

    def now(self) -> float:
        return self.truth.now()

    async def commit(self, batch: Sequence[Transition]) -> list[Outcome]:
        return await self._through(lambda: self.truth.commit(batch), again=True)

    async def claim(self, worker: str, queues: Sequence[str], limit: int) -> list[Lease]:
        return await self._through(lambda: self.truth.claim(worker, queues, limit))

    async def lease(self, worker: str, tokens: Sequence[ReadyToken]) -> list[Lease]:
        return await self._through(lambda: self.truth.lease(worker, tokens))

    async def release(self, worker: str, leases: Sequence[Lease]) -> None:
        await self._through(lambda: self.truth.release(worker, leases), again=True)

    def heartbeat(self, worker: str, lease_seconds: float, info: bytes = b"") -> None:
        self.truth.heartbeat(worker, lease_seconds, info)

    async def expire(self, dead: Sequence[str] = ()) -> tuple[ReadyToken, ...]:
        return await self._through(lambda: self.truth.expire(dead))

    async def wake(self, limit: int = 500) -> Woken:
        return await self._through(lambda: self.truth.wake(limit))

    async def slots(self, execution: str, barrier: str) -> list[SlotView]:
        return await self._through(lambda: self.truth.slots(execution, barrier))

    async def left(self, execution: str, scope: str) -> list[LeftView]:
        return await self._through(lambda: self.truth.left(execution, scope))

    async def gate_used(self, execution: str, gate: str) -> tuple[int, ...]:
        return await self._through(lambda: self.truth.gate_used(execution, gate))

    async def outputs(self, execution: str, ids: Sequence[str]) -> dict[str, bytes]:
        return await self._through(lambda: self.truth.outputs(execution, ids))

    async def inspect(self, execution: str) -> Inspection | None:
        return await self._through(lambda: self.truth.inspect(execution))

    async def untouched(self, before: float, after: str, limit: int) -> list[str]:
        return await self._through(lambda: self.truth.untouched(before, after, limit))

    async def ready(self, execution: str) -> tuple[ReadyToken, ...]:
        return await self._through(lambda: self.truth.ready(execution))

    async def sweep(self, limit: int = 500) -> int:
        return await self._through(lambda: self.truth.sweep(limit))

    async def workers(self) -> list[WorkerView]:
        return await self._through(self.truth.workers)

    async def outbox(self, limit: int = 100) -> list[OutboxEntry]:
        return await self._through(lambda: self.truth.outbox(limit))

    async def delivered(self, ids: Sequence[str]) -> None:
        await self._through(lambda: self.truth.delivered(ids))

    async def close(self) -> None:
        """Nothing to close."""
