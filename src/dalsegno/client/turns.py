"""Replies of a server about recorded turns, and their conversion."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct

from dalsegno.client.schemas import values_of
from dalsegno.core.scripts.turn_view import (
    Change,
    FrameView,
    MadePromise,
    SettledPromise,
    ShownValue,
    TurnPage,
    TurnState,
    TurnSummary,
    TurnView,
    VariableView,
)
from dalsegno.lang.runtime.effects import LeafKind


class ShownReply(Struct):
    value: Any = None
    size: int | None = None

    def shown(self) -> ShownValue:
        return ShownValue(self.value, self.size or 0)


class VariableReply(Struct):
    name: str
    change: Change
    now: ShownReply | None = None
    before: ShownReply | None = None

    def view(self) -> VariableView:
        return VariableView(**{**values_of(self), "now": _shown(self.now), "before": _shown(self.before)})


class FrameReply(Struct):
    function: str
    line: int
    source: str
    variables: list[VariableReply]

    def view(self) -> FrameView:
        return FrameView(**{**values_of(self), "variables": tuple([each.view() for each in self.variables])})


class ReceivedReply(Struct):
    promise: int
    kind: LeafKind
    name: str
    result: ShownReply | None = None
    error: dict[str, Any] | None = None

    def view(self) -> SettledPromise:
        return SettledPromise(**{**values_of(self), "result": _shown(self.result)})


class AskedReply(Struct):
    promise: int
    kind: LeafKind
    name: str
    due: datetime | None = None
    execution: str | None = None
    input: ShownReply | None = None

    def view(self) -> MadePromise:
        return MadePromise(
            **{**values_of(self), "execution": self.execution or "", "input": _shown(self.input)}
        )


class TurnReply(Struct):
    number: int
    at: datetime
    state: TurnState
    line: int
    source: str
    awaits: str
    checkpoint: str | None = None

    def summary(self) -> TurnSummary:
        return TurnSummary(**{**values_of(self), "checkpoint": self.checkpoint or ""})


class TurnListReply(Struct):
    turns: list[TurnReply]
    next: int | None
    total: int

    def page(self) -> TurnPage:
        return TurnPage(tuple([each.summary() for each in self.turns]), self.next, self.total)


class TurnDetailReply(TurnReply, kw_only=True):
    functions: list[FrameReply]
    is_before: bool = False
    received: list[ReceivedReply]
    received_count: int
    asked: list[AskedReply]
    asked_count: int
    output: ShownReply | None = None
    error: dict[str, Any] | None = None
    missing: str | None = None

    def view(self) -> TurnView:
        other = {
            "checkpoint": self.checkpoint or "",
            "functions": tuple([each.view() for each in self.functions]),
            "received": tuple([each.view() for each in self.received]),
            "asked": tuple([each.view() for each in self.asked]),
            "output": _shown(self.output),
            "missing": self.missing or "",
        }
        return TurnView(**{**values_of(self), **other})


def _shown(reply: ShownReply | None) -> ShownValue | None:
    return None if reply is None else reply.shown()
