"""Schemas of executions: starts, submissions that are triggered later, states, results, events and bulk actions."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import msgspec
from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from dalsegno.core.diagnosis import Explanation, Wait
from dalsegno.core.graph.start import StartReply
from dalsegno.core.json_fields import MOST_ITEMS
from dalsegno.core.states import NodeSummary
from dalsegno.engine.journal.branches import TurnAsked
from dalsegno.engine.starting.moving import RetryPlan
from dalsegno.errors import InvalidInput
from dalsegno.model.event import Event
from dalsegno.model.execution import ExecutionKind, ExecutionState, ExecutionView, NewExecution
from dalsegno.model.ids import LONGEST_ID
from dalsegno.ports.archive import ExecutionFilter
from dalsegno.server.executions.filters import TEXT, seconds_of
from dalsegno.server.http.problems import Problem
from dalsegno.server.schemas.values import (
    Asked,
    Delay,
    Input,
    Items,
    Kept,
    OrRaw,
    Rest,
    Tags,
    maybe_moment,
    moment,
    shown,
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
"""A graph document, unparsed, or a text."""

MOST_AWAITED = 10_000
"""Executions that one call may wait for."""
EXAMPLE_ID = "0198f3c2a1b4d6e8f0a2b4c6d8e0f2a4"


class StartFields(Asked, BaseModel):
    """Fields of every start, apart from the workflow to start."""

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
        description="Begin after this delay (seconds, or `10m`); PENDING until then.",
        examples=["10m"],
    )
    start_at: datetime | None = Field(
        default=None, description="Begin at this time instead; UTC if it has no offset."
    )
    pending: bool = Field(
        default=False, description="Submit it: checked and created now, PENDING until it is triggered."
    )


class StartRequest(StartFields):
    """``workflow`` names a deployed workflow; ``definition`` contains one instead."""

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
    """One start of a batch."""

    model_config = ConfigDict(extra="forbid")

    workflow: str = Field(max_length=300, description="`checkout`, `checkout@3` or `checkout@stable`.")


class BatchRequest(Asked, BaseModel):
    """Starts in one call, each independent of the others."""

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
    """The result of one start: an execution, or the reason why there is none."""

    id: str | None = Field(default=None, examples=[EXAMPLE_ID])
    new: bool | None = Field(
        default=None, description="False if a start with the same key created it before."
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

    executions: list[Annotated[str, Field(min_length=1, max_length=LONGEST_ID)]] = Field(
        min_length=1, max_length=MOST_AWAITED
    )
    seconds: float = Field(default=60, ge=0, le=600, description="Maximum duration of the stream in seconds.")


class ExecutionInfo(BaseModel):
    """An execution without its data."""

    id: str = Field(examples=[EXAMPLE_ID])
    workflow: str
    version: int
    definition: str = Field(
        default="", description="Content hash of its definition; see `/v1/programs/{hash}`."
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
        default=None, description="Relation to `parent`: retry, rerun, child, started, task, schedule."
    )
    events: int = Field(default=0, description="Number of its newest event.")

    @staticmethod
    def fields(view: ExecutionView) -> dict[str, Any]:
        return {
            **_start_fields(view),
            "state": view.state,
            "ended_at": maybe_moment(view.ended_at),
            "paused_at": maybe_moment(view.paused_at),
            "events": view.seq,
        }

    @classmethod
    def of(cls, view: ExecutionView) -> ExecutionInfo:
        return cls(**cls.fields(view))


class Execution(ExecutionInfo):
    """An execution with its input and output."""

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
    def begun(cls, begun: StartReply) -> Execution:
        """Return the execution in the state in which its start left it."""
        new = begun.execution
        return cls(**_start_fields(new), state=begun.state, events=begun.events, input=stored(new.input))


def _start_fields(of: NewExecution | ExecutionView) -> dict[str, Any]:
    """Return the fields that never change after the execution was created."""
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
        return shown(cls, summary)


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
        return shown(cls, event, data=stored(event.data))


class EventPage(BaseModel):
    events: list[EventInfo]
    last: int = Field(description="Pass it as `after` to get the following events.")


class WaitInfo(BaseModel):
    """One reason why an execution has not ended yet."""

    kind: str
    sentence: str
    subject: str = Field(
        default="", description="What `node` names: a `node`, `task`, `signal`, `timer`, `child` …"
    )
    node: str = ""
    scope: str = ""
    since: datetime | None = Field(default=None, description="Since when it waits for this, if known.")
    due: datetime | None = None
    queue: str | None = None
    served: bool | None = Field(
        default=None,
        description="Of something queued: whether a living worker, or a remote program, takes tasks of its queue.",
    )
    lost: bool = Field(default=False, description="Whether the worker that ran it is dead.")
    hint: str | None = Field(default=None, description="The remedy, for people. Commands are in backticks.")
    commands: list[str] = Field(
        default=[], description="The commands in the hint; `--store` or `--server` is to be added."
    )
    line: int | None = Field(
        default=None, description="Of a script or Python workflow: the line at which it awaits this."
    )
    text: str = Field(default="", description="The source of that line.")
    arrived: int | None = None
    expected: int | None = None
    open: list[str] = Field(
        default=[],
        description="Of a barrier: which branches have not arrived, by node or item; the first of them.",
    )
    count: int = 1
    execution: str | None = Field(default=None, description="Of a child: whose reason it is.")
    is_remote: bool = Field(
        default=False,
        description="Of something queued: whether remote programs serve its queue, and no worker of the application. "
        "Of something lost: whether a remote program ran it.",
    )
    tasks: list[str] = Field(default=[], description="The remote tasks that are declared for that queue.")
    claims: list[str] = Field(default=[], description="The remote programs that claim that queue now.")
    claimed_by: str | None = Field(default=None, description="Which program claimed it last.")
    claimed_at: datetime | None = Field(default=None, description="When it did.")

    @classmethod
    def of(cls, wait: Wait) -> WaitInfo:
        return shown(cls, wait, hint=wait.hint or None)


class Why(BaseModel):
    id: str
    state: ExecutionState
    now: datetime = Field(description="By the store's clock.")
    reasons: list[WaitInfo]

    @classmethod
    def of(cls, explanation: Explanation) -> Why:
        return cls(
            id=explanation.execution,
            state=explanation.state,
            now=moment(explanation.now),
            reasons=[WaitInfo.of(wait) for wait in explanation.waits],
        )


class SignalRequest(Asked, BaseModel):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"name": "approved", "payload": {"by": "Ada"}}}
    )

    name: str = Field(min_length=1, max_length=500)
    payload: Annotated[Any, Kept("values", "the signal's payload")] = None
    id: str | None = Field(
        default=None,
        min_length=1,
        max_length=500,
        description="A second signal with the same id has no effect.",
    )


class CancelRequest(Asked, BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"reason": "ordered twice"}})

    reason: str | None = Field(default=None, max_length=2000)


FROM_START = "A script or Python workflow starts over, instead of from its failure."
AGAIN_VERSION = (
    "The version of the workflow for a retry or rerun: a number, an alias or `latest`. Default: the version that the"
    " execution ran."
)
AgainVersion = Annotated[int | str | None, Field(description=AGAIN_VERSION)]


class RetryRequest(Asked, BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"from_start": True}})

    from_start: bool = Field(default=False, description=FROM_START)
    version: AgainVersion = None


class RerunRequest(Asked, BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"nodes": ["charge"], "context": {"$trigger": {"n": 1}}}},
    )

    nodes: list[str] | None = Field(
        default=None, min_length=1, max_length=1000, description="Of a graph: nodes to begin from."
    )
    context: Annotated[dict[str, Any], Kept("members", "the edited value of '%s'")] = Field(
        default={}, description="Recorded outputs to be replaced, by `$node`."
    )
    at: int | str | None = Field(
        default=None,
        description="Of a script or Python workflow: the turn to begin at, by its number or the name of a checkpoint.",
    )
    set: Annotated[dict[str, Any], Kept("members", "the variable '%s'")] = Field(
        default={}, description="With `at`: other values of variables of the function that waits there."
    )
    answers: Annotated[dict[str, Any], Kept("members", "the answer of '%s'")] = Field(
        default={}, description="With `at`: results of calls, by their names or promises (`p3`)."
    )
    version: AgainVersion = None

    @property
    def turn(self) -> TurnAsked | None:
        """Return the turn to begin at. Raises InvalidInput unless either that or nodes are given."""
        if (self.nodes is None) == (self.at is None):
            raise InvalidInput(
                "give the nodes of a graph to rerun from ('nodes'), or the turn of a script or Python workflow ('at')"
            )
        if self.at is None:
            if self.set or self.answers:
                raise InvalidInput("'set' and 'answers' belong to a turn: say at which one ('at')")
            return None
        if self.context:
            raise InvalidInput("'context' belongs to 'nodes'; variables of a turn are given with 'set'")
        return TurnAsked(self.at, self.set, self.answers)


class FramePreview(BaseModel):
    """The line where a function waits, and where it continues."""

    function: str
    old_line: int
    old_text: str
    new_line: int
    new_text: str


class RetryPreview(BaseModel):
    """What a retry, or a rerun at a turn, would do."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "workflow": "checkout",
                "version": 4,
                "starts_over": False,
                "again": ["ship"],
                "turn": 0,
                "line": 0,
                "known": [],
                "awaited": [],
                "later": [],
                "frames": [
                    {
                        "function": "checkout",
                        "old_line": 5,
                        "old_text": "paid = await charge(order)",
                        "new_line": 7,
                        "new_text": "paid = await charge(order)",
                    }
                ],
            }
        }
    )

    workflow: str
    version: int
    starts_over: bool = Field(description="Everything runs again.")
    again: list[str] = Field(description="The tasks that are asked again, or the nodes at which it begins.")
    turn: int = Field(description="Of a rerun at a turn: its number; else 0.")
    line: int = Field(description="Of a rerun at a turn: the line where the machine waits there.")
    known: list[str] = Field(description="Of a rerun at a turn: pending calls whose results are taken over.")
    awaited: list[str] = Field(description="Of a rerun at a turn: pending calls that go on elsewhere.")
    later: list[str] = Field(
        description="Of a rerun at a turn: tasks that later turns called, which the program calls again."
    )
    frames: list[FramePreview] = Field(
        description="For another version: the functions that wait, outermost first."
    )

    @classmethod
    def of(cls, plan: RetryPlan) -> Self:
        return cls(**msgspec.to_builtins(plan))


