"""The ledger's rules as pure functions over rows.

A store fetches rows into a workspace, calls :func:`settle` per transition and writes back what changed (memory, SQLite,
PostgreSQL). One that decides inside a server (Redis) restates the same rules in Lua and proves it with the same
contract suite.
"""

from dalsegno.core.settlement.cancelling import cancelled_event
from dalsegno.core.settlement.claim import claimable, release_row, resume_execution, wake_row
from dalsegno.core.settlement.rows import (
    BarrierRow,
    ExecutionRow,
    GateRow,
    MachineRow,
    ScopeRow,
    SignalRow,
    TokenRow,
)
from dalsegno.core.settlement.settle import settle
from dalsegno.core.settlement.views import barrier_view, lease_of, machine_view, ready_token, token_view
from dalsegno.core.settlement.workspace import Kept, Workspace

__all__ = [
    "BarrierRow",
    "ExecutionRow",
    "GateRow",
    "Kept",
    "MachineRow",
    "ScopeRow",
    "SignalRow",
    "TokenRow",
    "Workspace",
    "barrier_view",
    "cancelled_event",
    "claimable",
    "lease_of",
    "machine_view",
    "ready_token",
    "release_row",
    "resume_execution",
    "settle",
    "token_view",
    "wake_row",
]
