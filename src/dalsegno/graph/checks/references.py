"""Checks of references: a referenced node must run before the node and be visible in its scope."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dalsegno.graph.checks.topology import encloses
from dalsegno.graph.documents.draft import Draft, DraftNode
from dalsegno.graph.documents.findings import Report, pointer_to

CHUNK = 4096
"""Referenced nodes per pass, one bit each: 100,000 nodes do not need a gigabyte."""
_ITEM_ROOTS = {"$item": "item", "$index": "index"}


def check_references(draft: Draft, output_roots: Iterable[str], report: Report) -> None:
    """Check the references of all nodes in topological order.

    Nodes on or behind a cycle are not in that order and precede no other node, so findings about the rest are
    correct.
    """
    distant: dict[str, list[DraftNode]] = {}
    inner: list[tuple[DraftNode, DraftNode]] = []
    for node in draft.order:
        for root in sorted(node.compiled.roots) if node.compiled else ():
            referenced = draft.by_id.get(root)
            if root in _ITEM_ROOTS:
                _check_item(node, root, report)
            elif referenced is not None and root not in report.provided:
                if all(edge.src != root for edge in node.ins[:8]):
                    distant.setdefault(root, []).append(node)
                if referenced.split is not None:
                    inner.append((node, referenced))
    for root, node in _not_before(draft, distant):
        _report_not_before(node, root, report)
    for node, referenced in inner:
        _check_visible(draft, node, referenced, report)
    _check_output(draft, output_roots, report)


def _not_before(draft: Draft, wanted: dict[str, list[DraftNode]]) -> Iterator[tuple[str, DraftNode]]:
    """Yield pairs whose referenced node is not an ancestor. One sweep per chunk computes all ancestors as bits."""
    referenced = list(wanted)
    for start in range(0, len(referenced), CHUNK):
        chunk = referenced[start : start + CHUNK]
        bits = {identifier: 1 << index for index, identifier in enumerate(chunk)}
        ancestors: dict[str, int] = {}
        for node in draft.order:
            ancestors_found = 0
            for edge in node.ins:
                ancestors_found |= ancestors[edge.src]
            ancestors[node.id] = ancestors_found | bits.get(node.id, 0)
        for identifier in chunk:
            for node in wanted[identifier]:
                if node.id == identifier or not ancestors[node.id] & bits[identifier]:
                    yield identifier, node


def _check_item(node: DraftNode, root: str, report: Report) -> None:
    own = node.spec is not None and _ITEM_ROOTS[root] in node.spec.local_names
    if node.depth == 0 and node.collects is None and not own and node.scoped:
        message = f"Node '{node.id}' uses '{root}', which has a value only inside a split."
        report.error(place_of(node, root), "item-outside-split", message)


def _report_not_before(node: DraftNode, referenced: str, report: Report) -> None:
    if node.id == referenced:
        message = f"Node '{node.id}' refers to its own output, which does not exist before it has run."
    else:
        message = f"Node '{node.id}' refers to '${referenced}', which never runs before it: no path leads from there."
    report.error(place_of(node, referenced), "reference-not-before", message)


def _check_visible(draft: Draft, node: DraftNode, referenced: DraftNode, report: Report) -> None:
    # An aggregator's expressions are evaluated per item, inside the split it collects.
    inner = node.collects or node.split
    if not (node.scoped and referenced.scoped) or encloses(draft, referenced.split, inner):
        return
    pointer = place_of(node, referenced.id)
    if not report.has_error_at(pointer):
        message = (
            f"Node '{node.id}' refers to '${referenced.id}', which runs once per item of split '{referenced.split}' "
            "and is not visible outside it; use the aggregator's output."
        )
        report.error(pointer, "reference-out-of-scope", message)


def _check_output(draft: Draft, roots: Iterable[str], report: Report) -> None:
    for root in sorted(roots):
        node = draft.by_id.get(root)
        if root in _ITEM_ROOTS:
            message = f"'output' uses '{root}', which has a value only inside a split."
            report.error("/output", "item-outside-split", message)
        elif node is not None and root not in report.provided and node.scoped and node.split is not None:
            message = (
                f"'output' refers to '${root}', which runs once per item of split '{node.split}' "
                "and is not visible outside it; use the aggregator's output."
            )
            report.error("/output", "reference-out-of-scope", message)


def place_of(node: DraftNode, root: str) -> str:
    """Return the pointer to the first parameter that mentions ``root``."""
    compiled = node.compiled
    if compiled is None:
        return node.parameters_pointer
    for reference in compiled.template.references:
        if reference.root == root:
            return reference.pointer
    for key, expression in compiled.expressions.items():
        if root in expression.roots:
            return pointer_to(node.parameters_pointer, key)
    return node.parameters_pointer