class PictureInfo(BaseModel):
    """The current position of a script or Python workflow."""

    line: int
    text: str
    awaits: str
    variables: dict[str, Any]


Decision = Literal["approved", "rejected"]


BulkAction = Literal["cancel", "terminate", "pause", "resume", "retry", "delete"]

Relation = Annotated[str, Field(max_length=50)]


class FilterBody(Asked, BaseModel):
    """A filter as in the list of executions. All given fields must match."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"workflow": "checkout", "tags": {"env": "test"}}}
    )

    workflow: str | None = Field(default=None, max_length=200)
    states: list[ExecutionState] = Field(default=[], max_length=6)
    kinds: list[ExecutionKind] = Field(default=[], max_length=5, description="Empty: all but schedules.")
    tags: Tags = {}
    parent: str | None = Field(default=None, max_length=LONGEST_ID)
    relations: list[Relation] = Field(default=[], max_length=10)
    created_since: datetime | None = None
    created_until: datetime | None = None
    ended_since: datetime | None = None
    ended_until: datetime | None = None
    text: str | None = Field(default=None, min_length=1, max_length=200, description=TEXT)

    def is_empty(self) -> bool:
        """Whether the filter matches every execution."""
        return not any(getattr(self, name) for name in FilterBody.model_fields)

    def of_states(self, states: tuple[ExecutionState, ...]) -> ExecutionFilter:
        return ExecutionFilter(
            self.workflow,
            states,
            tuple(sorted(self.tags.items())),
            self.parent,
            tuple(dict.fromkeys(self.kinds)),
            tuple(dict.fromkeys(self.relations)),
            created_since=seconds_of(self.created_since),
            created_until=seconds_of(self.created_until),
            ended_since=seconds_of(self.ended_since),
            ended_until=seconds_of(self.ended_until),
            text=self.text,
        )


class BulkRequest(Asked, BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "action": "cancel",
                "filter": {"workflow": "checkout", "created_until": "2026-01-05T09:00:00Z"},
                "dry_run": True,
                "reason": "ordered by mistake",
            }
        },
    )

    action: BulkAction
    filter: FilterBody = Field(default_factory=FilterBody)
    all: bool = Field(default=False, description="Needed where the filter is empty.")
    dry_run: bool = Field(
        default=False, description="Count the executions that would be changed, and change none."
    )
    reason: str | None = Field(default=None, max_length=2000, description="Of a cancellation or termination.")
    from_start: bool = Field(
        default=False, description="Of a retry: scripts and Python workflows start over."
    )
    version: AgainVersion = None
    limit: int = Field(
        default=1000, ge=1, le=10_000, description="Maximum number of executions in this call."
    )
    cursor: str | None = Field(default=None, max_length=500, description="`next` of the previous call.")


class Refusal(BaseModel):
    """An execution that was not changed, and why."""

    id: str
    detail: str


class BulkReply(BaseModel):
    """The result of one call. Repeat the call with ``next`` as ``cursor`` until it is absent."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "action": "cancel",
                "dry_run": False,
                "matched": 2,
                "changed": 1,
                "skipped": 1,
                "ids": [EXAMPLE_ID],
                "refusals": [{"id": EXAMPLE_ID, "detail": "it has ended (COMPLETED)"}],
                "next": None,
            }
        }
    )

    action: BulkAction
    dry_run: bool
    matched: int = Field(description="Executions that the filter found, in a state that allows the action.")
    changed: int = Field(description="With `dry_run`: the number that would be changed.")
    skipped: int = Field(description="Changed by another call meanwhile, or done already.")
    ids: list[str] = Field(description="The first of those that were changed.")
    refusals: list[Refusal] = Field(default=[], description="The first of those that were not.")
    next: str | None = Field(default=None, description="Set if there is more: pass it as `cursor`.")


