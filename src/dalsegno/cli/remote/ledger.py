"""What a server's engine holds of an execution, as the values that the views are made of."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from math import inf
from typing import Any, cast
from urllib.parse import quote

import msgspec
from msgspec import Raw, Struct

from dalsegno.client.replies import ExecutionReply, maybe_seconds, seconds
from dalsegno.client.transport import Transport
from dalsegno.core.body import Awaiting, Body, encode
from dalsegno.core.script_bodies import TaskBody, encode_body
from dalsegno.engine.scripting.looking import AwaitedThing, Picture
from dalsegno.model.barrier import BarrierMode, BarrierState, BarrierView
from dalsegno.model.inspection import Inspection
from dalsegno.model.limits import LimitView
from dalsegno.model.machine import CancelReason, MachineView, Ranges, SignalView, Wake
from dalsegno.model.token import TokenKind, TokenState, TokenView, WakeReason
from dalsegno.ports.ledger import WorkerView

UNHELD = encode(Body())


class ServerClock:
    """This machine's clock, put right by what the server says."""

    def __init__(self, here: Callable[[], float]) -> None:
        self._here = here
        self._ahead = 0.0

    def now(self) -> float:
        return self._here() + self._ahead

    def put_right(self, there: float) -> None:
        self._ahead = there - self._here()


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
        return TokenView(
            id=self.id,
            scope=self.scope,
            kind=self.kind,
            node=self.node,
            state=self.state,
            queue=self.queue,
            priority=self.priority,
            limit_key=self.limit_key,
            live=self.live,
            attempt=self.attempt,
            losses=self.losses,
            reason=self.reason,
            due=maybe_seconds(self.due),
            owner=self.owner,
            fence=0,
            data=self._body(),
            awaits=self.awaits,
            allowance=self.allowance,
        )

    def _body(self) -> bytes:
        """Of what a token carries, only what it waits for is told."""
        told = self.awaiting
        if told is None:
            return UNHELD
        awaiting = Awaiting(told.awaits, seconds(told.since), maybe_seconds(told.due), told.question)
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
    open: tuple[str, ...] = ()

    def view(self) -> BarrierView:
        return BarrierView(
            self.id,
            self.scope,
            self.node,
            cast("BarrierState", self.state),
            cast("BarrierMode", self.mode),
            self.expected,
            self.resolved,
            self.live,
            maybe_seconds(self.deadline),
        )


class ThingReply(Struct):
    kind: str
    name: str
    sentence: str
    due: datetime | None = None
    count: int = 1
    came: bool = False

    def thing(self) -> AwaitedThing:
        due = maybe_seconds(self.due)
        return AwaitedThing(self.kind, self.name, self.sentence, due, self.count, came=self.came)


class MachineReply(Struct):
    line: int
    cancel: CancelReason
    signals: tuple[str, ...]
    awaited: Ranges
    reachable: Ranges
    mailbox: tuple[str, ...] = ()
    things: list[ThingReply] | None = None
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
    served: list[str] = []


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
        """As of the moment in which it was inspected: whoever asks for both means one moment."""
        last = self._last
        if last is None or last.execution.id != execution:
            last = await self._ask(execution)
        return last.machine.view() if last.machine is not None else None

    async def open_slots(self, execution: str) -> dict[str, tuple[str, ...]]:
        """What has not arrived at each barrier, by name."""
        return {barrier.id: barrier.open for barrier in (await self._ask(execution, slots=True)).barriers}

    async def picture(self, execution: str) -> Picture | None:
        """What its program awaits, without its variables."""
        machine = (await self._ask(execution, things=True)).machine
        if machine is None or machine.things is None:
            return None
        return Picture(machine.line, "", "", tuple(each.thing() for each in machine.things), {})

    async def workers(self) -> list[WorkerView]:
        """As if one worker served all the queues that are served."""
        served = self._last.served if self._last is not None else []
        info = msgspec.json.encode({"queues": served})
        return [WorkerView("server", inf, 0, info)] if served else []

    async def _ask(self, execution: str, *, things: bool = False, slots: bool = False) -> InspectionReply:
        path = f"executions/{quote(execution, safe='')}/inspection"
        asked = {"things": things, "slots": slots}
        query = {name: "true" for name, wanted in asked.items() if wanted}
        reply = await self._transport.get(path, InspectionReply, query)
        self._clock.put_right(seconds(reply.now))
        self._last = reply
        return reply
