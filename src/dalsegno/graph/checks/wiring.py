"""Connection of nodes by their edges, and resolution of edges named by nodes: error edges, conditions, routes."""

from __future__ import annotations

from typing import Any

from dalsegno.graph.documents.draft import Draft, DraftEdge, DraftNode
from dalsegno.graph.documents.findings import Report, kind_of, quoted

_CONDITION_EDGES = ("true_edge_id", "false_edge_id")


def connect(draft: Draft, report: Report) -> None:
    """Connect the valid edges. Invalid ones are reported and left out of all later stages."""
    draft.edges = _valid(draft, report)
    for edge in draft.edges:
        source, target = draft.by_id[edge.src], draft.by_id[edge.dst]
        edge.position, edge.slot = len(source.outs), len(target.ins)
        source.outs.append(edge)
        target.ins.append(edge)
    for node in draft.nodes:
        _check_trigger(node, report)
        _read_error_edge(draft, node, report)
        _read_named_edges(draft, node, report)
    failing = {edge.src for edge in draft.edges if edge.is_error}
    for node in draft.by_id.values():
        if node.id in failing:
            node.success = [edge for edge in node.outs if not edge.is_error]
            node.errors = [edge for edge in node.outs if edge.is_error]
        else:
            node.success = node.outs
        _settle_strategy(node, report)
        _warn_never_taken(node, report)
        if draft.joins_all and node.control != "merge" and len(node.ins) > 1:
            node.join = "all"


def _valid(draft: Draft, report: Report) -> list[DraftEdge]:
    valid: list[DraftEdge] = []
    taken: dict[str, DraftEdge] = {}
    for edge in draft.edges:
        known = _check_end(draft, edge.src, edge.src_pointer, edge, report)
        known = _check_end(draft, edge.dst, edge.dst_pointer, edge, report) and known
        if known and edge.src == edge.dst:
            message = f"Node '{edge.src}' leads to itself; a graph runs forward only."
            report.error(edge.pointer, "self-loop", message)
        elif edge.id in taken:
            first = taken[edge.id].pointer
            message = f"The edge id {quoted(edge.id)} is taken by {first}; give each edge its own."
            report.error(f"{edge.pointer}/id" if edge.listed else edge.pointer, "duplicate-id", message)
        elif known:
            taken[edge.id] = edge
            valid.append(edge)
            continue
        draft.orphaned.add(edge.dst)
    return valid


def _check_end(draft: Draft, node: str, pointer: str, edge: DraftEdge, report: Report) -> bool:
    if node in draft.by_id:
        return True
    what = f"Edge {quoted(edge.id)}" if edge.listed else f"Node '{edge.dst}'"
    verb = "names" if edge.listed else "depends on"
    hint = report.suggest(node, draft.by_id)
    message = f"{what} {verb} {quoted(node)}, but there is no node with that id{hint or '.'}"
    report.error(pointer, "dangling-edge" if edge.listed else "dangling-dependency", message)
    return False


def _check_trigger(node: DraftNode, report: Report) -> None:
    if not node.trigger:
        return
    for edge in node.ins:
        message = f"Nothing can lead to the trigger '{node.id}': the execution starts behind it."
        report.error(edge.dst_pointer, "trigger-has-input", message)
    for edge in node.outs:
        if edge.is_error:
            message = f"The trigger '{node.id}' is never run and cannot fail; unmark its error edge."
            report.error(f"{edge.pointer}/is_error", "trigger-error-edge", message)


def _own_edges(draft: Draft, node: DraftNode) -> dict[str, DraftEdge]:
    """Return out-edges by id and, in the dependency spelling, also by the id of their target."""
    own = {edge.dst: edge for edge in node.outs} if draft.joins_all else {}
    own.update((edge.id, edge) for edge in node.outs)
    return own


