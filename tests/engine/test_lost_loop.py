"""An engine that was closed, or whose event loop was ended: whoever waits for it is told, and nobody hangs."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path

import pytest

from dalsegno import App
from dalsegno.errors import InternalError, UsageError
from dalsegno.handle import Handle
from tests.waiting import come_about, until

STOPPED = "the application was stopped while this call was waiting"
SCRIPT = 'return await Signal.next("go")'


def _break(app: App) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    loop = app.host.loop
    assert loop is not None
    loop.call_soon_threadsafe(interrupt)


def test_calls_that_wait_for_a_lost_engine_fail_and_so_do_later_ones(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = App("memory:")
    name = app.deploy_script(SCRIPT, "s").name
    with app.running():
        handle = app.start(name)
        _break(app)
        with pytest.raises(InternalError, match="the engine of this application has stopped: KeyboardInterr"):
            handle.result(timeout=60)
        with pytest.raises(InternalError, match="has stopped"):
            app.start(name)
    told = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert [record.name for record in told] == ["dalsegno.event_loop_host"]


async def test_calls_from_another_loop_fail_too() -> None:
    app = App("memory:")
    app.deploy_script(SCRIPT, "s")
    with app.running():
        handle = await app.astart("s")
        _break(app)
        with pytest.raises(InternalError, match="has stopped"):
            await handle.aresult(timeout=60)


def test_a_lost_engine_hands_back_what_it_ran_and_can_be_opened_anew(tmp_path: Path) -> None:
    before = set(threading.enumerate())  # other tests may have left some
    url = f"sqlite:///{tmp_path}/s.db"
    app = App(url)
    app.deploy_script(SCRIPT, "s")
    with app.running():
        handle = app.start("s")
        _break(app)
        with pytest.raises(InternalError, match="has stopped"):
            handle.result(timeout=60)
    left = set(threading.enumerate()) - before
    assert not [thread for thread in left if thread.name == "heartbeat"]
    with app.running():
        handle.signal("go", 5)
        assert handle.result(timeout=15) == 5


def test_a_thread_that_waits_when_the_application_is_closed_is_told() -> None:
    app = App("memory:")
    app.deploy_script(SCRIPT, "s")
    told: list[BaseException] = []
    with app.running():
        thread = threading.Thread(target=_wait, args=(app.start("s"), told))
        thread.start()
        until(lambda: waits_for_endings(app), "the thread waits")
    thread.join(15)
    assert [str(error) for error in told] == [STOPPED]


async def test_a_task_that_waits_when_the_application_is_closed_is_told() -> None:
    app = App("memory:")
    await app.adeploy_script(SCRIPT, "s")
    async with app.running():
        waiter = asyncio.create_task((await app.astart("s")).aresult())
        await come_about(lambda: waits_for_endings(app), "the task waits")
    with pytest.raises(UsageError, match=STOPPED):
        async with asyncio.timeout(60):
            await waiter


async def test_a_task_of_another_loop_is_told_too() -> None:
    app = App("memory:")
    app.deploy_script(SCRIPT, "s")
    with app.running():
        waiter = asyncio.create_task((await app.astart("s")).aresult())
        await come_about(lambda: waits_for_endings(app), "the task waits")
    with pytest.raises(UsageError, match=STOPPED):
        async with asyncio.timeout(60):
            await waiter


def waits_for_endings(app: App) -> bool:
    return bool(app.engine.endings._waiters)


def _wait(handle: Handle, told: list[BaseException]) -> None:
    try:
        handle.result()
    except UsageError as error:
        told.append(error)
