"""Rows as the ports show them."""

from __future__ import annotations

from dalsegno.adapters.memory.store import MemoryExecution
from dalsegno.core.settlement import BarrierRow, TokenRow
from dalsegno.model.barrier import BarrierView
from dalsegno.model.execution import ExecutionView
from dalsegno.model.token import TokenView


def execution_view(execution: MemoryExecution) -> ExecutionView:
    row, new = execution.row, execution.new
    return ExecutionView(
        id=row.id,
        workflow=new.workflow,
        version=new.version,
        definition=new.definition,
        state=row.state,
        input=new.input,
        created_at=new.created_at,
        touched_at=row.touched_at,
        epoch=row.epoch,
        live=row.live,
        seq=row.seq,
        priority=row.priority,
        tags=new.tags,
        idempotency_key=new.idempotency_key,
        parent=new.parent,
        relation=new.relation,
        paused_at=row.paused_at,
        ended_at=row.ended_at,
        output=row.output,
        context=row.context,
        error=row.error,
    )


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
        row.live,
        row.attempt,
        row.losses,
        row.reason,
        row.due,
        row.owner,
        row.fence,
        row.data,
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
