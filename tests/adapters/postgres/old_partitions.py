"""Executions of days that are over, as they lie in PostgreSQL, and what is left of them."""

from __future__ import annotations

from dalsegno.adapters.postgres import PostgresStore
from dalsegno.adapters.postgres.archive.partitions import make_ahead
from dalsegno.adapters.postgres.store import DAY, Transaction, numbers_of
from dalsegno.testing.clock import FakeClock


async def partitions(store: PostgresStore, table: str = "event") -> set[str]:
    return {name for (name,) in await store.fetch("partitions.names", f"dalsegno.{table}")}


async def put_ended(
    store: PostgresStore, name: str, day: int, state: str = "COMPLETED", events: int = 3
) -> int:
    """An execution that was started and ended on that day and is swept; its number."""
    async with store.transaction() as rows:
        return await put_ended_within(rows, name, day, state, events)


async def put_ended_within(
    rows: Transaction, name: str, day: int, state: str = "COMPLETED", events: int = 3
) -> int:
    number, at = numbers_of(day)[0] + sum(name.encode()), day * DAY + 100.0
    await rows.connection.execute(
        "INSERT INTO execution (number, id, workflow, version, definition, kind, state, created_at, priority,"
        " ended_at, epoch, seq, live, touched_at, tags, error, input) VALUES ($1, $2, 'w', 1, 'h', 'graph', $3, $4,"
        """ 0, $4, 0, $5, 0, $4, '[["env", "prod"]]', '{"message": "out of paper"}', '{}')""",
        number,
        name,
        state,
        at,
        events,
    )
    await rows.connection.execute(
        "INSERT INTO event (execution, seq, kind, node, scope, at)"
        " SELECT $1, seq, 'NodeCompleted', 'n', '', $2 FROM generate_series(1, $3::integer) AS seq",
        number,
        at,
        events,
    )
    await rows.connection.execute("INSERT INTO output VALUES ($1, 'o', 'x')", number)
    await rows.connection.execute("INSERT INTO execution_tag VALUES ('env', 'prod', $1, $2)", at, name)
    if state == "FAILED":
        await rows.connection.execute("INSERT INTO failure_word VALUES ('paper', $1, $2)", at, name)
    return number


async def put_running(store: PostgresStore, name: str, day: int) -> int:
    """An execution that was started on that day and waits ever since."""
    number = await put_ended(store, name, day)
    async with store.transaction() as rows:
        await rows.connection.execute(
            "UPDATE execution SET state = 'RUNNING', ended_at = NULL WHERE number = $1", number
        )
    return number


async def rows_of(store: PostgresStore, number: int) -> int:
    async with store.transaction() as rows:
        return int(
            await rows.connection.fetchval(
                "SELECT (SELECT count(*) FROM event WHERE execution = $1)"
                " + (SELECT count(*) FROM output WHERE execution = $1)",
                number,
            )
        )


async def left_in(store: PostgresStore, table: str) -> int:
    async with store.transaction() as rows:
        return int(await rows.connection.fetchval(f"SELECT count(*) FROM {table}"))


async def pass_days(store: PostgresStore, days: int) -> None:
    assert isinstance(store._clock, FakeClock)
    store._clock.advance(days * DAY)
    await make_ahead(store)
