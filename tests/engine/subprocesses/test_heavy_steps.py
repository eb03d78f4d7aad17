"""Heavy steps are computed in processes: the same results, a free event loop, bounded memory and time."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from dalsegno import App
from dalsegno.engine.settings import EngineLimits, EngineSettings
from dalsegno.engine.steps.budget import is_light
from dalsegno.engine.subprocesses import heavy_steps
from dalsegno.engine.subprocesses.heavy_steps import TIMES, HeavySteps
from dalsegno.job_process import NICENESS
from dalsegno.lang import Limits
from dalsegno.model.token import Lease
from tests.loop_gaps import LoopGaps
from tests.peak_memory import peak_kib, reset_peak
from tests.waiting import come_about

pytestmark = pytest.mark.own_interpreter
LARGE = "'ab'.repeat(2000000)"
LONG = "'a'.repeat(2000).split('').map(x => 'b'.repeat(100).split('').length).length"


def edit(name: str, value: str, **more: Any) -> dict[str, Any]:
    parameters = {"assignments": [{"name": "v", "value": f"{{{{ {value} }}}}"}]}
    return {"id": name, "type": "edit", "parameters": parameters, **more}


def row(*nodes: dict[str, Any], output: str = "", name: str = "heavy") -> dict[str, Any]:
    edges = [{"src": left["id"], "dst": right["id"]} for left, right in pairwise(nodes)]
    graph: dict[str, Any] = {"name": name, "nodes": list(nodes), "edges": edges}
    return graph | ({"output": f"{{{{ {output} }}}}"} if output else {})


SPLIT = row(
    edit("text", LARGE),
    {"id": "items", "type": "split", "parameters": {"input_array": "{{ $text.v.slice(0, 40).split('') }}"}},
    edit("each", "$items.item + $text.v.length"),
    {"id": "all", "type": "aggregator"},
    {"id": "sorted", "type": "sort", "parameters": {"input_array": "{{ $all }}", "rules": ["v"]}},
    edit("count", "$sorted.count"),
    output="[$count.v, $text.v.length]",
)
SCRIPT = """
let text = 'ab'.repeat(1000000)
await Timer.delay(0)
let sum = 0
for (let i = 0; i < 30000; i++) { sum += i }
let mapped = await Node.run('map', {input_array: text.slice(0, 20000).split(''), expression: 'item + item'})
log('mapped')
return [text.length, sum, mapped.count]
"""


@asynccontextmanager
async def running(folder: Path, settings: EngineSettings | None = None) -> AsyncIterator[App]:
    app = App(f"sqlite:///{folder / 'store.db'}", settings=settings)
    async with app.running():
        yield app


def children(app: App) -> list[int]:
    return [process._child.pid for process in app.engine.heavy._idle]


def niceness_of_session(pid: int) -> int | None:
    """None where the kernel does not schedule sessions."""
    group = Path(f"/proc/{pid}/autogroup")
    return int(group.read_text().split()[-1]) if group.exists() else None


async def result(app: App, workflow: str, **input: Any) -> Any:
    return await (await app.astart(workflow, **input)).aresult(timeout=60)


@pytest.mark.parametrize("processes", [0, 1, 2])
async def test_heavy_graphs_and_scripts_come_to_the_same_wherever_they_are_computed(
    tmp_path: Path, processes: int
) -> None:
    async with running(tmp_path, EngineSettings(heavy_processes=processes)) as app:
        await app.adeploy(SPLIT)
        await app.adeploy_script(SCRIPT, "script")
        assert await result(app, "heavy") == [40, 4_000_000]
        assert await result(app, "script") == [2_000_000, 449985000, 20_000]
        assert bool(children(app)) == bool(processes)


async def test_the_loop_stays_free_while_heavy_steps_are_computed(tmp_path: Path) -> None:
    async with running(tmp_path) as app:
        await app.adeploy(row(edit("a", LARGE), edit("b", LONG), output="$a.v.length + $b.v"))
        await app.adeploy_script(SCRIPT, "script")
        await result(app, "heavy")
        async with LoopGaps() as gaps:
            await asyncio.gather(*[result(app, name) for name in ("heavy", "script") * 3])
        assert gaps.longest < 0.1


async def test_results_of_many_megabytes_take_up_little_more_than_themselves(tmp_path: Path) -> None:
    source = (
        "let s = 'a'.repeat(500000)\nlet all = []\nfor (let i = 0; i < 80; i++) { all.push(s) }\nreturn all"
    )
    async with running(tmp_path) as app:
        await app.adeploy_script("return 'a'.repeat(300000)", "warm")
        await result(app, "warm")
        await app.adeploy_script(source, "large")
        before = reset_peak()
        handle = await app.astart("large")
        assert await ended(app, handle.id) == "COMPLETED"
        assert peak_kib() - before < 5 * 40_000
        rows = await app.engine.stack.archive.events(handle.id)
        assert json.loads(rows[-1].data or b"") == {"output_bytes": 40_000_241}


async def test_large_results_are_held_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until they are committed: several of them take no more memory than one."""
    monkeypatch.setattr(heavy_steps, "AT_ONCE", 2_000_000)
    held, hold = list[int](), HeavySteps._hold

    async def counted(self: HeavySteps, lease: Lease, size: int) -> None:
        await hold(self, lease, size)
        held.append(len(self.held))

    monkeypatch.setattr(HeavySteps, "_hold", counted)
    async with running(tmp_path) as app:
        for name in ("one", "two"):
            await app.adeploy_script("return 'a'.repeat(3000000)", name)
        found = await asyncio.gather(*[result(app, name) for name in ("one", "two") * 3])
        assert {len(each) for each in found} == {3_000_000}
        await come_about(lambda: not app.engine.heavy.held, "everything is committed")
    assert len(held) >= 6
    assert set(held) == {1}


