"""Threads of turns: who goes first, what a cancelled turn keeps, and what a closing engine leaves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from dalsegno.engine.steps.turn_threads import TurnThreads


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    opened = threading.Event()
    yield opened
    opened.set()


async def test_workflows_take_turns_and_each_keeps_its_order(gate: threading.Event) -> None:
    threads, order = TurnThreads(1, 1.0), list[str]()
    first = threads.run("first", lambda: _pass(gate))
    named = [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("b", "b2")]
    turns = [threads.run(workflow, lambda name=name: order.append(name)) for workflow, name in named]
    gate.set()
    await asyncio.wait_for(asyncio.gather(first, *turns), 60)
    assert order == ["a1", "b1", "a2", "b2", "a3"]
    threads.close()


async def test_no_workflow_holds_more_than_its_share(gate: threading.Event) -> None:
    threads, held = TurnThreads(4, 0.75), threading.Semaphore(0)

    def hold() -> None:
        held.release()
        _pass(gate)

    hogs = [threads.run("hog", hold) for _ in range(9)]
    for _ in range(3):
        assert await asyncio.to_thread(held.acquire, timeout=10)
    await asyncio.wait_for(threads.run("other", lambda: None), 60)
    assert not held.acquire(timeout=0.05)
    gate.set()
    await asyncio.wait_for(asyncio.gather(*hogs), 60)
    threads.close()


async def test_a_turn_that_is_cancelled_while_it_waits_does_not_begin(gate: threading.Event) -> None:
    threads, ran = TurnThreads(1, 1.0), list[int]()
    first = threads.run("", lambda: _pass(gate))
    second, third = (threads.run("", lambda number=number: ran.append(number)) for number in (2, 3))
    second.cancel()
    gate.set()
    await asyncio.wait_for(asyncio.gather(first, third), 60)
    assert ran == [3]
    threads.close()


async def test_a_turn_that_is_cancelled_while_it_runs_keeps_its_thread(gate: threading.Event) -> None:
    threads, begun = TurnThreads(1, 1.0), threading.Event()

    def hold() -> None:
        begun.set()
        _pass(gate)

    first = threads.run("", hold)
    assert await asyncio.to_thread(begun.wait, 60)
    first.cancel()
    second = threads.run("", lambda: None)
    await asyncio.sleep(0.05)
    assert not second.done()
    gate.set()
    await asyncio.wait_for(second, 60)
    threads.close()


async def test_errors_of_turns_are_raised_where_they_are_awaited() -> None:
    threads = TurnThreads(2, 1.0)
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(threads.run("", _fail), 60)
    await asyncio.wait_for(threads.run("", lambda: None), 60)
    threads.close()


async def test_closing_cancels_what_waits_and_lets_end_what_runs(gate: threading.Event) -> None:
    threads, begun = TurnThreads(1, 1.0), threading.Event()

    def hold() -> None:
        begun.set()
        _pass(gate)

    first, second = threads.run("", hold), threads.run("", lambda: None)
    assert await asyncio.to_thread(begun.wait, 60)
    threads.close()
    assert second.cancelled()
    gate.set()
    await asyncio.wait_for(first, 60)


def test_one_loop_after_the_other_uses_the_same_threads() -> None:
    threads = TurnThreads(2, 1.0)

    async def turn() -> None:
        await asyncio.wait_for(threads.run("", lambda: None), 60)

    asyncio.run(turn())
    asyncio.run(turn())
    threads.close()


def _pass(gate: threading.Event) -> None:
    assert gate.wait(60)


def _fail() -> None:
    raise ZeroDivisionError
