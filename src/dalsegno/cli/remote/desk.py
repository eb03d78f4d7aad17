"""A server as the commands see it: the same questions as a store that is opened here answers."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from dalsegno.cli.remote.ledger import RemoteLedger, ServerClock
from dalsegno.client.archive import ServerArchive
from dalsegno.client.calls import ServerCalls
from dalsegno.client.stream import stream_events
from dalsegno.client.transport import Transport
from dalsegno.engine.definitions import Program
from dalsegno.engine.scripting.looking import Picture
from dalsegno.errors import NotFound
from dalsegno.graph.build import load_graph
from dalsegno.graph.catalog import Catalog
from dalsegno.model.execution import ExecutionView
from dalsegno.model.inspection import Inspection

PATIENCE = 5.0
"""Nobody looks at a silent terminal for longer before being told that the server is not there."""
LOYALTY = 60.0
"""One that was there is waited for: it may be restarted."""


@dataclass(frozen=True, slots=True)
class RemoteStack:
    clock: ServerClock
    ledger: RemoteLedger
    archive: ServerArchive


class RemoteDefinitions:
    """Graphs are compiled here, to draw them: that needs their node types."""

    def __init__(self, archive: ServerArchive, catalog: Catalog) -> None:
        self._archive = archive
        self._catalog = catalog

    async def by_hash(self, hash: str) -> Program:
        definition = await self._archive.definition_by_hash(hash)
        if definition is None:
            raise NotFound(f"no definition with the content hash {hash} is stored there")
        compiled = load_graph(definition.source, self._catalog, default_name=definition.name)
        return Program(definition, compiled.plan)


class News:
    """Counts the events that a stream brings: whoever draws looks again when one came."""

    def __init__(self) -> None:
        self.transitions = 0


class RemoteDesk(ServerCalls):
    def __init__(self, transport: Transport, catalog: Catalog) -> None:
        super().__init__(transport)
        clock = ServerClock(time.time)
        archive = ServerArchive(transport)
        self.stack = RemoteStack(clock, RemoteLedger(transport, clock), archive)
        self.definitions = RemoteDefinitions(archive, catalog)
        self.committer = News()

    async def picture(self, execution: str, *, variables: bool = True) -> Picture | None:
        if variables:
            return await super().picture(execution)
        return await self.stack.ledger.picture(execution)

    async def open_slots(self, inspection: Inspection) -> Mapping[str, tuple[str, ...]]:
        if not any(barrier.state == "waiting" for barrier in inspection.barriers):
            return {}
        return await self.stack.ledger.open_slots(inspection.execution.id)

    async def wait(self, execution: str, timeout: float | None = None) -> ExecutionView:  # noqa: ASYNC109 - as its base
        """Without a timeout somebody watches: every event is news."""
        if timeout is None:
            async for _ in stream_events(self.transport, execution, (await self.status(execution)).seq):
                self.committer.transitions += 1
        return await super().wait(execution, timeout)


@asynccontextmanager
async def remote_desk(url: str, catalog: Catalog) -> AsyncIterator[RemoteDesk]:
    async with remote_transport(url) as transport:
        yield RemoteDesk(transport, catalog)


@asynccontextmanager
async def remote_transport(url: str) -> AsyncIterator[Transport]:
    """With the key of the environment."""
    transport = Transport(url, os.environ.get("DALSEGNO_KEY") or None, patience=PATIENCE, loyalty=LOYALTY)
    try:
        yield transport
    finally:
        await transport.close()
