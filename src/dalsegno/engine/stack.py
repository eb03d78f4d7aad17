"""The ports one engine stands on, chosen elsewhere by URL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from dalsegno.engine.timers import BREATH
from dalsegno.errors import StoreLost
from dalsegno.ports.archive import Archive
from dalsegno.ports.blobs import Blobs
from dalsegno.ports.broker import Broker
from dalsegno.ports.clock import Clock
from dalsegno.ports.ledger import Ledger
from dalsegno.ports.limits import Limits
from dalsegno.ports.neighbours import Neighbours, Watch
from dalsegno.ports.records import Records
from dalsegno.ports.transactions import Transactions

ITEMS_PER_COMMIT = 200
"""Items of a split opened by one commit, so that no commit is ever wide."""


@dataclass(frozen=True, slots=True)
class Stack:
    url: str
    ledger: Ledger
    broker: Broker
    archive: Archive
    blobs: Blobs
    records: Records
    clock: Clock
    close: Callable[[], Awaitable[None]]
    limits: Limits | None = None
    """None where the ledger knows no limits by key."""
    neighbours: Neighbours | None = None
    """None where other processes are noticed by looking, or where there are none."""
    watch: Watch | None = None
    """None where other processes say themselves what they did, or where there are none."""
    transactions: Transactions | None = None
    """None where a task has no database to share with its step."""
    items_per_commit: int = ITEMS_PER_COMMIT
    """How wide a commit may be: a store that does not like long commits takes fewer items of a split at a time."""
    commits_at_once: int = 1
    """How many batches of one process its ledger works on at a time: more than one pays where another process does the
    work."""
    breath_of_timers: float = BREATH
    """Between two looks for due timers: shorter where a look already waits for what is about to come due."""
    expect_writable: Callable[[], Awaitable[None]] | None = None
    """Raises where the store answers, but takes no writes. None where whatever can be read can be written, too."""
    when_lost: Callable[[Callable[[StoreLost], None]], None] | None = None
    """Whom to tell, from any thread, that the store is gone for good. None where it cannot go that way."""
