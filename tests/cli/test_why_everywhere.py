"""``why`` says the same whichever way it is asked: the engine answers, and nobody else judges."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from dalsegno import App, Client
from dalsegno.core.diagnosis import Wait
from tests.cli.conftest import Invoke
from tests.server.conftest import LiveServer, leases_stay

__all__ = ["leases_stay"]

GRAPH = "{name: digs, nodes: [{id: it, type: task, queue: moon, parameters: {task: dig}}]}"
SCRIPT = 'return await Task.with({queue: "moon"}).run("dig", 1)\n'
FIELDS = (
    "kind",
    "subject",
    "node",
    "sentence",
    "since",
    "due",
    "count",
    "queue",
    "served",
    "lost",
    "line",
    "text",
)


@pytest.fixture
def store(folder: Path) -> str:
    return f"sqlite:///{folder / 'everywhere.db'}"


@pytest.fixture
def server(store: str, leases_stay: None) -> Iterator[LiveServer]:
    with LiveServer(App(store)) as live:
        yield live


def answers(invoke: Invoke, store: str, server: LiveServer, execution: str) -> list[list[dict[str, Any]]]:
    """Of ``--store``, ``--server``, HTTP and ``dalsegno.Client``."""
    found = [
        json.loads(invoke("why", execution, *place, "--json").stdout)["waits"]
        for place in (("--store", store), ("--server", server.url))
    ]
    found.append(httpx.get(f"{server.url}/v1/executions/{execution}/why").json()["reasons"])
    with Client(server.url) as client:
        found.append([_as_object(wait) for wait in client.handle(execution).why()])
    return [[_comparable(wait) for wait in waits] for waits in found]


def _as_object(wait: Wait) -> dict[str, Any]:
    return {name: getattr(wait, name) for name in (*FIELDS, "hint", "commands")}


def _comparable(wait: dict[str, Any]) -> dict[str, Any]:
    """With times as numbers, and without the place that the command line adds to commands."""
    fields = {name: wait[name] for name in FIELDS}
    for name in ("since", "due"):
        at = fields[name]
        fields[name] = datetime.fromisoformat(at).timestamp() if isinstance(at, str) else at
    return fields | {"hint": (wait["hint"] or "").partition(" --")[0].partition("` or")[0]}


def _nearly(waits: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The command line tells times in milliseconds."""
    return [
        {
            name: pytest.approx(value, abs=0.002) if name in ("since", "due") else value
            for name, value in wait.items()
        }
        for wait in waits
    ]


async def _taken_elsewhere(store: str, name: str) -> str:
    """Leased by a worker of another machine, whose lease has ended since."""
    app = App(store)
    execution = await app.client.start(name)
    ledger = app.client.stack.ledger
    await asyncio.to_thread(ledger.heartbeat, "elsewhere", 60.0, b'{"queues":["moon"],"heard":1767603600.0}')
    for _ in range(1000):
        if await ledger.claim("elsewhere", ["moon"], 1):
            break
        await asyncio.sleep(0.01)
    else:
        raise AssertionError("nothing came into the queue")
    await asyncio.to_thread(ledger.heartbeat, "elsewhere", -1.0, b'{"queues":["moon"],"heard":1767603600.0}')
    await app.aclose()
    return execution


@pytest.mark.parametrize("kind", ["graph", "script"])
def test_expired_lease_of_a_worker_elsewhere_is_lost_whoever_is_asked(
    invoke: Invoke, store: str, server: LiveServer, kind: str
) -> None:
    async def deploy() -> None:
        app = App(store)
        await (app.adeploy(GRAPH) if kind == "graph" else app.adeploy_script(SCRIPT, "digs"))
        await app.aclose()

    asyncio.run(deploy())
    execution = asyncio.run(_taken_elsewhere(store, "digs"))

    here, *others = answers(invoke, store, server, execution)

    assert others == [_nearly(here)] * 3
    [wait] = here
    assert (wait["kind"], wait["lost"], wait["since"]) == ("lost", True, 1767603600)
    what = "node 'it'" if kind == "graph" else "task 'dig'"
    assert wait["sentence"].startswith(
        f"{what} was running (attempt 1); its worker elsewhere is dead (last heard of at"
    )
    assert wait["hint"].startswith(f"its process has ended; continue with `dalsegno resume {execution}")


def test_queue_that_nobody_serves_is_said_whoever_is_asked(
    invoke: Invoke, store: str, server: LiveServer
) -> None:
    async def start() -> str:
        app = App(store)
        await app.adeploy(GRAPH)
        execution = await app.client.start("digs")
        await app.aclose()
        return execution

    execution = asyncio.run(start())
    here, *others = answers(invoke, store, server, execution)

    assert others == [_nearly(here)] * 3
    [wait] = here
    assert (wait["kind"], wait["subject"], wait["served"], wait["queue"]) == ("queued", "node", False, "moon")
    assert wait["since"] is not None
    reasons = httpx.get(f"{server.url}/v1/executions/{execution}/why").json()["reasons"]
    assert reasons[0]["hint"] == "start one with `dalsegno worker --queues moon`"
    assert reasons[0]["commands"] == ["dalsegno worker --queues moon"]


def test_hint_has_the_place_where_it_was_asked(invoke: Invoke, store: str, server: LiveServer) -> None:
    async def submit() -> str:
        app = App(store)
        await app.adeploy(GRAPH)
        execution = await app.client.submit("digs")
        await app.aclose()
        return execution

    execution = asyncio.run(submit())
    for place in (("--store", store), ("--server", server.url)):
        [wait] = json.loads(invoke("why", execution, *place, "--json").stdout)["waits"]
        command = f"dalsegno trigger {execution} {' '.join(place)}"
        assert (wait["hint"], wait["commands"]) == (f"begin it with `{command}`", [command])


def test_task_that_is_ready_in_a_pause_waits_for_nothing_else(
    invoke: Invoke, store: str, server: LiveServer
) -> None:
    async def pause() -> str:
        app = App(store)
        await app.adeploy_script(SCRIPT, "digs")
        execution = await app.client.start("digs")
        for _ in range(1000):
            if any(wait.node == "dig" for wait in await app.client.why(execution)):
                break
            await asyncio.sleep(0.01)
        await app.client.pause(execution)
        await app.aclose()
        return execution

    here, *others = answers(invoke, store, server, asyncio.run(pause()))

    assert others == [_nearly(here)] * 3
    paused, ready = here
    assert (paused["kind"], paused["since"] is not None) == ("paused", True)
    assert (ready["kind"], ready["served"], ready["hint"]) == ("queued", None, "")
    assert ready["sentence"] == "task 'dig' is ready; it continues when the execution is resumed"
