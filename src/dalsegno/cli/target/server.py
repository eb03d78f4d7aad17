"""A server as the target of a command: the same calls as on a store opened here.

What a server's engine holds of an execution is read by one request and decoded into the values that the views take.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

from msgspec import Raw, Struct

from dalsegno.client import Client
from dalsegno.client.archive import ServerArchive
from dalsegno.client.executions import ServerCalls
from dalsegno.client.schemas import ExecutionReply, maybe_seconds, seconds, values_of
from dalsegno.client.transport import Transport
from dalsegno.client.waits import stream_events
from dalsegno.core.graph.step_input import Awaiting, Body, encode
from dalsegno.core.scripts.token_bodies import TaskBody, encode_body
from dalsegno.engine.definitions import Program
from dalsegno.errors import NotFound
from dalsegno.graph.build import load_graph
from dalsegno.graph.catalog import Catalog
from dalsegno.model.barrier import BarrierView
from dalsegno.model.execution import ExecutionView
from dalsegno.model.inspection import Inspection
from dalsegno.model.limits import LimitView
from dalsegno.model.machine import CancelReason, MachineView, Ranges, SignalView, Wake
from dalsegno.model.token import TokenKind, TokenState, TokenView, WakeReason

EMPTY_BODY = encode(Body())


class ServerClock:
    """This machine's clock, corrected by the time that the server reports."""

    def __init__(self, here: Callable[[], float]) -> None:
        self._here = here
        self._offset = 0.0

    def now(self) -> float:
        return self._here() + self._offset

    def set_time(self, there: float) -> None:
        self._offset = there - self._here()


class AwaitingReply(Struct):
    awaits: str
    since: datetime
    due: datetime | None = None
    question: dict[str, Any] | None = None


class TokenReply(Struct):
    id: str
    kind: TokenKind
    node: str
    scope: str
    state: TokenState
    queue: str
    priority: int
    live: bool
    attempt: int
    losses: int
    reason: WakeReason
    limit_key: str | None = None
    due: datetime | None = None
    owner: str | None = None
    awaits: str | None = None
    awaiting: AwaitingReply | None = None
    allowance: str | None = None

    def view(self) -> TokenView:
        fields = values_of(self)
        del fields["awaiting"]
        return TokenView(**{**fields, "fence": 0, "data": self._body()})

    def _body(self) -> bytes:
        """Return a body that holds only what the token waits for; the server sends nothing else."""
        info = self.awaiting
        if info is None:
            return EMPTY_BODY
        awaiting = Awaiting(info.awaits, seconds(info.since), maybe_seconds(info.due), info.question)
        if self.kind == "task":
            return encode_body(TaskBody(Raw(b"null"), awaiting=awaiting))
        return encode(Body(awaiting=awaiting))


class BarrierReply(Struct):
    id: str
    scope: str
    node: str
    state: str
    mode: str
    expected: int
    resolved: int
    live: int
    deadline: datetime | None = None

    def view(self) -> BarrierView:
        return BarrierView(**values_of(self))


class MachineReply(Struct):
    line: int
    cancel: CancelReason
    signals: tuple[str, ...]
    awaited: Ranges
    reachable: Ranges
    mailbox: tuple[str, ...] = ()
    interrupted: bool = False

    def view(self) -> MachineView:
        wake = Wake(signals=self.signals, awaited=self.awaited)
        signals = tuple(SignalView("", name, b"", number) for number, name in enumerate(self.mailbox))
        return MachineView(
            0, b"", self.reachable, wake, 0, 0, self.line, self.cancel, self.interrupted, (), signals
        )


class InspectionReply(Struct):
    execution: ExecutionReply
    held: bool
    now: datetime
    tokens: list[TokenReply] = []
    barriers: list[BarrierReply] = []
    limits: tuple[LimitView, ...] = ()
    machine: MachineReply | None = None


class RemoteLedger:
    def __init__(self, transport: Transport, clock: ServerClock) -> None:
        self._transport = transport
        self._clock = clock
        self._last: InspectionReply | None = None

    def now(self) -> float:
        return self._clock.now()

    async def inspect(self, execution: str) -> Inspection | None:
        reply = await self._ask(execution)
        if not reply.held:
            return None
        tokens, barriers = [each.view() for each in reply.tokens], [each.view() for each in reply.barriers]
        return Inspection(reply.execution.view(), tuple(tokens), tuple(barriers), reply.limits)

    async def machine(self, execution: str) -> MachineView | None:
        """Return the machine as of the last inspection of the execution, so that ledger and machine show the same
        moment."""
        last = self._last
        if last is None or last.execution.id != execution:
            last = await self._ask(execution)
        return last.machine.view() if last.machine is not None else None

    async def _ask(self, execution: str) -> InspectionReply:
        path = f"executions/{quote(execution, safe='')}/inspection"
        reply = await self._transport.get(path, InspectionReply)
        self._clock.set_time(seconds(reply.now))
        self._last = reply
        return reply


PATIENCE = 5.0
"""Seconds to wait for a server that has not answered yet, before the command reports that it cannot be reached."""
MOST_LETTERS = 1000
RESTART_PATIENCE = 60.0
"""Seconds to wait for a server that has answered before: it may be restarting."""


@dataclass(frozen=True, slots=True)
class RemoteStack:
    clock: ServerClock
    ledger: RemoteLedger
    archive: ServerArchive


class RemoteDefinitions:
    """Definitions of a server. Graphs are compiled here, to draw them, so their node types must be known here."""

    def __init__(self, archive: ServerArchive, catalog: Catalog) -> None:
        self._archive = archive
        self._catalog = catalog

    async def by_hash(self, hash: str) -> Program:
        definition = await self._archive.definition_by_hash(hash)
        if definition is None:
            raise NotFound(f"no definition with the content hash {hash} is stored there")
        compiled = load_graph(definition.source, self._catalog, default_name=definition.name, stored=True)
        return Program(definition, compiled.plan)


class News:
    """Counter of the events of a stream. A view looks again when it has grown."""

    def __init__(self) -> None:
        self.transitions = 0


class RemoteWorkflowApi(ServerCalls):
    def __init__(self, client: Client, catalog: Catalog) -> None:
        transport = client.client.transport
        super().__init__(transport)
        self._client = client
        clock = ServerClock(time.time)
        archive = ServerArchive(transport)
        self.stack = RemoteStack(clock, RemoteLedger(transport, clock), archive)
        self.definitions = RemoteDefinitions(archive, catalog)
        self.committer = News()

    async def has_cleanup_letter(self, execution: str) -> bool:
        letters = await self._client.dead_letters.alist(MOST_LETTERS)
        return any(letter.id == f"cleanup:{execution}" for letter in letters)

    async def wait(self, execution: str, timeout: float | None = None) -> ExecutionView:  # noqa: ASYNC109 - as its base
        """Count every event if there is no timeout: the execution is being watched."""
        if timeout is None:
            async for _ in stream_events(self.transport, execution, (await self.status(execution)).seq):
                self.committer.transitions += 1
        return await super().wait(execution, timeout)


@asynccontextmanager
async def remote_workflow_api(url: str, catalog: Catalog) -> AsyncIterator[RemoteWorkflowApi]:
    async with remote_client(url) as client:
        yield RemoteWorkflowApi(client, catalog)


@asynccontextmanager
async def remote_client(url: str) -> AsyncIterator[Client]:
    """Open a client with the API key of the environment."""
    async with Client(url, patience=PATIENCE, restart_patience=RESTART_PATIENCE) as client:
        yield client
