"""Who works on a store, as far as the heartbeats tell: for people who ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from dalsegno.engine.lost_workers import Roll
from dalsegno.engine.processes import dead_among
from dalsegno.engine.remote_sessions import remote_worker_of
from dalsegno.engine.worker_info import Running, read_info
from dalsegno.ports.ledger import WorkerView


class WorkerSeen(Struct, frozen=True):
    """A worker process, or a remote worker."""

    id: str
    kind: Literal["local", "remote"]
    state: Literal["alive", "dead"]
    expires_at: float
    """Without a further heartbeat it is dead then."""
    leases: int
    """Tokens it holds, also between two heartbeats."""
    host: str | None = None
    process: int | None = None
    since: float | None = None
    heard_at: float | None = None
    queues: tuple[str, ...] = ()
    concurrency: int | None = None
    running: tuple[Running, ...] = ()
    """What it ran at its last heartbeat, at most a few."""
    version: str | None = None
    """Of Dal Segno where it runs; of a remote worker, that of the server that speaks for it."""

    @property
    def name(self) -> str:
        """As people know it: that of a remote worker, or where the process is."""
        by_place = f"{self.host}:{self.process}" if self.host and self.process else self.id
        return remote_worker_of(self.id) or by_place


async def roll_call(ledger: Roll) -> list[WorkerSeen]:
    """All that have not been gone for long. One that died is listed until its leases are taken back."""
    return seen_among(await ledger.workers(), ledger.now())


def seen_among(found: Sequence[WorkerView], now: float) -> list[WorkerSeen]:
    gone = set(dead_among([view.id for view in found]))
    return [_seen(view, view.id in gone or view.expires_at <= now) for view in found]


def _seen(view: WorkerView, dead: bool) -> WorkerSeen:
    info = read_info(view.info)
    return WorkerSeen(
        id=view.id,
        kind="remote" if info.remote is not None else "local",
        state="dead" if dead else "alive",
        expires_at=view.expires_at,
        leases=view.leases,
        host=info.host or None,
        process=info.process or None,
        since=info.since or None,
        heard_at=info.heard or None,
        queues=info.queues,
        concurrency=info.concurrency or None,
        running=info.running if view.leases else (),  # what it has ended since its last heartbeat
        version=info.version or None,
    )
