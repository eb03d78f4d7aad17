"""A cache of machines: a worker that continues a script it has just run need not load it again.

The cache is only a shortcut. A machine is removed from it while it runs, so no two steps share one. Its next turn is
committed under the version it was cached with: if the stored version has advanced, the commit is refused and the
machine dropped.
"""

from __future__ import annotations

from collections import OrderedDict

from msgspec import Struct

from dalsegno.core.scripts.token_bodies import blob_of
from dalsegno.engine.journal.writing import OpenJournal
from dalsegno.engine.scripts.programs import RunningMachine
from dalsegno.lang.runtime.effects import Awaitable, Outcome
from dalsegno.model.machine import CancelReason, Completion, Wake

CAPACITY = 5000
MOST_BYTES = 64 * 1024 * 1024
"""Bytes of all machines together, by their size in the store."""
LARGEST = 1024 * 1024
"""Bytes of one machine: a larger one is loaded again and not cached."""


def size_of(completion: Completion) -> int:
    """Return the approximate bytes of a completion's value. A blob counts as large."""
    return len(completion.data) if blob_of(completion) is None else LARGEST + 1


class CachedMachine(Struct):
    machine: RunningMachine
    version: int
    read: int
    wake: Wake
    known: dict[str, Outcome]
    """Outcomes of promises it can still reach, in the order of completion."""
    awaiting: Awaitable | None = None
    cancel: CancelReason = ""
    """Reason for which it was asked to end, if it has received that request."""
    sizes: dict[str, int] = {}
    """Bytes of the known outcomes."""
    weight: int = 0
    """Bytes of its snapshot, the blobs of the snapshot, and the known outcomes."""
    blobs: frozenset[str] = frozenset()
    """Names of blobs in its snapshot."""
    definition: str = ""
    """Content hash of the version of its program."""
    journal: OpenJournal | None = None
    is_outdated: bool = False
    """Whether something has completed that it does not know of."""


class MachineCache:
    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._kept: OrderedDict[str, CachedMachine] = OrderedDict()
        self._bytes = 0

    def take(self, execution: str) -> CachedMachine | None:
        cached = self._kept.pop(execution, None)
        if cached is not None:
            self._bytes -= cached.weight
        return cached

    def keep(self, execution: str, cached: CachedMachine) -> None:
        if execution in self._kept:
            self.take(execution)
        if cached.weight > LARGEST:
            return
        self._kept[execution] = cached
        self._bytes += cached.weight
        while len(self._kept) > self._capacity or self._bytes > MOST_BYTES:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= oldest.weight

    def take_if_woken(self, execution: str, definition: str, completion: Completion) -> CachedMachine | None:
        """Take the machine if this completion alone lets it continue, by the knowledge of this process. A machine
        that does not wake falls behind: it can still be resumed, but a fused commit would be refused. ``definition``:
        of the lease, which may be older than a move to another version.
        """
        cached = self._kept.get(execution)
        if cached is None or cached.is_outdated or cached.definition != definition:
            return None
        wake = cached.wake
        if wake.counts(completion.promise) and (
            wake.need <= 1 or (wake.on_success if completion.ok else wake.on_failure)
        ):
            return self.take(execution)
        cached.is_outdated = True
        return None
