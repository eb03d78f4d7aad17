"""An application whose tasks are handed out over a broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self

import httpx

from dalsegno import App
from dalsegno.engine.engine import Engine
from dalsegno.engine.remote.carrier import DistributionSettings
from dalsegno.engine.remote.distribution import TaskDistribution
from dalsegno.ports.stack import Stack
from dalsegno.server import ServerSettings
from dalsegno.server.application import create_application
from dalsegno.wiring import open_stack
from tests.waiting import come_about

FAST = DistributionSettings(
    leads_for=1.0,
    renew_every=0.2,
    tick=0.05,
    report_every=0.1,
    workers_every=0.1,
    dead_after=0.5,
    missing_after=1.5,
    away_after=1.0,
)
GRAPH: dict[str, Any] = {
    "name": "thumbnails",
    "nodes": [
        {
            "id": "resize",
            "type": "task",
            "queue": "images",
            "parameters": {"task": "resize", "input": {"file": "{{ input.file }}"}},
        }
    ],
}


class BrokerApp(App):
    def __init__(self, store: str, add_broker: Callable[[Stack], Awaitable[Stack]]) -> None:
        super().__init__(store)
        self.add_broker = add_broker
        self.distribution: TaskDistribution

    async def _open_engine(self) -> Engine:
        stack = await self.add_broker(await open_stack(self.url))
        engine = Engine(stack, self.registry, self.services(), self.settings, self.workflows)
        self.distribution = TaskDistribution(engine, stack.task_transports, FAST)
        engine.distribution = self.distribution
        return engine

    @asynccontextmanager
    async def deployed(self) -> AsyncIterator[Self]:
        """Run without a worker of ours, with the graph deployed."""
        async with self.running(worker=False):
            await self.adeploy(GRAPH)
            yield self

    @asynccontextmanager
    async def served(self) -> AsyncIterator[httpx.AsyncClient]:
        """Run inside a server; what it answers is read over HTTP."""
        application = create_application(self, ServerSettings())
        transport = httpx.ASGITransport(application)
        async with (
            application.router.lifespan_context(application),
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700") as http,
        ):
            await self.adeploy(GRAPH)
            yield http

    @property
    def results(self) -> Mapping[str, int]:
        return self.distribution.carriers[0].results.counts

    @property
    def leads(self) -> bool:
        return self.distribution.leads

    def fall_silent(self) -> None:
        """End its distribution without a word to the others, as when its process dies."""

        async def say_nothing() -> None:
            pass

        self.distribution.leadership.leave = say_nothing  # type: ignore[method-assign]
        (role,) = [role for role in self.engine._roles if role.get_name() == "distribution of tasks"]
        role.cancel()

    @property
    def lost(self) -> int:
        return sum(self.distribution.carriers[0].lost.values())

    async def begin(self, name: str = "a.png", priority: int = 0) -> str:
        handle = await self.with_options(priority=priority).astart("thumbnails", file=name)
        return handle.id

    async def is_handed_out(self, execution: str) -> bool:
        found = await self.client.stack.ledger.inspect(execution)
        return found is not None and any(token.state == "leased" for token in found.tokens)

    async def output(self, execution: str) -> Any:
        return (await self.client.context(execution))["$resize"]

    async def state(self, execution: str) -> str:
        view = await self.client.stack.archive.execution(execution)
        assert view is not None
        return view.state


async def health(http: httpx.AsyncClient) -> dict[str, Any]:
    return {part["name"]: part for part in (await http.get("/v1/health")).json()["parts"]}


async def foreign_workers(http: httpx.AsyncClient) -> list[dict[str, Any]]:
    workers = (await http.get("/v1/workers")).json()["workers"]
    return [each for each in workers if each["kind"] == "remote"]


async def ended(app: BrokerApp, execution: str) -> str:
    state = ""

    async def look() -> bool:
        nonlocal state
        state = await app.state(execution)
        return state not in ("RUNNING", "PENDING")

    await come_about(look, f"execution {execution} ends")
    return state


async def result_of(app: BrokerApp, execution: str) -> Any:
    """Return the output of the node after the execution is completed."""
    assert await ended(app, execution) == "COMPLETED"
    return await app.output(execution)
