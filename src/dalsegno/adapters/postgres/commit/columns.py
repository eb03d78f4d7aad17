"""Rows as parameters of the statements that write them, in the order of their arrays.

The driver checks every element of a list for being a list itself, which takes longer than writing it. On the hot
path arrays of names and numbers are therefore sent as text, in PostgreSQL's own notation (``{1,2}``), and the
statement casts them; payloads stay lists of bytes. The hot path is what steps write (``write.steps`` and
``write.held_steps``), what starts write (``write.starts``), and the machines and inboxes of scripts.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from dalsegno.adapters.postgres.commit.flight import Flight
from dalsegno.adapters.rows import (
    Parameters,
    counted_machine,
    flight_columns,
    new_token,
    stored_machine,
    token_changes,
)
from dalsegno.core.settlement import BarrierRow, MachineRow, TokenRow
from dalsegno.model.execution import NewExecution
from dalsegno.model.machine import Completion

Rows = Iterable[tuple[Any, ...]]


def columns(rows: Rows, width: int) -> list[Sequence[Any]]:
    """Return rows as parallel arrays for the driver, for statements of rare kinds."""
    return list(zip(*rows, strict=True)) or [()] * width


def names(column: Sequence[str | None]) -> str:
    """Return ``{"a","b"}``; None becomes NULL."""
    if not column:
        return "{}"
    try:
        joined = '","'.join(column)  # type: ignore[arg-type]
    except TypeError:
        return "{" + ",".join([_quoted(name) for name in column]) + "}"
    if "\\" in joined or joined.count('"') != 2 * len(column) - 2:
        return "{" + ",".join([_quoted(name) for name in column]) + "}"
    return '{"' + joined + '"}'


def _quoted(name: str | None) -> str:
    if name is None:
        return "NULL"
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def numbers(column: Sequence[int | float]) -> str:
    """Return ``{1,2}``."""
    return "{" + ",".join(map(str, column)) + "}"


class Shapes:
    """Rows that many share: each is stored once in an array of its own, and is named by its index."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: dict[tuple[Any, ...], int] = {}

    def place(self, shape: tuple[Any, ...]) -> int:
        return self._places.setdefault(shape, len(self._places) + 1)

    def columns(self, width: int) -> list[Sequence[Any]]:
        return columns(self._places, width)


def moved_flight(flight: Flight) -> Parameters:
    row = flight.row
    return *flight_columns(flight.number, row), row.output, row.context, row.error


def ending(flight: Flight) -> Parameters:
    """Return the columns of an ending; all NULL for an execution that continues."""
    row = flight.row
    if row.ended_at is None:
        return (None,) * 5
    return row.state, row.ended_at, row.output, row.context, row.error


def changed_token(name: tuple[int, str], row: TokenRow, fence_before: int, target: int) -> Parameters:
    return *name, fence_before, target, *token_changes(row), row.data


def changed_barrier(name: tuple[int, str], row: BarrierRow) -> Parameters:
    return *name, row.state, row.resolved, row.live, row.deadline, row.milestone_at, row.milestone_token


PLAIN_STATES = frozenset(("leased", "ready"))
"""States of new tokens that need few columns."""

TOKEN_SHAPE, EVENT_SHAPE = 10, 5
"""Columns that tokens and events share with others."""


def is_plain(row: TokenRow) -> bool:
    return (
        row.state in PLAIN_STATES
        and row.limit_key is None
        and row.barrier is None
        and not row.reason
        and row.due is None
    )


def is_asleep(row: TokenRow) -> bool:
    """Return True for a stored token that is parked, and woken by nothing but its time."""
    return row.state == "parked" and row.limit_key is None and row.barrier is None and row.awaits is None


def parked_tokens(tokens: Mapping[tuple[int, str], tuple[TokenRow, int]]) -> list[Any]:
    """Return parked tokens, with the fences they are stored with, as parameters of ``write.held_stops``."""
    rows = [
        (*name, fence, row.due, row.attempt, row.digest, row.data) for name, (row, fence) in tokens.items()
    ]
    executions, ids, fences, dues, attempts, digests, data = columns(rows, 7)
    return [numbers(executions), names(ids), numbers(fences), dues, numbers(attempts), digests, data]


