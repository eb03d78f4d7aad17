"""Rows of an execution: as cached in a flight, as parameters of statements, and as the ports show them.

Parameters are in the order of the statement's placeholders.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Iterable
from io import BytesIO
from typing import Any

import msgspec

from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.core.settlement import (
    BarrierRow,
    ExecutionRow,
    GateRow,
    Kept,
    MachineRow,
    ScopeRow,
    SignalRow,
    TokenRow,
)
from dalsegno.model.execution import ExecutionView, NewExecution
from dalsegno.model.machine import Completion, MachineView, Ranges, SignalView, Wake


class Flight:
    """The cached rows of one unfinished execution.

    A row that is here equals the stored one, or is about to be written; one that is not may still be stored.
    """

    __slots__ = (
        "barriers",
        "born_here",
        "gates",
        "inbox",
        "left",
        "machine",
        "number",
        "numbers",
        "row",
        "scopes",
        "stands",
        "tokens",
    )

    def __init__(self, number: int, row: ExecutionRow, *, born_here: bool = False) -> None:
        self.born_here = born_here
        """All its rows come from this workspace: a barrier, gate or left context that is not here does not exist. """
        self.number = number
        self.row = row
        self.tokens: dict[str, TokenRow] = {}
        self.numbers: dict[str, int] = {}
        """Numbers of the tokens, by id."""
        self.scopes: dict[str, ScopeRow] = {}
        self.barriers: dict[str, BarrierRow] = {}
        self.gates: dict[str, GateRow] = {}
        self.left: set[str] = set()
        """Scopes in which a branch is known to have left something."""
        self.stands = row.state != "RUNNING"
        """The stored state is not RUNNING: a change to RUNNING must then write the state."""
        self.machine: MachineRow | None = None
        """Without its snapshot, unless that is about to be written."""
        self.inbox: dict[int, Kept] = {}
        """Completions by promise; complete if there are as many as the machine's row says."""

    def forget_token(self, token: str) -> None:
        self.tokens.pop(token, None)
        self.numbers.pop(token, None)


Parameters = tuple[Any, ...]
encode = msgspec.json.encode

turns = itertools.count(1)
"""Order among tokens that this process made ready at the same instant."""


def running_flight(flight: Flight) -> Parameters:
    row = flight.row
    return (
        flight.number,
        row.id,
        row.definition,
        row.epoch,
        row.seq,
        row.live,
        row.priority,
        row.touched_at,
        row.kind,
    )


def running_record(flight: Flight, new: NewExecution) -> Parameters:
    return (
        flight.number,
        new.id,
        new.workflow,
        new.version,
        new.definition,
        new.created_at,
        new.priority,
        json.dumps(new.tags) if new.tags else "[]",
        bytearray(new.input),
        new.kind,
    )


def whole_flight(flight: Flight) -> Parameters:
    row = flight.row
    return (
        flight.number,
        row.id,
        row.state,
        row.definition,
        row.epoch,
        row.seq,
        row.live,
        row.priority,
        row.touched_at,
        row.paused_at,
        row.ended_at,
        row.kind,
        row.notify,
    )


def whole_record(flight: Flight, new: NewExecution) -> Parameters:
    row = flight.row
    return (
        flight.number,
        new.id,
        new.workflow,
        new.version,
        new.definition,
        row.state,
        new.created_at,
        new.priority,
        new.parent,
        new.relation,
        new.idempotency_key,
        row.paused_at,
        row.ended_at,
        json.dumps(new.tags),
        row.error,
        row.context,
        row.output,
        new.input,
        new.kind,
    )


def moved_flight(flight: Flight) -> Parameters:
    row = flight.row
    return (
        flight.number,
        row.state,
        row.epoch,
        row.seq,
        row.live,
        row.touched_at,
        row.paused_at,
        row.ended_at,
    )


def moved_record(flight: Flight, output: bytes | None) -> Parameters:
    row = flight.row
    payloads = _payload(output), _payload(row.context), _payload(row.error)
    return flight.number, row.state, row.paused_at, row.ended_at, *payloads


def _payload(data: bytes | None) -> bytearray | None:
    return bytearray(data) if data is not None else None


def new_token(number: int, flight: Flight, row: TokenRow) -> Parameters:
    return (
        number,
        flight.number,
        row.id,
        row.scope,
        row.kind,
        row.node,
        bytearray(row.data),
        row.queue,
        row.priority,
        row.limit_key,
        1 if row.live else 0,
        row.state,
        row.due,
        row.fence,
        row.owner,
        row.attempt,
        row.losses,
        row.reason,
        row.barrier,
        row.ready_at,
        row.digest,
        row.awaits,
        row.allowance,
        next(turns) if row.state == "ready" else 0,
    )


def new_line(row: TokenRow) -> Parameters:
    return row.queue, row.limit_key, row.priority, row.ready_at, next(turns)


