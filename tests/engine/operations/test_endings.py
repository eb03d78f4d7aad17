"""Who waits for executions that other processes end."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from dalsegno.engine.operations import endings
from dalsegno.engine.operations.endings import Endings, ending_in
from dalsegno.errors import NotFound, Unavailable, UsageError
from dalsegno.model.effect import RequestCancel
from dalsegno.model.execution import Ending, ExecutionState
from dalsegno.model.transition import Transition
from dalsegno.ports.archive import Archive
from dalsegno.ports.stack import Stack
from dalsegno.testing.contract.builders import cancel, event, finish, start, token
from dalsegno.wiring import open_stack
from tests.waiting import come_about

NAMES = [f"run-{number}" for number in range(23)]
RUN = NAMES[0]


@pytest.fixture
async def stack(url: str) -> AsyncIterator[Stack]:
    stack = await open_stack(url)
    await stack.ledger.commit([start(name, token(f"token-{name}")) for name in NAMES])
    yield stack
    await stack.close()


@pytest.fixture
async def waiting(stack: Stack) -> AsyncIterator[Endings]:
    waiting = Endings(stack.archive)
    yield waiting
    await waiting.close()


def counted(archive: Archive, question: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """About how many executions that is asked, each time."""
    asked: list[int] = []
    really = getattr(archive, question)

    async def counting(executions: Sequence[str]) -> Any:
        asked.append(len(executions))
        return await really(executions)

    monkeypatch.setattr(archive, question, counting)
    return asked


async def test_looking_costs_the_same_however_many_wait_and_finds_everyone(
    stack: Stack, waiting: Endings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endings, "ASKED_AT_ONCE", 5)
    monkeypatch.setattr(endings, "LONGEST_POLL", 0.02)
    asked = counted(stack.archive, "states", monkeypatch)
    everyone = [asyncio.create_task(waiting.ending(name)) for name in NAMES]
    await come_about(lambda: len(asked) > 1, "two looks")
    assert not any(each.done() for each in everyone)

    await stack.ledger.commit([cancel(name) for name in NAMES])

    async with asyncio.timeout(20):
        assert {(await each).state for each in everyone} == {"CANCELLED"}
    assert max(asked) == 5


async def test_what_others_end_is_read_together(
    stack: Stack, waiting: Endings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endings, "FIRST_POLL", 3600.0)
    read = counted(stack.archive, "endings", monkeypatch)
    for name in NAMES:
        waiting.started(name)
    everyone = [asyncio.create_task(waiting.ending(name)) for name in NAMES]
    await asyncio.sleep(0)
    await stack.ledger.commit([cancel(name) for name in NAMES])

    for name in (*NAMES, "of no interest here"):
        waiting.notice_elsewhere(name)

    async with asyncio.timeout(20):
        assert {(await each).state for each in everyone} == {"CANCELLED"}
    assert read == [len(NAMES)]


async def test_what_was_removed_as_soon_as_it_had_ended_is_not_waited_for(
    stack: Stack, waiting: Endings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endings, "FIRST_POLL", 0.5)
    waiter = await begin_to_wait(waiting)
    await stack.ledger.commit([cancel(RUN)])
    await stack.ledger.sweep()
    assert await stack.archive.remove([RUN]) == [RUN]

    with pytest.raises(
        NotFound, match=f"there is no execution {RUN}"
    ):  # though nobody said that it had ended
        async with asyncio.timeout(20):
            await waiter


@pytest.mark.parametrize("fault", [Unavailable("the store is away"), ValueError("something else")])
async def test_a_look_that_fails_is_not_the_last(
    stack: Stack,
    waiting: Endings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fault: Exception,
) -> None:
    really, faults = stack.archive.states, [fault]

    async def failing_at_first(executions: Sequence[str]) -> dict[str, ExecutionState]:
        if faults:
            raise faults.pop()
        return await really(executions)

    monkeypatch.setattr(stack.archive, "states", failing_at_first)
    waiter = await begin_to_wait(waiting)
    await stack.ledger.commit([cancel(RUN)])

    async with asyncio.timeout(20):
        assert (await waiter).state == "CANCELLED"
    assert str(fault) in caplog.text


async def test_an_outage_is_told_once_however_often_is_looked(
    stack: Stack, waiting: Endings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(endings, "LONGEST_PAUSE", 0.02)
    really, looks = stack.archive.states, itertools.count()

    async def away(executions: Sequence[str]) -> dict[str, ExecutionState]:
        if next(looks) < 10:
            raise Unavailable("the store is away")
        return await really(executions)

    monkeypatch.setattr(stack.archive, "states", away)
    waiter = await begin_to_wait(waiting)
    await stack.ledger.commit([cancel(RUN)])

    async with asyncio.timeout(20):
        await waiter
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "the wait for executions to end waits for the store: the store is away"
    ]


async def test_a_store_that_does_not_answer_the_first_look_is_not_waited_for_longer_than_asked(
    stack: Stack, waiting: Endings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endings, "FIRST_LOOK", 0.01)

    async def for_ever(execution: str) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(stack.archive, "execution", for_ever)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(20) as patience:
            await waiting.ending(RUN, 0.05)
    assert not patience.expired()


async def test_no_patience_at_all_is_enough_for_what_has_ended(stack: Stack, waiting: Endings) -> None:
    await stack.ledger.commit([cancel(RUN)])

    assert (await waiting.ending(RUN, 0)).state == "CANCELLED"
    with pytest.raises(TimeoutError):
        await waiting.ending(NAMES[1], 0)


async def test_whoever_waits_when_the_engine_stops_is_told(stack: Stack, waiting: Endings) -> None:
    waiter = await begin_to_wait(waiting)

    await waiting.close()

    with pytest.raises(UsageError, match="the application was stopped while this call was waiting"):
        await waiter
    with pytest.raises(UsageError, match="the application was stopped"):
        await waiting.ending(RUN)


async def test_whoever_waits_for_a_reading_when_the_engine_stops_is_told(
    stack: Stack, waiting: Endings, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = asyncio.Event()

    async def for_ever(executions: Sequence[str]) -> dict[str, Ending]:
        reads.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(stack.archive, "endings", for_ever)
    waiter = await begin_to_wait(waiting)
    waiting.notice_elsewhere(RUN)
    await reads.wait()

    await waiting.close()
    waiting.notice_elsewhere(RUN)

    with pytest.raises(UsageError, match="the application was stopped"):
        await waiter


def test_a_script_that_is_asked_to_end_and_does_at_once_carries_its_ending() -> None:
    asked = RequestCancel("cancel", event("CancelRequested"), finish("CANCELLED", None))

    assert ending_in(Transition(RUN, (asked,))) == Ending("CANCELLED", None, None)


async def begin_to_wait(waiting: Endings) -> asyncio.Task[Ending]:
    waiting.started(RUN)
    waiter = asyncio.create_task(waiting.ending(RUN))
    await asyncio.sleep(0)
    return waiter


async def test_one_that_others_ended_long_after_its_start_is_known_at_once(
    stack: Stack, waiting: Endings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endings, "JUST_STARTED", 0.0)
    monkeypatch.setattr(endings, "FIRST_POLL", 3600.0)
    for name in NAMES:
        waiting.started(name)
    await stack.ledger.commit([cancel(name) for name in NAMES])
    async with asyncio.timeout(20):
        for name in NAMES:
            assert (await waiting.wait(name)).state == "CANCELLED"
