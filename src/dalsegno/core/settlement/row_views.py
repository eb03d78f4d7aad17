"""Views of rows as the ports show them, for the stores that keep rows of this kind."""

from __future__ import annotations

from collections.abc import Iterable

from dalsegno.core.settlement.rows import BarrierRow, ExecutionRow, MachineRow, SignalRow, TokenRow
from dalsegno.model.barrier import BarrierView
from dalsegno.model.machine import Completion, MachineView, SignalView
from dalsegno.model.token import Lease, TokenView
from dalsegno.model.transition import ReadyToken


def token_view(row: TokenRow) -> TokenView:
    return TokenView(
        row.id,
        row.scope,
        row.kind,
        row.node,
        row.state,
        row.queue,
        row.priority,
        row.limit_key,
        bool(row.live),
        row.attempt,
        row.losses,
        row.reason,
        row.due,
        row.owner,
        row.fence,
        row.data,
        row.awaits,
        row.allowance,
        row.ready_at if row.state in ("ready", "held") else None,
    )


def barrier_view(row: BarrierRow) -> BarrierView:
    return BarrierView(
        row.id,
        row.scope,
        row.node,
        row.state,
        row.mode,
        row.expected,
        row.resolved,
        row.live,
        row.deadline,
    )


def ready_token(row: TokenRow) -> ReadyToken:
    return ReadyToken(row.id, row.execution, row.queue, row.priority)


def lease_of(token: TokenRow, execution: ExecutionRow) -> Lease:
    return Lease(
        token.id,
        token.execution,
        token.fence,
        token.scope,
        token.kind,
        token.node,
        token.data,
        token.queue,
        token.priority,
        token.attempt,
        token.losses,
        token.reason,
        token.ready_at,
        execution.definition,
        execution.epoch,
        bool(token.live),
        execution.kind,
    )


def machine_view(
    row: MachineRow, completions: Iterable[Completion], signals: Iterable[SignalRow]
) -> MachineView:
    """Return the machine's view; ``completions`` and ``signals`` are in the order of their numbers."""
    waiting = (
        SignalView(signal.id, signal.name, signal.data, signal.number, signal.place) for signal in signals
    )
    return MachineView(
        row.version,
        row.snapshot or b"",
        row.reachable,
        row.wake,
        row.inbox,
        row.read,
        row.line,
        row.cancel,
        bool(row.interrupted),
        tuple(completions),
        tuple(waiting),
    )
