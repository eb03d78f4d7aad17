"""Several may wait for work in one process: news reach each of them, also one that is just asking."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dalsegno.adapters.memory.broker import MemoryBroker
from dalsegno.adapters.postgres import Listener, PostgresBroker
from dalsegno.adapters.postgres.claim.waiting_workers import WaitingWorkers
from dalsegno.adapters.sqlite.broker import SqliteBroker
from dalsegno.model.transition import ReadyToken
from tests.waiting import come_about


class SlowLedger:
    """Looks at once, and answers the second worker only when the gate is open."""

    def __init__(self, path: Path) -> None:
        self.store = SimpleNamespace(path=path, elsewhere=SimpleNamespace(listen=lambda committed: None))
        self.gate = asyncio.Event()
        self.asked: list[str] = []
        self.ready: set[str] = set()

    async def claim(self, worker: str, queues: list[str], limit: int) -> list[Any]:
        found = [queue for queue in queues if queue in self.ready]
        self.asked.append(worker)
        if worker == "second" and not found:
            await self.gate.wait()
        return found


def deaf_postgres_broker(ledger: Any) -> PostgresBroker:
    """Its listener is not started: what counts is inside the process."""
    return PostgresBroker(ledger, Listener("postgresql://nowhere/at_all"), WaitingWorkers())


@pytest.mark.parametrize("make", [MemoryBroker, SqliteBroker, deaf_postgres_broker])
async def test_news_that_come_during_a_claim_are_not_taken_away_by_another(make: Any, tmp_path: Path) -> None:
    ledger = SlowLedger(tmp_path / "none.db")
    broker = make(ledger)
    first = asyncio.create_task(broker.take("first", ["a"], 1))
    second = asyncio.create_task(broker.take("second", ["b"], 1))
    await come_about(lambda: ledger.asked == ["first", "second"], "both ask")
    ledger.ready.add("b")
    await broker.announce([ReadyToken("t", "x", "b", 0)])
    await come_about(lambda: ledger.asked.count("first") == 2, "the first asks again")
    ledger.gate.set()
    assert await asyncio.wait_for(second, 5) == ["b"]
    first.cancel()
