from __future__ import annotations
import asyncio, time
import pytest
from typing import Any
from dalsegno import gather, signal, sleep, race, first
from tests.scenarios.stage import Stage

def test_nested_gather(stage: Stage) -> None:
    @stage.app.task
    async def one() -> int: return 1
    @stage.app.workflow
    async def deep() -> Any:
        p = one()
        for _ in range(3000):
            p = gather(p)
        await p
        return 1
    ended = stage.end_of(stage.app.start(deep))
    print(ended.state, ended.error)

def test_busy_python_loop(stage: Stage) -> None:
    @stage.app.workflow
    async def spin() -> None:
        while True:
            await sleep(0)
    ended = stage.end_of(stage.app.start(spin))
    print(ended.state, ended.error)

def test_native_spin(stage: Stage) -> None:
    @stage.app.workflow
    async def spin() -> None:
        n = 0
        while True:
            n += 1
    ended = stage.end_of(stage.app.start(spin), 60)
    print(ended.state, ended.error)

def test_delay_zero_loop(stage: Stage) -> None:
    t=time.time()
    ended = stage.run_script("for (let i = 0; i < 2000; i++) { await Timer.delay(0) }\nreturn 1")
    print(ended.state, ended.error, time.time()-t, ended.count("TimerFired"))
    print(len(stage.app.host.call(stage.app.engine.stack.ledger.inspect(ended.id)).tokens))

def test_one_by_one(stage: Stage) -> None:
    source = """
    let handles = []
    for (let i = 0; i < inputs.n; i++) { handles.push(Task.run("echo", i)) }
    let sum = 0
    for (let h of handles) { sum += await h }
    return sum
    """
    for n in (500, 2000):
        t=time.time()
        h = stage.start_script(source, {"n": n})
        h.result(120)
        dt=time.time()-t
        ev=[e.kind for e in h.events(limit=100000)]
        from collections import Counter
        print(n, dt, Counter(ev))

def test_kinds(stage: Stage) -> None:
    @stage.app.task
    async def work(n: int) -> int:
        await asyncio.sleep(0.3)
        return n
    h = stage.app.start(work, 3)
    print(h.why(), h.picture(), h.nodes())
    h.signal("x", 1)
    h.pause()
    print(h.status().state, h.why())
    h.resume()
    print(h.result(5), h.why(), h.picture(), h.nodes(), [e.kind for e in h.events()])
