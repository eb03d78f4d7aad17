"""What a server knows of its remote workers: when each spoke last, and which tasks it was given.

Leases belong to a name, as those of any worker; here to a name per worker and server process. The ledger's row of that
name is the net for the case that this server dies; while it lives, it judges silence itself, and sooner.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from dalsegno.engine.standin import Question
from dalsegno.engine.worker_info import WorkerInfo, read_info, running_of, write_info
from dalsegno.errors import QueueRefused, Unavailable
from dalsegno.model.token import Lease

PREFIX = "remote:"
"""Of the names under which remote workers hold leases."""
KEY_SIGN = "@"
"""Between such a name and the id of the worker's key."""


@dataclass(frozen=True, slots=True)
class Claimant:
    """On whose behalf a remote worker calls, and which tasks it may have. The default may have all of them."""

    key: str = ""
    """The id of its API key; the same worker name under two keys means two workers."""
    label: str = "this caller"
    queues: frozenset[str] | None = None
    """Whose tasks it may take; None: of all queues."""
    is_operator: bool = False
    """Whether it may answer for tasks that another key's worker was given."""

    def check_queues(self, queues: Iterable[str]) -> None:
        """Raises QueueRefused."""
        refused = [each for each in queues if self.queues is not None and each not in self.queues]
        if refused:
            named = ", ".join(f"'{each}'" for each in refused[:SHOWN])
            raise QueueRefused(
                f"'{self.label}' may not take tasks of {_nouns('queue', refused)} {named}; its key is for "
                f"{', '.join(sorted(self.queues or ()))}"
            )

    def check_task(self, id: str, owner: str, queue: str) -> None:
        """Raises QueueRefused where the task is of a queue that is not the key's, or was given to another key's
        worker. Tasks that were handed out without a key belong to every worker of their queue."""
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
"""Remote workers that one server process remembers; each is forgotten when it has been silent for its lease. A key has
no more of them than are free: another key always finds a place."""


def _nouns(noun: str, things: Sequence[str]) -> str:
    return noun if len(things) == 1 else f"{noun}s"


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
    key: str = ""
    """The API key that it calls with."""
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
        self._by_worker: dict[tuple[str, str], Session] = {}
        self._of_key: Counter[str] = Counter()

    def of(self, worker: str, now: float, key: str = "") -> Session:
        """Marks it as alive."""
        session = self._by_worker.get((worker, key))
        if session is None:
            own = self._of_key[key]
            if own >= MOST_SESSIONS - len(self._by_worker):
                raise Unavailable(
                    f"{own:,} remote workers with this key speak to this server, as many as it takes; use one name for "
                    "each process, or try again later"
                )
            session = Session(worker, owner_of(worker, self.incarnation, key), now, now, key)
            self._by_worker[worker, key] = session
            self._of_key[key] += 1
        session.hear(now)
        return session

    def all(self) -> list[Session]:
        return list(self._by_worker.values())

    def drop(self, session: Session) -> None:
        """A worker that comes back gets a new name: its old one may hold leases that nobody knows of."""
        place = (session.worker, session.key)
        if self._by_worker.get(place) is session:
            del self._by_worker[place]
            self._of_key[session.key] -= 1
            if not self._of_key[session.key]:
                del self._of_key[session.key]
            self.incarnation = uuid4().hex[:8]

    def held(self, token: str) -> Held | None:
        return next((session.held[token] for session in self.all() if token in session.held), None)

    def let_go(self, token: str) -> None:
        for session in self.all():
            session.held.pop(token, None)


def owner_of(worker: str, incarnation: str, key: str) -> str:
    """Names the key, so that every server of the store knows who may answer for a lease."""
    return f"{PREFIX}{worker}:{incarnation}" + (f"{KEY_SIGN}{key}" if key else "")


def remote_key_of(owner: str | None) -> str:
    """The API key behind a remote worker's lease; empty where it was taken without one."""
    if owner is None or not owner.startswith(PREFIX):
        return ""
    return owner.rpartition(":")[2].partition(KEY_SIGN)[2]


def remote_worker_of(owner: str | None) -> str | None:
    """The remote worker that a lease's owner means, if it is one."""
    if owner is None or not owner.startswith(PREFIX):
        return None
    return owner[len(PREFIX) :].rpartition(":")[0]


def tasks_in(info: bytes) -> Iterable[str]:
    """Tokens that a row of the ledger names as confirmed."""
    return read_info(info).tasks
