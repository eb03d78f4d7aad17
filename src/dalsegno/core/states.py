"""The states of executions and nodes: their legal moves, and what history and live tokens say about each node and task.

The diagrams in the documentation are drawn from the tables of moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from dalsegno.graph.plan import Plan
from dalsegno.model.event import Event
from dalsegno.model.execution import ENDED, ExecutionState, ExecutionView, NodeState
from dalsegno.model.token import TokenView

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


# -- nodes of a graph ------------------------------------------------------------------------------------------


_NODE_ENDINGS: dict[str, NodeState] = {
    "NodeCompleted": "COMPLETED",
    "NodeFailed": "FAILED",
    "NodeSkipped": "SKIPPED",
    "NodeCancelled": "CANCELLED",
}

_LIVE: dict[str, NodeState] = {"ready": "QUEUED", "held": "QUEUED", "leased": "RUNNING", "parked": "WAITING"}


class NodeSummary(Struct, frozen=True):
    state: NodeState
    runs: int
    """Number of committed runs, not of attempts."""
    failed: int = 0
    waiting: int = 0
    due: float | None = None


class NodeTally:
    """Counts events incrementally, so that following an execution does not mean reading its history again."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.seen: dict[str, set[NodeState]] = {name: set() for name in plan.nodes}
        self.runs = dict.fromkeys(plan.nodes, 0)
        self.failed = dict.fromkeys(plan.nodes, 0)

    def add(self, events: Iterable[Event]) -> None:
        for event in events:
            state = _NODE_ENDINGS.get(event.kind)
            if state is not None and event.node in self.seen:
                self.seen[event.node].add(state)
                self.runs[event.node] += _is_run(event)
                self.failed[event.node] += event.kind == "NodeFailed"

    def summaries(self, execution: ExecutionView, tokens: Iterable[TokenView]) -> dict[str, NodeSummary]:
        """Return every node's state from the events counted so far and these live tokens."""
        states = {name: set(seen) for name, seen in self.seen.items()}
        waiting = dict.fromkeys(states, 0)
        due: dict[str, float] = {}
        for token in tokens:
            _add_token(execution, token, states, waiting, due)
        _add_unvisited(self.plan, execution, states)
        return {
            name: NodeSummary(
                summary_of(found), self.runs[name], self.failed[name], waiting[name], due.get(name)
            )
            for name, found in states.items()
        }


def summarise(
    plan: Plan, execution: ExecutionView, events: Iterable[Event], tokens: Iterable[TokenView]
) -> dict[str, NodeSummary]:
    tally = NodeTally(plan)
    tally.add(events)
    return tally.summaries(execution, tokens)


def _add_token(
    execution: ExecutionView,
    token: TokenView,
    states: dict[str, set[NodeState]],
    waiting: dict[str, int],
    due: dict[str, float],
) -> None:
    if token.kind not in ("node", "join") or token.node not in states or not token.live:
        return
    if execution.state in ENDED:
        states[token.node].add("CANCELLED")
        return
    state = _LIVE[token.state]
    states[token.node].add(state)
    if state == "WAITING":
        waiting[token.node] += 1
        if token.due is not None:
            due[token.node] = min(token.due, due.get(token.node, token.due))


def _add_unvisited(plan: Plan, execution: ExecutionView, states: dict[str, set[NodeState]]) -> None:
    """Add nodes without events.

    Triggers have fired by definition; a node that a completed execution never reached was skipped.
    """
    for name in plan.triggers if execution.state != "PENDING" else ():
        states[name].add("COMPLETED")
    if execution.state == "COMPLETED":
        for found in states.values():
            if not found:
                found.add("SKIPPED")


def _is_run(event: Event) -> bool:
    """Return False for a split that fails because of an item: its run was counted when it opened its items."""
    if event.kind == "NodeFailed":
        return event.data is None or b'"tripped":true' not in event.data
    return event.kind == "NodeCompleted"


# -- tasks of a script -----------------------------------------------------------------------------------------


_TASK_ENDINGS: dict[str, NodeState] = {
    "TaskCompleted": "COMPLETED",
    "TaskFailed": "FAILED",
    "TaskCancelled": "CANCELLED",
    "TaskHandedOver": "RUNNING",
    "ChildEnded": "COMPLETED",
}


class TaskTally:
    """Counts events incrementally; the same shape as for the nodes of a graph."""

    def __init__(self) -> None:
        self.seen: dict[str, set[NodeState]] = {}
        self.runs: dict[str, int] = {}
        self.failed: dict[str, int] = {}
        self.children: dict[str, int] = {}
        """Started and not known to have ended."""

    def add(self, events: Iterable[Event]) -> None:
        for event in events:
            if event.kind in ("ChildStarted", "ChildEnded"):
                self._count_child(event)
            state = _TASK_ENDINGS.get(event.kind)
            if state is None:
                continue
            if event.kind == "ChildEnded" and event.data is not None and b'"error":null' not in event.data:
                state = "FAILED"
            self.seen.setdefault(event.node, set()).add(state)
            self.runs[event.node] = self.runs.get(event.node, 0) + (state in ("COMPLETED", "FAILED"))
            self.failed[event.node] = self.failed.get(event.node, 0) + (state == "FAILED")

    def _count_child(self, event: Event) -> None:
        """Count an event of a child. The end of a detached child has no event."""
        if event.data is None or b'"detached":true' not in event.data:
            change = 1 if event.kind == "ChildStarted" else -1
            self.children[event.node] = self.children.get(event.node, 0) + change

    def summaries(self, execution: ExecutionView, tokens: Iterable[TokenView]) -> dict[str, NodeSummary]:
        states = {name: set(seen) for name, seen in self.seen.items()}
        waiting: dict[str, int] = {}
        due: dict[str, float] = {}
        for name, running in self.children.items():
            if running > 0 and execution.state not in ENDED:
                states.setdefault(name, set()).add("RUNNING")
        for token in tokens:
            if token.kind != "task" or token.state not in _LIVE:
                continue
            live = _LIVE[token.state] if execution.state not in ENDED else "CANCELLED"
            states.setdefault(token.node, set()).add(live)
            if live == "WAITING":
                waiting[token.node] = waiting.get(token.node, 0) + 1
                if token.due is not None:
                    due[token.node] = min(token.due, due.get(token.node, token.due))
        return {
            name: NodeSummary(
                summary_of(seen),
                self.runs.get(name, 0),
                self.failed.get(name, 0),
                waiting.get(name, 0),
                due.get(name),
            )
            for name, seen in states.items()
        }