async def test_values_of_very_many_parts_are_measured_in_a_process(tmp_path: Path) -> None:
    """Each list takes three bytes of JSON, and as long as a text of hundreds."""
    async with running(tmp_path) as app:
        await app.adeploy_script("workflow(inputs) { return inputs.list }", "parts")
        assert await result(app, "parts", list=[[]] * 1_000) == [[]] * 1_000
        assert children(app) == []
        assert await result(app, "parts", list=[[]] * 50_000) == [[]] * 50_000
        assert len(children(app)) == 1


async def test_processes_let_everything_else_go_first(tmp_path: Path) -> None:
    """Also where the kernel schedules sessions against each other, within which alone the niceness counts."""
    async with running(tmp_path) as app:
        await app.adeploy_script(SCRIPT, "script")
        await result(app, "script")
        (child,) = children(app)
        assert os.getpriority(os.PRIO_PROCESS, child) == min(
            os.getpriority(os.PRIO_PROCESS, 0) + NICENESS, 19
        )
        assert niceness_of_session(child) in (None, NICENESS)


async def test_light_steps_start_no_process(tmp_path: Path) -> None:
    async with running(tmp_path) as app:
        await app.adeploy(row(edit("a", "input.n + 1"), output="$a.v", name="light"))
        assert await result(app, "light", n=1) == 2
        assert children(app) == []


async def test_a_step_that_needs_more_memory_than_its_process_has_fails(tmp_path: Path) -> None:
    wide = "'a'.repeat(1500000).split('').map(x => ({a: {b: {c: [x, x]}}}))"
    limits = EngineLimits(
        expressions=Limits(
            instructions=50_000_000, allocated_bytes=4_000_000_000, result_bytes=1_000_000_000
        ),
        step_instructions=50_000_000,
        step_bytes=4_000_000_000,
    )
    settings = EngineSettings(heavy_memory=150_000_000, limits=limits)
    async with running(tmp_path, settings) as app:
        await app.adeploy(row(edit("a", f"{wide}.length", error={"type": "ignore"}), output="$a"))
        output = await result(app, "heavy")
        assert "memory" in output["error"]["message"]
        await app.adeploy_script(f"return {wide.replace('({', '{return {').replace('})', '}}')}.length", "s")
        handle = await app.astart("s")
        assert await ended(app, handle.id) == "FAILED"


