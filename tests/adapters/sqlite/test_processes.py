"""Several real processes on one file."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path

from dalsegno.adapters.sqlite import SqliteArchive, SqliteBroker, SqliteLedger, SqliteStore
from dalsegno.model.event import NewEvent
from dalsegno.ports.archive import ExecutionFilter
from dalsegno.testing.contract import ContractStack
from dalsegno.testing.contract.builders import last, start, step, token

CHAINS, STEPS = 20, 10


async def work(path: str, name: str) -> None:
    """Takes whatever is ready and passes it on, until every chain has ended."""
    store = SqliteStore.open(path, SystemClock())
    ledger, archive = SqliteLedger(store), SqliteArchive(store)
    ledger.heartbeat(name, 60)
    while True:
        leases = await ledger.claim(name, ["default"], 5)
        batch = []
        for lease in leases:
            number = int(lease.node)
            done = NewEvent("NodeCompleted", lease.node, "", time.time(), b"{}", lease.token)
            following = last() if number == STEPS else token(f"{number + 1}")
            batch.append(step(lease, following, events=[done]))
        await ledger.commit(batch)
        if not leases and not await archive.executions(ExecutionFilter(states=("RUNNING",))):
            break
    store.close()


class SystemClock:
    def now(self) -> float:
        return time.time()


def spawn(path: Path, call: str) -> subprocess.Popen[bytes]:
    here = Path(__file__)
    program = (
        f"import sys, asyncio; sys.path.insert(0, {str(here.parent)!r}); import {here.stem} as me; {call}"
    )
    return subprocess.Popen([sys.executable, "-c", program])


async def test_two_processes_share_the_work_and_the_result_is_exact(path: Path, stack: ContractStack) -> None:
    await stack.apply(*(start(f"run-{number}", token("1")) for number in range(CHAINS)))

    processes = [spawn(path, f"asyncio.run(me.work({str(path)!r}, 'w{number}'))") for number in range(2)]
    assert [await asyncio.to_thread(process.wait, 60) for process in processes] == [0, 0]

    for number in range(CHAINS):
        execution = await stack.execution(f"run-{number}")
        assert (execution.state, execution.live, execution.seq) == ("COMPLETED", 0, STEPS + 2)
        events = await stack.events(f"run-{number}")
        assert [event.seq for event in events] == list(range(1, STEPS + 3))
        assert [event.node for event in events[1:-1]] == [str(n) for n in range(1, STEPS + 1)]


async def test_commit_by_another_process_wakes_a_waiting_worker(path: Path, stack: ContractStack) -> None:
    waiting = asyncio.create_task(stack.broker.take("w1", ["default"], 1))
    await asyncio.sleep(0)

    process = spawn(path, f"asyncio.run(me.begin({str(path)!r}))")
    [lease] = await asyncio.wait_for(waiting, 30)

    assert lease.execution == "from-afar"
    assert await asyncio.to_thread(process.wait, 30) == 0


async def begin(path: str) -> None:
    store = SqliteStore.open(path, SystemClock())
    await SqliteLedger(store).commit([start("from-afar", token("a"))])
    store.close()


async def test_announcement_wakes_a_waiting_worker_at_once(stack: ContractStack) -> None:
    assert isinstance(stack.broker, SqliteBroker)
    waiting = asyncio.create_task(stack.broker.take("w1", ["default"], 1))
    await asyncio.sleep(0.01)
    [applied] = await stack.apply(start("run", token("a")))

    await stack.broker.announce(applied.ready)

    assert len(await asyncio.wait_for(waiting, 5)) == 1


async def test_heartbeat_works_while_the_event_loop_is_blocked(stack: ContractStack) -> None:
    beats: list[int] = []

    def beat() -> None:
        for number in range(20):
            stack.ledger.heartbeat("w1", 60, str(number).encode())
            beats.append(number)

    thread = threading.Thread(target=beat)
    thread.start()
    thread.join(10)  # blocks this loop

    assert len(beats) == 20
    [worker] = await stack.ledger.workers()
    assert (worker.id, worker.info) == ("w1", b"19")
