"""The state of every node of an execution, folded from its history and its live tokens."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from dalsegno.core.states import summary_of
from dalsegno.graph.plan import Plan
from dalsegno.model.event import Event
from dalsegno.model.execution import ENDED, ExecutionView, NodeState
from dalsegno.model.token import TokenView

_ENDINGS: dict[str, NodeState] = {
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


class Tally:
    """Counts events incrementally, so that following an execution does not mean reading its history again."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.seen: dict[str, set[NodeState]] = {name: set() for name in plan.nodes}
        self.runs = dict.fromkeys(plan.nodes, 0)
        self.failed = dict.fromkeys(plan.nodes, 0)

    def add(self, events: Iterable[Event]) -> None:
        for event in events:
            state = _ENDINGS.get(event.kind)
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
    tally = Tally(plan)
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
