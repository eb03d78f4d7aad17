"""Worker slots by workflow, and the workflows that hold their share."""

from __future__ import annotations

from contextvars import ContextVar

from msgspec import Struct

from dalsegno.engine.definitions import Definitions
from dalsegno.model.token import LONG_KINDS, Lease, may_run_long
from dalsegno.ports.shares import share_of

UNKNOWN = ""
"""Workflow of definitions that are not loaded yet: together they count as one."""
REMEMBERED = 10_000
FEW_DIVISOR = 20
"""A workflow that holds less than one slot in this many never counts as crowding."""
CROWDING_SECONDS = 1.0
"""Seconds for which a workflow counts as crowding at least: claims for others cost less while the set stays the
same.
"""

current_lease: ContextVar[Lease | None] = ContextVar("current_lease", default=None)
"""The first lease of the current asyncio task; all leases it runs belong to one execution."""


class WorkflowSlots(Struct, eq=False, gc=False):
    """The slots that a workflow holds, and how many of them have a step that may take long."""

    workflow: str
    held: int = 0
    long: int = 0


class HeldSlot(Struct, eq=False, gc=False):
    """A slot in use, those of the workflow it counts for, and whether a step in it may take long."""

    lease: Lease
    of: WorkflowSlots
    is_long: bool = False


class SlotShares:
    """The number of slots that each workflow holds, by name; all versions of a workflow count together.

    The share of a workflow bounds leases that may take long. Bookkeeping steps and turns of scripts do not count
    towards it: cancellations and timeouts need them.
    """

    def __init__(self, concurrency: int, share: float, definitions: Definitions) -> None:
        self.most = share_of(concurrency, share)
        self.is_bounded = self.most < concurrency
        self._concurrency = concurrency
        self._definitions = definitions
        self.names: dict[str, str] = {}
        """Names of workflows by definition hash."""
        self._held: dict[str, WorkflowSlots] = {}
        """By workflow; only those that hold a slot."""
        self._unknown: dict[HeldSlot, None] = {}
        self._crowding: dict[str, float] = {}
        """Time until which each workflow counts as crowding."""

    def take(self, lease: Lease) -> HeldSlot | None:
        """Take a slot. Return None if slots are not counted."""
        if not self.is_bounded:
            return None
        workflow = self.names.get(lease.definition) or self.workflow_of(lease)
        of = self._held.get(workflow) or self._slots_of(workflow)
        of.held += 1
        is_long = lease.kind in LONG_KINDS or may_run_long(lease.kind, lease.execution_kind)
        if is_long:
            of.long += 1
        slot = HeldSlot(lease, of, is_long)
        if not workflow:
            self._unknown[slot] = None
        return slot

    def _slots_of(self, workflow: str) -> WorkflowSlots:
        known = self._held.get(workflow)
        if known is None:
            known = self._held[workflow] = WorkflowSlots(workflow)
        return known

    def may_run_long(self, slot: HeldSlot | None) -> None:
        """Note that the step that runs in the slot now may take long."""
        if slot is not None and not slot.is_long:
            slot.is_long = True
            slot.of.long += 1

    def free(self, slot: HeldSlot | None) -> None:
        """Free a slot."""
        if slot is None:
            return
        of = slot.of
        if self._unknown:
            self._unknown.pop(slot, None)
        of.held -= 1
        if slot.is_long:
            of.long -= 1
        if not of.held:
            del self._held[of.workflow]

    def full(self) -> list[str]:
        """Return the workflows that hold their share."""
        if self._unknown:
            self._name_unknown()
        return [name for name, slots in self._held.items() if slots.long >= self.most]

    def crowding(self, now: float) -> list[str]:
        """Return the workflows that hold more than an equal part while many slots are in use. Other workflows precede
        them.
        """
        if self._unknown:
            self._name_unknown()
        if self.is_bounded and 2 * sum([slots.held for slots in self._held.values()]) >= self._concurrency:
            equal = max(self.most // len(self._held), self._concurrency // FEW_DIVISOR, 1)
            until = now + CROWDING_SECONDS
            self._crowding |= {name: until for name, slots in self._held.items() if slots.held >= equal}
        if self._crowding:
            self._crowding = {name: until for name, until in self._crowding.items() if until > now}
        return list(self._crowding)

    def holds_few(self, slot: HeldSlot | None) -> bool:
        """Return True if the workflow in the slot holds so few slots that it delays no other."""
        return slot is not None and slot.of.held * FEW_DIVISOR <= self._concurrency

    def room(self, name: str) -> int:
        """Return the number of further leases that the workflow may have."""
        known = self._held.get(name)
        return self.most - known.long if known is not None else self.most

    def room_for_any(self) -> int:
        """Return the number of leases that may be claimed without knowing their workflow, full workflows excluded."""
        long = [slots.long for slots in self._held.values()]
        return self.most - max((count for count in long if count < self.most), default=0)

    def allows(self, lease: Lease) -> bool:
        if not self.is_bounded or not may_run_long(lease.kind, lease.execution_kind):
            return True
        return self.room(self.workflow_of(lease)) > 0

    def workflow_of(self, lease: Lease) -> str:
        """Return the workflow of a lease. A task that was handed over, or started alone, is a workflow of its own."""
        if not lease.definition:
            return lease.node
        known = self.names.get(lease.definition)
        return known if known is not None else self._look_up(lease.definition)

    def current_workflow(self) -> str:
        """Return the workflow that the current asyncio task runs."""
        lease = current_lease.get()
        return self.workflow_of(lease) if lease is not None else UNKNOWN

    def _look_up(self, hash: str) -> str:
        program = self._definitions.cached(hash) or self._definitions.cached_script(hash)
        if program is None:
            return UNKNOWN
        self.learn(hash, program.definition.name)
        return program.definition.name

    def learn(self, hash: str, name: str) -> None:
        """Note the name of a workflow whose definition is not loaded here."""
        if len(self.names) >= REMEMBERED:
            self.names.clear()
        self.names[hash] = name

    def _name_unknown(self) -> None:
        for slot in list(self._unknown):
            name = self.workflow_of(slot.lease)
            if name != UNKNOWN:
                is_long = slot.is_long
                self.free(slot)
                slot.of, slot.is_long = self._slots_of(name), False
                slot.of.held += 1
                if is_long:
                    self.may_run_long(slot)
