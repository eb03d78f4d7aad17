"""The contract suite on PostgreSQL, as far as its ledger goes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from dalsegno.adapters.postgres import PostgresLedger, PostgresStore
from dalsegno.testing.clock import FakeClock
from dalsegno.testing.contract import Capabilities, ContractStack, bind


@pytest.fixture
async def stack(postgres_url: str) -> AsyncIterator[ContractStack]:
    clock = FakeClock()
    ledger = PostgresLedger(await PostgresStore.open(postgres_url, clock))
    yield ContractStack(ledger, clock, read_events=ledger.events)  # type: ignore[arg-type]  # no whole Ledger yet
    await ledger.close()


GUARANTEES = frozenset("L1 L2 L3 L5 L6 L7 L8 L9 C1".split())
globals().update(bind(Capabilities(frozenset(("commit", "gates", "cancelling", "pausing", "time")), GUARANTEES)))
