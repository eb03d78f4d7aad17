"""Retention on PostgreSQL: days of history go as a whole where nothing of them is kept, and row by row else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from dalsegno.adapters.postgres import PostgresArchive, PostgresStore
from dalsegno.adapters.postgres.archive import partitions as days
from dalsegno.adapters.postgres.archive import removal
from dalsegno.adapters.postgres.archive.partitions import AHEAD, make_ahead, make_in_time, name_of, read_name
from dalsegno.adapters.postgres.store import DAY, day_at, numbers_of
from dalsegno.ports.archive import ExecutionFilter
from dalsegno.testing.clock import FakeClock
from dalsegno.wiring import open_stack
from tests.adapters.postgres.meanwhile import act_beside, until_somebody_waits
from tests.adapters.postgres.old_partitions import (
    left_in,
    partitions,
    pass_days,
    put_ended,
    put_ended_within,
    put_running,
    rows_of,
)
from tests.waiting import come_about


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(postgres_url, FakeClock())
    yield store
    await store.close()


def test_names_of_partitions_tell_their_day() -> None:
    day = day_at(1_700_006_400.0)
    assert name_of("event", day) == "event_20231115"
    assert read_name("event_20231115") == day
    assert read_name("event_other") is None


async def test_partitions_are_made_ahead_once(store: PostgresStore) -> None:
    await make_ahead(store)
    today = day_at(store.now())

    assert await partitions(store) >= {name_of("event", today + after) for after in range(AHEAD + 1)}
    assert await partitions(store, "output") >= {name_of("output", today)}
    assert await make_ahead(store) == 0
    await pass_days(store, 1)
    assert name_of("event", today + 1 + AHEAD) in await partitions(store)


async def test_partitions_that_another_process_makes_at_the_same_time_are_nobodys_complaint(
    store: PostgresStore,
    postgres_url: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO, "dalsegno.postgres")
    monkeypatch.setattr(days, "PATIENCE", "20s")
    today = day_at(store.now())
    first, end = numbers_of(today)
    other, watching = await asyncpg.connect(postgres_url), await asyncpg.connect(postgres_url)
    making = other.transaction()

    async def make_too() -> None:
        await making.start()
        for table in days.TABLES:
            await other.execute(
                f"CREATE TABLE dalsegno.{name_of(table, today)}"
                f" PARTITION OF dalsegno.{table} FOR VALUES FROM ({first}) TO ({end})"
            )

    act_beside(monkeypatch, store, "fetch", about="partitions.any_in_other", after=make_too)
    here = asyncio.create_task(make_ahead(store, days=0))
    await until_somebody_waits(watching)
    await making.commit()

    assert await here == 1
    assert caplog.text == ""
    assert await make_ahead(store, days=0) == 0
    await other.close()
    await watching.close()


async def test_partitions_are_sampled_as_their_table_is(store: PostgresStore) -> None:
    await make_ahead(store)

    for table in ("event", "output"):
        samples = await store.fetch("partitions.samples", f"dalsegno.{table}")
        assert samples
        for partition in await partitions(store, table):
            assert await store.fetch("partitions.samples", f"dalsegno.{partition}") == samples, partition


async def test_store_that_is_opened_has_the_partitions_of_today_before_anything_is_written(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def later(store: PostgresStore) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("dalsegno.adapters.postgres.keep_ahead", later)
    stack = await open_stack(postgres_url)
    today = day_at(stack.clock.now())
    await stack.close()

    store = await PostgresStore.open(postgres_url)
    found = {table: await partitions(store, table) for table in days.TABLES}
    await store.close()
    for table, names in found.items():
        assert names >= {name_of(table, today), name_of(table, today + 1)}


async def test_opening_costs_one_look_where_the_partitions_are_there(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_in_time(store)
    asked: list[str] = []
    fetch = store.fetch

    async def counting(statement: str, *parameters: object) -> list[object]:
        asked.append(statement)
        return await fetch(statement, *parameters)

    monkeypatch.setattr(store, "fetch", counting)
    await make_in_time(store)

    assert asked == ["partitions.names"]


async def test_several_processes_that_open_at_once_make_each_partition_once(
    store: PostgresStore, caplog: pytest.LogCaptureFixture
) -> None:
    await asyncio.gather(*(make_in_time(store) for _ in range(4)))

    today = day_at(store.now())
    assert await partitions(store) == {"event_other", name_of("event", today), name_of("event", today + 1)}
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_day_whose_rows_came_too_early_is_told_and_goes_row_by_row(
    store: PostgresStore, caplog: pytest.LogCaptureFixture
) -> None:
    archive, day = PostgresArchive(store), day_at(store.now())
    number = await put_ended(store, "early", day)

    await make_in_time(store)

    [told] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "dalsegno doctor" in told.message
    assert name_of("event", day) not in await partitions(store)
    assert name_of("event", day + 1) in await partitions(store)
    await pass_days(store, 3)
    assert await archive.remove_ended(store.now()) == 1
    assert await rows_of(store, number) == 0
    assert (await left_in(store, "event_other"), await left_in(store, "output_other")) == (0, 0)


async def test_rows_go_to_the_partition_of_the_day_of_their_start(store: PostgresStore) -> None:
    await make_ahead(store)
    day = day_at(store.now())
    await put_ended(store, "run", day)

    assert await left_in(store, name_of("event", day)) == 3
    assert await left_in(store, "event_other") == 0


async def test_day_of_which_nothing_is_kept_goes_as_a_whole(store: PostgresStore) -> None:
    await make_ahead(store)
    archive, day = PostgresArchive(store), day_at(store.now())
    for number in range(5):
        await put_ended(store, f"run-{number}", day, ("COMPLETED", "FAILED")[number % 2])
    await pass_days(store, 3)
    kept = await put_ended(store, "new", day_at(store.now()))

    assert await archive.remove_ended(store.now() - DAY) == 5

    assert name_of("event", day) not in await partitions(store)
    assert name_of("output", day) not in await partitions(store, "output")
    assert [view.id for view in await archive.executions(ExecutionFilter())] == ["new"]
    assert (await left_in(store, "failure_word"), await left_in(store, "execution_tag")) == (0, 1)
    assert await rows_of(store, kept) == 4


async def test_day_of_which_something_is_kept_stays_and_its_rows_go_one_by_one(store: PostgresStore) -> None:
    await make_ahead(store)
    archive, day = PostgresArchive(store), day_at(store.now())
    gone, kept = await put_ended(store, "done", day), await put_ended(store, "failed", day, "FAILED")
    await pass_days(store, 3)

    assert await archive.remove_ended(store.now(), states=("COMPLETED",)) == 1

    assert name_of("event", day) in await partitions(store)
    assert (await rows_of(store, gone), await rows_of(store, kept)) == (0, 4)
    assert [event.seq for event in await archive.events("failed")] == [1, 2, 3]


async def test_execution_that_never_ends_keeps_only_its_own_day(store: PostgresStore) -> None:
    await make_ahead(store)
    archive, day = PostgresArchive(store), day_at(store.now())
    kept = await put_running(store, "schedule", day)
    await put_ended(store, "beside it", day)
    for after in (1, 2):
        await put_ended(store, f"run-{after}", day + after)
    await pass_days(store, 6)

    assert await archive.remove_ended(store.now() - DAY) == 3

    for table in days.TABLES:
        left = await partitions(store, table)
        assert name_of(table, day) in left
        assert left.isdisjoint(name_of(table, day + after) for after in range(1, 5))
    assert await rows_of(store, kept) == 4
    assert await left_in(store, name_of("event", day)) == 3


async def test_look_at_many_days_is_cut_and_goes_on_where_it_ended(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(days, "JUDGED", 2)
    monkeypatch.setattr(days, "JUDGE_EVERY", 0.0)
    await make_ahead(store)
    archive, day = PostgresArchive(store), day_at(store.now())
    survivors = [await put_running(store, f"waits-{after}", day + after) for after in (0, 1)]
    await pass_days(store, 6)

    async def days_left() -> list[int]:
        await archive.remove_ended(store.now() - DAY)
        left = await partitions(store)
        return [after for after in range(5) if name_of("event", day + after) in left]

    assert await days_left() == [0, 1, 2, 3, 4]
    assert await days_left() == [0, 1, 4]
    assert await days_left() == [0, 1]
    assert await days_left() == [0, 1]
    async with store.transaction() as rows:
        await rows.connection.execute("DELETE FROM execution WHERE number = ANY ($1)", survivors)
    assert await days_left() == []


async def test_day_that_is_not_over_is_never_dropped(store: PostgresStore) -> None:
    await make_ahead(store)
    archive, day = PostgresArchive(store), day_at(store.now())
    number = await put_ended(store, "run", day)
    store._clock.advance(3600)  # type: ignore[union-attr]

    assert await archive.remove_ended(store.now()) == 1

    assert name_of("event", day) in await partitions(store)
    assert await rows_of(store, number) == 0


async def test_partition_in_use_is_dropped_later_and_holds_nobody_up(
    store: PostgresStore, postgres_url: str
) -> None:
    await make_ahead(store)
    archive, day = PostgresArchive(store), day_at(store.now())
    await put_ended(store, "run", day)
    await pass_days(store, 3)
    reader = await asyncpg.connect(postgres_url)
    async with reader.transaction():
        await reader.fetch("SELECT count(*) FROM dalsegno.event")

        assert await archive.remove_ended(store.now()) == 1
        assert name_of("event", day) in await partitions(store)
    await reader.close()

    assert await archive.remove_ended(store.now()) == 0
    assert name_of("event", day) not in await partitions(store)


async def test_partition_in_use_holds_up_no_other_day_for_ever(
    store: PostgresStore, postgres_url: str
) -> None:
    await make_ahead(store)
    archive, day = PostgresArchive(store), day_at(store.now())
    await pass_days(store, 4)
    vacuum = await asyncpg.connect(postgres_url)
    async with vacuum.transaction():
        oldest = name_of("event", day)
        await vacuum.execute(f"LOCK TABLE dalsegno.{oldest} IN SHARE UPDATE EXCLUSIVE MODE")

        for _ in range(2):
            await archive.remove_ended(store.now())

        left = await partitions(store)
        assert oldest in left
        assert left.isdisjoint((name_of("event", day + 1), name_of("event", day + 2)))
    await vacuum.close()


async def test_start_while_its_day_is_being_dropped_keeps_its_history(
    store: PostgresStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a process that has had its number for days, between the look at who is left and the drop."""
    monkeypatch.setattr(days, "PATIENCE", "30s")
    await make_ahead(store)
    archive, day = PostgresArchive(store), day_at(store.now())
    await put_ended(store, "old", day)
    await pass_days(store, 3)
    watching = await asyncpg.connect(postgres_url)
    async with store.transaction() as starting:
        late = await put_ended_within(starting, "late", day)
        removing = asyncio.create_task(archive.remove_ended(store.now() - DAY))
        await until_somebody_waits(watching)
    await removing
    await watching.close()

    assert name_of("event", day) in await partitions(store)
    assert await rows_of(store, late) == 4