def _resolve(
    node: DraftNode, own: dict[str, DraftEdge], named: Any, pointer: str, report: Report
) -> DraftEdge | None:
    if not isinstance(named, str):
        report.error(pointer, "wrong-type", f"An edge's id is needed here, not {kind_of(named)}.")
        return None
    if named not in own and node.attached:
        listed = ", ".join(f"'{candidate}'" for candidate in list(own)[:5]) or "none"
        message = f"{quoted(named)} is not an edge that leaves node '{node.id}'; those that do: {listed}."
        report.error(pointer, "foreign-edge", message)
    return own.get(named)


def _read_error_edge(draft: Draft, node: DraftNode, report: Report) -> None:
    error = node.fields.get("error")
    named = error.get("error_edge") if isinstance(error, dict) else None
    if not named:
        return
    own = _own_edges(draft, node)
    edge = _resolve(node, own, named, f"{node.pointer}/error/error_edge", report)
    if edge is not None:
        edge.is_error = True


def _settle_strategy(node: DraftNode, report: Report) -> None:
    """Default the strategy to ``branch`` where the node has an error edge and names no strategy."""
    given = node.fields.get("error")
    if node.errors and not given:
        node.strategy = "branch"
    elif node.errors and node.strategy != "branch":
        message = f"The error edge is never taken: the strategy of node '{node.id}' is '{node.strategy}', not 'branch'."
        report.warn(node.errors[0].pointer, "error-edge-unused", message)
    elif node.strategy == "branch" and not node.errors:
        pointer = f"{node.pointer}/error"
        if not report.has_error_at(f"{pointer}/error_edge"):
            message = f"Node '{node.id}' branches on errors but has no error edge; name it in 'error_edge'."
            report.error(pointer, "no-error-edge", message)


def _read_named_edges(draft: Draft, node: DraftNode, report: Report) -> None:
    """Replace edge names in parameters by edge ids, so that the node does not depend on the spelling."""
    if node.control not in ("conditional", "switch"):
        return
    own = _own_edges(draft, node)
    named: dict[str, Any] = {}
    for key in _CONDITION_EDGES if node.control == "conditional" else ():
        if node.parameters.get(key) is not None:
            named[key] = _name_of(node, own, node.parameters[key], f"{node.parameters_pointer}/{key}", report)
    routes = node.parameters.get("routes") if node.control == "switch" else None
    if isinstance(routes, list):
        pointer = f"{node.parameters_pointer}/routes"
        named["routes"] = [
            None if route is None else _name_of(node, own, route, f"{pointer}/{index}", report)
            for index, route in enumerate(routes)
        ]
        _check_route_count(node, len(routes), pointer, report)
    node.parameters = {**node.parameters, **named}


def _name_of(
    node: DraftNode, own: dict[str, DraftEdge], named: Any, pointer: str, report: Report
) -> str | None:
    edge = _resolve(node, own, named, pointer, report)
    if edge is not None and edge.is_error:
        message = f"{quoted(named)} is the error edge of node '{node.id}' and is not taken on success."
        report.error(pointer, "foreign-edge", message)
    return edge.id if edge is not None else None


def _check_route_count(node: DraftNode, routes: int, pointer: str, report: Report) -> None:
    rules = node.parameters.get("rules")
    if isinstance(rules, list) and routes > len(rules) + 1:
        message = f"There are {routes} routes for {len(rules)} rules; one per rule, and one more as fallback."
        report.error(pointer, "too-many-routes", message)


def _warn_never_taken(node: DraftNode, report: Report) -> None:
    if node.control == "conditional":
        named = {node.parameters.get(key) for key in _CONDITION_EDGES}
    elif node.control == "switch":
        routes = node.parameters.get("routes")
        named = set(routes) if isinstance(routes, list) else set()
    else:
        return
    for edge in node.success:
        if edge.id not in named:
            message = f"Edge {quoted(edge.id)} is never taken: node '{node.id}' does not name it."
            report.warn(edge.pointer, "edge-never-taken", message)
