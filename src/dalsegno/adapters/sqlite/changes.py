"""What a transaction changed, and how it is written: each row once, one kind of change after the other.

The hot kinds are flat parameter lists for bulk statements, filled while the rules run; see ``bulk`` for why bytes are
wrapped in bytearrays there. The others are rows, written as they are in the end.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
from typing import Any

from dalsegno.adapters.sqlite.bulk import BulkStatement
from dalsegno.adapters.sqlite.flight import Flight
from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.core.settlement import BarrierRow, GateRow, ScopeRow, TokenRow
from dalsegno.model.execution import NewExecution

Parameters = tuple[Any, ...]

ADVANCE = BulkStatement(SQL["execution.advance"])
CONSUME = BulkStatement(SQL["token.consume"])
INSERT_FLIGHT = BulkStatement(SQL["execution.insert_running_flight"])
INSERT_RECORD = BulkStatement(SQL["execution.insert_running_record"])
INSERT_KEPT = BulkStatement(SQL["token.insert_kept"])
INSERT_READY = BulkStatement(SQL["token.insert_ready"])
INSERT_TOKEN = BulkStatement(SQL["token.insert"])
MAKE_READY = BulkStatement(SQL["token.make_ready"])
LEASE = BulkStatement(SQL["token.lease"])
INSERT_STEP = BulkStatement(SQL["history.insert_step"])
INSERT_NOTE = BulkStatement(SQL["history.insert_note"])
SAVE_SCOPE = BulkStatement(SQL["join.save_scope"])
SAVE_SLOT = BulkStatement(SQL["join.save_slot"])

PLAIN_STATES = frozenset(("leased", "ready"))
"""In which tokens are born with few columns."""

_turns = itertools.count(1)
"""Order among tokens that this process made ready at the same instant."""


class Changes:
    __slots__ = (
        "barriers",
        "consumed",
        "created",
        "events",
        "executions",
        "gates",
        "left",
        "left_scopes",
        "notes",
        "outbox",
        "outputs",
        "owners",
        "scopes",
        "slots",
        "spawned",
        "steps",
        "tokens",
        "tombstones",
    )

    def __init__(self) -> None:
        self.created: dict[str, NewExecution] = {}
        self.executions: dict[str, Flight] = {}
        self.consumed: list[Any] = []
        """Parameters of ``consume``."""
        self.tombstones: list[tuple[Flight, str]] = []
        """Tokens that were consumed: to be forgotten once this is written."""
        self.spawned: dict[int, tuple[TokenRow, Flight]] = {}
        """Tokens that are not stored yet, by number."""
        self.tokens: dict[int, TokenRow] = {}
        """Tokens that changed, by number. Those just spawned are among them only if they changed after that."""
        self.scopes: dict[tuple[int, str], ScopeRow] = {}
        self.barriers: dict[tuple[int, str], BarrierRow] = {}
        self.gates: dict[tuple[int, str], GateRow] = {}
        self.slots: dict[tuple[int, str, int], tuple[bool, bytes | None]] = {}
        self.left: dict[tuple[int, str, str], bytes] = {}
        self.left_scopes: set[tuple[int, str]] = set()
        self.owners: set[Any] = set()
        """Who holds the leases that were given here; known once it is written."""
        self.outputs: list[Parameters] = []
        self.outbox: list[Parameters] = []
        self.steps: list[Any] = []
        """Parameters of ``insert_step``: most events."""
        self.notes: list[Any] = []
        """Parameters of ``insert_note``."""
        self.events: list[Parameters] = []

    def write(self, connection: sqlite3.Connection) -> None:
        self._write_executions(connection)
        self._write_tokens(connection)
        if self.scopes:
            SAVE_SCOPE.run(
                connection, [value for key, row in self.scopes.items() for value in _scope(key, row)]
            )
        if self.slots:
            SAVE_SLOT.run(
                connection, [value for key, slot in self.slots.items() for value in _slot(key, slot)]
            )
        _each(connection, "join.save_barrier", [_barrier(key, row) for key, row in self.barriers.items()])
        _each(connection, "join.save_gate", [_gate(key, row) for key, row in self.gates.items()])
        _each(connection, "join.save_left", [(*key, data) for key, data in self.left.items()])
        _each(connection, "history.save_output", self.outputs)
        _each(connection, "history.insert_outbox", self.outbox)
        INSERT_STEP.run(connection, self.steps)
        INSERT_NOTE.run(connection, self.notes)
        _each(connection, "history.insert_event", self.events)

    def _write_executions(self, connection: sqlite3.Connection) -> None:
        if self.created:
            self._write_created(connection)
        advanced: list[Any] = []
        moved: list[Flight] = []
        for name, flight in self.executions.items():
            row = flight.row
            if name in self.created:
                continue
            if row.state == "RUNNING" and not flight.paused:
                advanced += (flight.number, row.epoch, row.seq, row.live, row.touched_at)
            else:
                moved.append(flight)
        ADVANCE.run(connection, advanced)
        _each(connection, "execution.change_flight", [_change_flight(flight) for flight in moved])
        _each(connection, "execution.change_record", [_change_record(flight) for flight in moved])

    def _write_created(self, connection: sqlite3.Connection) -> None:
        flights: list[Any] = []
        records: list[Any] = []
        others = []
        for name, new in self.created.items():
            flight = self.executions[name]
            if flight.row.state == "RUNNING" and new.parent is None and new.idempotency_key is None:
                flights += _running_flight(flight)
                records += _running_record(flight, new)
            else:
                others.append((flight, new))
        INSERT_FLIGHT.run(connection, flights)
        INSERT_RECORD.run(connection, records)
        _each(connection, "execution.insert_flight", [_flight(flight) for flight, _ in others])
        _each(connection, "execution.insert_record", [_record(flight, new) for flight, new in others])
        tags = [(*tag, new.created_at, new.id) for new in self.created.values() for tag in new.tags]
        _each(connection, "execution.insert_tag", tags)

    def _write_tokens(self, connection: sqlite3.Connection) -> None:
        CONSUME.run(connection, self.consumed)
        self._write_spawned(connection)
        leased: list[Any] = []
        ready: list[Any] = []
        changed: list[Parameters] = []
        for number, row in self.tokens.items():
            if number in self.spawned:
                continue
            if row.state == "leased":
                self.owners.add(row.owner)
                leased += (number, row.owner, row.fence)
            elif row.state == "ready":
                ready += (number, row.ready_at, next(_turns), row.reason, row.losses, row.due)
            else:
                changed.append(_changed(number, row))
        LEASE.run(connection, leased)
        MAKE_READY.run(connection, ready)
        _each(connection, "token.change", changed)

    def _write_spawned(self, connection: sqlite3.Connection) -> None:
        kept: list[Any] = []
        ready: list[Any] = []
        others: list[Any] = []
        last: str | int | None
        for number, (row, flight) in self.spawned.items():
            state = row.state
            if (
                state not in PLAIN_STATES
                or row.limit_key is not None
                or row.barrier is not None
                or row.reason
            ):
                others += _inserted(number, flight, row)
                continue
            if state == "leased":
                self.owners.add(row.owner)
                flat, last = kept, row.owner
            else:
                flat, last = ready, next(_turns)
            flat += (
                number,
                flight.number,
                row.id,
                row.scope,
                row.kind,
                row.node,
                bytearray(row.data),
                row.queue,
                row.priority,
                1 if row.live else 0,  # a bool would need an adapter, too
                row.ready_at,
                last,
            )
        INSERT_KEPT.run(connection, kept)
        INSERT_READY.run(connection, ready)
        INSERT_TOKEN.run(connection, others)


def _each(connection: sqlite3.Connection, statement: str, rows: list[Parameters]) -> None:
    if rows:
        connection.executemany(SQL[statement], rows)


def _turn(row: TokenRow) -> int:
    return next(_turns) if row.state == "ready" else 0


def _running_flight(flight: Flight) -> Parameters:
    row = flight.row
    return flight.number, row.id, row.definition, row.epoch, row.seq, row.live, row.priority, row.touched_at


def _running_record(flight: Flight, new: NewExecution) -> Parameters:
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
    )


def _flight(flight: Flight) -> Parameters:
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
    )


def _record(flight: Flight, new: NewExecution) -> Parameters:
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
    )


def _change_flight(flight: Flight) -> Parameters:
    row = flight.row
    return (
        row.state,
        row.epoch,
        row.seq,
        row.live,
        row.touched_at,
        row.paused_at,
        row.ended_at,
        flight.number,
    )


def _change_record(flight: Flight) -> Parameters:
    row = flight.row
    return row.state, row.paused_at, row.ended_at, row.output, row.context, row.error, flight.number


def _inserted(number: int, flight: Flight, row: TokenRow) -> Parameters:
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
        _turn(row),
    )


def _changed(number: int, row: TokenRow) -> Parameters:
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
        0,
        number,
    )


def _scope(key: tuple[int, str], row: ScopeRow) -> Parameters:
    return *key, row.barrier, row.slot, row.live, 1 if row.ended else 0


def _slot(key: tuple[int, str, int], slot: tuple[bool, bytes | None]) -> Parameters:
    live, data = slot
    return *key, 1 if live else 0, bytearray(data) if data is not None else None


def _barrier(key: tuple[int, str], row: BarrierRow) -> Parameters:
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


def _gate(key: tuple[int, str], row: GateRow) -> Parameters:
    return *key, row.count, json.dumps(sorted(row.used))
