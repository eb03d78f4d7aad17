"""The contract suite on the memory adapters: the reference must pass it first."""

from __future__ import annotations

import pytest

from dalsegno.adapters.memory import (
    MemoryArchive,
    MemoryBlobs,
    MemoryBroker,
    MemoryLedger,
    MemoryLimits,
    MemoryPublications,
    MemoryPublished,
    MemoryRecords,
    MemoryStore,
)
from dalsegno.testing.clock import FakeClock
from dalsegno.testing.contract import Capabilities, ContractStack, bind


@pytest.fixture
def stack() -> ContractStack:
    clock, store = FakeClock(), MemoryStore()
    ledger = MemoryLedger(clock, store)
    return ContractStack(
        ledger,
        clock,
        MemoryArchive(store, clock),
        MemoryBlobs(store),
        MemoryBroker(ledger),
        records=MemoryRecords(store, clock),
        limits=MemoryLimits(store, clock),
        publications=MemoryPublications(store, clock),
        published=MemoryPublished(store, clock),
    )


globals().update(bind(Capabilities()))
