"""The faults of a run: their schedule, and the broker and the ledger that have them.

* The schedule is plain data, so that it can be printed, repeated and shrunk.
* The broker drops, duplicates, delays and reorders. Messages contain ids; leases come from the ledger (B1, B2).
* Two layers surround the memory ledger: one records what took effect, the other, one per process, fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from random import Random
from typing import Any, Literal, cast

from msgspec import Struct

from dalsegno.adapters.memory import MemoryLedger, MemoryStore
from dalsegno.core.settlement import TokenRow
from dalsegno.errors import Unavailable
from dalsegno.model.token import Lease
from dalsegno.model.transition import Applied, Outcome, ReadyToken, Transition
from dalsegno.ports.clock import Clock
from dalsegno.ports.ledger import Ledger, Woken

FaultKind = Literal[
    "crash", "stop", "jump", "pause", "resume", "cancel", "look", "move",
    "fail", "lose-reply", "slow", "twice",
    "drop", "duplicate", "delay",
]  # fmt: skip

STEP_FAULTS: tuple[FaultKind, ...] = ("crash", "stop", "jump", "pause", "resume", "cancel", "look", "move")
CALL_FAULTS: tuple[FaultKind, ...] = ("fail", "lose-reply", "slow", "twice")
MESSAGE_FAULTS: tuple[FaultKind, ...] = ("drop", "duplicate", "delay")


class Fault(Struct, frozen=True):
    """One fault.

    * ``at`` counts steps of the loop (STEP_FAULTS), calls of the ledger (CALL_FAULTS) or announcements
      (MESSAGE_FAULTS).
    * ``arg`` is the process's number, or seconds.
    """

    kind: FaultKind
    at: int
    arg: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind}@{self.at}" + (f"({self.arg:g})" if self.arg else "")


class Faults:
    """A schedule, looked up by counters."""

    def __init__(self, schedule: Iterable[Fault]) -> None:
        self.steps: dict[int, Fault] = {}
        self.calls: dict[int, Fault] = {}
        self.messages: dict[int, Fault] = {}
        self.applied: list[Fault] = []
        self._call = 0
        self._message = 0
        for fault in schedule:
            self._table(fault)[fault.at] = fault

    def _table(self, fault: Fault) -> dict[int, Fault]:
        if fault.kind in STEP_FAULTS:
            return self.steps
        return self.calls if fault.kind in CALL_FAULTS else self.messages

    def step(self, number: int) -> Fault | None:
        return self._apply(self.steps.get(number))

    def call(self) -> Fault | None:
        self._call += 1
        return self._apply(self.calls.get(self._call))

    def message(self) -> Fault | None:
        self._message += 1
        return self._apply(self.messages.get(self._message))

    def _apply(self, fault: Fault | None) -> Fault | None:
        if fault is not None:
            self.applied.append(fault)
        return fault


MAX_LOSSES = 4
"""Crashes and jumps that cost leases, per run: a fifth could make a token fail as WorkerLost."""


def draw_schedule(random: Random, *, steps: int, commands: bool) -> tuple[Fault, ...]:
    """Return a random schedule for a run of about ``steps`` steps."""
    faults: list[Fault] = []
    chance = random.random()
    if chance < 0.85:
        faults += _crashes(random, steps)
    if chance > 0.15:
        faults += _spread(random, CALL_FAULTS, steps // 2, random.choice((0.01, 0.03, 0.1)))
        faults += _spread(random, MESSAGE_FAULTS, steps // 8, random.choice((0.02, 0.1, 0.4)))
    if commands:
        faults += _commands(random, steps)
    return tuple(sorted(faults, key=lambda fault: (fault.kind, fault.at)))


def _crashes(random: Random, steps: int) -> list[Fault]:
    faults: list[Fault] = []
    losses = random.randrange(MAX_LOSSES + 1)
    while losses > 0:
        at = 1 + random.randrange(steps)
        if losses > 1 and random.random() < 0.3:
            # Counts twice: a process that claims again before its next heartbeat may lose that lease as well.
            faults.append(Fault("jump", at, random.choice((1.5, 25.0, 90.0))))
            losses -= 2
        else:
            faults.append(Fault("crash", at, random.randrange(2)))
            losses -= 1
    if random.random() < 0.3:
        faults.append(Fault("jump", 1 + random.randrange(steps), random.choice((-0.5, -2.0, -5.0))))
    if random.random() < 0.2:
        faults.append(Fault("stop", 1 + random.randrange(steps), random.randrange(2)))
    if random.random() < 0.1:
        faults.append(Fault("look", 1 + random.randrange(steps)))
    return faults


def _spread(random: Random, kinds: Sequence[FaultKind], points: int, rate: float) -> list[Fault]:
    count = min(int(points * rate * random.random()) + 1, 60)
    return [_one(random, random.choice(kinds), points) for _ in range(count)]


def _one(random: Random, kind: FaultKind, points: int) -> Fault:
    at = 1 + random.randrange(max(points, 1))
    if kind in ("slow", "delay"):
        return Fault(kind, at, random.choice((0.02, 0.5, 3.0, 30.0)))
    return Fault(kind, at)


def _commands(random: Random, steps: int) -> list[Fault]:
    faults: list[Fault] = []
    for _ in range(random.randrange(1, 3)):
        at = 1 + random.randrange(steps)
        faults += [Fault("pause", at), Fault("resume", at + 1 + random.randrange(steps))]
    if random.random() < 0.3:
        faults.append(Fault("cancel", 1 + random.randrange(steps)))
    return faults


# -- the ports that have them ----------------------------------------------------------------------------------


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
