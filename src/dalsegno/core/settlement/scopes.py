"""Scopes: when they are closed, how they end."""

from __future__ import annotations

from dalsegno.core.settlement.workspace import Workspace
from dalsegno.model.ids import scope_chain


def is_closed(rows: Workspace, execution: str, scope: str) -> bool:
    """A scope is closed once it, a scope around it, or the barrier any of them feeds has ended (L5)."""
    for path in scope_chain(scope):
        row = rows.scope(execution, path)
        if row is None or row.ended:
            return True
        barrier = rows.barrier(execution, row.barrier)
        if barrier is None or barrier.state != "waiting":
            return True
    return False
