"""The states of executions and nodes and their legal moves.

The diagrams in the documentation are drawn from these tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dalsegno.model.execution import ExecutionState, NodeState

EXECUTION_MOVES: Mapping[ExecutionState, tuple[ExecutionState, ...]] = {
    "PENDING": ("RUNNING", "FAILED", "CANCELLED"),
    "RUNNING": ("PAUSED", "COMPLETED", "FAILED", "CANCELLED"),
    "PAUSED": ("RUNNING", "COMPLETED", "FAILED", "CANCELLED"),
    "COMPLETED": (),
    "FAILED": (),
    "CANCELLED": (),
}
"""PENDING → FAILED: its definition is gone when its time comes. PAUSED → COMPLETED or FAILED: steps that run when
the pause begins still commit, and may be the last.
"""

NODE_MOVES: Mapping[NodeState, tuple[NodeState, ...]] = {
    "PENDING": ("QUEUED", "WAITING", "SKIPPED"),
    "QUEUED": ("RUNNING", "CANCELLED"),
    "RUNNING": ("COMPLETED", "FAILED", "WAITING", "QUEUED", "CANCELLED"),
    "WAITING": ("QUEUED", "SKIPPED", "CANCELLED"),
    "COMPLETED": (),
    "FAILED": (),
    "SKIPPED": (),
    "CANCELLED": (),
}
"""RUNNING → WAITING: a wait, or the delay before a retry. RUNNING → QUEUED: its worker died."""

PRECEDENCE: tuple[NodeState, ...] = (
    "RUNNING",
    "QUEUED",
    "WAITING",
    "FAILED",
    "CANCELLED",
    "COMPLETED",
    "SKIPPED",
    "PENDING",
)
"""A node's summary over its visits and items is the first of these that is present."""


def summary_of(states: Iterable[NodeState]) -> NodeState:
    present = set(states)
    return next((state for state in PRECEDENCE if state in present), "PENDING")
