"""What is remembered of programs that worked on a store."""

from __future__ import annotations

import asyncio

import pytest

from dalsegno.adapters.memory import MemoryRecords, MemoryStore
from dalsegno.engine import seen_tasks
from dalsegno.engine.seen_tasks import FORGOTTEN, FRESH, KIND, REMEMBERED, Program, SeenTasks
from dalsegno.testing.clock import FakeClock

SHOP = Program(("price", "pack"), ("default", "shop"))
BANK = Program(("pay",), ("bank",))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def records(clock: FakeClock) -> MemoryRecords:
    return MemoryRecords(MemoryStore(), clock)


@pytest.fixture
def seen(records: MemoryRecords, clock: FakeClock) -> SeenTasks:
    return SeenTasks(records, clock)


async def test_tasks_of_a_program_were_there_for_a_while(seen: SeenTasks, clock: FakeClock) -> None:
    await seen.note(SHOP)
    clock.advance(REMEMBERED - 1)
    assert await seen.was_there("price", "default")
    assert await seen.was_there("pack", "shop")
    clock.advance(1)
    assert not await seen.was_there("price", "default")


@pytest.mark.parametrize(("task", "queue"), [("price", "bank"), ("pay", "default"), ("prize", "default")])
async def test_only_a_task_of_a_worker_of_that_queue_counts(seen: SeenTasks, task: str, queue: str) -> None:
    await seen.note(SHOP)
    await seen.note(BANK)
    assert not await seen.was_there(task, queue)


async def test_processes_of_one_program_write_one_record_and_renew_it(
    seen: SeenTasks, records: MemoryRecords, clock: FakeClock
) -> None:
    await seen.note(SHOP)
    clock.advance(REMEMBERED)
    await seen.note(Program(("pack", "price"), ("shop", "default")))

    assert len(await records.page(KIND)) == 1
    assert await seen.was_there("price", "default")


async def test_programs_that_are_long_gone_are_forgotten(
    seen: SeenTasks, records: MemoryRecords, clock: FakeClock
) -> None:
    await seen.note(SHOP)
    clock.advance(FORGOTTEN + 1)
    await seen.note(BANK)

    [left] = await records.page(KIND)
    assert b"pay" in left.data


async def test_that_a_task_is_away_is_known_for_a_moment(seen: SeenTasks, clock: FakeClock) -> None:
    await seen.note(SHOP)
    assert not seen.was_away("price", "default")
    assert await seen.was_there("price", "default")
    assert not await seen.was_there("pay", "default")
    assert (seen.was_away("price", "default"), seen.was_away("pay", "default")) == (True, False)
    clock.advance(FRESH)
    assert not seen.was_away("price", "default")


async def test_record_of_another_version_is_passed_over(seen: SeenTasks, records: MemoryRecords) -> None:
    await records.put(KIND, "0", b'{"jobs":[]}')
    await seen.note(SHOP)
    assert await seen.was_there("price", "default")


async def test_program_is_written_down_again_and_again(
    seen: SeenTasks, records: MemoryRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seen_tasks, "NOTED_EVERY", 0.01)
    noting = asyncio.create_task(seen.keep_noting(lambda: SHOP))
    async with asyncio.timeout(30):
        while not (found := await records.page(KIND)) or found[0].version < 3:  # noqa: ASYNC110 - another task writes
            await asyncio.sleep(0.01)
    noting.cancel()
