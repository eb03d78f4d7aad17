"""A master program: it sends execution messages to one engine and reads the statuses and completions that come back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from dalsegno.app import App
from dalsegno.core.wire.execution_message import message_schema
from dalsegno.engine.engine import Engine
from dalsegno.engine.settings import EngineSettings
from dalsegno.graph.json_schema.shape import check_input
from dalsegno.ports.archive import Archive
from dalsegno.ports.clock import Clock
from dalsegno.ports.messages import ForeignMessage, OutgoingMessage, Taken
from dalsegno.testing.stored_histories import stored_problems
from dalsegno.wiring import open_stack
from tests.waiting import come_about

PATIENCE = 10.0


class RecordingPublisher:
    """A broker that confirms as many messages as it is told to, and records all of them."""

    def __init__(self) -> None:
        self.messages: list[OutgoingMessage] = []
        self.confirms: int | None = None
        """How many messages of the next batches it confirms; None: all."""
        self.is_ready = True
        self.arrived = asyncio.Event()
        self._callbacks: list[Callable[[], None]] = []

    def publish(self, messages: Sequence[OutgoingMessage], answered: Callable[[int], None]) -> None:
        self.messages += messages
        self.arrived.set()
        count = len(messages) if self.confirms is None else min(self.confirms, len(messages))
        asyncio.get_running_loop().call_soon(answered, count)

    def ready(self) -> bool:
        return self.is_ready

    def on_ready(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def recover(self) -> None:
        self.is_ready, self.confirms = True, None
        for callback in self._callbacks:
            callback()


class Master:
    def __init__(self, app: App, engine: Engine, publisher: RecordingPublisher) -> None:
        self.app = app
        self.engine = engine
        self.publisher = publisher

    @classmethod
    async def open(
        cls,
        url: str = "memory:",
        settings: EngineSettings | None = None,
        clock: Clock | None = None,
        app: App | None = None,
        publisher: RecordingPublisher | None = None,
    ) -> Master:
        app = app or App(url)
        publisher = publisher or RecordingPublisher()
        stack = replace(await open_stack(url, clock), publisher=publisher)
        settings = settings or EngineSettings(grace=1.0, heavy_processes=0)
        engine = Engine(stack, app.registry, app.services(), settings, app.workflows)
        await engine.start()
        return cls(app, engine, publisher)

    async def close(self) -> None:
        inexact = await stored_problems(self.engine.client)
        await self.engine.stop()
        assert not inexact, "the histories are not exact:\n" + "\n".join(inexact)

    # -- sending ----------------------------------------------------------------------------------------------

    async def send(self, message: dict[str, Any] | bytes, *, timer: bool = False, **fields: Any) -> Taken:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return await self.engine.intake.take(
            ForeignMessage(body, "workflow.execution", timer=timer, **fields)
        )

    # -- reading ----------------------------------------------------------------------------------------------

    def bodies(self, execution: str) -> list[dict[str, Any]]:
        """Each message once, in the order of its first sending."""
        first = {message.message_id: message for message in self.publisher.messages}
        found = [json.loads(message.body) | {"id": message.message_id} for message in first.values()]
        return [body for body in found if body["execution_id"] == execution]

    def statuses(self, execution: str) -> list[dict[str, Any]]:
        return [body for body in self.bodies(execution) if "node_id" in body]

    def told(self, execution: str) -> list[tuple[str, str]]:
        """Node and status of each message; the completion has no node."""
        return [(body.get("node_id", ""), body["status"]) for body in self.bodies(execution)]

    async def completion(self, execution: str) -> dict[str, Any]:
        await self.until(lambda: any("final_context" in body for body in self.bodies(execution)))
        last = self.bodies(execution)[-1]
        assert "final_context" in last, "something was published after the completion"
        self.expect_schemas(execution)
        return last

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self.publisher.arrived.clear()
                await self.publisher.arrived.wait()

    async def until_removed(self, archive: Archive, before: float) -> None:
        """Remove what ended before this moment; the last completion is confirmed a moment after it was sent."""
        await come_about(lambda: archive.remove_ended(before), "the removal of an ended execution")

    def expect_schemas(self, execution: str) -> None:
        for body in self.bodies(execution):
            schema = message_schema("node-status" if "node_id" in body else "completion")
            assert check_input(schema, body) == []


def message(execution: str, node: str, definition: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """An execution message as a master writes it."""
    return {
        "workflow_id": "wf-1",
        "execution_id": execution,
        "current_node": node,
        "workflow_definition": definition,
        "accumulated_context": {"$trigger": {"n": 1}},
    } | fields
