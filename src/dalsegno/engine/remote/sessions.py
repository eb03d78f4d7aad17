"""Sessions of remote workers and the tasks they hold.

- A server remembers for each remote worker when it last spoke and which tasks it was given. Tasks that the worker
  does not know of are handed back.
- Leases belong to a name, as for any worker; here one name per worker and server process. The ledger's row of that
  name covers the case that this server dies. While the server lives, it detects silence itself, and sooner.
- Tasks held by remote workers are values here: how they are handed out, named, found again and lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import msgspec
from msgspec import Raw, Struct

from dalsegno.core.values import encode_value
from dalsegno.engine.remote.task_proxy import Answer, RemoteRequest
from dalsegno.engine.tracing import traceparent_of
from dalsegno.engine.worker.directory import (
    WorkerInfo,
    owner_of,
    read_info,
    remote_key_of,
    running_of,
    write_info,
)
from dalsegno.errors import LeaseLost, NotFound, OperatorError, QueueRefused, Unavailable
from dalsegno.model.failure import Failure
from dalsegno.model.inspection import Inspection
from dalsegno.model.token import Lease, TokenView
from dalsegno.model.transition import Outcome, Stale, handed_back
from dalsegno.ports.broker import Broker
from dalsegno.ports.ledger import Ledger
from dalsegno.ports.task_transport import TaskCopy

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Claimant:
    """The caller on whose behalf a remote worker claims, and the tasks it may take. The default may take all of
    them.
    """

    key: str = ""
    """Id of the API key. The same worker name under two keys means two workers."""
    label: str = "this caller"
    queues: frozenset[str] | None = None
    """Queues whose tasks it may take; None: all queues."""
    is_operator: bool = False
    """Whether it may answer for tasks that a worker with another key holds."""

    def check_queues(self, queues: Iterable[str]) -> None:
        """Raise QueueRefused if one of the queues is not permitted."""
        refused = [each for each in queues if self.queues is not None and each not in self.queues]
        if refused:
            named = ", ".join(f"'{each}'" for each in refused[:SHOWN])
            raise QueueRefused(
                f"'{self.label}' may not take tasks of {_nouns('queue', refused)} {named}; its key is for "
                f"{', '.join(sorted(self.queues or ()))}"
            )

    def check_task(self, id: str, owner: str, queue: str) -> None:
        """Raise QueueRefused if the task's queue is not permitted, or if a worker with another key holds the task.
        Tasks handed out without a key may be answered by every worker of their queue.
        """
        if self.is_operator:
            return
        self.check_queues((queue,))
        holder = remote_key_of(owner)
        if holder and holder != self.key:
            raise QueueRefused(
                f"task {id} of queue '{queue}' was given to a worker with another key than '{self.label}'; only that "
                "key may answer for it"
            )


ANYONE = Claimant()
SHOWN = 5
MOST_SESSIONS = 20_000
"""Remote workers that one server process remembers; a worker is forgotten when it has been silent for its lease. A
key may use at most as many of them as are free, so that another key always finds a place.
"""


def _nouns(noun: str, things: Sequence[str]) -> str:
    return noun if len(things) == 1 else f"{noun}s"


@dataclass(slots=True)
class Held:
    """A task that a remote worker holds."""

    lease: Lease
    question: RemoteRequest
    owner: str
    since: float
    deadline: float | None
    confirmed: bool = False
    """Whether the worker has shown that it knows of the task."""
    settling: asyncio.Future[None] | None = None

    @property
    def task(self) -> str:
        return self.question.task


@dataclass(slots=True)
class Session:
    """A remote worker as one server process knows it."""

    worker: str
    name: str
    since: float
    last_message_at: float
    key: str = ""
    """The API key of the worker."""
    stalled_seconds: float = 0.0
    """Seconds since then during which this server was stalled and could not have heard the worker."""
    queues: tuple[str, ...] = ()
    written: float = 0.0
    """Time until which the ledger keeps its leases, as last written."""
    polls: int = 0
    """Number of its calls that wait for work at this moment."""
    held: dict[str, Held] = field(default_factory=dict)
    waiting: dict[tuple[tuple[str, ...], int], asyncio.Task[list[Lease]]] = field(default_factory=dict)
    """Claims that outlived their call; the next call takes them over."""

    def info(self, owner: str, known: WorkerInfo | None = None) -> bytes:
        """Return the description of the worker in the ledger's row of that name, for other servers and for people.
        ``known``: what another server wrote there, which alone knows the queues served under that name, and since
        when.
        """
        confirmed = {
            token: held.lease for token, held in self.held.items() if held.confirmed and held.owner == owner
        }
        about = WorkerInfo(
            queues=known.queues if known is not None else self.queues,
            since=known.since if known is not None else self.since,
            heard=self.last_message_at,
            running=running_of(confirmed.values()),
            remote=self.worker,
            tasks=tuple(confirmed),
        )
        return write_info(about)

    def note_message(self, now: float) -> None:
        self.last_message_at = max(now, self.last_message_at)
        self.stalled_seconds = 0.0

    def silent_for(self, now: float) -> float:
        return 0.0 if self.polls else now - self.last_message_at - self.stalled_seconds

    def allowed_silence(self, lease: float, first: float) -> float:
        """Return how long the worker may be silent: less while it has not confirmed any of its tasks."""
        return lease if not self.held or any(held.confirmed for held in self.held.values()) else first

    def unconfirmed(self, before: float) -> list[Held]:
        return [held for held in self.held.values() if not held.confirmed and held.since < before]


class Sessions:
    def __init__(self, incarnation: str = "") -> None:
        self.incarnation = incarnation or uuid4().hex[:8]
        self._by_worker: dict[tuple[str, str], Session] = {}
        self._of_key: Counter[str] = Counter()

    def of(self, worker: str, now: float, key: str = "") -> Session:
        """Return the session of a worker and mark it as alive."""
        session = self._by_worker.get((worker, key))
        if session is None:
            own = self._of_key[key]
            if own >= MOST_SESSIONS - len(self._by_worker):
                raise Unavailable(
                    f"{own:,} remote workers with this key are connected to this server, which is its limit; use one"
                    " name for each process, or try again later"
                )
            session = Session(worker, owner_of(worker, self.incarnation, key), now, now, key)
            self._by_worker[worker, key] = session
            self._of_key[key] += 1
        session.note_message(now)
        return session

    def all(self) -> list[Session]:
        return list(self._by_worker.values())

    def drop(self, session: Session) -> None:
        """Drop a session. If the worker returns it gets a new name: there may be unknown leases under the old one."""
        place = (session.worker, session.key)
        if self._by_worker.get(place) is session:
            del self._by_worker[place]
            self._of_key[session.key] -= 1
            if not self._of_key[session.key]:
                del self._of_key[session.key]
            self.incarnation = uuid4().hex[:8]

    def clear(self) -> None:
        self._by_worker.clear()
        self._of_key.clear()

    def held(self, token: str) -> Held | None:
        return next((session.held[token] for session in self.all() if token in session.held), None)

    def forget(self, token: str) -> None:
        for session in self.all():
            session.held.pop(token, None)


def tasks_in(info: bytes) -> Iterable[str]:
    """Return the tokens that a row of the ledger names as confirmed."""
    return read_info(info).tasks


class RemoteSettings(Struct, frozen=True):
    lease: float = 30.0
    """Seconds of silence after which a remote worker loses its tasks."""
    first: float = 10.0
    """Seconds within which a remote worker must confirm a task that it was given, by a heartbeat or by its result."""

    @property
    def interval(self) -> float:
        """Seconds between two heartbeats of a worker."""
        return self.lease / 3


class RemoteTask(Struct, frozen=True):
    """A task as it is handed out. ``id`` is opaque to workers."""

    id: str
    lease: Lease
    question: RemoteRequest
    since: float
    deadline: float | None


class Settled(Struct, frozen=True):
    """An applied answer; ``repeated`` if the same one was applied before."""

    id: str
    verb: str
    repeated: bool = False
    queue: str = ""


def task_of(held: Held) -> RemoteTask:
    lease = held.lease
    return RemoteTask(id_of(lease), lease, held.question, held.since, held.deadline)


def fields_of(task: RemoteTask, settings: RemoteSettings) -> dict[str, Any]:
    """Return the fields of a task as other programs see it."""
    lease, question = task.lease, task.question
    deadline = datetime.fromtimestamp(task.deadline, UTC) if task.deadline is not None else None
    return {
        "id": task.id,
        "fence": lease.fence,
        "execution": lease.execution,
        "workflow": question.workflow,
        "node": lease.node,
        "name": question.task,
        "queue": lease.queue,
        "input": question.input,
        "attempt": lease.attempt,
        "idempotency_key": question.key,
        "deadline": deadline,
        "heartbeat_seconds": settings.interval,
        "lease_seconds": settings.lease,
        "traceparent": traceparent_of(lease),
    }


def copy_of(held: Held, settings: RemoteSettings) -> TaskCopy:
    """Return the copy of a task that is handed out over a broker."""
    lease = held.lease
    fields = fields_of(task_of(held), settings)
    body = _encode({**fields, "input": Raw(encode_value(fields["input"], "the input"))})
    trace = str(fields["traceparent"])
    return TaskCopy(id_of(lease), lease.fence, lease.queue, lease.priority, body, held.deadline, trace)


def id_of(lease: Lease) -> str:
    return f"{lease.execution}.{lease.token}"


def parts_of(id: str) -> tuple[str, str]:
    execution, dot, token = id.partition(".")
    if not (execution and dot and token):
        raise NotFound(f"there is no task {id!r}; give the id as it was handed out")
    return execution, token


def token_in(inspection: Inspection | None, token: str) -> TokenView | None:
    tokens = inspection.tokens if inspection is not None else ()
    return next((view for view in tokens if view.id == token), None)


def lease_of(inspection: Inspection, view: TokenView, now: float) -> Lease:
    execution = inspection.execution
    return Lease(
        view.id,
        execution.id,
        view.fence,
        view.scope,
        view.kind,
        view.node,
        view.data,
        view.queue,
        view.priority,
        view.attempt,
        view.losses,
        view.reason,
        now,
        execution.definition,
        execution.epoch,
        view.live,
        execution.kind,
    )


def lost(id: str, outcome: Outcome) -> LeaseLost:
    reason = outcome.reason if isinstance(outcome, Stale) else ""
    if reason in ("finished", "scope", "unknown"):
        return LeaseLost(f"task {id} is no longer needed: its execution or its branch has ended")
    return LeaseLost(f"task {id} is no longer yours: it was given to another worker, or already answered")


def timed_out(held: Held) -> Answer:
    scripted = held.lease.kind == "task"
    name = held.question.task if scripted else held.lease.node
    what = f"task '{name}'" if scripted else f"node '{name}'"
    message = f"{what} did not end within its timeout of {held.question.timeout:g} s"
    return Answer(failure=Failure(message, "TimeoutError" if scripted else "TIMEOUT", "TimeoutError"))


def output_misfit(task: str, problems: Sequence[tuple[str, str]]) -> Failure:
    """Return the failure for an output that does not match the return type of a remote task, with pointer and message
    of each problem.
    """
    problem_texts = "; ".join(f"{pointer or 'the output'}: {message}" for pointer, message in problems)
    message = f"the output of remote task '{task}' does not fit what it returns: {problem_texts}"
    return Failure(message, "BAD_TASK_OUTPUT", "NodeError", retryable=False)


def not_storable(message: str) -> Answer:
    text = f"the store cannot hold this output: {message}"
    return Answer(failure=Failure(text, "NOT_STORABLE", "NotStorable", retryable=False))


logger = logging.getLogger("dalsegno.remote")


class RemoteLeases:
    def __init__(
        self, ledger: Ledger, broker: Broker, settings: RemoteSettings, incarnation: str = ""
    ) -> None:
        """``incarnation``: part of the names of leases that any process of the store continues; "" for a process's
        own.
        """
        self.settings = settings
        self.ledger = ledger
        self.broker = broker
        self.sessions = Sessions(incarnation)
        self._background: set[asyncio.Task[None]] = set()

    async def take(self, owner: str, queues: Sequence[str], limit: int) -> list[Lease]:
        """Lease tokens for a program elsewhere; wait until there is one. From here on the leases alone protect them, so
        the broker's messages are acknowledged.
        """
        leases = await self.broker.take(owner, queues, limit)
        for lease in leases:
            self.broker.settled(lease)
        return leases

    async def keep_alive(self, session: Session, seconds: float) -> None:
        session.written = self.ledger.now() + seconds
        await asyncio.to_thread(self.ledger.heartbeat, session.name, seconds, session.info(session.name))

    async def renew(self, session: Session, owner: str) -> None:
        if owner == session.name:
            await self.keep_alive(session, self.settings.lease)
            return
        rows = await self.ledger.workers()
        known = next((read_info(row.info) for row in rows if row.id == owner), None)
        info = session.info(owner, known)
        await asyncio.to_thread(self.ledger.heartbeat, owner, self.settings.lease, info)

    async def take_unknown_back(self, session: Session) -> None:
        """Hand back tasks that the worker does not name although it speaks: the reply that contained them was
        lost.
        """
        late = session.unconfirmed(self.ledger.now() - self.settings.first)
        late = [held for held in late if held.settling is None]
        if not late:
            return
        elsewhere = await self._confirmed_elsewhere(session)
        for held in late:
            if held.lease.token in elsewhere:
                held.confirmed = True
        await self.give_back([held for held in late if not held.confirmed])

    async def _confirmed_elsewhere(self, session: Session) -> set[str]:
        """Return the tasks that the worker confirmed to another server of the same store."""
        rows = await self.ledger.workers()
        return {token for row in rows if row.id == session.name for token in tasks_in(row.info)}

    async def give_back(self, tasks: Sequence[Held], *, lost: bool = False) -> None:
        for held in tasks:
            self.sessions.forget(held.lease.token)
            await self.hand_back(held.owner, [held.lease], lost=lost)

    async def hand_back(self, owner: str, leases: Sequence[Lease], *, lost: bool = False) -> None:
        """Make tokens ready again. A loss is counted only with ``lost``."""
        await self.ledger.release(owner, leases, lost=lost)
        await self.broker.announce(handed_back(leases))

    def later(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(self._told(work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _told(self, work: Awaitable[None]) -> None:
        try:
            await work
        except OperatorError as error:
            logger.warning("leases of remote workers cannot be handed back; they will expire: %s", error)

    async def settled(self) -> None:
        """Wait until all pending hand-backs are finished."""
        await asyncio.gather(*self._background, return_exceptions=True)