class Steps:
    """Columns that grow while the rules run; payloads are lists for the driver."""

    def __init__(self) -> None:
        self.others: list[tuple[Any, ...]] = []
        """Tokens that need more columns: for ``write.new_tokens``."""
        self.consumed: list[tuple[int, str, int, bytes | None]] = []
        self.outputs: list[tuple[int, str, bytes]] = []
        self.advanced: list[tuple[int, int, int, int, float]] = []
        self._tokens: list[tuple[int, str, int, bytes]] = []
        self._token_shapes = Shapes()
        self._events: list[tuple[int, int, int, float, str | None, bytes | None]] = []
        self._event_shapes = Shapes()

    def spawn(self, row: TokenRow, flight: Flight, *, plain: bool) -> None:
        if not plain:
            self.others.append(new_token(flight.number, row, row.data, row.live))
            return
        shape = self._token_shapes.place(
            (
                row.state,
                row.scope,
                row.kind,
                row.node,
                row.queue,
                row.priority,
                row.live,
                row.ready_at,
                row.fence,
                row.owner,
            )
        )
        self._tokens.append((flight.number, row.id, shape, row.data))

    def record(self, event: tuple[Any, ...]) -> None:
        number, seq, kind, node, scope, at, token, arrived, expected, data = event
        shape = self._event_shapes.place((kind, node, scope, arrived, expected))
        self._events.append((number, seq, shape, at, token, data))

    def advance(self, flight: Flight) -> None:
        row = flight.row
        self.advanced.append((flight.number, row.epoch, row.seq, row.live, row.touched_at))

    def is_empty(self) -> bool:
        return not (self.consumed or self._tokens or self._events or self.outputs or self.advanced)

    def parameters(self) -> list[Any]:
        flights = columns(self.advanced, 5)
        return [*self.additions(), *(numbers(column) for column in flights)]

    def additions(self) -> list[Any]:
        """Return the columns without counters of executions."""
        executions, tokens, fences, digests = columns(self.consumed, 4)
        numbered, ids, shapes, data = columns(self._tokens, 4)
        happened, seqs, kinds, times, about, details = columns(self._events, 6)
        stored, outputs, results = columns(self.outputs, 3)
        return [
            numbers(executions),
            names(tokens),
            numbers(fences),
            digests,
            numbers(numbered),
            names(ids),
            numbers(shapes),
            data,
            *self._token_shapes.columns(TOKEN_SHAPE),
            numbers(happened),
            numbers(seqs),
            numbers(kinds),
            numbers(times),
            names(about),
            details,
            *self._event_shapes.columns(EVENT_SHAPE),
            numbers(stored),
            names(outputs),
            results,
        ]


NewExecutions = Collection[tuple[Flight, NewExecution]]
Mark = tuple[str, str | None, float | None]
"""The mark of what is published of a new execution: its id, who has claimed it, and until when."""

RECORD_SHAPE, FLIGHT_SHAPE = 11, 10
"""Columns that records and flights share with others."""


PATIENCE = "5s"
"""How long a start alone waits for another process that creates the same execution."""


def starts(created: NewExecutions, published: Sequence[Mark]) -> list[Any]:
    """Return the parameters of starts within a transaction, which has a lock timeout and writes the rest itself."""
    return _parameters(Steps(), created, {}, None, published)


def starts_alone(
    new: Steps, created: NewExecutions, machines: Mapping[int, MachineRow], published: Sequence[Mark]
) -> list[Any]:
    """Return the parameters of starts in one statement. ``new``: tokens, events and outputs."""
    return _parameters(new, created, machines, PATIENCE, published)


def _parameters(
    new: Steps,
    created: NewExecutions,
    machines: Mapping[int, MachineRow],
    patience: str | None,
    published: Sequence[Mark],
) -> list[Any]:
    return [
        *new.additions(),
        *_records(created),
        *_flights(created),
        *columns((_machine(*entry) for entry in machines.items()), 15),
        *_tags(created),
        patience,
        *columns(published, 3),
    ]


def _records(created: NewExecutions) -> list[Any]:
    shapes, rows = Shapes(), []
    for flight, new in created:
        row = flight.row
        shape = shapes.place(
            (
                new.workflow,
                new.version,
                new.definition,
                new.kind,
                row.state,
                new.priority,
                new.parent,
                new.relation,
                row.paused_at,
                row.ended_at,
                json.dumps(new.tags) if new.tags else "[]",
            )
        )
        key = new.idempotency_key
        rows.append(
            (flight.number, new.id, shape, new.created_at, key, row.error, row.context, row.output, new.input)
        )
    ours, ids, places, times, keys, errors, contexts, outputs, inputs = columns(rows, 9)
    given = numbers(ours), names(ids), numbers(places), numbers(times), names(keys)
    return [*given, errors, contexts, outputs, inputs, *shapes.columns(RECORD_SHAPE)]


def _flights(created: NewExecutions) -> list[Any]:
    shapes, rows = Shapes(), []
    for flight, _ in created:
        row = flight.row
        shape = shapes.place(
            (
                row.state,
                row.definition,
                row.epoch,
                row.seq,
                row.live,
                row.priority,
                row.paused_at,
                row.touched_at,
                row.ended_at,
                row.kind,
            )
        )
        rows.append((flight.number, row.id, shape, row.notify))
    ours, ids, places, notices = columns(rows, 4)
    return [numbers(ours), names(ids), numbers(places), notices, *shapes.columns(FLIGHT_SHAPE)]


def _tags(created: NewExecutions) -> list[Any]:
    return columns([(*tag, new.created_at, new.id) for _, new in created for tag in new.tags], 4)


def _machine(number: int, row: MachineRow) -> Parameters:
    return stored_machine(number, row, row.snapshot, bool)


def parameters(
    machines: Mapping[int, MachineRow],
    completions: Mapping[tuple[int, int], Completion],
    removed: Sequence[tuple[int, int]],
) -> list[Any]:
    """Return machines and completions as columns.

    ``machines`` are keyed by the numbers of their executions, with which the other keys begin; an inbox number
    follows. A machine without a snapshot has not run: only its counters are written.
    """
    saved = [_machine(number, row) for number, row in machines.items() if row.snapshot is not None]
    counted = [counted_machine(number, row, bool) for number, row in machines.items() if row.snapshot is None]
    came = [(*key, row.promise, row.ok, row.data) for key, row in completions.items()]
    return [*columns(saved, 15), *columns(counted, 9), *columns(came, 5), *columns(removed, 2)]
