"""MemoryStore: the rows, the workspace that the settlement rules work on, and the rows as the ports show them."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping
from heapq import heappush

import msgspec
from msgspec.structs import replace

from dalsegno.adapters.memory.limit_queues import MemoryLimitRows
from dalsegno.core.published import KnownStream, accept_chunks, array_of, begins_anew
from dalsegno.core.settlement import (
    BarrierRow,
    ExecutionRow,
    GateRow,
    Kept,
    MachineRow,
    ScopeRow,
    SignalRow,
    TokenRow,
    ready_token,
)
from dalsegno.model.definition import Definition
from dalsegno.model.effect import AppendChunks, PublishValues, ReplaceTags
from dalsegno.model.event import Event, NewEvent, recorded
from dalsegno.model.execution import ExecutionView, NewExecution
from dalsegno.model.machine import Completion
from dalsegno.model.published import StreamPart
from dalsegno.model.token import UNFINISHED
from dalsegno.model.transition import ReadyToken
from dalsegno.ports.ledger import OutboxEntry
from dalsegno.ports.records import LogEntry, Record


class MemoryExecution:
    """All rows of one execution."""

    __slots__ = (
        "barriers",
        "events",
        "gates",
        "inbox",
        "kept",
        "left",
        "machine",
        "mailbox",
        "new",
        "outputs",
        "row",
        "scopes",
        "slots",
        "streams",
        "swept",
        "tokens",
        "values",
    )

    def __init__(self, row: ExecutionRow, new: NewExecution) -> None:
        self.row = row
        self.new = new
        self.tokens: dict[str, TokenRow] = {}
        self.scopes: dict[str, ScopeRow] = {}
        self.barriers: dict[str, BarrierRow] = {}
        self.gates: dict[str, GateRow] = {}
        self.slots: dict[str, dict[int, tuple[bool, bytes | None]]] = {}
        self.left: dict[str, dict[str, bytes]] = {}
        self.outputs: dict[str, bytes] = {}
        self.events: list[Event] = []
        self.machine: MachineRow | None = None
        self.inbox: dict[int, Completion] = {}
        """By promise."""
        self.kept: dict[int, Kept] = {}
        """The same, as the rules see it."""
        self.mailbox: dict[str, SignalRow] = {}
        self.values: dict[str, MemoryValue] = {}
        self.streams: dict[str, MemoryStream] = {}
        self.swept = False

    @property
    def id(self) -> str:
        return self.row.id

    def stream(self, name: str) -> MemoryStream:
        return self.streams.setdefault(name, MemoryStream())


class MemoryValue(msgspec.Struct):
    """A published value, and the run of a task that wrote it last, if one did."""

    data: bytes
    version: int
    at: float
    token: str = ""
    fence: int = 0
    passing: bool = False


class MemoryStream(msgspec.Struct):
    head: KnownStream = msgspec.field(default_factory=KnownStream)
    parts: list[StreamPart] = []


class PublicationRow(msgspec.Struct):
    """How far an execution's statuses are published, and who publishes it."""

    confirmed: int = 0
    owner: str | None = None
    until: float = 0.0


