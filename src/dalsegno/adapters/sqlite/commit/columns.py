"""Rows as parameters of the statements that write them, in the order of their placeholders."""

from __future__ import annotations

import itertools
import json

from dalsegno.adapters.rows import Parameters, token_changes
from dalsegno.adapters.sqlite.commit.flight import Flight
from dalsegno.core.settlement import GateRow, ScopeRow, SignalRow, TokenRow
from dalsegno.model.execution import NewExecution

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
