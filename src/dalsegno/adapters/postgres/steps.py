"""What steps write: the hot path of every commit, as parameters of ``write.steps`` and ``write.held_steps``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dalsegno.adapters.postgres.arrays import Shapes, columns, names, numbers
from dalsegno.adapters.postgres.columns import new_token
from dalsegno.adapters.postgres.flight import Flight
from dalsegno.core.settlement import TokenRow

PLAIN_STATES = frozenset(("leased", "ready"))
"""In which tokens are born with few columns."""

TOKEN_SHAPE, EVENT_SHAPE = 10, 5
"""Columns that tokens, and events, have in common with others."""


def is_plain(row: TokenRow) -> bool:
    return (
        row.state in PLAIN_STATES
        and row.limit_key is None
        and row.barrier is None
        and not row.reason
        and row.due is None
    )


def is_asleep(row: TokenRow) -> bool:
    """Whether a stored token was put to sleep, and nothing but its time wakes it."""
    return row.state == "parked" and row.limit_key is None and row.barrier is None and row.awaits is None


def rests(tokens: Mapping[tuple[int, str], tuple[TokenRow, int]]) -> list[Any]:
    """Tokens that sleep, with the fences they are stored with, as parameters of ``write.held_stops``."""
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
            self.others.append(new_token(flight, row))
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
        """Without counters of executions."""
        executions, tokens, fences, digests = columns(self.consumed, 4)
        born, ids, shapes, data = columns(self._tokens, 4)
        happened, seqs, kinds, times, about, told = columns(self._events, 6)
        stored, outputs, results = columns(self.outputs, 3)
        return [
            numbers(executions),
            names(tokens),
            numbers(fences),
            digests,
            numbers(born),
            names(ids),
            numbers(shapes),
            data,
            *self._token_shapes.columns(TOKEN_SHAPE),
            numbers(happened),
            numbers(seqs),
            numbers(kinds),
            numbers(times),
            names(about),
            told,
            *self._event_shapes.columns(EVENT_SHAPE),
            numbers(stored),
            names(outputs),
            results,
        ]
