"""Topological order (Kahn's algorithm), cycles, entries and unreachable nodes. Linear time, no recursion.

Scopes: the split in whose items a node runs, and the aggregator that collects them.

* A split opens a scope for the targets of its success edges. Its error edge stays outside.
* An aggregator closes the innermost scope around its inputs and is itself outside of it.
* A scope is named by the split that opens it, so one pass in topological order computes all scopes.
"""

from __future__ import annotations

from collections import deque

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


# -- topological order ---------------------------------------------------------------------------------------


MAX_CYCLES = 20
"""Cycles reported one by one. A user who fixes twenty runs the check again."""
MAX_PRINTED = 12
"""Nodes of one cycle that a message lists."""


def sort_topologically(draft: Draft, report: Report) -> bool:
    """Fill ``draft.order`` with the nodes that are on no cycle and behind none; return False if there is a cycle."""
    waiting = {node.id: len(node.ins) for node in draft.by_id.values()}
    ready = deque(node for node in draft.by_id.values() if not node.ins)
    order: list[DraftNode] = []
    cycles = 0
    _release(draft, ready, waiting, order)
    draft.order = order[:]
    while len(order) < len(draft.by_id):
        cycle = _cycle_behind(draft, waiting)
        _report_cycle(draft, cycle, report)
        cycles += 1
        if cycles == MAX_CYCLES:
            break
        # Treat the cycle as processed, so that the sort continues and finds the next one.
        for edge in cycle:
            del waiting[edge.src]
            ready.append(draft.by_id[edge.src])
        _release(draft, ready, waiting, order)
    return not cycles


def _release(draft: Draft, ready: deque[DraftNode], waiting: dict[str, int], order: list[DraftNode]) -> None:
    while ready:
        node = ready.popleft()
        waiting.pop(node.id, None)
        order.append(node)
        for edge in node.outs:
            left = waiting.get(edge.dst)
            if left is None:
                continue
            waiting[edge.dst] = left - 1
            if left == 1:
                ready.append(draft.by_id[edge.dst])


def _cycle_behind(draft: Draft, waiting: dict[str, int]) -> list[DraftEdge]:
    """Return a cycle. Every waiting node has a waiting source, so walking backwards reaches a node twice."""
    current = next(iter(waiting))
    path: list[DraftEdge] = []
    seen: dict[str, int] = {}
    while current not in seen:
        seen[current] = len(path)
        back = next(edge for edge in draft.by_id[current].ins if edge.src in waiting)
        path.append(back)
        current = back.src
    return path[seen[current] :][::-1]


def _report_cycle(draft: Draft, cycle: list[DraftEdge], report: Report) -> None:
    """Report a cycle from its first node in document order. The pointer is the edge that leads back to it."""
    places = {identifier: index for index, identifier in enumerate(draft.by_id)}
    first = min(range(len(cycle)), key=lambda index: places[cycle[index].src])
    cycle = cycle[first:] + cycle[:first]
    names = [edge.src for edge in cycle]
    if len(names) > MAX_PRINTED:
        names = [*names[: MAX_PRINTED - 2], f"… {len(cycle) - MAX_PRINTED + 1} more …", names[-1]]
    printed = " → ".join([*names, names[0]])
    message = f"These nodes wait for each other: {printed}; remove one of the edges."
    report.error(cycle[-1].pointer, "cycle", message)


def check_ends(draft: Draft, report: Report) -> None:
    """Check that the graph has a start and an end, and that every node can be reached."""
    nodes = draft.by_id.values()
    pointer = f"{draft.container}/nodes"
    if not draft.nodes:
        if not report.has_error_at(pointer):
            report.error(pointer, "no-nodes", "The graph has no nodes; give it at least one.")
        return
    if nodes and not any(not node.ins for node in nodes):
        report.error(pointer, "no-entry", "Every node has an input, so there is none to start at.")
    if nodes and all(node.outs for node in nodes):
        report.error(pointer, "no-exit", "Every node has an output, so there is none to end at.")
    triggers = [node for node in nodes if node.trigger]
    if triggers and len(triggers) == len(draft.nodes):
        message = "The graph holds only triggers: it completes as soon as it starts."
        report.warn(pointer, "trigger-only", message)
    elif triggers:
        _check_reach(draft, triggers, report)


def _check_reach(draft: Draft, triggers: list[DraftNode], report: Report) -> None:
    # Behind a reported problem reachability is unknown, so these nodes count as reached.
    stack = [*triggers, *(draft.by_id[name] for name in draft.orphaned if name in draft.by_id)]
    reached = {node.id for node in stack}
    while stack:
        for edge in stack.pop().outs:
            if edge.dst not in reached:
                reached.add(edge.dst)
                stack.append(draft.by_id[edge.dst])
    for node in draft.by_id.values():
        if node.id not in reached:
            message = f"Node '{node.id}' can never run: no trigger leads to it. Connect or remove it."
            report.error(node.pointer, "unreachable", message)


def entries_of(draft: Draft) -> tuple[tuple[str, ...], list[DraftEdge]]:
    """Return the ids of the entry nodes, and the triggers' edges that lead to them."""
    triggers = [node for node in draft.by_id.values() if node.trigger]
    if not triggers:
        return tuple(node.id for node in draft.by_id.values() if not node.ins), []
    edges = [edge for node in triggers for edge in node.outs]
    targets = {edge.dst for edge in edges}
    return tuple(identifier for identifier in draft.by_id if identifier in targets), edges
