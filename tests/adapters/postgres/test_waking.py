"""Due timers: nobody waits for those that come due while others are being woken."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.adapters.postgres import PostgresLedger
from dalsegno.adapters.postgres.claims import Claims
from dalsegno.testing.contract.build import start, token
from tests.adapters.postgres.conftest import OpenLedger


async def test_what_comes_due_during_a_wake_is_left_to_the_next(
    ledger: PostgresLedger, open_ledger: OpenLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, change, number = await open_ledger(), Claims._change, 0

    async def park_one() -> None:
        nonlocal number
        number += 1
        await other.commit([start(f"run-{number}", token("t", due=other.now() - 1))])

    async def change_while_more_is_parked(claims: Claims, *arguments: Any) -> Any:
        done = await change(claims, *arguments)
        await park_one()
        return done

    await park_one()
    monkeypatch.setattr(Claims, "_change", change_while_more_is_parked)

    first = await ledger.wake()

    assert [ready.execution for ready in first.ready] == ["run-1"]
    assert first.next_due is not None
    assert first.next_due <= ledger.now()
    assert [ready.execution for ready in (await ledger.wake()).ready] == ["run-2"]