def changed_token(number: int, row: TokenRow) -> Parameters:
    return (
        row.data,
        row.state,
        row.due,
        row.fence,
        row.owner,
        row.attempt,
        row.losses,
        row.reason,
        row.barrier,
        row.ready_at,
        row.digest,
        row.awaits,
        row.queue,
        next(turns) if row.state == "ready" else 0,
        number,
    )


def stored_scope(key: tuple[int, str], row: ScopeRow) -> Parameters:
    return *key, row.barrier, row.slot, row.live, 1 if row.ended else 0


def stored_slot(key: tuple[int, str, int], slot: tuple[bool, bytes | None]) -> Parameters:
    live, data = slot
    return *key, 1 if live else 0, _payload(data)


def stored_barrier(key: tuple[int, str], row: BarrierRow) -> Parameters:
    return (
        *key,
        row.scope,
        row.node,
        row.mode,
        row.expected,
        row.join,
        row.state,
        row.resolved,
        row.live,
        row.deadline,
        row.milestone_at,
        row.milestone_token,
    )


def stored_gate(key: tuple[int, str], row: GateRow) -> Parameters:
    return *key, row.count, json.dumps(sorted(row.used))


def stored_machine(number: int, row: MachineRow, snapshot: bytes) -> Parameters:
    return (
        number,
        row.version,
        row.inbox,
        row.read,
        row.unread,
        row.last_success,
        row.last_failure,
        row.kept,
        1 if row.resuming else 0,
        row.cancel,
        1 if row.interrupted else 0,
        row.line,
        encode(row.wake).decode(),
        encode(row.reachable).decode(),
        bytearray(snapshot),
    )


def counted_machine(number: int, row: MachineRow) -> Parameters:
    return (
        number,
        row.version,
        row.inbox,
        row.unread,
        row.last_success,
        row.last_failure,
        row.kept,
        1 if row.resuming else 0,
        row.cancel,
    )


def stored_signal(number: int, row: SignalRow) -> Parameters:
    return number, row.id, row.name, row.number, row.place, 1 if row.taken else 0, row.data


INPUT, TAGS, OUTPUT = 5, 12, 18
"""Positions in ``execution_view``, whose columns are ExecutionView's."""
LARGE = 1024 * 1024
"""Bytes from which on a value is read piece by piece. In one piece, SQLite would have a copy of it beside ours."""
PIECE = 512 * 1024


def whole_row(connection: sqlite3.Connection, execution: str) -> tuple[Any, ...] | None:
    """Return the row of ``execution_view``, within a transaction."""
    row = connection.execute(SQL["listing.one"], {"execution": execution, "large": LARGE}).fetchone()
    if row is None:
        return None
    *columns, input_bytes, output_bytes = row
    for column, position, size in (("input", INPUT, input_bytes), ("output", OUTPUT, output_bytes)):
        if size > LARGE:
            columns[position] = _in_pieces(connection, execution, column)
    return tuple(columns)


def _in_pieces(connection: sqlite3.Connection, execution: str, column: str) -> bytes:
    (number,) = connection.execute(SQL["listing.number"], (execution,)).fetchone()
    found = BytesIO()  # which returns its own buffer without a copy
    with connection.blobopen("execution", column, number, readonly=True) as value:
        while piece := value.read(PIECE):
            found.write(piece)
    return found.getvalue()


def execution_view(row: tuple[Any, ...]) -> ExecutionView:
    columns: list[Any] = list(row)
    columns[TAGS] = tuple((name, value) for name, value in json.loads(row[TAGS]))
    return ExecutionView(*columns)


_read_ranges = msgspec.json.Decoder(Ranges)
_read_wake = msgspec.json.Decoder(Wake)


def machine_row(execution: str, row: tuple[Any, ...]) -> MachineRow:
    """Return the row of ``machine.one`` that the rules work on, without the snapshot."""
    _number, version, reachable, wake, *rest = row
    ranges, condition = _read_ranges.decode(reachable), _read_wake.decode(wake)
    return MachineRow(execution, version, None, ranges, condition, *rest)


def machine_view(
    row: tuple[Any, ...], completions: Iterable[tuple[Any, ...]], signals: Iterable[tuple[Any, ...]]
) -> MachineView:
    """Return a machine from ``machine.of``, ``machine.inbox_of`` and ``machine.mailbox_of``."""
    version, snapshot, reachable, wake, inbox, read, line, cancel, interrupted = row
    return MachineView(
        version,
        snapshot,
        _read_ranges.decode(reachable),
        _read_wake.decode(wake),
        inbox,
        read,
        line,
        cancel,
        bool(interrupted),
        tuple(Completion(promise, bool(ok), data, number) for promise, ok, data, number in completions),
        tuple(sorted((SignalView(*signal) for signal in signals), key=lambda signal: signal.number)),
    )
