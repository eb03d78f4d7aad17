"""What a run comes to, and whether two runs came to the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dalsegno import App
from dalsegno.core.values import decode_value
from dalsegno.handle import Handle
from dalsegno.testing.histories import Asked
from dalsegno.testing.stored_histories import stored_problems
from tests.chaos.workload import DOCUMENTS, payload, register

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


def check_histories(app: App, asked: Mapping[str, Asked] | None = None) -> None:
    """Of every execution in the store: each event once for what it tells."""
    found = app.host.call(stored_problems(app.client, asked))
    assert not found, f"{len(found)} inconsistencies:\n" + "\n".join(found[:20])
