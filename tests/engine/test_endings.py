"""Who waits for executions that other processes end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from dalsegno.engine import endings
from dalsegno.engine.endings import Endings
from dalsegno.engine.stack import Stack
from dalsegno.errors import NotFound, Unavailable
from dalsegno.model.execution import Ending
from dalsegno.ports.archive import Archive
from dalsegno.testing.contract.build import cancel, start, token
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
    monkeypatch.setattr(endings, "GLANCE", 0.02)
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
    monkeypatch.setattr(endings, "FIRST_GLANCE", 3600.0)
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
    monkeypatch.setattr(endings, "FIRST_GLANCE", 3600.0)
    waiter = await begin_to_wait(waiting)
    await stack.ledger.commit([cancel(RUN)])
    await stack.ledger.sweep()
    assert await stack.archive.remove([RUN]) == [RUN]

    waiting.notice_elsewhere(RUN)

    with pytest.raises(NotFound, match=f"there is no execution {RUN}"):
        async with asyncio.timeout(20):
            await waiter


async def test_a_store_that_is_away_when_an_ending_is_told_is_asked_again(
    stack: Stack, waiting: Endings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    how, failures = stack.archive.endings, [Unavailable("the store is away")]

    async def away_at_first(executions: Sequence[str]) -> dict[str, Ending]:
        if failures:
            raise failures.pop()
        return await how(executions)

    monkeypatch.setattr(stack.archive, "endings", away_at_first)
    waiter = await begin_to_wait(waiting)
    await stack.ledger.commit([cancel(RUN)])

    waiting.notice_elsewhere(RUN)

    async with asyncio.timeout(20):
        assert (await waiter).state == "CANCELLED"
    assert "cannot read how executions ended (the store is away)" in caplog.text


async def begin_to_wait(waiting: Endings) -> asyncio.Task[Ending]:
    waiting.started(RUN)
    waiter = asyncio.create_task(waiting.ending(RUN))
    await asyncio.sleep(0)
    return waiter