async def test_a_step_that_takes_too_long_fails_and_its_process_ends(tmp_path: Path) -> None:
    limits = EngineLimits(scripts=Limits(instructions=10**9))
    async with running(tmp_path, EngineSettings(heavy_seconds=0.5, limits=limits)) as app:
        await app.adeploy_script("let n = 0\nwhile (true) { n += 1 }", "endless")
        handle = await app.astart("endless")
        assert await ended(app, handle.id) == "FAILED"
        error = (await app.client.ending(handle.id, 60)).error
        assert "heavy_seconds" in str(error)
        assert children(app) == []


async def completes_after_a_stop(folder: Path, limit: float, stopped: float) -> None:
    """Stop the process of a step for some seconds of the clock: the step is not over its limit, and completes."""
    async with running(folder, EngineSettings(heavy_seconds=limit)) as app:
        await app.adeploy(row(edit("a", LONG), output="$a.v"))
        await result(app, "heavy")
        (pid,) = children(app)
        os.kill(pid, signal.SIGSTOP)
        handle = await app.astart("heavy")
        await asyncio.sleep(stopped)
        assert (await app.client.status(handle.id)).state == "RUNNING"
        os.kill(pid, signal.SIGCONT)
        assert await ended(app, handle.id) == "COMPLETED"
        assert children(app) == [pid]


async def test_a_process_that_has_to_wait_for_the_machine_has_its_time(tmp_path: Path) -> None:
    await completes_after_a_stop(tmp_path, limit=1.0, stopped=2)


