"""What a server knows of its remote workers: when each spoke last, and which tasks it was given.

Leases belong to a name, as those of any worker; here to a name per worker and server process. The ledger's row of that
name is the net for the case that this server dies; while it lives, it judges silence itself, and sooner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import uuid4

from dalsegno.engine.standin import Question
from dalsegno.engine.worker_info import WorkerInfo, read_info, running_of, write_info
from dalsegno.model.token import Lease

PREFIX = "remote:"
"""Of the names under which remote workers hold leases."""


@dataclass(slots=True)
class Held:
    """A task that a remote worker was given."""

    lease: Lease
    question: Question
    owner: str
    since: float
    deadline: float | None
    confirmed: bool = False
    """Whether the worker has shown that it knows of it."""
    settling: asyncio.Future[None] | None = None


@dataclass(slots=True)
class Session:
    """One remote worker, as one server process knows it."""

    worker: str
    name: str
    since: float
    spoke_at: float
    deaf: float = 0.0
    """Seconds since then in which this server stood still and could not have heard it."""
    queues: tuple[str, ...] = ()
    written: float = 0.0
    """Until when the ledger keeps its leases, as written last."""
    polls: int = 0
    """Calls of it that wait for work at this moment."""
    held: dict[str, Held] = field(default_factory=dict)
    waiting: dict[tuple[tuple[str, ...], int], asyncio.Task[list[Lease]]] = field(default_factory=dict)
    """Claims that outlived the call they were made for; the next call takes them over."""

    def info(self, owner: str, known: WorkerInfo | None = None) -> bytes:
        """What the ledger's row of that name says of it, for other servers and for people. ``known``: what another
        server wrote there, which alone heard which queues are served under that name, and since when."""
        confirmed = {
            token: held.lease for token, held in self.held.items() if held.confirmed and held.owner == owner
        }
        about = WorkerInfo(
            queues=known.queues if known is not None else self.queues,
            since=known.since if known is not None else self.since,
            heard=self.spoke_at,
            running=running_of(confirmed.values()),
            remote=self.worker,
            tasks=tuple(confirmed),
        )
        return write_info(about)

    def hear(self, now: float) -> None:
        self.spoke_at = max(now, self.spoke_at)
        self.deaf = 0.0

    def silence(self, now: float) -> float:
        return 0.0 if self.polls else now - self.spoke_at - self.deaf

    def patience(self, lease: float, first: float) -> float:
        """How long it may be silent: shorter while it has shown of none of its tasks that it knows of them."""
        return lease if not self.held or any(held.confirmed for held in self.held.values()) else first

    def unconfirmed(self, before: float) -> list[Held]:
        return [held for held in self.held.values() if not held.confirmed and held.since < before]


class Sessions:
    def __init__(self) -> None:
        self.incarnation = uuid4().hex[:8]
        self._by_worker: dict[str, Session] = {}

    def of(self, worker: str, now: float) -> Session:
        """Marks it as alive."""
        session = self._by_worker.get(worker)
        if session is None:
            session = Session(worker, f"{PREFIX}{worker}:{self.incarnation}", now, now)
            self._by_worker[worker] = session
        session.hear(now)
        return session

    def all(self) -> list[Session]:
        return list(self._by_worker.values())

    def drop(self, session: Session) -> None:
        """A worker that comes back gets a new name: its old one may hold leases that nobody knows of."""
        if self._by_worker.get(session.worker) is session:
            del self._by_worker[session.worker]
            self.incarnation = uuid4().hex[:8]

    def held(self, token: str) -> Held | None:
        return next((session.held[token] for session in self.all() if token in session.held), None)

    def let_go(self, token: str) -> None:
        for session in self.all():
            session.held.pop(token, None)


def remote_worker_of(owner: str | None) -> str | None:
    """The remote worker that a lease's owner means, if it is one."""
    if owner is None or not owner.startswith(PREFIX):
        return None
    return owner[len(PREFIX) :].rpartition(":")[0]


def tasks_in(info: bytes) -> Iterable[str]:
    """Tokens that a row of the ledger names as confirmed."""
    return read_info(info).tasks
