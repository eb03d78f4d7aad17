"""Rows as the ports show them."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from dalsegno.adapters.postgres.store import Row
from dalsegno.model.execution import ExecutionView
from dalsegno.model.machine import Completion, MachineView, Ranges, SignalView, Wake

TAGS = 12
"""Position of the tags in ``execution_view``, whose columns are ExecutionView's."""

_read_ranges = msgspec.json.Decoder(Ranges)
_read_wake = msgspec.json.Decoder(Wake)


def execution_view(row: Row) -> ExecutionView:
    columns = list(row)
    columns[TAGS] = tuple((name, value) for name, value in json.loads(row[TAGS]))
    return ExecutionView(*columns)


def machine_view(row: Row, completions: Sequence[Row], signals: Sequence[Row]) -> MachineView:
    """From ``look.machine``, ``look.inbox`` and ``look.mailbox``."""
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
        interrupted,
        tuple(Completion(*completion) for completion in completions),
        tuple(SignalView(*signal) for signal in signals),
    )
