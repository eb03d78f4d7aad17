"""The contract suite on Redis, as far as its ledger goes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from dalsegno.adapters.redis import RedisLedger, RedisStore
from dalsegno.adapters.redis.encoding import event_of
from dalsegno.model.event import Event
from dalsegno.testing.clock import FakeClock
from dalsegno.testing.contract import Capabilities, ContractStack, bind


@pytest.fixture
async def stack(redis_url: str) -> AsyncIterator[ContractStack]:
    clock = FakeClock()
    store = await RedisStore.open(redis_url, clock)
    ledger = RedisLedger(store)

    async def read_events(execution: str) -> list[Event]:
        """Out of the stream that the archiver reads."""
        entries = [fields for _, fields in await store.client.xrange(store.keys.events)]
        mine = [fields for fields in entries if fields[b"execution"] == execution.encode()]
        return [event_of(execution, fields[b"event"], fields[b"data"]) for fields in mine]

    yield ContractStack(ledger, clock, read_events=read_events)  # type: ignore[arg-type]  # no whole Ledger yet
    await ledger.close()


GUARANTEES = frozenset(("L1", "L2", "L3", "L5", "L6", "L7", "L8", "L9", "C1"))
FEATURES = frozenset(("commit", "gates", "cancelling", "pausing", "time"))
globals().update(bind(Capabilities(FEATURES, GUARANTEES)))