async def test_the_time_for_which_a_step_waits_for_a_processor_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process is stopped for longer than the step may take by the clock, and counts as waiting."""
    monkeypatch.setattr(heavy_steps, "PATIENCE", 1)
    monkeypatch.setattr(heavy_steps.ChildProcess, "waiting_seconds", lambda _: monotonic())
    await completes_after_a_stop(tmp_path, limit=1.5, stopped=3)


async def test_cancelling_an_execution_ends_its_process(tmp_path: Path) -> None:
    limits = EngineLimits(expressions=Limits(instructions=10**9), step_instructions=10**9)
    async with running(tmp_path, EngineSettings(limits=limits)) as app:
        endless = "'a'.repeat(9000).split('').map(x => 'b'.repeat(9000).split('').map(y => y)).length"
        await app.adeploy(row(edit("a", endless)))
        handle = await app.astart("heavy")
        await come_about(computing, "that it computes", 30)
        (pid,) = computing()
        await handle.acancel()
        await come_about(lambda: not has_begun(pid), "its end")


async def test_a_process_that_is_killed_is_replaced(tmp_path: Path) -> None:
    async with running(tmp_path) as app:
        await app.adeploy(row(edit("a", LONG), output="$a.v"))
        assert await result(app, "heavy") == 2000
        for pid in children(app):
            os.kill(pid, signal.SIGKILL)
        assert await result(app, "heavy") == 2000


async def test_steps_beyond_the_line_are_put_off_and_come_back(tmp_path: Path) -> None:
    """Four of ten slots may be taken by heavy steps; the light workflow is not held up by twenty."""
    async with running(tmp_path, EngineSettings(concurrency=10, heavy_processes=1)) as app:
        await app.adeploy(row(edit("a", LONG), output="$a.v"))
        await app.adeploy(row(edit("a", "1"), output="$a.v", name="light"))
        await result(app, "heavy")
        heavy = [await app.astart("heavy") for _ in range(20)]
        async with asyncio.timeout(5):
            assert await result(app, "light") == 1
        assert len(app.engine.worker.running) <= 10  # type: ignore[union-attr]
        assert [await each.aresult(timeout=60) for each in heavy] == [2000] * 20


async def test_nodes_of_the_application_run_here_with_parameters_from_the_process(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path / 'store.db'}")
    seen: list[tuple[int, int]] = []

    @app.node("own")
    async def own(ctx: Any, parameters: dict[str, Any]) -> int:
        seen.append((os.getpid(), len(parameters["text"])))
        return len(parameters["text"])

    async with app.running():
        node = {"id": "o", "type": "own", "parameters": {"text": f"{{{{ {LARGE} }}}}"}}
        await app.adeploy(row(node, edit("b", f"{LARGE}.length"), output="[$o, $b.v]"))
        assert await result(app, "heavy") == [4_000_000, 4_000_000]
    assert seen == [(os.getpid(), 4_000_000)]


async def test_tasks_with_effects_run_once_with_large_inputs(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path / 'store.db'}")
    seen: list[int] = []

    @app.task
    async def measure(text: str) -> int:
        seen.append(len(text))
        return len(text)

    async with app.running():
        await app.adeploy_script(f"return await Task.run('measure', {LARGE})", "script")
        assert await result(app, "script") == 4_000_000
    assert seen == [4_000_000]


@pytest.mark.parametrize("last", [True, False], ids=["workflow", "aggregator"])
async def test_a_node_with_effects_runs_once_before_a_heavy_output(tmp_path: Path, last: bool) -> None:
    """Once it has run, its step cannot be given up any more."""
    app = App(f"sqlite:///{tmp_path / 'store.db'}")
    seen: list[bool] = []

    @app.node("own")
    async def own(ctx: Any, parameters: dict[str, Any]) -> int:
        seen.append(is_light.get())
        return 1

    node = {"id": "o", "type": "own", "parameters": {"n": "{{ input.n }}"}}
    split = {"id": "s", "type": "split", "parameters": {"input_array": "{{ [1, 2, 3] }}"}}
    gather = {"id": "g", "type": "aggregator", "parameters": {"output": f"{{{{ {LONG} + $o }}}}"}}
    async with app.running():
        if last:
            await app.adeploy(row(node, output=f"{LONG} + $o"))
            assert await result(app, "heavy", n=1) == 2001
        else:
            await app.adeploy(row(split, node, gather, output="$g"))
            assert await result(app, "heavy", n=1) == [2001] * 3
    assert seen == [False] * (1 if last else 3), (
        "nor do code of the application the limits of light steps hold"
    )


async def test_what_was_heavy_is_tried_as_light_again(tmp_path: Path) -> None:
    async with running(tmp_path) as app:
        await app.adeploy(row(edit("a", "'ab'.repeat(input.n).length"), output="$a.v", name="varies"))
        assert await result(app, "varies", n=1_000_000) == 2_000_000
        heavy, lease = app.engine.heavy, None
        [place] = heavy.known_heavy
        lease = Lease("t", "e", 1, "", "node", place[1], b"", "default", 0, 1, 0, "", 0.0, place[0], 0)
        assert [heavy.expected(lease) for _ in range(TIMES + 1)] == [True] * (TIMES - 1) + [False] * 2


def test_where_no_process_can_be_started_steps_run_in_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "")

    async def scenario() -> None:
        async with running(tmp_path) as app:
            await app.adeploy(row(edit("a", LARGE), output="$a.v.length"))
            assert await result(app, "heavy") == 4_000_000
            assert await result(app, "heavy") == 4_000_000
            heavy: HeavySteps = app.engine.heavy
            assert not heavy.are_possible

    asyncio.run(scenario())


async def ended(app: App, execution: str) -> str:
    return (await app.client.ending(execution, 60)).state


def computing() -> list[int]:
    """The processes that compute for this one."""
    own = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in own if has_begun(int(pid))]


def has_begun(pid: int) -> bool:
    try:
        is_one = b"step_process" in Path(f"/proc/{pid}/cmdline").read_bytes()
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return False
    return is_one and state != "Z" and int(fields[10]) > 150  # hundredths of a second
