"""Rows as the ports show them."""

from __future__ import annotations

from msgspec.structs import replace

from dalsegno.adapters.memory.store import MemoryExecution
from dalsegno.model.execution import ExecutionView


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
        kind=row.kind,
    )


def outline(execution: MemoryExecution) -> ExecutionView:
    view = execution_view(execution)
    size = sum(len(value) for value in (view.input, view.output, view.context) if value is not None)
    return replace(view, input=b"null", output=None, context=None, value_bytes=size)
