"""Faulty broker and ledger of the simulation.

* The broker drops, duplicates, delays and reorders. Messages contain ids; leases come from the ledger (B1, B2).
* Two layers surround the memory ledger: one records what took effect, the other, one per process, fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any, cast

from msgspec import Struct

from dalsegno.adapters.memory import MemoryLedger, MemoryStore
from dalsegno.core.settlement import TokenRow
from dalsegno.errors import Unavailable
from dalsegno.model.token import Lease
from dalsegno.model.transition import Applied, Outcome, ReadyToken, Transition
from dalsegno.ports.clock import Clock
from dalsegno.ports.ledger import Ledger, Woken
from dalsegno.testing.simulation.environment.faults import Faults


class Post:
    """The messages of one simulated system, shared by all its processes."""

    def __init__(self, faults: Faults, order: Random | None) -> None:
        self._faults = faults
        self._order = order
        self._messages: list[ReadyToken] = []
        self._waiting: list[asyncio.Future[None]] = []

    def send(self, token: ReadyToken) -> None:
        fault = self._faults.message()
        kind = fault.kind if fault is not None else None
        if kind == "drop":
            return
        if fault is not None and kind == "delay":
            asyncio.get_running_loop().call_later(fault.arg, self._put, token)
            return
        self._put(token)
        if kind == "duplicate":
            self._put(token)

    def _put(self, token: ReadyToken) -> None:
        self._messages.append(token)
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def receive(self, queues: Sequence[str], limit: int) -> list[ReadyToken]:
        """Take messages. A process that dies with them loses them."""
        while True:
            mine = [token for token in self._messages if token.queue in queues]
            if self._order is not None:
                self._order.shuffle(mine)
            del mine[limit:]
            if mine:
                for token in mine:
                    self._messages.remove(token)
                return mine
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future


class MessageBroker:
    """Each message names a token, as in a message queue."""

    def __init__(self, post: Post, ledger: Ledger) -> None:
        self._post = post
        self._ledger = ledger

    def committed(self, transition: Transition) -> None:
        """Do nothing: an announcement only names tokens."""

    async def offer(self, tokens: Sequence[ReadyToken]) -> None:
        await self.announce(tokens)

    async def announce(self, tokens: Sequence[ReadyToken]) -> None:
        for token in tokens:
            self._post.send(token)
        await asyncio.sleep(0)

    async def take(self, worker: str, queues: Sequence[str], limit: int) -> list[Lease]:
        while True:
            messages = await self._post.receive(queues, limit)
            leases = await self._ledger.lease(worker, messages)
            if leases:
                return leases

    def settled(self, lease: Lease) -> None:
        """Do nothing: a message is gone once it is received."""

    async def close(self) -> None:
        """Do nothing: the messages outlive their clients."""


class NewsBroker(MessageBroker):
    """A message only announces that a token is ready: workers claim any ready token from the ledger."""

    async def take(self, worker: str, queues: Sequence[str], limit: int) -> list[Lease]:
        while True:
            leases = await self._ledger.claim(worker, queues, limit)
            if leases:
                return leases
            await self._post.receive(queues, limit)


REPEATABLE = frozenset(("commit", "release"))
"""Calls that may reach the store twice, as in a retransmission."""


class Commit(Struct, frozen=True):
    """A transition that took effect."""

    transition: Transition
    now: float
    losses: int
    """How often the token had lost its worker until then."""


class Wake(Struct, frozen=True):
    """A parked token that became due."""

    execution: str
    token: str
    now: float


Decision = Commit | Wake


class RecordingLedger(MemoryLedger):
    """The ledger of a simulated system, with a log of every decision in the order in which it took effect."""

    def __init__(self, clock: Clock, store: MemoryStore) -> None:
        super().__init__(clock, store)
        self.decisions: list[Decision] = []
        self.before_commit: Callable[[Transition], str | None] = lambda transition: None
        """Returns a reason why a transition must not be applied, or None."""
        self.after_commit: Callable[[Transition, Applied], None] = lambda transition, applied: None
        self.complaints: list[str] = []

    async def commit(self, batch: Sequence[Transition]) -> list[Outcome]:
        outcomes = []
        for transition in batch:
            token = self.store.token(transition.execution, transition.token or "")
            losses = token.losses if token is not None else 0
            objection = self.before_commit(transition)
            [outcome] = await super().commit([transition])
            outcomes.append(outcome)
            if isinstance(outcome, Applied):
                self.decisions.append(Commit(transition, self.now(), losses))
                self.complaints += [objection] if objection is not None else []
                self.after_commit(transition, outcome)
        return outcomes

    def _give(self, worker: str, token: TokenRow) -> Lease:
        state = self.store.executions[token.execution].row.state
        if state != ("PENDING" if token.kind == "start" else "RUNNING"):
            self.complaints.append(f"pause: a token was leased while its execution was {state}")
        return super()._give(worker, token)

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
    """The ledger as one process reaches it: over a connection that fails before a call, or loses its reply.

    Implements the Ledger port by passing every call on; ``as_ledger`` casts it for type checkers.
    """

    def __init__(self, ledger: RecordingLedger, faults: Faults) -> None:
        self.truth = ledger
        self._faults = faults

    def as_ledger(self) -> Ledger:
        return cast(Ledger, self)

    def now(self) -> float:
        return self.truth.now()

    def heartbeat(self, worker: str, lease_seconds: float, info: bytes = b"") -> None:
        self.truth.heartbeat(worker, lease_seconds, info)

    async def close(self) -> None:
        """Nothing to close."""

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self.truth, name)

        async def call(*arguments: Any, **keywords: Any) -> Any:
            return await self._through(lambda: method(*arguments, **keywords), name in REPEATABLE)

        return call

    async def _through(self, call: Callable[[], Awaitable[Any]], repeatable: bool) -> Any:
        fault = self._faults.call()
        kind = fault.kind if fault is not None else None
        await asyncio.sleep(fault.arg if fault is not None and kind == "slow" else 0)
        if kind == "fail":
            raise Unavailable("the simulated store did not answer")
        result = await call()
        if kind == "twice" and repeatable:
            await asyncio.sleep(0)
            await call()
        await asyncio.sleep(0)
        if kind == "lose-reply":
            raise Unavailable("the simulated store's answer was lost")
        return result
