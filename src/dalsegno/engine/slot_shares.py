"""How many of a worker's slots each workflow holds, and which workflows hold their share."""

from __future__ import annotations

from contextvars import ContextVar

from dalsegno.engine.definitions import Definitions
from dalsegno.model.token import Lease, may_run_long
from dalsegno.ports.shares import share_of

UNKNOWN = ""
"""Workflows of definitions that are not loaded yet: together they count as one."""
REMEMBERED = 10_000

current_lease: ContextVar[Lease | None] = ContextVar("current_lease", default=None)
"""What the current asyncio task began with: all it runs is of one execution."""


class HeldSlot:
    """A slot of the worker in use, and the workflow that it counts for."""

    __slots__ = ("lease", "workflow")

    def __init__(self, lease: Lease, workflow: str) -> None:
        self.lease = lease
        self.workflow = workflow


class SlotShares:
    """Counts leases that may run long, by the name of their workflow; its versions count together. Bookkeeping steps
    and turns of scripts count only once they wait for memory or time: cancellations and timeouts need them."""

    def __init__(self, concurrency: int, share: float, definitions: Definitions) -> None:
        self.most = share_of(concurrency, share)
        self.is_bounded = self.most < concurrency
        self._definitions = definitions
        self._names: dict[str, str] = {}
        """Of workflows, by the hashes of their definitions."""
        self._held: dict[str, int] = {}
        self._unknown: dict[HeldSlot, None] = {}

    def take(self, lease: Lease) -> HeldSlot | None:
        """The lease is run from now on. None if it does not count."""
        if not self.is_bounded or not may_run_long(lease.kind, lease.execution_kind):
            return None
        return self.take_heavy(lease)

    def take_heavy(self, lease: Lease) -> HeldSlot | None:
        """The lease turned out to take long, whatever it is."""
        if not self.is_bounded:
            return None
        slot = HeldSlot(lease, self.workflow_of(lease))
        if slot.workflow == UNKNOWN:
            self._unknown[slot] = None
        self._held[slot.workflow] = self._held.get(slot.workflow, 0) + 1
        return slot

    def free(self, slot: HeldSlot | None) -> None:
        """Its run is over."""
        if slot is None:
            return
        self._unknown.pop(slot, None)
        left = self._held[slot.workflow] - 1
        if left:
            self._held[slot.workflow] = left
        else:
            del self._held[slot.workflow]

    def full(self) -> list[str]:
        """Workflows that hold their share."""
        if self._unknown:
            self._name_unknown()
        return [name for name, held in self._held.items() if held >= self.most]

    def room(self, name: str) -> int:
        """How many more leases the workflow may have."""
        return self.most - self._held.get(name, 0)

    def room_for_any(self) -> int:
        """How many more leases may be claimed without knowing whose they are, those of full workflows aside."""
        return self.most - max((held for held in self._held.values() if held < self.most), default=0)

    def allows(self, lease: Lease) -> bool:
        if not self.is_bounded or not may_run_long(lease.kind, lease.execution_kind):
            return True
        return self.room(self.workflow_of(lease)) > 0

    def workflow_of(self, lease: Lease) -> str:
        """A task that was handed over, or started alone, is a workflow of its own."""
        if not lease.definition:
            return lease.node
        known = self._names.get(lease.definition)
        return known if known is not None else self._look_up(lease.definition)

    def current_workflow(self) -> str:
        """Of what the current asyncio task runs."""
        lease = current_lease.get()
        return self.workflow_of(lease) if lease is not None else UNKNOWN

    def _look_up(self, hash: str) -> str:
        program = self._definitions.cached(hash) or self._definitions.cached_script(hash)
        if program is None:
            return UNKNOWN
        if len(self._names) >= REMEMBERED:
            self._names.clear()
        name = self._names[hash] = program.definition.name
        return name

    def _name_unknown(self) -> None:
        for slot in list(self._unknown):
            name = self.workflow_of(slot.lease)
            if name != UNKNOWN:
                self.free(slot)
                slot.workflow = name
                self._held[name] = self._held.get(name, 0) + 1
