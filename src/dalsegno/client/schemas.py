"""Replies of a server, and their conversion to the values that the rest of the package uses."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

from msgspec import Raw, Struct, structs

from dalsegno.core.diagnosis import Explanation, Wait
from dalsegno.core.states import NodeSummary
from dalsegno.engine.operations.approvals import Approval
from dalsegno.engine.operations.published import Published, StreamChunk
from dalsegno.engine.operations.requests import RequestState, RequestView
from dalsegno.engine.operations.why import ScriptSnapshotView
from dalsegno.model.definition import Definition, DeployedTrigger
from dalsegno.model.event import Event, EventKind
from dalsegno.model.execution import ExecutionKind, ExecutionState, ExecutionView, NodeState

NULL = Raw(b"null")


def seconds(moment: datetime) -> float:
    return moment.timestamp()


def maybe_seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def values_of(reply: Struct) -> dict[str, Any]:
    """Return the fields of a reply as the values here have them: times in seconds, lists as tuples."""
    return {name: _value(each) for name, each in structs.asdict(reply).items()}


def _value(given: Any) -> Any:
    match given:
        case datetime():
            return seconds(given)
        case list():
            return tuple(given)
        case _:
            return given


class ExecutionReply(Struct):
    id: str
    workflow: str
    version: int
    kind: ExecutionKind
    state: ExecutionState
    created_at: datetime
    definition: str = ""
    ended_at: datetime | None = None
    paused_at: datetime | None = None
    priority: int = 0
    tags: dict[str, str] = {}
    idempotency_key: str | None = None
    parent: str | None = None
    relation: str | None = None
    events: int = 0
    input: Raw = NULL
    output: Raw = NULL
    error: Raw = NULL

    def view(self) -> ExecutionView:
        ended = maybe_seconds(self.ended_at)
        return ExecutionView(
            id=self.id,
            workflow=self.workflow,
            version=self.version,
            definition=self.definition,
            state=self.state,
            input=bytes(self.input),
            created_at=seconds(self.created_at),
            touched_at=ended if ended is not None else seconds(self.created_at),
            epoch=0,
            live=0,
            seq=self.events,
            priority=self.priority,
            tags=tuple(sorted(self.tags.items())),
            idempotency_key=self.idempotency_key,
            parent=self.parent,
            relation=self.relation,
            paused_at=maybe_seconds(self.paused_at),
            ended_at=ended,
            output=bytes(self.output) if self.state == "COMPLETED" else None,
            context=None,
            error=bytes(self.error) if bytes(self.error) != b"null" else None,
            kind=self.kind,
        )


class ExecutionPage(Struct):
    items: list[ExecutionReply]
    next: str | None = None


class NodeReply(Struct):
    state: NodeState
    runs: int
    failed: int = 0
    waiting: int = 0
    due: datetime | None = None

    def summary(self) -> NodeSummary:
        return NodeSummary(self.state, self.runs, self.failed, self.waiting, maybe_seconds(self.due))


class PublishedReply(Struct):
    key: str
    value: Any
    version: int
    at: datetime

    def published(self) -> Published:
        return Published(self.key, self.value, self.version, seconds(self.at))


class PublishedPage(Struct):
    values: list[PublishedReply]


class ChunkReply(Struct):
    offset: int
    value: Any
    at: datetime
    task: str = ""
    attempt: int = 1
    restarts: bool = False

    def chunk(self) -> StreamChunk:
        return StreamChunk(self.offset, self.value, self.task, self.attempt, self.restarts, seconds(self.at))


class EventReply(Struct):
    seq: int
    kind: str
    at: datetime
    node: str = ""
    scope: str = ""
    data: Raw = NULL
    arrived: int | None = None
    expected: int | None = None

    def event(self, execution: str) -> Event:
        return Event(
            execution,
            self.seq,
            cast("EventKind", self.kind),  # a newer server may send further kinds
            self.node,
            self.scope,
            seconds(self.at),
            bytes(self.data) if bytes(self.data) != b"null" else None,
            None,
            self.arrived,
            self.expected,
        )


class EventPage(Struct):
    events: list[EventReply]
    last: int = 0


class WaitReply(Struct):
    """A reason for waiting. Older servers omit some fields."""

    kind: str
    sentence: str
    node: str = ""
    scope: str = ""
    due: datetime | None = None
    queue: str | None = None
    arrived: int | None = None
    expected: int | None = None
    count: int = 1
    open: list[str] = []
    execution: str | None = None
    is_remote: bool = False
    tasks: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    claimed_by: str | None = None
    claimed_at: datetime | None = None
    subject: str = ""
    since: datetime | None = None
    served: bool | None = None
    lost: bool = False
    line: int | None = None
    text: str = ""
    hint: str | None = None
    commands: tuple[str, ...] = ()

    def wait(self) -> Wait:
        """A newer server may send further kinds and subjects."""
        return Wait(**{**values_of(self), "hint": self.hint or ""})


class WhyReply(Struct):
    id: str
    state: ExecutionState
    reasons: list[WaitReply]
    now: datetime | None = None

    def explanation(self, here: float) -> Explanation:
        """Return the explanation. ``here``: this machine's time, used if the server does not send its own."""
        now = seconds(self.now) if self.now is not None else here
        return Explanation(self.id, self.state, tuple(each.wait() for each in self.reasons), now)


class PictureReply(Struct):
    line: int
    text: str
    awaits: str
    variables: dict[str, Any]

    def picture(self) -> ScriptSnapshotView:
        return ScriptSnapshotView(self.line, self.text, self.awaits, (), self.variables)


class ApprovalReply(Struct):
    execution: str
    workflow: str
    node: str
    since: datetime
    message: str = ""
    approvers: tuple[str, ...] = ()
    form: dict[str, Any] | None = None
    due: datetime | None = None
    signal: str = ""
    indexes: tuple[int, ...] = ()

    def approval(self) -> Approval:
        return Approval(**values_of(self))


class ApprovalPage(Struct):
    items: list[ApprovalReply]
    next: str | None = None


class RequestReply(Struct):
    id: str
    name: str
    state: RequestState
    value: Raw = NULL
    message: str | None = None

    def view(self, execution: str) -> RequestView:
        return RequestView(execution, self.id, self.name, self.state, self.value, self.message)


class RequestPage(Struct):
    items: list[RequestReply]


class DefinitionReply(Struct):
    """A definition, with fields that some routes add: its status after a deploy, or whether it is current in a
    list."""

    name: str
    version: int
    kind: str
    hash: str
    created_at: datetime
    status: str = ""
    current: bool = False
    aliases: list[str] | dict[str, int] = []
    triggers: tuple[DeployedTrigger, ...] = ()

    def definition(self, source: bytes = b"") -> Definition:
        at = seconds(self.created_at)
        return Definition(self.name, self.version, self.hash, self.kind, source, at, self.triggers)


class DefinitionPage(Struct):
    items: list[DefinitionReply]
    next: str | None = None


class ProgramReply(Struct):
    """A stored definition in its stored form."""

    name: str
    version: int
    kind: str
    hash: str
    created_at: datetime
    stored: bytes

    def definition(self) -> Definition:
        return Definition(
            self.name, self.version, self.hash, self.kind, self.stored, seconds(self.created_at)
        )
