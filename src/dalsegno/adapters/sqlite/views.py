"""Rows of the cold tables as the ports show them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from dalsegno.core.settlement import MachineRow
from dalsegno.model.execution import ExecutionView
from dalsegno.model.machine import Completion, MachineView, Ranges, SignalView, Wake

TAGS = 12
"""Position of the tags in ``execution_view``, whose columns are ExecutionView's."""


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
