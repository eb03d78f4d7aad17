"""Executions: starts, states, results, events."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from dalsegno.core.begun import Begun
from dalsegno.core.diagnosis import Wait
from dalsegno.core.json_fields import MOST_ITEMS
from dalsegno.core.summary import NodeSummary
from dalsegno.model.event import Event
from dalsegno.model.execution import ExecutionState, ExecutionView, NewExecution
from dalsegno.server.problems import Problem
from dalsegno.server.schemas.values import (
    Asked,
    Delay,
    Input,
    Items,
    Kept,
    OrRaw,
    Tags,
    maybe_moment,
    moment,
    stored,
)

if TYPE_CHECKING:
    Definition = msgspec.Raw | str | None
else:
    Definition = Annotated[
        dict[str, Any] | Annotated[str, Field(min_length=1)] | None,
        OrRaw,
        Kept("documents", "the definition"),
    ]
"""A graph document, unread, or a text."""

MOST_AWAITED = 10_000
"""Executions that one call waits for."""
EXAMPLE_ID = "0198f3c2a1b4d6e8f0a2b4c6d8e0f2a4"


class StartFields(Asked, BaseModel):
    """What every start may say beside what it starts."""

    version: int | str | None = Field(
        default=None, description="A number or an alias, if `workflow` names none."
    )
    input: Input = None
    idempotency_key: str | None = Field(
        default=None, min_length=1, max_length=500, description="The same key again is the same execution."
    )
    tags: Tags = {}
    priority: int = Field(default=0, ge=-999_999, le=999_999)
    delay: Delay | None = Field(
        default=None,
        description="Begin after so long (seconds, or `10m`); PENDING until then.",
        examples=["10m"],
    )
    start_at: datetime | None = Field(
        default=None, description="Begin at this time instead; UTC if it has no offset."
    )
    pending: bool = Field(
        default=False, description="Submit it: checked and created now, PENDING until it is triggered."
    )


class StartRequest(StartFields):
    """``workflow`` names a deployed one; ``definition`` gives one in the same call instead."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"workflow": "checkout@stable", "input": {"order": 42}, "tags": {"env": "prod"}}
        },
    )

    workflow: str | None = Field(
        default=None, max_length=300, description="`checkout`, `checkout@3` or `checkout@stable`."
    )
    definition: Definition = Field(
        default=None,
        description="A graph document as an object, or the text of a script (or of a graph in YAML), deployed and "
        "started at once.",
    )


class BatchStart(StartFields):
    """One start of several."""

    model_config = ConfigDict(extra="forbid")

    workflow: str = Field(max_length=300, description="`checkout`, `checkout@3` or `checkout@stable`.")


