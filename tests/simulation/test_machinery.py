"""The simulator itself: virtual time, killing, determinism, shrinking."""

from __future__ import annotations

import asyncio
import contextvars
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import dalsegno
from dalsegno.core.settlement import barriers
from dalsegno.testing.simulation import Case, describe, draw, judge, run_seed, shrink
from dalsegno.testing.simulation.__main__ import main
from dalsegno.testing.simulation.environment.faults import Fault
from dalsegno.testing.simulation.environment.loop import (
    OWNER,
    STOPWATCHES,
    Exhausted,
    ProcessRun,
    virtual_loop,
)
from dalsegno.testing.simulation.run_graph import observe
from tests.simulation.graphs import diamond, graph, node, scenario


def test_an_hour_of_virtual_time_takes_no_time() -> None:
    loop = virtual_loop(None, 1000, 10_000)
    began = time.process_time()
    loop.run(asyncio.sleep(3600))
    assert loop.time() == 3600
    assert time.process_time() - began < 5


def test_a_killed_process_stops_where_it_stands_and_never_cleans_up() -> None:
    seen: list[str] = []
    process_run = ProcessRun("p")

    async def process() -> None:
        try:
            seen.append("began")
            await asyncio.sleep(5)
            seen.append("went on")
        finally:
            seen.append("cleaned up")

    async def system() -> None:
        context = contextvars.copy_context()
        context.run(OWNER.set, process_run)
        task = asyncio.get_running_loop().create_task(process(), context=context)
        await asyncio.sleep(1)
        process_run.dead = True
        await asyncio.sleep(100)
        assert not task.done()
        assert seen == ["began"]

    loop = virtual_loop(None, 1000, 1000)
    loop.run(system())
    assert seen == ["began"]
    loop.close()


def test_a_system_in_which_nothing_can_happen_any_more_is_noticed() -> None:
    async def wait_for_nothing() -> None:
        await asyncio.get_running_loop().create_future()

    loop = virtual_loop(None, 1000, 1000)
    with pytest.raises(Exhausted, match="nothing is left to run"):
        loop.run(wait_for_nothing())
    loop.close()


def test_the_same_seed_gives_the_same_run_under_any_hash_seed_and_on_a_machine_that_stalls() -> None:
    program = (
        "import random, sys, time\n"
        "stalls, now = random.Random(sys.argv[1]), [0.0]\n"
        "def stalling():\n"
        "    now[0] += stalls.choice((0.0, 0.0, 0.3))\n"
        "    return now[0]\n"
        "time.monotonic = time.perf_counter = stalling\n"
        "from dalsegno.testing.simulation import draw\n"
        "from dalsegno.testing.simulation.run_graph import observe\n"
        "for seed in (3, 31, 114):\n"
        "    case = draw(seed)\n"
        "    run = observe(case.scenario, case.schedule, case.order)\n"
        "    print(run.steps, run.seconds, [(event.kind, event.node, event.at) for event in run.events])\n"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", program, str(number)],
            env={**os.environ, "PYTHONHASHSEED": str(number)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for number in (1, 2)
    }
    assert len(texts) == 1
    assert "ExecutionStarted" in texts.pop()


def test_what_reads_the_clock_of_the_machine_is_a_stopwatch_or_not_simulated() -> None:
    """Processes for heavy steps and calls over HTTP have no place in the simulator."""
    folder = Path(dalsegno.__file__).parent
    reading = {
        ".".join((dalsegno.__name__, *path.relative_to(folder).with_suffix("").parts))
        for part in ("core", "engine", "nodes", "adapters/memory")
        for path in (folder / part).rglob("*.py")
        if re.search(
            r"\b(monotonic|perf_counter|process_time|thread_time)\(", path.read_text(encoding="utf-8")
        )
    }
    not_simulated = {"dalsegno.engine.subprocesses.heavy_steps", "dalsegno.nodes.http.exchange"}
    assert reading == {module.__name__ for module, _ in STOPWATCHES} | not_simulated


def test_a_failing_seed_is_shortened_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: a split's window never moves on."""
    monkeypatch.setattr(barriers, "_reach_milestone", lambda work, row: None)
    case = Case(7, diamond(bystander=True), (Fault("crash", 100), Fault("drop", 3)), order=5)
    verdict = judge(case)
    assert any(finding.startswith("without faults: L6") for finding in verdict.findings)
    smaller, finding = shrink(case, verdict, seconds=200)
    assert smaller.schedule == ()
    assert smaller.order is None
    names = {each["id"] for each in smaller.scenario.document["nodes"]}
    assert len(names) < 7
    assert "s" in names
    told = describe(smaller, finding, seed=7)
    assert "python -m dalsegno.testing.simulation --start 7 --seeds 1" in told
    assert '"split"' in told


def test_the_command_line_runs_seeds_and_says_how_it_went(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "3", "--start", "5"]) == 0
    assert "3 seeds, 0 failed" in capsys.readouterr().out


def test_a_drawn_case_is_the_same_every_time() -> None:
    assert draw(42) == draw(42)
    assert run_seed(42).seeds == 1


def test_time_passes_for_the_graph() -> None:
    document = graph([node("w", "wait", amount=30, unit="minutes"), node("z")], "w>z")
    run = observe(scenario(document))
    assert run.findings == []
    assert run.seconds > 1800
