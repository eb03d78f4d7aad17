"""A memory stack of its own for tests that need no simulation."""

from __future__ import annotations

from dalsegno.adapters.memory import MemoryArchive, MemoryBlobs, MemoryBroker, MemoryLedger, MemoryStore
from dalsegno.testing.clock import FakeClock
from dalsegno.testing.contract import ContractStack


def memory_stack() -> ContractStack:
    clock, store = FakeClock(), MemoryStore()
    ledger = MemoryLedger(clock, store)
    return ContractStack(ledger, clock, MemoryArchive(store, clock), MemoryBlobs(store), MemoryBroker(ledger))
