"""``gather(*calls, limit=2)`` and ``Promise.all(calls, {limit: 2})``: at most so many run at a time."""

from __future__ import annotations

import asyncio
import subprocess
import time
from pathlib import Path

import pytest

from dalsegno import WorkflowFailed, gather, run
from tests.scenarios.conftest import LASTING
from tests.scenarios.stage import Stage
from tests.servers.forking import Forked, run_python


class Crowd:
    """How many are in at a time, and who came in which order."""

    def __init__(self) -> None:
        self.inside = self.most = 0
        self.came: list[int] = []

    async def visit(self, number: int) -> int:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.came.append(number)
        await asyncio.sleep(0.02)
        self.inside -= 1
        return number * 10


@pytest.fixture
def crowd(stage: Stage) -> Crowd:
    crowd = Crowd()

    async def visit(number: int) -> int:
        return await crowd.visit(number)

    async def visit_one_by_one(number: int) -> int:
        return await crowd.visit(number)

    stage.app.task(visit)
    stage.app.task(concurrency=1)(visit_one_by_one)
    return crowd


def test_at_most_so_many_tasks_run_at_a_time(stage: Stage, crowd: Crowd) -> None:
    @stage.app.task
    async def visit_too(number: int) -> int:
        return await crowd.visit(number)

    @stage.app.workflow
    async def all_of_them(limit: int | None) -> list[int]:
        return list(await gather(*[visit_too(number) for number in range(8)], limit=limit))

    assert stage.app.start(all_of_them, 2).result(20) == [number * 10 for number in range(8)]
    assert crowd.most == 2
    assert crowd.came == list(range(8))
    assert stage.app.start(all_of_them, None).result(20) == [number * 10 for number in range(8)]
    assert crowd.most > 2


def test_at_most_so_many_children_run_at_a_time(stage: Stage, crowd: Crowd) -> None:
    @stage.app.task
    async def visit_too(number: int) -> int:
        return await crowd.visit(number)

    @stage.app.workflow
    async def child(number: int) -> int:
        return await visit_too(number) + 1

    @stage.app.workflow
    async def parent() -> list[int]:
        calls = [child(number) for number in range(3)] + [run("child", number) for number in range(3, 6)]
        return list(await gather(*calls, limit=2))

    assert stage.app.start(parent).result(20) == [number * 10 + 1 for number in range(6)]
    assert crowd.most <= 2


@pytest.mark.parametrize("joined", ["Promise.all", "Task.all"])
def test_a_script_limits_them_too(stage: Stage, crowd: Crowd, joined: str) -> None:
    source = f"""
    const calls = [1, 2, 3, 4, 5, 6].map(number => Task.run("visit", number))
    return await {joined}(calls, {{limit: 2}})
    """
    assert stage.run_script(source).output == [10, 20, 30, 40, 50, 60]
    assert crowd.most == 2


def test_failures_come_as_without_a_limit_and_the_others_go_on(stage: Stage) -> None:
    seen: list[int] = []

    @stage.app.task
    async def fragile(number: int) -> int:
        seen.append(number)
        if number == 1:
            raise ValueError("one")
        return number

    @stage.app.workflow
    async def values() -> list[str]:
        found = await gather(*[fragile(number) for number in range(4)], limit=1, return_exceptions=True)
        return [str(each) for each in found]

    @stage.app.workflow
    async def raises() -> None:
        await gather(*[fragile(number) for number in range(4)], limit=1)

    assert stage.app.start(values).result(20) == ["0", "one", "2", "3"]
    assert seen == [0, 1, 2, 3]
    seen.clear()
    handle = stage.app.start(raises)
    with pytest.raises(WorkflowFailed, match="one"):
        handle.result(20)
    stage.until("the others ran", handle, lambda: seen == [0, 1, 2, 3])


