"""Rows as tuples, in the order of the arrays of the statements that write them."""

from __future__ import annotations

from typing import Any

import msgspec

from dalsegno.adapters.postgres.flight import Flight
from dalsegno.core.settlement import BarrierRow, MachineRow, TokenRow

Columns = tuple[Any, ...]
encode = msgspec.json.encode


def moved_flight(flight: Flight) -> Columns:
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
        row.output,
        row.context,
        row.error,
    )


def ending(flight: Flight) -> Columns:
    """Nothing but NULL for one that goes on."""
    row = flight.row
    if row.ended_at is None:
        return (None,) * 5
    return row.state, row.ended_at, row.output, row.context, row.error


def plain_token(flight: Flight, row: TokenRow) -> Columns:
    return (
        flight.number,
        row.id,
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
        row.data,
    )


def new_token(flight: Flight, row: TokenRow) -> Columns:
    return (
        *plain_token(flight, row),
        row.due,
        row.attempt,
        row.losses,
        row.reason,
        row.barrier,
        row.limit_key,
        row.digest,
        row.awaits,
        row.allowance,
    )


def changed_token(name: tuple[int, str], row: TokenRow, fence_before: int, target: int) -> Columns:
    return (
        *name,
        fence_before,
        target,
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
        row.data,
    )


def new_line(row: TokenRow) -> Columns:
    return row.queue, row.limit_key, row.priority, row.ready_at


def stored_barrier(name: tuple[int, str], row: BarrierRow) -> Columns:
    return (
        *name,
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


def changed_barrier(name: tuple[int, str], row: BarrierRow) -> Columns:
    return *name, row.state, row.resolved, row.live, row.deadline, row.milestone_at, row.milestone_token


def stored_machine(number: int, row: MachineRow) -> Columns:
    return (
        number,
        row.version,
        row.inbox,
        row.read,
        row.unread,
        row.last_success,
        row.last_failure,
        row.kept,
        row.resuming,
        row.cancel,
        row.interrupted,
        row.line,
        encode(row.wake).decode(),
        encode(row.reachable).decode(),
        row.snapshot,
    )


def counted_machine(number: int, row: MachineRow) -> Columns:
    return (
        number,
        row.version,
        row.inbox,
        row.unread,
        row.last_success,
        row.last_failure,
        row.kept,
        row.resuming,
        row.cancel,
    )
