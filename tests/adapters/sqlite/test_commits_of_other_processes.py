"""Commits of other processes reach whoever waits for them at once; own commits tell nobody. Looks at intervals are
switched off here."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dalsegno.adapters.sqlite import broker
from dalsegno.adapters.sqlite.connections import OtherProcesses, connect_writer
from dalsegno.engine.operations import endings
from dalsegno.engine.operations.endings import Endings
from dalsegno.model.effect import WriteOutbox
from dalsegno.ports.broker import Watch
from dalsegno.ports.stack import Stack
from dalsegno.server.streams.execution_feed import Broadcast
from dalsegno.testing.contract.builders import command, deadline, event, finish, start, token
from dalsegno.wiring import open_stack

SOON = 10.0
NEVER = 3600.0
RUN = "run"


@pytest.fixture
async def stack(path: Path) -> AsyncIterator[Stack]:
    stack = await open_stack(f"sqlite:///{path}")
    yield stack
    await stack.close()


@pytest.fixture
async def other(path: Path, stack: Stack) -> AsyncIterator[Stack]:
    """As another process has it."""
    other = await open_stack(f"sqlite:///{path}")
    yield other
    await other.close()


def watch_of(stack: Stack) -> Watch:
    assert stack.watch is not None
    return stack.watch


async def test_a_waiting_worker_claims(stack: Stack, other: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "LOOK_EVERY", NEVER)
    waiting = asyncio.create_task(stack.broker.take("w1", ["first", "default"], 1))
    await stack.ledger.workers()  # asked after the claim

    await other.ledger.commit([start(RUN, token("a"))])

    async with asyncio.timeout(SOON):
        [lease] = await waiting
    assert lease.execution == RUN


async def test_work_of_other_queues_takes_no_lock(
    stack: Stack, other: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = 0
    claim = stack.ledger.claim

    async def counted(worker: str, queues: list[str], limit: int) -> list[object]:
        nonlocal claims
        claims += 1
        return list(await claim(worker, queues, limit))

    monkeypatch.setattr(stack.ledger, "claim", counted)
    waiting = asyncio.create_task(stack.broker.take("w1", ["mine"], 1))
    heard = asyncio.Event()
    watch_of(stack).on_commit(heard.set)

    for number in range(3):
        heard.clear()
        await other.ledger.commit([start(f"{RUN}-{number}", token("a"))])
        async with asyncio.timeout(SOON):
            await heard.wait()

    assert claims == 1
    waiting.cancel()


async def test_whoever_waits_for_an_ending_is_told(
    stack: Stack, other: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endings, "FIRST_POLL", NEVER)
    await stack.ledger.commit([start(RUN, token("a"))])
    waiters = Endings(stack.archive)
    watch_of(stack).on_commit(waiters.poll_soon)
    waiting = asyncio.create_task(waiters.ending(RUN))
    await stack.archive.states([RUN])  # asked after the waiter's first look

    await other.ledger.commit([command(RUN, finish())])

    async with asyncio.timeout(SOON):
        assert (await waiting).state == "COMPLETED"
    await waiters.close()


async def test_timers_and_deliveries_of_a_process_that_does_neither(stack: Stack, other: Stack) -> None:
    heard: asyncio.Queue[float | str] = asyncio.Queue()
    watch_of(stack).on_upkeep(heard.put_nowait, lambda: heard.put_nowait("owed"))
    due = stack.clock.now() + NEVER

    await other.ledger.commit([start(RUN, deadline("late", due))])
    async with asyncio.timeout(SOON):
        assert await heard.get() == due

    await other.ledger.commit([command(RUN, WriteOutbox("entry", "start", b"{}"))])
    async with asyncio.timeout(SOON):
        while await heard.get() != "owed":
            pass


async def test_live_streams_go_on(stack: Stack, other: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dalsegno.server.streams.execution_feed.LOOK_EVERY", NEVER)
    await stack.ledger.commit([start(RUN, token("a"))])
    view = await stack.archive.execution(RUN)
    assert view is not None
    broadcast = Broadcast(stack.archive, asyncio.Event())
    watch_of(stack).on_commit(broadcast.poll_soon)
    frames = broadcast.watch(view, view.seq, NEVER)
    next_frames = asyncio.ensure_future(anext(frames))
    await stack.archive.states([RUN])  # asked after the stream's first look

    await other.ledger.commit([command(RUN, events=[event("NodeCompleted")])])

    async with asyncio.timeout(SOON):
        [frame] = await next_frames
    assert frame.seq == view.seq + 1
    await frames.aclose()


async def test_own_commits_tell_nobody(path: Path, stack: Stack) -> None:
    own, foreign = connect_writer(path, create=False), connect_writer(path, create=False)
    elsewhere, told = OtherProcesses(own), 0

    def tell() -> None:
        nonlocal told
        told += 1

    async def told_after(committing: sqlite3.Connection) -> int:
        committing.execute("PRAGMA user_version = 1")
        elsewhere.look()
        await asyncio.sleep(0)
        return told

    elsewhere.listen(tell)
    elsewhere.look()

    assert await told_after(own) == 0
    assert await told_after(foreign) == 1
    assert await told_after(own) == 1
    own.close()
    foreign.close()
