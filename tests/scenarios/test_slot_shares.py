"""One workflow whose steps hang does not stop the others of the same worker."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from dalsegno import App, EngineSettings
from tests.scenarios.documents import graph, task
from tests.scenarios.listeners import add_blocking_tasks, calling, deploy_blocking, honest, silent_listener
from tests.waiting import come_about

PROMPT = 20.0
"""Seconds in which a workflow of one quick step ends beside others that hang for 300; alone it takes milliseconds."""


async def ends_promptly(app: App, workflow: str, payload: Any = None) -> None:
    began = time.monotonic()
    view = await app.client.wait(await app.client.start(workflow, payload), timeout=30)
    assert view.state == "COMPLETED", view
    assert time.monotonic() - began < PROMPT


async def test_a_hundred_silent_calls_of_one_workflow_leave_room_for_others(store_url: str) -> None:
    app = App(store_url, settings=EngineSettings(grace=0.0))
    async with silent_listener() as silent, app.running():
        await app.client.deploy(calling("hog", silent.url))
        await app.client.deploy(honest())
        for _ in range(110):
            await app.client.start("hog")
        await come_about(lambda: silent.open == 80, "the calls hold their share of the slots")
        for _ in range(5):
            await ends_promptly(app, "honest")
        assert silent.most == 80


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_versions_of_a_workflow_and_items_of_its_splits_share_one_share(store_url: str) -> None:
    """Through claims, through what a step keeps for itself, and through starts in the worker's own process."""
    app = App(store_url, settings=EngineSettings(concurrency=20, grace=0.0))
    async with silent_listener() as silent, app.running():
        await app.client.deploy(honest())
        for version in range(10):
            await app.client.deploy(calling("hog", silent.url, query={"version": version}))
            await app.client.start("hog")
        call = {"type": "http", "parameters": {"url": silent.url, "timeout": 300}}
        items = {"type": "split", "parameters": {"input_array": list(range(30))}}
        described = {"split": items, "call": call, "all": {"type": "aggregator"}}
        split = graph("split > call > all", described, name="hog")
        await app.client.deploy(split)
        await app.client.start("hog")
        await come_about(lambda: silent.open == 16, "the calls hold their share of the slots")
        for _ in range(3):
            await ends_promptly(app, "honest")
        assert silent.most == 16


async def test_slots_that_a_workflow_gives_back_are_filled_with_its_next_steps(store_url: str) -> None:
    """Many more steps than its share, while no other workflow waits: they all run, one after the other."""
    app = App(store_url, settings=EngineSettings(concurrency=10, grace=0.0))
    running = most = 0

    @app.task
    async def work(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return number

    async with app.running():
        await app.client.deploy(graph("a", {"a": task("work", 1)}, name="hog"))
        began = time.monotonic()
        started = [await app.client.start("hog") for _ in range(200)]
        for execution in started:
            assert (await app.client.wait(execution, timeout=30)).state == "COMPLETED"
        assert time.monotonic() - began < 60
    assert most <= 8


async def test_blocking_tasks_of_one_workflow_leave_threads_for_others() -> None:
    app = App("memory:", settings=EngineSettings(threads=10, grace=0.0))
    gate, blocked = add_blocking_tasks(app)
    async with app.running():
        try:
            await deploy_blocking(app)
            for _ in range(40):
                await app.client.start("hog")
            await come_about(lambda: len(blocked) == 8, "the tasks hold their share of the threads")
            for _ in range(3):
                await ends_promptly(app, "honest")
            assert len(blocked) == 8
        finally:
            gate.set()


async def test_turns_of_one_python_workflow_leave_threads_for_others() -> None:
    app = App("memory:", settings=EngineSettings(grace=0.0))
    gate, blocked = threading.Event(), []

    @app.workflow
    async def hog() -> None:
        blocked.append(1)
        gate.wait(60)

    @app.workflow
    async def answer() -> int:
        return 42

    async with app.running():
        try:
            for _ in range(20):
                await app.client.start("hog")
            await come_about(lambda: len(blocked) == 7, "the turns hold their share of the threads")
            for _ in range(3):
                await ends_promptly(app, "answer")
            assert len(blocked) == 7
        finally:
            gate.set()


@pytest.mark.parametrize(("slots", "share"), [(4, 0.8), (10, 1.0)])
async def test_a_worker_of_few_slots_and_one_without_shares_hold_nothing_back(
    slots: int, share: float
) -> None:
    settings = EngineSettings(concurrency=slots, workflow_share=share, grace=0.0)
    app = App("memory:", settings=settings)
    async with silent_listener() as silent, app.running():
        await app.client.deploy(calling("hog", silent.url))
        for _ in range(20):
            await app.client.start("hog")
        await come_about(lambda: silent.open == slots, "every slot is used")
