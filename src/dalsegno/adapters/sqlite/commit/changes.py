"""The changes of a transaction and their writing: each row once, one kind of change after the other.

- The hot kinds are flat parameter lists for bulk statements, filled while the rules run. The others are rows,
  written in their final form.
- ``executemany`` releases and takes the interpreter lock for every row; with a busy event loop each return may
  wait a whole switch interval. A statement with a repeated ``VALUES`` group writes a hundred rows at once, and is
  faster by itself. Only the group of placeholders is repeated; the text comes from the statement's file.
"""

from __future__ import annotations

import itertools
import json
import re
import sqlite3
from collections.abc import Iterable
from typing import Any

from dalsegno.adapters.rows import (
    Parameters,
    counted_machine,
    flight_columns,
    line_up,
    new_line,
    new_token,
    stored_barrier,
    stored_machine,
    token_changes,
)
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
    is_marked,
)
from dalsegno.model.effect import ReplaceTags
from dalsegno.model.execution import NewExecution


class Flight:
    """The cached rows of one unfinished execution.

    A row that is here equals the stored one, or is about to be written; one that is not may still
    be stored.
    """

    __slots__ = (
        "barriers",
        "gates",
        "inbox",
        "is_new",
        "left",
        "machine",
        "number",
        "numbers",
        "row",
        "scopes",
        "tokens",
        "was_stopped",
    )

    def __init__(self, number: int, row: ExecutionRow, *, is_new: bool = False) -> None:
        self.is_new = is_new
        """All its rows come from this workspace: a barrier, gate or left context that is not here
        does not exist.
        """
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
        self.was_stopped = row.state != "RUNNING"
        """The stored state is not RUNNING: a change to RUNNING must then write the state."""
        self.machine: MachineRow | None = None
        """Without its snapshot, unless that is about to be written."""
        self.inbox: dict[int, Kept] = {}
        """Completions by promise; complete if there are as many as the machine's row says."""

    def forget_token(self, token: str) -> None:
        self.tokens.pop(token, None)
        self.numbers.pop(token, None)


SIZES = (256, 128, 64, 32, 16, 8, 4, 2, 1)
"""Rows per statement. Few sizes, so that each stays prepared, and few statements per batch: while the event loop is
busy, the thread waits for the interpreter lock after each.
"""

GROUP = re.compile(r"VALUES (\([^()]*\))")


class BulkStatement:
    """A statement with one ``VALUES (…)`` group, for parameters in one flat list.

    Bytes should be passed as ``bytearray``, and ``None`` be avoided: the driver passes ints, floats, strings and
    bytearrays directly, but looks up an adapter for anything else, which costs as much as writing half a row.
    """

    def __init__(self, text: str) -> None:
        found = GROUP.search(text)
        if found is None:
            raise ValueError(f"no VALUES group in {text!r}")
        group = found.group(1)
        self.width = group.count("?")
        self._texts = [
            (size * self.width, text[: found.start(1)] + ", ".join([group] * size) + text[found.end(1) :])
            for size in SIZES
        ]
        """Statements, each with the number of its parameters."""

    def run(self, connection: sqlite3.Connection, flat: list[Any]) -> None:
        if not flat:  # most kinds of rows, in most transactions
            return
        if len(flat) == self.width:  # nearly all others on an idle system
            connection.execute(self._texts[-1][1], flat)
            return
        start, end = 0, len(flat)
        for step, text in self._texts:
            while end - start >= step:
                connection.execute(text, flat[start : start + step])
                start += step


ADVANCE = BulkStatement(SQL["execution.advance"])
CHANGE_FLIGHT = BulkStatement(SQL["execution.change_flight"])
CHANGE_RECORD = BulkStatement(SQL["execution.change_record"])
CONSUME = BulkStatement(SQL["token.consume"])
INSERT_FLIGHT = BulkStatement(SQL["execution.insert_running_flight"])
INSERT_RECORD = BulkStatement(SQL["execution.insert_running_record"])
INSERT_KEPT = BulkStatement(SQL["token.insert_kept"])
INSERT_READY = BulkStatement(SQL["token.insert_ready"])
INSERT_TIMER = BulkStatement(SQL["token.insert_timer"])
INSERT_TOKEN = BulkStatement(SQL["token.insert"])
MAKE_READY = BulkStatement(SQL["token.make_ready"])
LEASE = BulkStatement(SQL["token.lease"])
INSERT_STEP = BulkStatement(SQL["history.insert_step"])
INSERT_NOTE = BulkStatement(SQL["history.insert_note"])
SAVE_SCOPE = BulkStatement(SQL["join.save_scope"])
SAVE_SLOT = BulkStatement(SQL["join.save_slot"])
SAVE_MACHINE = BulkStatement(SQL["machine.save"])
COUNT_MACHINE = BulkStatement(SQL["machine.count"])
ENTER_INBOX = BulkStatement(SQL["machine.enter"])
REMOVE_FROM_INBOX = BulkStatement(SQL["machine.remove"])


