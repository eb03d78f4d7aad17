"""A reader of server-sent events for tests: as strict as a browser, and it remembers everything it was sent."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx


@dataclass
class Sent:
    """One event as it came."""

    kind: str
    id: int | None
    data: Any


async def read_stream(answer: httpx.Response) -> AsyncIterator[Sent]:
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if line.startswith(":"):
            yield Sent(":", None, line)
        elif line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "event" in fields:
            number = int(fields["id"]) if "id" in fields else None
            yield Sent(fields["event"], number, json.loads(fields["data"]))
            fields = {}
        else:
            fields = {}


@dataclass
class Watcher:
    """Follows one execution to its end, through breaks, as a client does."""

    url: str
    execution: str
    seen: list[int] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    breaks: int = 0
    end: Any = None

    async def follow(self, http: httpx.AsyncClient) -> None:
        """Once, until the stream ends."""
        headers = {"Last-Event-ID": str(self.seen[-1])} if self.seen else {}
        path = f"{self.url}/v1/executions/{self.execution}/stream"
        async with http.stream("GET", path, headers=headers) as answer:
            assert answer.status_code == 200, await answer.aread()
            async for event in read_stream(answer):
                if event.kind == "end":
                    self.end = event.data
                elif event.id is not None:
                    assert event.data["seq"] == event.id
                    self.seen.append(event.id)
                    self.kinds.append(event.kind)
        self.breaks += self.end is None
