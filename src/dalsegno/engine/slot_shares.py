"""How many of a worker's slots each workflow holds, and which workflows hold their share."""

from __future__ import annotations

from contextvars import ContextVar

from dalsegno.engine.definitions import Definitions
from dalsegno.model.token import Lease, may_run_long
from dalsegno.ports.shares import share_of

UNKNOWN = ""
"""Workflows of definitions that are not loaded yet: together they count as one."""
REMEMBERED = 10_000
FEW = 20
"""A workflow that holds less than one slot in so many is never among those that crowd others out."""
CROWDS_FOR = 1.0
"""Seconds for which a workflow is among them at least: asking for others costs less while it stays the same."""

current_lease: ContextVar[Lease | None] = ContextVar("current_lease", default=None)
"""What the current asyncio task began with: all it runs is of one execution."""


class HeldSlot:
    """A slot of the worker in use, the workflow that it counts for, and whether a step in it may run long."""

    __slots__ = ("is_long", "lease", "workflow")

    def __init__(self, lease: Lease, workflow: str) -> None:
        self.lease = lease
        self.workflow = workflow
        self.is_long = False


class SlotShares:
    """Counts the slots that each workflow holds, by its name; its versions count together.

    The share of a workflow bounds leases that may run long. Bookkeeping steps and turns of scripts do not count there:
    cancellations and timeouts need them."""

    def __init__(self, concurrency: int, share: float, definitions: Definitions) -> None:
        self.most = share_of(concurrency, share)
        self.is_bounded = self.most < concurrency
        self._concurrency = concurrency
        self._definitions = definitions
        self._names: dict[str, str] = {}
        """Of workflows, by the hashes of their definitions."""
        self._held: dict[str, int] = {}
        self._long: dict[str, int] = {}
        """Those of them that may run long."""
        self._unknown: dict[HeldSlot, None] = {}
        self._crowding: dict[str, float] = {}
        """Until when workflows count as crowding."""

    def take(self, lease: Lease) -> HeldSlot | None:
        """A slot is in use from now on. None if slots are not counted."""
        if not self.is_bounded:
            return None
        slot = HeldSlot(lease, self.workflow_of(lease))
        if slot.workflow == UNKNOWN:
            self._unknown[slot] = None
        self._held[slot.workflow] = self._held.get(slot.workflow, 0) + 1
        if may_run_long(lease.kind, lease.execution_kind):
            self.may_run_long(slot)
        return slot

    def may_run_long(self, slot: HeldSlot | None) -> None:
        """So may the step that runs in it now."""
        if slot is not None and not slot.is_long:
            slot.is_long = True
            self._long[slot.workflow] = self._long.get(slot.workflow, 0) + 1

    def free(self, slot: HeldSlot | None) -> None:
        """Its run is over."""
        if slot is None:
            return
        self._unknown.pop(slot, None)
        _count_down(self._held, slot.workflow)
        if slot.is_long:
            _count_down(self._long, slot.workflow)

    def full(self) -> list[str]:
        """Workflows that hold their share."""
        if self._unknown:
            self._name_unknown()
        return [name for name, held in self._long.items() if held >= self.most]

    def crowding(self, now: float) -> list[str]:
        """Workflows that hold more than an equal part while many slots are in use. Others go before them."""
        if self._unknown:
            self._name_unknown()
        if self.is_bounded and 2 * sum(self._held.values()) >= self._concurrency:
            equal = max(self.most // len(self._held), self._concurrency // FEW, 1)
            until = now + CROWDS_FOR
            self._crowding |= {name: until for name, held in self._held.items() if held >= equal}
        if self._crowding:
            self._crowding = {name: until for name, until in self._crowding.items() if until > now}
        return list(self._crowding)

    def holds_few(self, slot: HeldSlot | None) -> bool:
        """Whether the workflow in the slot has so few that nobody waits because of it."""
        return slot is not None and self._held[slot.workflow] * FEW <= self._concurrency

    def room(self, name: str) -> int:
        """How many more leases the workflow may have."""
        return self.most - self._long.get(name, 0)

    def room_for_any(self) -> int:
        """How many more leases may be claimed without knowing whose they are, those of full workflows aside."""
        return self.most - max((held for held in self._long.values() if held < self.most), default=0)

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
        self.learn(hash, program.definition.name)
        return program.definition.name

    def learn(self, hash: str, name: str) -> None:
        """The name of a workflow whose definition is not loaded here."""
        if len(self._names) >= REMEMBERED:
            self._names.clear()
        self._names[hash] = name

    def _name_unknown(self) -> None:
        for slot in list(self._unknown):
            name = self.workflow_of(slot.lease)
            if name != UNKNOWN:
                is_long = slot.is_long
                self.free(slot)
                slot.workflow, slot.is_long = name, False
                self._held[name] = self._held.get(name, 0) + 1
                if is_long:
                    self.may_run_long(slot)


def _count_down(counts: dict[str, int], name: str) -> None:
    left = counts[name] - 1
    if left:
        counts[name] = left
    else:
        del counts[name]
