"""Numbers of executions belong to the day of their start, however long a process has had them at hand."""

from __future__ import annotations

import pytest

from dalsegno.adapters.postgres import PostgresLedger, PostgresStore
from dalsegno.adapters.postgres.statements import SQL
from dalsegno.adapters.postgres.store import BLOCK, Numbers, day_at, day_of, numbers_of
from dalsegno.testing.contract.builders import start, token

DAY = 20_000
NEXT = "look.next_numbers"


def with_blocks(*days: int) -> Numbers:
    numbers = Numbers()
    for day in days:
        numbers.add(numbers_of(day)[0])
    return numbers


def test_left_over_numbers_are_taken_first_and_in_their_order() -> None:
    numbers = with_blocks(DAY, DAY + 1)

    assert [day_of(numbers.take()) for _ in range(BLOCK + 1)] == [DAY] * BLOCK + [DAY + 1]


def test_numbers_of_days_before_are_thrown_away() -> None:
    numbers = with_blocks(DAY - 7, DAY - 1, DAY)
    numbers.forget_before(DAY)

    assert len(numbers) == BLOCK
    assert numbers.take() == numbers_of(DAY)[0]


def test_numbers_of_a_day_that_has_only_begun_in_the_database_are_kept() -> None:
    numbers = with_blocks(DAY + 1)
    numbers.forget_before(DAY)

    assert len(numbers) == BLOCK


async def test_block_taken_days_ago_is_not_used_today(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = PostgresLedger(await PostgresStore.open(postgres_url))
    with monkeypatch.context() as days_ago:
        days_ago.setitem(SQL, NEXT, SQL[NEXT].replace("clock_timestamp()", "(now() - interval '3 days')"))
        await ledger.commit([start("then", token("a"))])
    await ledger.commit([start("today", token("a"))])

    async with ledger.store.transaction() as tx:
        found = await tx.connection.fetch("SELECT id, number FROM execution")
    numbers = dict(found)
    assert day_of(numbers["then"]) < day_at(ledger.now()) - 1
    assert day_of(numbers["today"]) >= day_at(ledger.now()) - 1  # midnight may have passed meanwhile
    await ledger.close()