async def test_two_processes_drop_the_same_day(store: PostgresStore) -> None:
    await make_ahead(store)
    day = day_at(store.now())
    await pass_days(store, 3)
    both = [days.Days(store), days.Days(store)]
    for one in both:
        one.removable.add(day)

    while any(one.removable for one in both):  # one may have to try again
        await asyncio.gather(*(one.drop() for one in both))

    assert name_of("event", day) not in await partitions(store)


async def test_execution_with_a_long_history_goes_in_several_transactions(store: PostgresStore) -> None:
    archive = PostgresArchive(store)
    number = await put_ended(store, "long", day_at(store.now()), events=12_000)
    store._clock.advance(200)  # type: ignore[union-attr]

    assert await archive.remove_ended(store.now()) == 1

    assert await rows_of(store, number) == 0
    assert await archive.execution("long") is None


UNSWEPT = (
    "INSERT INTO dalsegno.flight"
    " (number, id, state, definition, epoch, seq, live, priority, touched_at, ended_at, kind)"
    " SELECT number, id, state, definition, epoch, seq, live, priority, touched_at, ended_at, kind"
    " FROM dalsegno.execution WHERE id = 'held'"
)


@asynccontextmanager
async def one_of_two_is_held(store: PostgresStore, url: str, table: str = "execution") -> AsyncIterator[None]:
    """Of two executions that have ended, "held" and "free". In ``flight``: as the sweep holds what has just ended."""
    for name in ("held", "free"):
        await put_ended(store, name, day_at(store.now()) - 10)
    other = await asyncpg.connect(url)
    if table == "flight":
        await other.execute(UNSWEPT)
    try:
        async with other.transaction():
            await other.fetch(f"SELECT FROM dalsegno.{table} WHERE id = 'held' FOR UPDATE")
            yield
    finally:
        await other.close()


async def test_what_another_process_is_at_work_with_is_left_to_it(
    store: PostgresStore, postgres_url: str
) -> None:
    archive = PostgresArchive(store)
    async with one_of_two_is_held(store, postgres_url):
        assert await archive.remove(["held", "free"]) == ["free"]

    assert await archive.remove(["held", "free"]) == ["held"]


@pytest.mark.parametrize("table", ["execution", "flight"])
async def test_what_somebody_is_at_work_with_for_a_moment_is_removed_all_the_same(
    store: PostgresStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """And nothing else: an id that is free again may be in use again."""
    monkeypatch.setattr(removal, "PAUSES", (0.01,) * 1000)
    archive = PostgresArchive(store)
    async with asyncio.TaskGroup() as group, one_of_two_is_held(store, postgres_url, table):
        removing = group.create_task(archive.remove(["held", "free"]))
        await come_about(lambda: _is_gone(archive, "free"), "the other one is removed")
        await put_ended(store, "free", day_at(store.now()) - 9)

    assert removing.result() == ["free", "held"]
    assert [view.id for view in await archive.executions(ExecutionFilter())] == ["free"]


async def _is_gone(archive: PostgresArchive, name: str) -> bool:
    return await archive.execution(name) is None
