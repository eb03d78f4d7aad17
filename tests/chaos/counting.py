"""What a run comes to, and whether two runs came to the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

from dalsegno import App
from dalsegno.core.values import decode_value
from dalsegno.handle import Handle
from tests.chaos.workload import DOCUMENTS, payload, register
from tests.scenarios.stage import all_events

Outcome = tuple[str, Any, dict[str, Any], dict[str, tuple[str, int]]]


def outcome(handle: Handle) -> Outcome:
    """State, output, context (without times), node states and runs."""
    view = handle.status()
    output = decode_value(view.output) if view.output is not None else None
    context = {key: value for key, value in handle.context().items() if not key.startswith("$w")}
    nodes = {name: (node.state, node.runs) for name, node in handle.nodes().items()}
    return view.state, output, context, nodes


def expected(starts: dict[str, tuple[str, int]]) -> dict[str, Outcome]:
    """The same executions in memory, where nothing dies."""
    app = register(App("memory:"), moment=0)
    with app.running():
        for document in DOCUMENTS.values():
            app.deploy(document)
        handles = {key: app.start(name, payload(number)) for key, (name, number) in starts.items()}
        for handle in handles.values():
            handle.wait(30)
        return {key: outcome(handle) for key, handle in handles.items()}


def check_history(handle: Handle) -> None:
    """Ended once; every token committed once; nothing after the end but what the sweep records."""
    events = all_events(handle)
    endings = [event.kind for event in events if event.kind.startswith("Execution")]
    assert endings == ["ExecutionStarted", "ExecutionCompleted"], endings
    runs = Counter(event.token for event in events if event.kind in ("NodeCompleted", "NodeFailed"))
    twice = {token: count for token, count in runs.items() if count > 1 and token is not None}
    assert not twice, f"tokens committed more than once: {twice}"
