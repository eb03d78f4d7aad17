"""How often nodes may run within their scope: multiple, gates, forks, solitary nodes, and the losers of an ``any``
merge.

The analysis looks at one scope at a time. A split, its region and its aggregator count as one node there;
`successors` and `predecessors` hide the region.
"""

from __future__ import annotations

from collections.abc import Iterator

from dalsegno.graph.documents.draft import Draft, DraftNode
from dalsegno.graph.documents.findings import Report


def analyse_runs(draft: Draft, report: Report) -> None:
    single_start = _tokens_at_start(draft) == 1
    for node in draft.order:
        node.forks = _forks(node)
        node.multiple = _multiple(draft, node)
        node.solitary = _solitary(draft, node, single_start=single_start)
    _mark_gates(draft)
    for node in draft.order:
        if node.join == "any" and node.cancels_losers:
            node.losers = _losers(draft, node)
        if node.control == "merge":
            _warn_repeated(draft, node, report)


def successors(draft: Draft, node: DraftNode) -> Iterator[DraftNode]:
    """Yield the next nodes of the same scope."""
    if node.control == "split" and node.aggregator is not None:
        yield draft.by_id[node.aggregator]
    for edge in node.errors if node.control == "split" else node.outs:
        target = draft.by_id[edge.dst]
        if target.split == node.split:
            yield target


def predecessors(draft: Draft, node: DraftNode) -> Iterator[DraftNode]:
    """Yield the previous nodes of the same scope."""
    if node.collects is not None:
        yield draft.by_id[node.collects]
        return
    for edge in node.ins:
        source = draft.by_id[edge.src]
        if source.split == node.split and (source.control != "split" or edge.is_error):
            yield source


def _tokens_at_start(draft: Draft) -> int:
    triggers = [node for node in draft.by_id.values() if node.trigger]
    if triggers:
        return sum(len(node.outs) for node in triggers)
    return sum(not node.ins for node in draft.by_id.values())


def _forks(node: DraftNode) -> bool:
    is_choice = node.control in ("conditional", "switch")
    return len(node.errors) > 1 or (len(node.success) > 1 and not is_choice)


def _multiple(draft: Draft, node: DraftNode) -> bool:
    if node.collects is not None:
        return draft.by_id[node.collects].multiple
    if node.barrier:
        return False
    return len(node.ins) > 1 or any(source.multiple for source in predecessors(draft, node))


def _solitary(draft: Draft, node: DraftNode, *, single_start: bool) -> bool:
    """Return True if no fork precedes the node in its scope.

    Tokens multiply only at forks and at the start of a scope.
    """
    if node.trigger or not node.ins:
        return single_start
    if node.collects is not None:
        return draft.by_id[node.collects].solitary
    for edge in node.ins:
        source = draft.by_id[edge.src]
        opens = source.control == "split" and not edge.is_error
        is_only_way = len(source.success) == 1 if opens else source.solitary and not source.forks
        if not is_only_way:
            return False
    return True


def _mark_gates(draft: Draft) -> None:
    if not any(node.barrier for node in draft.order):
        return
    before_barrier: set[str] = set()
    for node in reversed(draft.order):
        if any(after.barrier or after.id in before_barrier for after in successors(draft, node)):
            before_barrier.add(node.id)
            node.gate = node.multiple


def _losers(draft: Draft, merge: DraftNode) -> tuple[str, ...]:
    """Return the nodes from which every path leads into ``merge``.

    The search runs backwards and adds a node when all its successors are in.
    """
    inside = {merge.id}
    undecided: dict[str, int] = {}
    stack = [merge]
    while stack:
        for source in predecessors(draft, stack.pop()):
            if source.trigger or source.id in inside:
                continue
            if source.id not in undecided:
                undecided[source.id] = _paths(source)
            undecided[source.id] -= 1
            if undecided[source.id] == 0:
                inside.add(source.id)
                stack.append(source)
    return tuple(identifier for identifier in draft.by_id if identifier in inside and identifier != merge.id)


def _paths(node: DraftNode) -> int:
    """Return the number of ways out of a node.

    The region of a split counts as one: it leaves only through the aggregator.
    """
    return len(node.errors) + 1 if node.control == "split" else len(node.outs)


def _warn_repeated(draft: Draft, merge: DraftNode, report: Report) -> None:
    for edge in merge.ins:
        source = draft.by_id[edge.src]
        if source.multiple and not source.solitary:
            message = (
                f"Node '{source.id}' can run more than once, but the merge '{merge.id}' takes only the first token "
                "of each edge; put a merge before it if all are wanted."
            )
            report.warn(edge.pointer, "repeated-into-merge", message)