# -- schemas of the two-step start: a definition is submitted first and triggered later ----------------------

EXAMPLE_DOCUMENT: dict[str, Any] = {
    "name": "greeting",
    "dag": {
        "nodes": [
            {"id": "who", "handler": "input", "dependencies": [], "config": {}},
            {
                "id": "english",
                "handler": "log",
                "dependencies": ["who"],
                "config": {"message": "Hello, {{ $who.name }}!"},
            },
            {
                "id": "german",
                "handler": "log",
                "dependencies": ["who"],
                "config": {"message": "Hallo, {{ $who.name }}!"},
            },
            {"id": "both", "handler": "output", "dependencies": ["english", "german"], "config": {}},
        ]
    },
}


class SubmitRequest(Asked, BaseModel):
    """A graph document, with nodes and their `dependencies` under `dag` (or with `nodes` and `edges`), and the
    settings of the execution. All fields that are not listed here belong to the document."""

    model_config = ConfigDict(
        extra="allow", json_schema_extra={"example": {**EXAMPLE_DOCUMENT, "input": {"name": "Ada"}}}
    )

    name: str | None = Field(default=None, max_length=200, description="The workflow's name.")
    dag: dict[str, Any] | None = Field(
        default=None, description="`{nodes: [{id, handler, dependencies, config}]}`."
    )
    input: Input = Field(default=None, description="Input of the execution, unless the trigger has one.")
    idempotency_key: str | None = Field(
        default=None, min_length=1, max_length=500, description="The same key again is the same execution."
    )

    document: Annotated[SkipJsonSchema[Any], Rest(("input", "idempotency_key"))] = Field(
        default=None, description="The body as a document, unread."
    )


