"""Rows of the cold tables as the ports show them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from io import BytesIO
from typing import Any

import msgspec

from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.core.settlement import MachineRow
from dalsegno.model.execution import ExecutionView
from dalsegno.model.machine import Completion, MachineView, Ranges, SignalView, Wake

INPUT, TAGS, OUTPUT = 5, 12, 18
"""Positions in ``execution_view``, whose columns are ExecutionView's."""
LARGE = 1024 * 1024
"""Bytes of a value that is read piece by piece. In one piece, SQLite would have a copy of it beside ours."""
PIECE = 512 * 1024


def whole_row(connection: sqlite3.Connection, execution: str) -> tuple[Any, ...] | None:
    """Of ``execution_view``, within a transaction."""
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
    found = BytesIO()  # which gives away its own buffer
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
    """From ``machine.one``: what the rules work on, without the snapshot."""
    _number, version, reachable, wake, *rest = row
    ranges, condition = _read_ranges.decode(reachable), _read_wake.decode(wake)
    return MachineRow(execution, version, None, ranges, condition, *rest)


def machine_view(
    row: tuple[Any, ...], completions: Iterable[tuple[Any, ...]], signals: Iterable[tuple[Any, ...]]
) -> MachineView:
    """From ``machine.of``, ``machine.inbox_of`` and ``machine.mailbox_of``."""
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
