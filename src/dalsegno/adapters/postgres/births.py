"""What starts write, as parameters of ``write.starts``."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from dalsegno.adapters.postgres.arrays import Shapes, columns, names, numbers
from dalsegno.adapters.postgres.columns import stored_machine
from dalsegno.adapters.postgres.flight import Flight
from dalsegno.adapters.postgres.steps import Steps
from dalsegno.core.settlement import MachineRow
from dalsegno.model.execution import NewExecution

Births = Collection[tuple[Flight, NewExecution]]

RECORD_SHAPE, FLIGHT_SHAPE = 11, 10
"""Columns that records, and flights, have in common with others."""


PATIENCE = "5s"
"""For which a start alone waits for another process that makes the same execution."""


def starts(births: Births) -> list[Any]:
    """In a transaction, which has its own patience and writes all else by itself."""
    return _parameters(Steps(), births, {}, None)


def starts_alone(new: Steps, births: Births, machines: Mapping[int, MachineRow]) -> list[Any]:
    """All in one. ``new``: tokens, events and outputs."""
    return _parameters(new, births, machines, PATIENCE)


def _parameters(
    new: Steps, births: Births, machines: Mapping[int, MachineRow], patience: str | None
) -> list[Any]:
    return [
        *new.additions(),
        *_records(births),
        *_flights(births),
        *columns((stored_machine(*entry) for entry in machines.items()), 15),
        *_tags(births),
        patience,
    ]


def _records(births: Births) -> list[Any]:
    shapes, rows = Shapes(), []
    for flight, new in births:
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


def _flights(births: Births) -> list[Any]:
    shapes, rows = Shapes(), []
    for flight, _ in births:
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


def _tags(births: Births) -> list[Any]:
    return columns([(*tag, new.created_at, new.id) for _, new in births for tag in new.tags], 4)