class TriggerRequest(Asked, BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"input": {"name": "Grace"}}})

    input: Input = Field(default=None, description="Replaces the submitted input, if it is given.")


class Submission(BaseModel):
    """An execution and its progress."""

    id: str = Field(examples=[EXAMPLE_ID], description="Of the execution.")
    execution_id: str = Field(
        examples=[EXAMPLE_ID], deprecated=True, description="The same as `id`, under its earlier name."
    )
    workflow: str
    version: int
    state: ExecutionState

    @classmethod
    def of(cls, view: ExecutionView) -> Submission:
        names = {"id": view.id, "execution_id": view.id}
        return cls(**names, workflow=view.workflow, version=view.version, state=view.state)


class SubmissionStatus(Submission):
    created_at: datetime
    ended_at: datetime | None = None
    nodes: dict[str, NodeInfo] = Field(description="State and runs of every node by its id.")

    @classmethod
    def with_nodes(cls, view: ExecutionView, nodes: dict[str, NodeInfo]) -> SubmissionStatus:
        return cls(
            **Submission.of(view).model_dump(),
            created_at=moment(view.created_at),
            ended_at=maybe_moment(view.ended_at),
            nodes=nodes,
        )


class SubmissionResults(Submission):
    results: dict[str, Any] = Field(
        description="Outputs by node id. Before the end, those of finished branches."
    )
    output: Any = None
    error: Annotated[dict[str, Any] | None, OrRaw] = None

    @classmethod
    def with_results(cls, view: ExecutionView, results: dict[str, Any]) -> SubmissionResults:
        return cls(
            **Submission.of(view).model_dump(),
            results=results,
            output=stored(view.output),
            error=stored(view.error),
        )
