"""Schemas for the inspection of executions: tokens, barriers, and the machine of a script."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from dalsegno.core.diagnosis import Wait
from dalsegno.core.graph.external_waits import awaiting_in
from dalsegno.core.graph.step_input import Awaiting
from dalsegno.engine.operations.unfinished_versions import UnfinishedVersion
from dalsegno.model.barrier import BarrierView
from dalsegno.model.definition import Definition
from dalsegno.model.machine import MachineView
from dalsegno.model.token import TokenView
from dalsegno.server.schemas.executions import Execution
from dalsegno.server.schemas.values import shown

Range = Annotated[
    tuple[int, int],
    WithJsonSchema({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}),
]
"""The first and the last number."""


class AwaitingInfo(BaseModel):
    """An external event or result that a parked node waits for."""

    awaits: str = Field(description="`signal:<name>` or `child:<execution>`.")
    since: datetime
    due: datetime | None = Field(default=None, description="When it times out.")
    question: dict[str, Any] | None = Field(default=None, description="The open question to people.")

    @classmethod
    def of(cls, awaiting: Awaiting | None) -> AwaitingInfo | None:
        return shown(cls, awaiting) if awaiting is not None else None


class TokenInfo(BaseModel):
    """A live point of control."""

    id: str
    kind: str
    node: str
    scope: str
    state: str
    queue: str
    priority: int
    limit_key: str | None = None
    live: bool
    attempt: int
    losses: int
    reason: str
    due: datetime | None = None
    owner: str | None = Field(default=None, description="The worker that holds it.")
    awaits: str | None = None
    awaiting: AwaitingInfo | None = None
    allowance: str | None = Field(
        default=None, description="What its definition allows its limit key, as JSON."
    )

    @classmethod
    def of(cls, token: TokenView) -> TokenInfo:
        return shown(cls, token, awaiting=AwaitingInfo.of(awaiting_in(token)))


class BarrierInfo(BaseModel):
    """A place where branches or items join."""

    id: str
    scope: str
    node: str
    state: str
    mode: str
    expected: int
    resolved: int
    live: int
    deadline: datetime | None = None
    open: list[str] = Field(default=[], description="With `slots`: what has not arrived, the first of them.")

    @classmethod
    def of(cls, barrier: BarrierView, missing: Sequence[str] = ()) -> BarrierInfo:
        return shown(cls, barrier, open=list(missing))


class ThingInfo(BaseModel):
    """One thing that a program waits for, as a sentence."""

    kind: str
    name: str
    sentence: str
    due: datetime | None = None
    count: int = 1
    came: bool = Field(
        default=False, description="For a signal: whether it has arrived and is not taken yet."
    )

    @classmethod
    def of(cls, thing: Wait) -> ThingInfo:
        return shown(cls, thing, kind=thing.subject, name=thing.node, came=thing.kind == "kept")


class MachineInfo(BaseModel):
    """The current position of the machine of a script or Python workflow."""

    line: int
    cancel: str = Field(description="`cancel` or `timeout` while such a request is pending.")
    interrupted: bool = Field(default=False, description="Whether it has received the request and cleans up.")
    signals: list[str] = Field(description="Signals that it waits for.")
    mailbox: list[str] = Field(description="Names of signals that arrived and were not taken yet, in order.")
    awaited: list[Range] = Field(description="Ranges of promises that it waits for.")
    reachable: list[Range] = Field(description="Ranges of promises that its variables can still reach.")
    things: list[ThingInfo] | None = Field(
        default=None, description="What it awaits; only with `things`, and if its code is available."
    )

    @classmethod
    def of(cls, machine: MachineView, things: list[ThingInfo] | None) -> MachineInfo:
        return cls(
            line=machine.line,
            cancel=machine.cancel,
            interrupted=machine.interrupted,
            signals=list(machine.wake.signals),
            mailbox=[signal.name for signal in machine.signals],
            awaited=list(machine.wake.awaited),
            reachable=list(machine.reachable),
            things=things,
        )


class InspectionInfo(BaseModel):
    """The engine's state of an execution at this moment."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"tokens": [], "barriers": [], "served": ["default"]}}
    )

    execution: Execution
    held: bool = Field(description="False once it has ended and its tokens have been removed.")
    now: datetime = Field(description="By the store's clock.")
    tokens: list[TokenInfo] = []
    barriers: list[BarrierInfo] = []
    machine: MachineInfo | None = None
    limits: list[dict[str, Any]] = Field(
        default=[], description="Limits that its ready tokens are subject to."
    )
    served: list[str] = Field(default=[], description="Queues that living workers serve.")


class ProgramInfo(BaseModel):
    """A definition by its content."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "name": "hello",
                "version": 1,
                "kind": "graph",
                "hash": "9f86d081884c7d659a2feaa0c55ad015",
                "created_at": "2030-01-31T09:00:00Z",
                "stored": "eyJuYW1lIjoiaGVsbG8ifQ==",
            }
        }
    )

    name: str
    version: int
    kind: str
    hash: str
    created_at: datetime
    stored: str = Field(description="Its stored form in base64: JSON of a graph, a program otherwise.")

    @classmethod
    def of(cls, definition: Definition) -> ProgramInfo:
        stored = base64.b64encode(definition.source).decode()
        return shown(cls, definition, stored=stored)


class NeededTask(BaseModel):
    name: str
    queue: str | None = Field(default=None, description="The queue in which it runs, if known.")


class UnfinishedProgram(BaseModel):
    """A version that unfinished executions run."""

    workflow: str
    version: int
    kind: str
    hash: str = Field(description="Its content hash: see `GET /v1/programs/{hash}`.")
    executions: int = Field(description="Number of executions that run it, among the newest 10,000.")
    tasks: list[NeededTask] = Field(description="Tasks that it names, or has requested and that are pending.")

    @classmethod
    def of(cls, version: UnfinishedVersion) -> UnfinishedProgram:
        return shown(
            cls,
            version,
            tasks=[NeededTask(name=name, queue=queue) for name, queue in sorted(version.tasks, key=str)],
        )
