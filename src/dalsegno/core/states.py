"""The states of executions and nodes and their legal moves: the one place where they are written down.

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
"""PENDING → FAILED: what it was to run is gone when its time comes. PAUSED → COMPLETED or FAILED: steps that run when
the pause begins still commit, and may be the last."""

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


def may_move(moves: Mapping[str, tuple[str, ...]], before: str, after: str) -> bool:
    return after in moves[before]


def mermaid(moves: Mapping[str, tuple[str, ...]]) -> str:
    """The table as a state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {next(iter(moves))}"]
    for before, targets in moves.items():
        lines += [f"    {before} --> {after}" for after in targets]
        if not targets:
            lines.append(f"    {before} --> [*]")
    return "\n".join(lines)