class Changes:
    __slots__ = (
        "barriers",
        "cleared",
        "completions",
        "consumed",
        "created",
        "events",
        "executions",
        "gates",
        "inputs",
        "large_bytes",
        "left",
        "lined_up",
        "machines",
        "makes_claimable",
        "moved",
        "notes",
        "outbox",
        "outputs",
        "owners",
        "publications",
        "removed",
        "rewritten",
        "scopes",
        "slots",
        "spawned",
        "steps",
        "tags",
        "taken_orders",
        "tokens",
        "tombstones",
        "versions",
    )

    def __init__(self) -> None:
        self.created: dict[str, NewExecution] = {}
        self.executions: dict[str, Flight] = {}
        self.inputs: dict[int, bytes] = {}
        """Inputs that replace the submitted ones, by the executions' numbers."""
        self.large_bytes = 0
        """Bytes of large values among what was written."""
        self.makes_claimable = False
        """Whether what was written lets claims find more: ready tokens, or executions that continue."""
        self.tags: list[tuple[int, ReplaceTags]] = []
        """Tags that running executions have set, by their numbers, in order."""
        self.versions: dict[int, tuple[int, str]] = {}
        """Versions that executions go on with, and their definitions, by the executions' numbers."""
        self.consumed: list[Any] = []
        """Parameters of ``consume``."""
        self.tombstones: list[tuple[Flight, str]] = []
        """Consumed tokens, to be dropped from memory once this is written."""
        self.spawned: dict[int, tuple[TokenRow, Flight]] = {}
        """Tokens that are not stored yet, by number."""
        self.tokens: dict[int, TokenRow] = {}
        """Tokens that changed, by number. New ones are included only if they changed after being spawned."""
        self.rewritten: set[int] = set()
        """Numbers of tokens of which every column is written."""
        self.moved: dict[int, int] = {}
        """Stored tokens that moved to another execution: their numbers, and its number."""
        self.machines: dict[int, MachineRow] = {}
        self.completions: list[Any] = []
        """Parameters of ``enter``; removed and cleared ones are deleted after that."""
        self.removed: list[Any] = []
        self.cleared: dict[int, list[int]] = {}
        """Executions whose completions are deleted, all up to the highest of these numbers."""
        self.scopes: dict[tuple[int, str], ScopeRow] = {}
        self.barriers: dict[tuple[int, str], BarrierRow] = {}
        self.gates: dict[tuple[int, str], GateRow] = {}
        self.slots: dict[tuple[int, str, int], tuple[bool, bytes | None]] = {}
        self.left: dict[tuple[int, str, str], bytes] = {}
        self.lined_up: dict[tuple[str, str], TokenRow] = {}
        """Ready tokens with a limit key, the one of the highest priority for each queue and key."""
        self.owners: set[Any] = set()
        """Holders of the leases given here; they are registered once this is written."""
        self.outputs: list[Parameters] = []
        self.outbox: list[Parameters] = []
        self.publications: list[Parameters] = []
        self.taken_orders: dict[str, None] = {}
        self.steps: list[Any] = []
        """Parameters of ``insert_step``: most events."""
        self.notes: list[Any] = []
        """Parameters of ``insert_note``."""
        self.events: list[Parameters] = []

    def write(self, connection: sqlite3.Connection) -> None:
        self._write_executions(connection)
        self._write_tokens(connection)
        if self.machines or self.completions:
            self._write_machines(connection)
        if self.scopes:
            SAVE_SCOPE.run(connection, _flat(map(stored_scope, self.scopes, self.scopes.values())))
        if self.slots:
            SAVE_SLOT.run(connection, _flat(map(stored_slot, self.slots, self.slots.values())))
        _each(
            connection, "join.save_barrier", [stored_barrier(key, row) for key, row in self.barriers.items()]
        )
        _each(connection, "join.save_gate", [stored_gate(key, row) for key, row in self.gates.items()])
        _each(connection, "join.save_left", [(*key, data) for key, data in self.left.items()])
        _each(connection, "history.save_output", self.outputs)
        _each(connection, "history.insert_outbox", self.outbox)
        _each(connection, "publications.add", self.publications)
        _each(connection, "history.delivered", [(entry,) for entry in self.taken_orders])
        INSERT_STEP.run(connection, self.steps)
        INSERT_NOTE.run(connection, self.notes)
        _each(connection, "history.insert_event", self.events)

    def _write_executions(self, connection: sqlite3.Connection) -> None:
        if self.created:
            self._write_created(connection)
        advanced: list[Any] = []
        flights: list[Any] = []
        records: list[Any] = []
        large: list[Parameters] = []
        for name, flight in self.executions.items():
            row = flight.row
            if name in self.created:
                continue
            if row.state == "RUNNING" and not flight.was_stopped:
                advanced += (flight.number, row.epoch, row.seq, row.live, row.touched_at)
            else:
                self.makes_claimable = self.makes_claimable or row.ended_at is None
                flights += flight_columns(flight.number, row)
                if is_large_record(row):
                    large.append(large_record(flight))
                else:
                    records += moved_record(flight)
        ADVANCE.run(connection, advanced)
        CHANGE_FLIGHT.run(connection, flights)
        CHANGE_RECORD.run(connection, records)
        _each(connection, "execution.change_large_record", large)
        for number, data in self.inputs.items():
            self._replace_input(connection, number, data)
        for number, (version, definition) in self.versions.items():
            connection.execute(SQL["execution.change_version"], (version, definition, number))
            connection.execute(SQL["execution.change_definition"], (definition, number))
        for number, change in self.tags:
            connection.execute(SQL["execution.replace_tags"], (json.dumps(change.tags), number))
            _each(connection, "execution.drop_tag", [(*tag, number) for tag in change.gone])
            _each(connection, "execution.add_tag", [(*tag, number) for tag in change.new])

    def _write_created(self, connection: sqlite3.Connection) -> None:
        flights: list[Any] = []
        records: list[Any] = []
        others = []
        for name, new in self.created.items():
            flight = self.executions[name]
            if _is_plain(flight, new):
                flights += running_flight(flight)
                records += running_record(flight, new)
            else:
                others.append((flight, new))
        INSERT_FLIGHT.run(connection, flights)
        INSERT_RECORD.run(connection, records)
        _each(connection, "execution.insert_flight", [whole_flight(flight) for flight, _ in others])
        _each(connection, "execution.insert_record", [whole_record(flight, new) for flight, new in others])
        for name, new in self.created.items():
            if has_large_input(new):
                self._write_large_input(connection, self.executions[name].number, new.input)
        tags = [(*tag, new.created_at, new.id) for new in self.created.values() for tag in new.tags]
        _each(connection, "execution.insert_tag", tags)

    def _replace_input(self, connection: sqlite3.Connection, number: int, data: bytes) -> None:
        connection.execute(SQL["removal.delete_large_input"], {"execution": number, "limit": 1})
        is_large = len(data) > LARGE_INPUT
        connection.execute(SQL["execution.replace_input"], (b"" if is_large else data, number))
        if is_large:
            self._write_large_input(connection, number, data)

    def _write_large_input(self, connection: sqlite3.Connection, number: int, data: bytes) -> None:
        connection.execute(SQL["execution.reserve_large_input"], (number, len(data)))
        with connection.blobopen("large_input", "data", number) as row:
            row.write(data)
        self.large_bytes += len(data)

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
                if not is_marked(row):
                    leased += (number, row.owner, row.fence)
                    continue
            if row.state == "ready":
                self.makes_claimable = True
                if row.limit_key is not None:
                    line_up(self.lined_up, row, row.limit_key)
            is_as_before = row.reason != "arrival" and number not in self.rewritten
            if row.state == "ready" and is_as_before:  # otherwise its work may be new, too
                ready += (number, row.ready_at, next(turns), row.reason, row.losses, row.due)
            else:
                changed.append(changed_token(number, row))
        LEASE.run(connection, leased)
        MAKE_READY.run(connection, ready)
        _each(connection, "limits.line_up", [(*new_line(row), next(turns)) for row in self.lined_up.values()])
        _each(connection, "token.change", changed)
        _each(connection, "token.move", [(execution, token) for token, execution in self.moved.items()])

    def _write_machines(self, connection: sqlite3.Connection) -> None:
        saved: list[Any] = []
        counted: list[Any] = []
        for number, row in self.machines.items():
            if row.cancel:
                self.makes_claimable = True  # its next turn is not passed over any more
            if row.snapshot is None:
                counted += counted_machine(number, row, int)
            else:
                saved += stored_machine(number, row, bytearray(row.snapshot), int)
                row.snapshot = None
        SAVE_MACHINE.run(connection, saved)
        COUNT_MACHINE.run(connection, counted)
        ENTER_INBOX.run(connection, self.completions)
        REMOVE_FROM_INBOX.run(connection, self.removed)
        _each(
            connection, "machine.clear", [(execution, max(gone)) for execution, gone in self.cleared.items()]
        )

    def _write_spawned(self, connection: sqlite3.Connection) -> None:
        kept: list[Any] = []
        ready: list[Any] = []
        timers: list[Any] = []
        others: list[Any] = []
        last: str | float | None  # the column that only this kind of token has
        for number, (row, flight) in self.spawned.items():
            state = row.state
            is_plain = row.limit_key is None and row.barrier is None and not row.reason
            if is_plain and state == "leased":
                self.owners.add(row.owner)
                flat, last = kept, row.owner
            elif is_plain and state == "ready":
                flat, last = ready, next(turns)
            elif is_plain and state == "parked" and _is_new_timer(row):
                flat, last = timers, row.due
            else:
                others.append(number)
                others += new_token(flight.number, row, bytearray(row.data), 1 if row.live else 0)
                others.append(next(turns) if state == "ready" else 0)
                if state == "ready":
                    self.makes_claimable = True
                    if row.limit_key is not None:
                        line_up(self.lined_up, row, row.limit_key)
                continue
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
        self.makes_claimable = self.makes_claimable or bool(ready)
        INSERT_KEPT.run(connection, kept)
        INSERT_READY.run(connection, ready)
        INSERT_TIMER.run(connection, timers)
        INSERT_TOKEN.run(connection, others)