class BatchRequest(Asked, BaseModel):
    """Starts in one call, each for itself."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "starts": [
                    {"workflow": "checkout", "input": {"order": 1}, "idempotency_key": "order-1"},
                    {"workflow": "checkout", "input": {"order": 2}, "idempotency_key": "order-2"},
                ]
            }
        },
    )

    starts: Annotated[list[BatchStart], Items()] = Field(min_length=1, max_length=MOST_ITEMS)


class BatchResult(BaseModel):
    """What one start led to: an execution, or the reason why there is none."""

    id: str | None = Field(default=None, examples=[EXAMPLE_ID])
    new: bool | None = Field(
        default=None, description="False where a start with the same key made it before."
    )
    problem: Problem | None = Field(default=None, description="As the reply to a single start.")
    retry_after: float | None = Field(
        default=None, description="Seconds after which another attempt is worthwhile."
    )


class BatchReply(BaseModel):
    results: list[BatchResult] = Field(description="In the order of `starts`.")


class EndingsRequest(Asked, BaseModel):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"executions": [EXAMPLE_ID], "seconds": 60}}
    )

    executions: list[Annotated[str, Field(min_length=1, max_length=100)]] = Field(
        min_length=1, max_length=MOST_AWAITED
    )
    seconds: float = Field(default=60, ge=0, le=600, description="After which the stream ends at the latest.")


class ExecutionInfo(BaseModel):
    """An execution without its data."""

    id: str = Field(examples=[EXAMPLE_ID])
    workflow: str
    version: int
    definition: str = Field(
        default="", description="Content hash of what it runs; see `/v1/programs/{hash}`."
    )
    kind: str
    state: ExecutionState
    created_at: datetime
    ended_at: datetime | None = None
    paused_at: datetime | None = None
    priority: int = 0
    tags: dict[str, str] = {}
    idempotency_key: str | None = None
    parent: str | None = None
    relation: str | None = Field(
        default=None, description="How it comes from `parent`: retry, rerun, child, started, task, schedule."
    )
    events: int = Field(default=0, description="Number of its newest event.")

    @staticmethod
    def fields(view: ExecutionView) -> dict[str, Any]:
        return {
            **_what_starts_say(view),
            "state": view.state,
            "ended_at": maybe_moment(view.ended_at),
            "paused_at": maybe_moment(view.paused_at),
            "events": view.seq,
        }

    @classmethod
    def of(cls, view: ExecutionView) -> ExecutionInfo:
        return cls(**cls.fields(view))


class Execution(ExecutionInfo):
    """With what went in and what came out."""

    input: Any = None
    output: Any = None
    error: Annotated[dict[str, Any] | None, OrRaw] = None

    @classmethod
    def of(cls, view: ExecutionView) -> Execution:
        return cls(
            **cls.fields(view),
            input=stored(view.input),
            output=stored(view.output),
            error=stored(view.error),
        )

    @classmethod
    def begun(cls, begun: Begun) -> Execution:
        """As its start left it."""
        new = begun.execution
        return cls(**_what_starts_say(new), state=begun.state, events=begun.events, input=stored(new.input))


def _what_starts_say(of: NewExecution | ExecutionView) -> dict[str, Any]:
    """What stays as it was given when the execution was created."""
    return {
        "id": of.id,
        "workflow": of.workflow,
        "version": of.version,
        "definition": of.definition,
        "kind": of.kind,
        "created_at": moment(of.created_at),
        "priority": of.priority,
        "tags": dict(of.tags),
        "idempotency_key": of.idempotency_key,
        "parent": of.parent,
        "relation": of.relation,
    }


class NodeInfo(BaseModel):
    state: str
    runs: int
    failed: int
    waiting: int
    due: datetime | None = None

    @classmethod
    def of(cls, summary: NodeSummary) -> NodeInfo:
        return cls(
            state=summary.state,
            runs=summary.runs,
            failed=summary.failed,
            waiting=summary.waiting,
            due=maybe_moment(summary.due),
        )


class EventInfo(BaseModel):
    seq: int
    kind: str
    at: datetime
    node: str = ""
    scope: str = ""
    data: Any = None
    arrived: int | None = None
    expected: int | None = None

    @classmethod
    def of(cls, event: Event) -> EventInfo:
        return cls(
            seq=event.seq,
            kind=event.kind,
            at=moment(event.at),
            node=event.node,
            scope=event.scope,
            data=stored(event.data),
            arrived=event.arrived,
            expected=event.expected,
        )


class EventPage(BaseModel):
    events: list[EventInfo]
    last: int = Field(description="Give it as `after` to get what comes next.")


class WaitInfo(BaseModel):
    """One reason why an execution has not ended yet."""

    kind: str
    sentence: str
    node: str = ""
    scope: str = ""
    due: datetime | None = None
    queue: str | None = None
    arrived: int | None = None
    expected: int | None = None
    open: list[str] = Field(
        default=[],
        description="Of a barrier: which branches have not arrived, by node or item; the first of them.",
    )
    count: int = 1
    execution: str | None = Field(default=None, description="Of a child: whose reason it is.")

    @classmethod
    def of(cls, wait: Wait) -> WaitInfo:
        return cls(
            kind=wait.kind,
            sentence=wait.sentence,
            node=wait.node,
            scope=wait.scope,
            due=maybe_moment(wait.due),
            queue=wait.queue,
            arrived=wait.arrived,
            expected=wait.expected,
            open=list(wait.open),
            count=wait.count,
            execution=wait.execution,
        )


class Why(BaseModel):
    id: str
    state: ExecutionState
    reasons: list[WaitInfo]


class SignalRequest(Asked, BaseModel):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"name": "approved", "payload": {"by": "Ada"}}}
    )

    name: str = Field(min_length=1, max_length=500)
    payload: Annotated[Any, Kept("values", "the signal's payload")] = None
    id: str | None = Field(
        default=None, min_length=1, max_length=500, description="The same id again changes nothing."
    )


class CancelRequest(Asked, BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"reason": "ordered twice"}})

    reason: str | None = Field(default=None, max_length=2000)


class RerunRequest(Asked, BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"nodes": ["charge"], "context": {"$trigger": {"n": 1}}}},
    )

    nodes: list[str] = Field(min_length=1, max_length=1000, description="Where to begin again.")
    context: Annotated[dict[str, Any], Kept("members", "the edited value of '%s'")] = Field(
        default={}, description="Recorded outputs to be replaced, by `$node`."
    )


class PictureInfo(BaseModel):
    """Where a script or Python workflow stands."""

    line: int
    text: str
    awaits: str
    variables: dict[str, Any]


Decision = Literal["approved", "rejected"]
