"""``dalsegno workers``: who works on a store, also asked over a server."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from dalsegno import App
from dalsegno.engine.worker.directory import Running, WorkerInfo, write_info
from dalsegno.version import __version__
from tests.cli.conftest import Invoke
from tests.cli.programs import Programs
from tests.server.conftest import LiveServer
from tests.waiting import until

RUNNING = Running("0198f3c2a1b4d6e8f0a2b4c6d8e0f2a4", "resize", "task", "images", 2)


@pytest.fixture
def server(folder: Path) -> Iterator[str]:
    with LiveServer(App(f"sqlite:///{folder / 'dalsegno.db'}")) as live:
        yield live.url


async def _heard(store: str, id: str, seconds: float, info: bytes) -> None:
    app = App(store)
    await asyncio.to_thread(app.client.stack.ledger.heartbeat, id, seconds, info)
    await app.aclose()


def by_name(told: str) -> dict[str, dict[str, Any]]:
    return {worker["name"]: worker for worker in json.loads(told)["workers"]}


def test_a_store_without_workers_says_so(invoke: Invoke) -> None:
    invoke("keys", "add", "ci")  # makes the store
    assert invoke("workers").stdout == "no workers; `dalsegno worker` starts one\n"
    assert json.loads(invoke("workers", "--json").stdout) == {"workers": []}


def test_a_store_that_is_not_there_is_not_made(invoke: Invoke, folder: Path) -> None:
    refused = invoke("workers")
    assert (refused.exit_code, "there is no store" in refused.stderr) == (2, True)
    assert list(folder.iterdir()) == []


def test_a_worker_process_is_listed_while_it_lives(invoke: Invoke, programs: Programs) -> None:
    invoke("keys", "add", "ci")
    worker = programs.begin("worker", "--queues", "default,video", "--concurrency", "7")

    def listed() -> dict[str, Any] | None:
        found = json.loads(invoke("workers", "--json").stdout)["workers"]
        return found[0] if found else None

    seen = until(listed, "the worker")
    assert (seen["process"], seen["state"], seen["kind"]) == (worker.process.pid, "alive", "local")
    assert {"default", "video", "system"} <= set(seen["queues"])
    assert (seen["concurrency"], seen["leases"], seen["running"]) == (7, 0, [])
    assert seen["version"] == __version__
    line = invoke("workers").stdout.splitlines()[1]
    assert f" {__version__} " in line
    assert f":{worker.process.pid} " in line
    assert "alive" in line
    assert "0 of 7" in line
    assert line.endswith(" ago")

    worker.end()
    assert " dead " in invoke("workers").stdout


def test_a_worker_has_loaded_what_its_first_steps_need(invoke: Invoke, programs: Programs) -> None:
    """The client of the http node takes a third of a second, in which no other step would go on."""
    invoke("keys", "add", "ci")
    worker = programs.begin("worker")
    until(lambda: json.loads(invoke("workers", "--json").stdout)["workers"], "the worker")
    assert "aiohttp" in Path(f"/proc/{worker.process.pid}/maps").read_text()


def test_a_worker_that_fell_silent_is_dead_and_listed_last(invoke: Invoke, folder: Path) -> None:
    invoke("keys", "add", "ci")
    store, now = f"sqlite:///{folder / 'dalsegno.db'}", time.time()
    silent = WorkerInfo(("images",), 4, now - 3600, now - 300, "far", 12, (RUNNING,))
    asyncio.run(_heard(store, "elsewhere", -1.0, write_info(silent)))
    alive = WorkerInfo(("images",), 0, now, now, remote="miner")
    asyncio.run(_heard(store, "remote:miner:1a2b", 60.0, write_info(alive)))
    told = by_name(invoke("workers", "--json").stdout)
    assert (told["far:12"]["state"], told["miner"]["state"]) == ("dead", "alive")
    assert told["miner"]["kind"] == "remote"
    first, second = invoke("workers").stdout.splitlines()[1:]
    assert "alive, remote" in first
    assert "5:0" in second


def test_a_worker_that_does_not_say_its_version_is_listed_without(invoke: Invoke, folder: Path) -> None:
    invoke("keys", "add", "ci")
    before = msgspec.json.encode(WorkerInfo(("images",), 4, host="far", process=12))
    asyncio.run(_heard(f"sqlite:///{folder / 'dalsegno.db'}", "elsewhere", 60.0, before))
    assert by_name(invoke("workers", "--json").stdout)["far:12"]["version"] is None
    assert " alive  ? " in invoke("workers").stdout


def test_a_server_tells_the_same_also_of_remote_workers(invoke: Invoke, server: str) -> None:
    claim = {"worker": "miner", "queues": ["moon"], "tasks": ["dig"], "wait": 0}
    assert httpx.post(f"{server}/v1/tasks/claim", json=claim).status_code == 200
    there = by_name(invoke("workers", "--json", "--server", server).stdout)
    here = by_name(invoke("workers", "--json").stdout)
    moving = ("heard_at", "expires_at")  # with every heartbeat
    assert {name: {**worker, **dict.fromkeys(moving)} for name, worker in there.items()} == {
        name: {**worker, **dict.fromkeys(moving)} for name, worker in here.items()
    }
    assert (there["miner"]["kind"], there["miner"]["queues"]) == ("remote", ["moon"])
    assert len(there) == 2
    assert {worker["version"] for worker in there.values()} == {__version__}
    assert all(worker["heard_at"] and worker["since"] for worker in there.values())
    shown = invoke("workers", "--server", server).stdout
    assert "miner" in shown
    assert "alive, remote" in shown