def _is_new_timer(row: TokenRow) -> bool:
    """Return True for a timer of a script, of which a loop may make many: it needs few columns."""
    return (
        row.kind == "timer"
        and row.due is not None
        and row.fence == 0
        and row.attempt == 1
        and row.losses == 0
        and row.owner is None
        and row.digest is None
        and row.awaits is None
    )


def _is_plain(flight: Flight, new: NewExecution) -> bool:
    """Return True for a start that needs few columns."""
    alone = new.parent is None and new.idempotency_key is None and new.notify is None
    return alone and flight.row.state == "RUNNING"


def _flat(rows: Iterable[Parameters]) -> list[Any]:
    return list(itertools.chain.from_iterable(rows))


def _each(connection: sqlite3.Connection, statement: str, rows: list[Parameters]) -> None:
    if rows:
        connection.executemany(SQL[statement], rows)


# -- rows as parameters, in the order of their placeholders --------------------------------------------------

LARGE_INPUT = 64 * 1024
"""Bytes from which on an input is a row of its own: that of the execution is written again whenever its state changes.
"""

LARGE_RECORD = 256 * 1024
"""Bytes of output, context and error from which on the row of an execution is written by a statement of its own."""

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
        bytearray(_in_the_row(new)),
        new.kind,
    )


def whole_flight(flight: Flight) -> Parameters:
    row = flight.row
    return *running_flight(flight), row.state, row.paused_at, row.ended_at, row.notify


