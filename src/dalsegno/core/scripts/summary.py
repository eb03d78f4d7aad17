"""The state of every task of a script, by name, folded from its history and its live tokens."""

from __future__ import annotations

from collections.abc import Iterable

from dalsegno.core.graph.summary import NodeSummary
from dalsegno.core.states import summary_of
from dalsegno.model.event import Event
from dalsegno.model.execution import ENDED, ExecutionView, NodeState
from dalsegno.model.token import TokenView

_ENDINGS: dict[str, NodeState] = {
    "TaskCompleted": "COMPLETED",
    "TaskFailed": "FAILED",
    "TaskCancelled": "CANCELLED",
    "TaskHandedOver": "RUNNING",
    "ChildEnded": "COMPLETED",
}
_LIVE: dict[str, NodeState] = {"ready": "QUEUED", "held": "QUEUED", "leased": "RUNNING", "parked": "WAITING"}


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
            state = _ENDINGS.get(event.kind)
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