class MemoryStore:
    """Implements the settlement Workspace directly on its dictionaries.

    ``ready`` and ``parked`` are heaps with lazy deletion: an entry counts only while its token is in that state.
    """

    def __init__(self) -> None:
        self.executions: dict[str, MemoryExecution] = {}
        self.definitions: dict[tuple[str, int], Definition] = {}
        self.current: dict[str, int] = {}
        self.aliases: dict[tuple[str, str], int] = {}
        self.removed: dict[str, int] = {}
        """The highest removed version of each name: its number is not used again."""
        self.outbox: dict[str, OutboxEntry] = {}
        self.publications: dict[str, PublicationRow] = {}
        self.blobs: dict[tuple[str, str], bytes] = {}
        self.blob_turns: dict[tuple[str, str], int] = {}
        """The turns of scripts that put blobs to which only their snapshots refer."""
        self.stored_bytes: dict[str, int] = {}
        self.records: dict[tuple[str, str], Record] = {}
        self.logs: dict[str, list[LogEntry]] = {}
        self.log_number = 0
        self.workers: dict[str, tuple[float, bytes]] = {}
        self.ready: dict[str, list[tuple[int, float, int, str, str]]] = {}
        self.limits = MemoryLimitRows()
        self.parked: list[tuple[float, int, str, str]] = []
        self._order = itertools.count()

    # -- reading ----------------------------------------------------------------------------------------------

    def execution(self, execution: str) -> ExecutionRow | None:
        found = self.executions.get(execution)
        return found.row if found is not None else None

    def token(self, execution: str, token: str) -> TokenRow | None:
        found = self.executions.get(execution)
        return found.tokens.get(token) if found is not None else None

    def scope(self, execution: str, scope: str) -> ScopeRow | None:
        return self.executions[execution].scopes.get(scope)

    def barrier(self, execution: str, barrier: str) -> BarrierRow | None:
        return self.executions[execution].barriers.get(barrier)

    def gate(self, execution: str, gate: str) -> GateRow | None:
        return self.executions[execution].gates.get(gate)

    def has_slot(self, execution: str, barrier: str, slot: int) -> bool:
        return slot in self.executions[execution].slots.get(barrier, ())

    def has_left(self, execution: str, scope: str) -> bool:
        return bool(self.executions[execution].left.get(scope))

    def unfinished_tokens(self, execution: str, scope: str | None = None) -> Iterable[TokenRow]:
        return [
            token
            for token in self.executions[execution].tokens.values()
            if token.state in UNFINISHED and (scope is None or token.scope == scope)
        ]

    def waiting_tokens(self, execution: str, awaits: str) -> Iterable[TokenRow]:
        waiting = [
            token
            for token in self.executions[execution].tokens.values()
            if token.state == "parked" and token.awaits == awaits
        ]
        return sorted(waiting, key=lambda token: token.ready_at)

    def machine(self, execution: str) -> MachineRow | None:
        return self.executions[execution].machine

    def completions(self, execution: str) -> Mapping[int, Kept]:
        return self.executions[execution].kept

    def signal(self, execution: str, signal: str) -> SignalRow | None:
        return self.executions[execution].mailbox.get(signal)

    def next_signal(self, execution: str, names: Collection[str]) -> SignalRow | None:
        mailbox = self.executions[execution].mailbox.values()
        return next((signal for signal in mailbox if not signal.taken and signal.name in names), None)

    # -- limits -----------------------------------------------------------------------------------------------

    def free_slot(self, key: str) -> Iterable[ReadyToken]:
        lines = (line for line in self.limits.lines.values() if line.key == key)
        heads = (line.head(self) for line in lines)
        return [ready_token(token) for token in heads if token is not None]

    def release_slots(self, execution: str) -> Collection[str]:
        return self.limits.held_by(execution)

    def hold_slot(self, execution: str, key: str) -> None:
        self.limits.holders.setdefault(key, set()).add(execution)

    # -- writing ----------------------------------------------------------------------------------------------

    def create_execution(self, row: ExecutionRow, new: NewExecution) -> None:
        self.executions[row.id] = MemoryExecution(row, new)

    def replace_input(self, execution: str, data: bytes) -> None:
        found = self.executions[execution]
        found.new = msgspec.structs.replace(found.new, input=data)

    def change_version(self, execution: str, version: int, definition: str) -> None:
        found = self.executions[execution]
        found.new = msgspec.structs.replace(found.new, version=version, definition=definition)

    def replace_tags(self, execution: str, change: ReplaceTags) -> None:
        found = self.executions[execution]
        found.new = msgspec.structs.replace(found.new, tags=change.tags)

    def publish(self, execution: str, change: PublishValues, at: float) -> None:
        values = self.executions[execution].values
        for key, data in change.values:
            version = values[key].version + 1 if key in values else 1
            values[key] = MemoryValue(data, version, at)

    def append_chunks(self, execution: str, change: AppendChunks, at: float) -> None:
        stream = self.executions[execution].stream(change.stream)
        first = stream.head.length
        anew = begins_anew(stream.head, change.stream, change.token, change.fence)
        if accept_chunks(stream.head, change) and change.chunks:
            data = array_of(change.chunks)
            stream.parts.append(
                StreamPart(first, len(change.chunks), at, change.task, change.attempt, anew, data)
            )

    def save_execution(self, row: ExecutionRow) -> None:
        """Do nothing: rows are changed in place."""

    def add_token(self, row: TokenRow) -> None:
        self.executions[row.execution].tokens[row.id] = row
        self.save_token(row)

    def save_token(self, row: TokenRow) -> None:
        if row.state == "ready":
            place = (-row.priority, row.ready_at, next(self._order))
            if row.limit_key is not None:
                self.limits.line_up(row, place)
            else:
                heappush(self.ready.setdefault(row.queue, []), (*place, row.execution, row.id))
        elif row.state == "parked" and row.due is not None:
            heappush(self.parked, (row.due, next(self._order), row.execution, row.id))

    def rewrite_token(self, row: TokenRow) -> None:
        self.save_token(row)

    def move_token(self, row: TokenRow, execution: str) -> None:
        del self.executions[row.execution].tokens[row.id]
        row.execution = execution
        self.add_token(row)

    def save_machine(self, row: MachineRow) -> None:
        self.executions[row.execution].machine = row

    def add_completion(self, execution: str, completion: Completion) -> None:
        found = self.executions[execution]
        found.inbox[completion.promise] = completion
        found.kept[completion.promise] = (completion.number, completion.ok)

    def remove_completions(self, execution: str, promises: Collection[int]) -> None:
        found = self.executions[execution]
        for promise in promises:
            del found.inbox[promise], found.kept[promise]

    def save_signal(self, row: SignalRow) -> None:
        self.executions[row.execution].mailbox[row.id] = row

    def save_scope(self, row: ScopeRow) -> None:
        self.executions[row.execution].scopes[row.scope] = row

    def save_barrier(self, row: BarrierRow) -> None:
        self.executions[row.execution].barriers[row.id] = row

    def save_gate(self, row: GateRow) -> None:
        self.executions[row.execution].gates[row.id] = row

    def add_slot(self, execution: str, barrier: str, slot: int, live: bool, data: bytes | None) -> None:
        self.executions[execution].slots.setdefault(barrier, {})[slot] = (live, data)

    def add_left(self, execution: str, scope: str, key: str, data: bytes) -> None:
        self.executions[execution].left.setdefault(scope, {})[key] = data

    def add_output(self, execution: str, output: str, data: bytes) -> None:
        self.executions[execution].outputs[output] = data

    def add_outbox(self, execution: str, entry: str, topic: str, data: bytes) -> None:
        self.outbox.setdefault(entry, OutboxEntry(entry, execution, topic, data))

    def is_owed(self, entry: str) -> bool:
        return entry in self.outbox

    def take_order(self, entry: str) -> None:
        self.outbox.pop(entry, None)

    def add_publication(self, execution: str, owner: str | None, until: float | None) -> None:
        self.publications.setdefault(execution, PublicationRow(0, owner, until or 0.0))

    def add_event(
        self, execution: str, seq: int, event: NewEvent, arrived: int | None, expected: int | None
    ) -> None:
        self.executions[execution].events.append(recorded(event, execution, seq, arrived, expected))


def execution_view(execution: MemoryExecution) -> ExecutionView:
    row, new = execution.row, execution.new
    return ExecutionView(
        id=row.id,
        workflow=new.workflow,
        version=new.version,
        definition=new.definition,
        state=row.state,
        input=new.input,
        created_at=new.created_at,
        touched_at=row.touched_at,
        epoch=row.epoch,
        live=row.live,
        seq=row.seq,
        priority=row.priority,
        tags=new.tags,
        idempotency_key=new.idempotency_key,
        parent=new.parent,
        relation=new.relation,
        paused_at=row.paused_at,
        ended_at=row.ended_at,
        output=row.output,
        context=row.context,
        error=row.error,
        kind=row.kind,
    )


def outline(execution: MemoryExecution) -> ExecutionView:
    view = execution_view(execution)
    size = sum(len(value) for value in (view.input, view.output, view.context) if value is not None)
    return replace(view, input=b"null", output=None, context=None, value_bytes=size)
