"""An application whose tasks are handed out over a broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from dalsegno import App
from dalsegno.engine.engine import Engine
from dalsegno.engine.remote.carrier import DistributionSettings
from dalsegno.engine.remote.distribution import TaskDistribution
from dalsegno.ports.stack import Stack
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

    async def output(self, execution: str) -> Any:
        return (await self.client.context(execution))["$resize"]

    async def state(self, execution: str) -> str:
        view = await self.client.stack.archive.execution(execution)
        assert view is not None
        return view.state


async def ended(app: BrokerApp, execution: str) -> str:
    state = ""

    async def look() -> bool:
        nonlocal state
        state = await app.state(execution)
        return state not in ("RUNNING", "PENDING")

    await come_about(look, f"execution {execution} ends")
    return state
