"""Machines kept warm: a worker that goes on with a script it has just run need not load it again.

Only ever a shortcut. A machine is taken out while it runs, so no two steps share one, and what it leads to is committed
under the version it was kept with: if the stored one has moved on, the commit is refused and the machine forgotten.
"""

from __future__ import annotations

from collections import OrderedDict

from msgspec import Struct

from dalsegno.core.script_bodies import blob_of
from dalsegno.engine.scripting.programs import RunningMachine
from dalsegno.lang.effects import Awaitable, Outcome
from dalsegno.model.machine import CancelReason, Completion, Wake

CAPACITY = 2000
MOST_BYTES = 64 * 1024 * 1024
"""Of all machines together, by what they take in the store."""
LARGEST = 1024 * 1024
"""Of one: a larger machine is loaded again rather than kept."""


def size_of(completion: Completion) -> int:
    """Of what it gives, roughly. A blob is large by nature."""
    return len(completion.data) if blob_of(completion) is None else LARGEST + 1


class Warm(Struct):
    machine: RunningMachine
    version: int
    read: int
    wake: Wake
    known: dict[str, Outcome]
    """Outcomes of promises it can still reach, in the order of completion."""
    awaiting: Awaitable | None = None
    cancel: CancelReason = ""
    """What it was asked to end for, if it was told so already."""
    sizes: dict[str, int] = {}
    """Bytes of what is known."""
    weight: int = 0
    """Bytes of its snapshot, of the blobs beside it, and of what is known."""
    blobs: frozenset[str] = frozenset()
    """Names in its snapshot."""
    behind: bool = False
    """Whether something completed that it does not know of."""


class HotMachines:
    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._kept: OrderedDict[str, Warm] = OrderedDict()
        self._bytes = 0

    def take(self, execution: str) -> Warm | None:
        warm = self._kept.pop(execution, None)
        if warm is not None:
            self._bytes -= warm.weight
        return warm

    def keep(self, execution: str, warm: Warm) -> None:
        self.take(execution)
        if warm.weight > LARGEST:
            return
        self._kept[execution] = warm
        self._bytes += warm.weight
        while len(self._kept) > self._capacity or self._bytes > MOST_BYTES:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= oldest.weight

    def take_if_woken(self, execution: str, completion: Completion) -> Warm | None:
        """The machine, if one more completion alone lets it go on, as far as this process knows. One that sleeps on
        falls behind: it can still be resumed, but a fused commit would be refused."""
        warm = self._kept.get(execution)
        if warm is None or warm.behind:
            return None
        wake = warm.wake
        if wake.counts(completion.promise) and (
            wake.need <= 1 or (wake.on_success if completion.ok else wake.on_failure)
        ):
            return self.take(execution)
        warm.behind = True
        return None
