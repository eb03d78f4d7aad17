"""Machines kept warm: a worker that goes on with a script it has just run need not load it again.

Only ever a shortcut. A machine is taken out while it runs, so no two steps share one, and what it leads to is committed
under the version it was kept with: if the stored one has moved on, the commit is refused and the machine forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from dalsegno.engine.scripting.programs import RunningMachine
from dalsegno.lang.effects import Awaitable, Outcome
from dalsegno.model.machine import CancelReason, Wake

CAPACITY = 2000
LARGEST = 64 * 1024
"""Bytes of a snapshot; a larger machine is loaded again rather than kept."""


@dataclass(slots=True)
class Warm:
    machine: RunningMachine
    version: int
    read: int
    wake: Wake
    known: dict[str, Outcome]
    """Outcomes of promises it can still reach, in the order of completion."""
    awaiting: Awaitable | None = None
    cancel: CancelReason = ""
    """What it was asked to end for, if it was told so already."""


class HotMachines:
    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._kept: OrderedDict[str, Warm] = OrderedDict()

    def take(self, execution: str) -> Warm | None:
        return self._kept.pop(execution, None)

    def keep(self, execution: str, warm: Warm) -> None:
        self._kept[execution] = warm
        if len(self._kept) > self._capacity:
            self._kept.popitem(last=False)

    def wakes(self, execution: str, *, ok: bool) -> bool:
        """Whether one more completion alone lets the machine go on, as far as this process knows."""
        warm = self._kept.get(execution)
        if warm is None:
            return False
        wake = warm.wake
        return wake.need <= 1 or (wake.on_success and ok) or (wake.on_failure and not ok)