def test_what_cannot_be_limited_is_refused(stage: Stage, crowd: Crowd) -> None:
    @stage.app.task
    async def visit_too(number: int) -> int:
        return await crowd.visit(number)

    @stage.app.workflow
    async def refused() -> list[str]:
        said = []
        begun = [visit_too(number) for number in range(3)]
        await begun[0]
        limited = visit_too.with_options(concurrency=3)
        for calls, limit in ((begun, 2), ([limited(1)], 1), ([visit_too(1)], 0), ([visit_too(1)], True)):
            try:
                await gather(*calls, limit=limit)
            except ValueError as error:
                said.append(str(error))
        return said

    begun, own, zero, truth = stage.app.start(refused).result(20)
    assert "the task 'visit_too' has begun before the last await" in begun
    assert "the task 'visit_too' has a concurrency limit of its own" in own
    assert zero.endswith("at least 1, not 0")
    assert truth.endswith("at least 1, not True")


def test_a_task_with_a_limit_of_its_own_is_not_limited_twice(stage: Stage, crowd: Crowd) -> None:
    source = """
    const calls = [1, 2, 3].map(number => Task.run("visit_one_by_one", number))
    return await Promise.all(calls, {limit: 2})
    """
    ended = stage.run_script(source)
    assert ended.state == "FAILED"
    assert "the task 'visit_one_by_one' has a concurrency limit of its own" in str(ended.error)


@pytest.mark.parametrize(
    "options", ["{limit: 0}", "{limit: 1.5}", '{limit: "2"}', "{}", "{most: 2}", "{cancel: 1}"]
)
def test_a_script_is_told_what_the_options_are(stage: Stage, options: str) -> None:
    ended = stage.run_script(f"return await Promise.all([], {options})")
    assert (ended.state, ended.error["code"]) == ("FAILED", "WRONG_ARG_TYPE")


def test_a_race_takes_no_limit(stage: Stage) -> None:
    ended = stage.run_script("return await Promise.race([1], {limit: 1})")
    assert "{cancel: true}" in ended.error["message"]
    assert "limit" not in ended.error["message"]


def test_no_line_is_left_behind(stage: Stage, crowd: Crowd) -> None:
    source = "return await Promise.all([1, 2, 3].map(n => Task.run('visit', n)), {limit: 1})"
    handle = stage.start_script(source)
    assert handle.result(20) == [10, 20, 30]
    stage.until("its key is gone", handle, lambda: _keys(stage) == [])


def _keys(stage: Stage) -> list[str]:
    return [limit.key for limit in stage.app.host.call(stage.app.engine.stack.limits.page())]


PROGRAM = """
import asyncio
import sys
import time
from pathlib import Path
from dalsegno import App, EngineSettings, gather

app = App(sys.argv[1], settings=EngineSettings(lease_seconds=1.0))
book = Path(sys.argv[2])


@app.task
async def visit(number: int) -> int:
    with book.open("a") as pages:
        pages.write(f"in {number}\\n")
    await asyncio.sleep(0.1)
    with book.open("a") as pages:
        pages.write(f"out {number}\\n")
    return number


@app.workflow
async def all_of_them() -> list:
    return await gather(*[visit(number) for number in range(8)], limit=2)


with app.running():
    if len(sys.argv) == 3:
        print(app.start(all_of_them).id, flush=True)
        time.sleep(60)
    else:
        print(app.handle(sys.argv[3]).result(30), flush=True)
"""


@LASTING
def test_the_limit_outlives_a_killed_process(store_url: str, tmp_path: Path) -> None:
    program, book = tmp_path / "program.py", tmp_path / "book"
    program.write_text(PROGRAM)
    book.touch()
    arguments = [store_url, str(book)]
    with Forked(str(program), arguments, stdout=subprocess.PIPE) as first:
        try:
            assert first.stdout is not None
            execution = first.stdout.readline().strip()
            end = time.monotonic() + 30
            while "out 1" not in book.read_text() and time.monotonic() < end:
                time.sleep(0.01)
        finally:
            first.kill()
    before = book.read_text()
    assert "out 7" not in before
    second = run_python(str(program), *arguments, execution)
    assert second.stdout.strip() == str(list(range(8))), second.stderr
    inside = 0
    for line in book.read_text()[len(before) :].splitlines():
        inside += 1 if line.startswith("in") else -1
        assert inside <= 2
