"""Runs of an execution or a scope that has ended are cancelled, and their slots become free."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from dalsegno import App, EngineSettings, NodeContext
from dalsegno.engine.worker import long_runs
from dalsegno.model.token import Lease
from tests.scenarios.conftest import LASTING
from tests.scenarios.documents import graph, task
from tests.scenarios.listeners import add_blocking_tasks, calling, deploy_blocking, silent_listener
from tests.servers.forking import run_python
from tests.waiting import come_about

SOON = 20.0
"""Seconds in which slots are free; a call that is not aborted lasts 300."""

CANCEL_ALL = """
import asyncio, sys
from dalsegno import App
from dalsegno.ports.archive import ExecutionFilter

async def cancel_all():
    app = App(sys.argv[1])
    async with app.running(worker=False, scheduler=False):
        where = ExecutionFilter(None, ("RUNNING",))
        for view in await app.client.executions(where, limit=500):
            await app.client.cancel(view.id)

asyncio.run(cancel_all())
"""


@pytest.fixture
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_runs, "LOOK_EVERY", 0.1)


LOOKS_OFTEN = pytest.mark.usefixtures("_looks_often")


def brief(url: str, **more: Any) -> App:
    return App(url, settings=EngineSettings(grace=0.0, **more))


async def cancel_from_another_process(url: str) -> None:
    done = await asyncio.to_thread(run_python, "-c", CANCEL_ALL, url)
    assert done.returncode == 0, done.stderr


@LASTING
@LOOKS_OFTEN
async def test_calls_of_executions_that_another_process_cancels_are_aborted(store_url: str) -> None:
    app = brief(store_url)
    async with silent_listener() as silent, app.running():
        await app.client.deploy(calling("hog", silent.url))
        for _ in range(100):
            await app.client.start("hog")
        await come_about(lambda: silent.open == 80, "the calls hold their share of the slots")

        await cancel_from_another_process(store_url)

        worker = app.engine.worker
        assert worker is not None
        await come_about(lambda: silent.open == 0 and not worker.running, "every slot is free", SOON)
        assert not worker.shares.full()


@LASTING
@LOOKS_OFTEN
async def test_tasks_of_executions_that_another_process_cancels_are_aborted(store_url: str) -> None:
    """An async task is cancelled. The thread of a sync one goes on, which is told; its slot is free at once."""
    app = brief(store_url)
    gate, begun, ended = threading.Event(), [], []

    @app.task
    async def wait(value: Any) -> None:
        begun.append("async")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    @app.task
    def block(ctx: NodeContext, value: Any) -> None:
        begun.append("sync")
        while not gate.wait(0.01):
            if ctx.cancelled:
                ended.append("told")
                gate.wait(60)

    async with app.running():
        try:
            await app.client.deploy(graph("a, b", {"a": task("wait", 1), "b": task("block", 1)}))
            await app.client.start("scenario")
            await come_about(lambda: len(begun) == 2, "both tasks run")

            await cancel_from_another_process(store_url)

            worker = app.engine.worker
            assert worker is not None
            await come_about(lambda: not worker.running, "both slots are free", SOON)
            await come_about(lambda: sorted(ended) == ["cancelled", "told"], "both are told", SOON)
            assert app.tasks.abandoned == 1
        finally:
            gate.set()


@LASTING
@LOOKS_OFTEN
async def test_what_loses_a_race_or_stands_in_a_halted_item_is_aborted(store_url: str) -> None:
    app = brief(store_url)
    call: dict[str, Any]
    async with silent_listener() as silent, app.running():
        call = {"type": "http", "parameters": {"url": silent.url, "timeout": 300}}
        race = graph(
            "quick > first, call > first, first > sleep",
            {
                "quick": {"type": "wait", "parameters": {"amount": 1, "unit": "seconds"}},
                "call": call,
                "first": {
                    "type": "merge",
                    "parameters": {"wait_mode": "wait_for_any", "mode": "first", "losers": "cancel"},
                },
                "sleep": {"type": "wait", "parameters": {"amount": 1, "unit": "hours"}},
            },
            name="race",
        )
        late = graph(
            "split > call > all, all !> sleep",
            {
                "split": {"type": "split", "parameters": {"input_array": [1, 2]}},
                "call": call,
                "all": {"type": "aggregator", "parameters": {"timeout": "1s"}},
                "sleep": {"type": "wait", "parameters": {"amount": 1, "unit": "hours"}},
            },
            name="late",
        )
        overdue = graph("call", {"call": call}, name="overdue", timeout="1s")
        started = {}
        for document in (race, late, overdue):
            await app.client.deploy(document)
            started[document["name"]] = await app.client.start(document["name"])
        await come_about(lambda: silent.total == 4, "all call")
        await come_about(lambda: silent.open == 0, "the calls are aborted", 1 + SOON)
        states = {name: (await app.client.status(execution)).state for name, execution in started.items()}
        assert states == {"race": "RUNNING", "late": "RUNNING", "overdue": "FAILED"}


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_a_cancel_in_the_same_process_aborts_at_once(store_url: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(long_runs, "LOOK_EVERY", 3600.0)
    app = brief(store_url)
    async with silent_listener() as silent, app.running():
        await app.client.deploy(calling("hog", silent.url))
        execution = await app.client.start("hog")
        await come_about(lambda: silent.open == 1, "it calls")
        await app.client.cancel(execution)
        await come_about(lambda: silent.open == 0, "the call is aborted")


async def test_nothing_is_asked_while_nothing_runs_long(monkeypatch: Any) -> None:
    app = brief("memory:")

    @app.task
    async def echo(value: Any) -> Any:
        return value

    async with app.running():
        asked = []
        monkeypatch.setattr(app.engine.stack.ledger, "obsolete", asked.append)
        await app.client.deploy(graph("a", {"a": task("echo", "a")}))
        until = time.monotonic() + 1.3
        while time.monotonic() < until:
            await app.client.wait(await app.client.start("scenario"), timeout=30)
        assert asked == []


@LOOKS_OFTEN
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_a_paused_execution_goes_on_with_what_runs(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = brief(store_url)
    async with silent_listener() as silent, app.running():
        ledger, found = app.engine.stack.ledger, []
        look = ledger.obsolete

        async def looking(leases: list[Lease]) -> list[Lease]:
            found.append(await look(leases))
            return found[-1]

        monkeypatch.setattr(ledger, "obsolete", looking)
        await app.client.deploy(calling("hog", silent.url))
        execution = await app.client.start("hog")
        await come_about(lambda: silent.open == 1, "it calls")
        await app.client.pause(execution)
        before = len(found)
        await come_about(lambda: len(found) >= before + 3, "the worker has looked")
        assert not any(found)
        assert silent.open == 1


async def test_threads_that_a_workflow_leaves_behind_are_replaced_up_to_a_number() -> None:
    """Blocking tasks that are cancelled again and again do not make threads without end."""
    app = brief("memory:", threads=5)
    gate, running = add_blocking_tasks(app)
    async with app.running():
        try:
            await deploy_blocking(app)
            for number in range(1, 10):
                execution = await app.client.start("hog")
                await come_about(lambda: len(running) == number, "it blocks")  # noqa: B023 - asked at once
                await app.client.cancel(execution)
            waiting = await app.client.start("hog")
            view = await app.client.wait(await app.client.start("honest"), timeout=30)
            assert view.state == "COMPLETED"
            assert len(running) == 9, "five were replaced, four are its share"
            await app.client.cancel(waiting)
        finally:
            gate.set()
