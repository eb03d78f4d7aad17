"""Schemas of recorded turns: what each received, changed and asked for."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dalsegno.core.scripts.turn_view import (
    FrameView,
    MadePromise,
    SettledPromise,
    ShownValue,
    TurnPage,
    TurnSummary,
    TurnView,
    VariableView,
)
from dalsegno.server.schemas.values import shown

State = Literal["suspended", "completed", "failed", "cancelled"]
Kind = Literal["task", "workflow", "timer", "signal"]

SIZE = "Bytes of the whole value as JSON, if it is too large to be shown: then it is the beginning, as text."


class ShownInfo(BaseModel):
    """A value of the program, bounded."""

    value: Any = None
    size: int | None = Field(default=None, description=SIZE)

    @classmethod
    def of(cls, seen: ShownValue | None) -> ShownInfo | None:
        return None if seen is None else cls(value=seen.value, size=seen.size or None)


class VariableInfo(BaseModel):
    """A variable after the turn, or one that the turn dropped."""

    name: str
    change: Literal["", "added", "changed", "dropped"] = Field(
        description="What the turn did to it. A dropped one has left its scope, or is not read any more."
    )
    now: ShownInfo | None = Field(default=None, description="None if it was dropped.")
    before: ShownInfo | None = Field(default=None, description="For a changed or dropped one.")

    @classmethod
    def of(cls, seen: VariableView) -> VariableInfo:
        return shown(cls, seen, now=ShownInfo.of(seen.now), before=ShownInfo.of(seen.before))


class FrameInfo(BaseModel):
    """A running function of the program."""

    function: str
    line: int
    source: str = Field(description="The text of that line.")
    variables: list[VariableInfo]

    @classmethod
    def of(cls, frame: FrameView) -> FrameInfo:
        return shown(cls, frame, variables=[VariableInfo.of(each) for each in frame.variables])


class SettledInfo(BaseModel):
    """A task, workflow, timer or signal whose outcome the turn received."""

    promise: int = Field(description="Its number in the program, from 0.")
    kind: Kind
    name: str
    result: ShownInfo | None = Field(
        default=None, description="Neither a result nor an error: it is not kept."
    )
    error: dict[str, Any] | None = None

    @classmethod
    def of(cls, seen: SettledPromise) -> SettledInfo:
        return shown(cls, seen, result=ShownInfo.of(seen.result))


class MadeInfo(BaseModel):
    """A task, workflow, timer or signal that the turn asked for."""

    promise: int
    kind: Kind
    name: str
    due: datetime | None = Field(default=None, description="When the timer fires, or the wait gives up.")
    execution: str | None = Field(default=None, description="The execution of a workflow.")
    input: ShownInfo | None = Field(default=None, description="The input of a task, if it is kept.")

    @classmethod
    def of(cls, seen: MadePromise) -> MadeInfo:
        return shown(cls, seen, execution=seen.execution or None, input=ShownInfo.of(seen.input))


class TurnInfo(BaseModel):
    """A turn of a script or Python workflow: from one stop to the next."""

    number: int = Field(description="From 1.")
    at: datetime = Field(description="When it was committed.")
    state: State = Field(description="`suspended`, or how the turn ended the execution.")
    line: int = Field(description="Where the program stopped; 0 if that is not known.")
    source: str = Field(description="The text of that line.")
    awaits: str = Field(description="What it then waited for.")
    checkpoint: str | None = Field(default=None, description="The name that the program gave to the stop.")

    @classmethod
    def of(cls, turn: TurnSummary) -> TurnInfo:
        return shown(cls, turn, checkpoint=turn.checkpoint or None)


class TurnList(BaseModel):
    """A page of turns."""

    model_config = ConfigDict(json_schema_extra={"example": {"turns": [], "next": None, "total": 0}})

    turns: list[TurnInfo]
    next: int | None = Field(
        description="Pass it as `from` to get the following turns; null: there are none."
    )
    total: int = Field(description="Number of all turns that are kept.")

    @classmethod
    def of(cls, page: TurnPage) -> TurnList:
        return shown(cls, page, turns=[TurnInfo.of(each) for each in page.turns])


class TurnDetail(TurnInfo):
    """A turn in full."""

    functions: list[FrameInfo] = Field(description="The running functions, innermost first.")
    is_before: bool = Field(
        description="Whether the functions are those before the turn: it ended the program."
    )
    received: list[SettledInfo] = Field(description="The outcomes that it received, in order; at most 100.")
    received_count: int
    asked: list[MadeInfo] = Field(description="What it asked for, in order; at most 100.")
    asked_count: int
    output: ShownInfo | None = None
    error: dict[str, Any] | None = None
    missing: str | None = Field(default=None, description="What is not shown, and why.")

    @classmethod
    def of_view(cls, turn: TurnView) -> TurnDetail:
        return shown(
            cls,
            turn,
            checkpoint=turn.checkpoint or None,
            functions=[FrameInfo.of(each) for each in turn.functions],
            received=[SettledInfo.of(each) for each in turn.received],
            asked=[MadeInfo.of(each) for each in turn.asked],
            output=ShownInfo.of(turn.output),
            missing=turn.missing or None,
        )
