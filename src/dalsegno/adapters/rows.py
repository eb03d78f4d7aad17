"""Rows of SQL stores: read as views and as rows of the settlement rules, and written as parameters
of statements.

Statements of both stores name their columns in the order used here. What depends on the driver (how
truth values, payloads and lists of rows are passed) is in the store's own ``commit/columns.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import msgspec

from dalsegno.core.settlement import BarrierRow, ExecutionRow, MachineRow, TokenRow
from dalsegno.model.execution import ExecutionView
from dalsegno.model.limits import Allowance, Rate
from dalsegno.model.machine import Completion, MachineView, Ranges, SignalView, Wake

Parameters: TypeAlias = tuple[Any, ...]
Flag: TypeAlias = Callable[[bool], Any]
"""How the driver takes a truth value: ``bool`` or ``int``."""

TAGS = ExecutionView.__struct_fields__.index("tags")
"""The column of ``execution_view`` whose text is parsed. Its columns are the fields of
ExecutionView.
"""

_read_ranges = msgspec.json.Decoder(Ranges)
_read_wake = msgspec.json.Decoder(Wake)
_encode = msgspec.json.encode


# -- reading


def execution_view(row: Sequence[Any]) -> ExecutionView:
    columns = list(row)
    columns[TAGS] = tuple((name, value) for name, value in json.loads(row[TAGS]))
    return ExecutionView(*columns)


def machine_row(execution: str, row: Sequence[Any]) -> MachineRow:
    """Return a machine without its snapshot, from a row that begins with the execution's number."""
    _number, version, reachable, wake, *rest = row
    ranges, condition = _read_ranges.decode(reachable), _read_wake.decode(wake)
    return MachineRow(execution, version, None, ranges, condition, *rest)


def machine_view(
    row: Sequence[Any], completions: Iterable[Sequence[Any]], signals: Iterable[Sequence[Any]]
) -> MachineView:
    """Return a machine as a resume reads it: its own row, its inbox and its mailbox."""
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


def allowance(concurrency: int | None, starts: int | None, period: float | None) -> Allowance:
    """Return the rule of a limit key from its columns; a rate has both starts and a period."""
    rate = Rate(starts, period) if starts is not None and period is not None else None
    return Allowance(concurrency, rate)


def rule_columns(rule: Allowance) -> tuple[int | None, int | None, float | None]:
    rate = rule.rate
    return rule.concurrency, *((rate.starts, rate.period) if rate is not None else (None, None))


# -- writing


def flight_columns(number: int, row: ExecutionRow) -> Parameters:
    """Return the counters and times of an execution whose state changes."""
    return number, row.state, row.epoch, row.seq, row.live, row.touched_at, row.paused_at, row.ended_at


def new_token(execution: int, row: TokenRow, data: bytes | bytearray, live: bool | int) -> Parameters:
    """Return every column of a new token but its number and turn; ``data`` and ``live`` as the driver takes them."""
    return (
        execution,
        row.id,
        row.scope,
        row.kind,
        row.node,
        data,
        row.priority,
        live,
        row.limit_key,
        row.allowance,
        *token_changes(row),
    )


def token_changes(row: TokenRow) -> Parameters:
    """Return what may change of a stored token, except for its data."""
    return (
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
    )


def new_line(row: TokenRow) -> Parameters:
    return row.queue, row.limit_key, row.priority, row.ready_at


def line_up(lines: dict[tuple[str, str], TokenRow], row: TokenRow, key: str) -> None:
    """Note a ready token with a limit key: of each queue and key, the one of the highest priority."""
    known = lines.get((row.queue, key))
    if known is None or known.priority < row.priority:
        lines[row.queue, key] = row


def stored_barrier(name: tuple[int, str], row: BarrierRow) -> Parameters:
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


def stored_machine(
    number: int, row: MachineRow, snapshot: bytes | bytearray | None, flag: Flag
) -> Parameters:
    return (
        number,
        row.version,
        row.inbox,
        row.read,
        row.unread,
        row.last_success,
        row.last_failure,
        row.kept,
        flag(row.resuming),
        row.cancel,
        flag(row.interrupted),
        row.line,
        _encode(row.wake).decode(),
        _encode(row.reachable).decode(),
        snapshot,
    )


def counted_machine(number: int, row: MachineRow, flag: Flag) -> Parameters:
    """Return the counters of a machine that has not run."""
    return (
        number,
        row.version,
        row.inbox,
        row.unread,
        row.last_success,
        row.last_failure,
        row.kept,
        flag(row.resuming),
        row.cancel,
    )
