"""Lanes and processes of an offload: turns of callers, limits of a process, and an interpreter that is embedded."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from dalsegno.engine.subprocesses.examination import value_of
from dalsegno.engine.subprocesses.job_pool import Lane, Offload, OffloadLimits, Requester, requester
from dalsegno.errors import LimitExceeded
from dalsegno.job_process import NICENESS

pytestmark = pytest.mark.own_interpreter


def test_a_waiter_that_is_cancelled_as_a_job_ends_loses_no_place() -> None:
    async def scenario() -> None:
        lane = Lane(1, OffloadLimits())
        ends = asyncio.Event()

        async def job(key: str) -> str:
            async with lane.place(key):
                await ends.wait()
                return key

        running = asyncio.create_task(job("a"))
        await asyncio.sleep(0)
        leaving, staying = asyncio.create_task(job("b")), asyncio.create_task(job("b"))
        for _ in range(3):
            await asyncio.sleep(0)
        ends.set()
        leaving.cancel()  # in the iteration in which the place becomes free
        async with asyncio.timeout(60):
            assert await running == "a"
            assert await staying == "b"
            assert await job("c") == "c"
        await asyncio.wait({leaving})
        assert leaving.cancelled()

    asyncio.run(scenario())


def test_callers_take_turns_when_stored_definitions_are_loaded() -> None:
    async def scenario() -> list[str]:
        offload, may_end, order = Offload(), threading.Event(), list[str]()

        async def load(key: str, *, first: bool = False) -> None:
            requester.set(Requester(key))
            await offload.load(may_end.wait if first else lambda: order.append(key))

        first = asyncio.create_task(load("busy", first=True))
        await asyncio.sleep(0)
        others = [asyncio.create_task(load("busy")) for _ in range(50)]
        await asyncio.sleep(0)
        others.append(asyncio.create_task(load("other")))
        await asyncio.sleep(0)
        may_end.set()
        async with asyncio.timeout(60):
            await asyncio.gather(first, *others)
        await offload.close()
        return order

    order = asyncio.run(scenario())
    assert len(order) == 51
    assert order.index("other") <= 1


@pytest.mark.skipif(not Path("/proc/self/limits").exists(), reason="reads /proc")
def test_a_process_is_niced_and_its_data_are_limited() -> None:
    async def scenario() -> tuple[int, str]:
        def limits_of(child: int) -> str:
            return Path(f"/proc/{child}/limits").read_text()

        offload = Offload(OffloadLimits(memory_bytes=512 * 1024 * 1024))
        try:
            assert value_of(await offload.large("fit", b"{}", b"1", 1000)) == []
            (process,) = offload._all
            child = process._child.pid
            return os.getpriority(os.PRIO_PROCESS, child), limits_of(child)
        finally:
            await offload.close()

    niceness, limits = asyncio.run(scenario())
    assert niceness == min(os.getpriority(os.PRIO_PROCESS, 0) + NICENESS, 19)
    bounded = [line.split("  ")[0] for line in limits.splitlines() if str(512 * 1024 * 1024) in line]
    assert bounded == ["Max data size"]


@pytest.mark.skipif(not Path("/proc/self/limits").exists(), reason="its limits of memory")
def test_json_that_needs_more_memory_than_its_process_may_have_is_refused() -> None:
    async def scenario() -> None:
        offload = Offload(OffloadLimits(memory_bytes=64 * 1024 * 1024, seconds=60.0))
        try:
            with pytest.raises(LimitExceeded, match="memory"):
                value_of(await offload.large("fit", b"{}", b"[" + b"[]," * 1_000_000 + b"1]", 1000))
            assert value_of(await offload.large("fit", b"{}", b"1", 1000)) == []
        finally:
            await offload.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("ended_by", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL])
def test_a_process_that_crashes_at_its_limit_is_an_exceeded_limit_of_memory(ended_by: signal.Signals) -> None:
    """Extensions may crash where memory cannot be allocated, and the kernel may kill the process."""

    async def scenario() -> None:
        offload = Offload(OffloadLimits())
        try:
            assert value_of(await offload.large("fit", b"{}", b"1", 1000)) == []
            (process,) = offload._all
            child = process._child.pid
            os.kill(child, signal.SIGSTOP)
            job = asyncio.create_task(offload.large("fit", b"{}", b"1", 1000))
            await asyncio.sleep(0.05)
            assert not job.done()
            os.kill(child, ended_by)
            os.kill(child, signal.SIGCONT)
            with pytest.raises(
                LimitExceeded, match=r"more than 1,073,741,824 bytes of memory .*'check_memory'"
            ):
                await job
            assert value_of(await offload.large("fit", b"{}", b"1", 1000)) == []
            assert [each._child.pid for each in offload._all] != [child]
        finally:
            await offload.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("executable", ["", "/bin/true", "/no/such/program"])
def test_jobs_run_in_a_thread_where_the_interpreter_is_embedded(
    monkeypatch: pytest.MonkeyPatch, executable: str
) -> None:
    async def scenario() -> None:
        offload = Offload()
        try:
            for _ in range(2):
                reply = await offload.large("fit", b'{"type": "integer"}', b'"x"', 1000)
                assert [pointer for pointer, _ in value_of(reply)] == [""]
            assert not offload.processes
        finally:
            await offload.close()

    monkeypatch.setattr(sys, "executable", executable)
    asyncio.run(scenario())


async def test_large_jobs_take_turns_by_weight_and_by_caller() -> None:
    lane, order = Lane(10, OffloadLimits(), 7), list[str]()

    async def enter(key: str, weight: int) -> None:
        await lane.enter(key, weight)
        order.append(f"{key}{weight}")

    await enter("a", 6)
    waiting = [asyncio.create_task(enter(*each)) for each in (("a", 5), ("b", 50), ("c", 1), ("b", 3))]
    await asyncio.sleep(0.01)
    assert (order, lane.waiting) == (["a6"], 4)  # a has its part, and nobody passes b
    lane.leave("a", 6)
    await asyncio.sleep(0.01)
    lane.leave("a", 5)
    await asyncio.sleep(0.01)
    assert order == ["a6", "a5", "b50"]  # alone
    lane.leave("b", 50)
    await asyncio.wait(waiting)
    assert sorted(order[3:]) == ["b3", "c1"]