def whole_record(flight: Flight, new: NewExecution) -> Parameters:
    row = flight.row
    origin = new.parent, new.relation, new.idempotency_key
    ending = row.paused_at, row.ended_at, row.error, row.context, row.output
    return *running_record(flight, new), row.state, *origin, *ending


def has_large_input(new: NewExecution) -> bool:
    return len(new.input) > LARGE_INPUT


def _in_the_row(new: NewExecution) -> bytes:
    return b"" if has_large_input(new) else new.input


def moved_record(flight: Flight) -> Parameters:
    row = flight.row
    payloads = _payload(row.output), _payload(row.context), _payload(row.error)
    return flight.number, row.state, row.paused_at, row.ended_at, *payloads


def is_large_record(row: ExecutionRow) -> bool:
    return (
        sum([len(data) for data in (row.output, row.context, row.error) if data is not None]) > LARGE_RECORD
    )


def large_record(flight: Flight) -> Parameters:
    row = flight.row
    state = row.state, row.paused_at, row.ended_at, row.output, row.context, row.error
    return *state, row.epoch, row.seq, row.live, row.touched_at, flight.number


def _payload(data: bytes | None) -> bytearray | None:
    return bytearray(data) if data is not None else None


def changed_token(number: int, row: TokenRow) -> Parameters:
    return row.data, *token_changes(row), next(turns) if row.state == "ready" else 0, number


def stored_scope(key: tuple[int, str], row: ScopeRow) -> Parameters:
    return *key, row.barrier, row.slot, row.live, 1 if row.ended else 0


def stored_slot(key: tuple[int, str, int], slot: tuple[bool, bytes | None]) -> Parameters:
    live, data = slot
    return *key, 1 if live else 0, _payload(data)


def stored_gate(key: tuple[int, str], row: GateRow) -> Parameters:
    return *key, row.count, json.dumps(sorted(row.used))


def stored_signal(number: int, row: SignalRow) -> Parameters:
    return number, row.id, row.name, row.number, row.place, 1 if row.taken else 0, row.data
