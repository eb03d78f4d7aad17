"""Scopes: the split in whose items a node runs, and the aggregator that collects them.

* A split opens a scope for the targets of its success edges. Its error edge stays outside.
* An aggregator closes the innermost scope around its inputs and is itself outside of it.
* A scope is named by the split that opens it, so one pass in topological order computes all scopes.
"""

from __future__ import annotations

from dalsegno.graph.documents.draft import Draft, DraftEdge, DraftNode
from dalsegno.graph.documents.findings import Report


def assign_scopes(draft: Draft, report: Report) -> None:
    for node in draft.order:
        sources = [(edge, draft.by_id[edge.src]) for edge in node.ins]
        scopes = {_scope_behind(edge, source): edge for edge, source in sources if source.scoped}
        if sources and not scopes:
            node.scoped = False
        elif node.control == "aggregator":
            _close(draft, node, scopes, report)
        elif len(scopes) > 1:
            node.scoped = False
            _report_two_scopes(node, scopes, report)
        elif scopes:
            node.split = next(iter(scopes))
        if node.split is not None:
            node.depth = draft.by_id[node.split].depth + 1


def _scope_behind(edge: DraftEdge, source: DraftNode) -> str | None:
    return source.id if source.control == "split" and not edge.is_error else source.split


def _close(draft: Draft, node: DraftNode, scopes: dict[str | None, DraftEdge], report: Report) -> None:
    inner = next((scope for scope in scopes if scope is not None), None)
    if inner is None:
        node.scoped = False
        message = f"The aggregator '{node.id}' is outside any split; it needs a split before it."
        report.error(node.pointer, "aggregator-outside-split", message)
        return
    if len(scopes) > 1:
        node.scoped = False
        _report_mixed_inputs(node, scopes, report)
        return
    split = draft.by_id[inner]
    node.split = split.split
    if split.aggregator is not None:
        message = (
            f"Both '{split.aggregator}' and '{node.id}' would collect the items of split '{inner}'; "
            "let its branches meet in one aggregator."
        )
        report.error(node.pointer, "ambiguous-aggregator", message)
        return
    split.aggregator = node.id
    node.collects = inner


def _report_mixed_inputs(node: DraftNode, scopes: dict[str | None, DraftEdge], report: Report) -> None:
    named = " and ".join(_place(scope) for scope in scopes)
    message = (
        f"The aggregator '{node.id}' is reached from {named}; all its inputs must come from inside one split."
    )
    report.error(list(scopes.values())[-1].pointer, "aggregator-from-outside", message)


def _report_two_scopes(node: DraftNode, scopes: dict[str | None, DraftEdge], report: Report) -> None:
    named = " and ".join(_place(scope) for scope in scopes)
    message = (
        f"Node '{node.id}' is reached from {named}; a node belongs to one of them. "
        "Put an aggregator between, or use two nodes."
    )
    report.error(node.pointer, "two-scopes", message)


def _place(scope: str | None) -> str:
    return "outside any split" if scope is None else f"inside split '{scope}'"


def encloses(draft: Draft, outer: str | None, inner: str | None) -> bool:
    """Return True if nodes in scope ``outer`` are visible in scope ``inner``."""
    while inner is not None and inner != outer:
        inner = draft.by_id[inner].split
    return inner == outer
