"""The ledger's rules as pure functions over rows.

A store fetches rows into a workspace, calls :func:`settle` per transition and writes back what changed.
"""

from dalsegno.core.settlement.claims import claimable, release_row, resume_execution, wake_row
from dalsegno.core.settlement.rows import (
    BarrierRow,
    ExecutionRow,
    GateRow,
    MachineRow,
    ScopeRow,
    SignalRow,
    TokenRow,
    barrier_view,
    is_marked,
    lease_of,
    machine_view,
    ready_token,
    token_view,
)
from dalsegno.core.settlement.settle import LARGE, settle, settle_in_parts
from dalsegno.core.settlement.workspace import Kept, Workspace, cancelled_event

__all__ = [
    "LARGE",
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
    "is_marked",
    "lease_of",
    "machine_view",
    "ready_token",
    "release_row",
    "resume_execution",
    "settle",
    "settle_in_parts",
    "token_view",
    "wake_row",
]
