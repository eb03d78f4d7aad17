"""Compilation of a document to a plan: the stages in their order, and the public entry point `load_graph`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from dalsegno.errors import Finding, InvalidDefinition
from dalsegno.graph.catalog import Catalog
from dalsegno.graph.checks.node_types import resolve_types
from dalsegno.graph.checks.parameters import ParameterCompiler, root_names, unique_names
from dalsegno.graph.checks.references import check_references
from dalsegno.graph.checks.settings import read_settings
from dalsegno.graph.checks.topology import assign_scopes, check_ends, entries_of, sort_topologically
from dalsegno.graph.checks.wiring import connect
from dalsegno.graph.documents.document import DEFAULT_DOCUMENT_LIMITS, DocumentLimits, read_document
from dalsegno.graph.documents.draft import Draft, DraftNode
from dalsegno.graph.documents.findings import Report
from dalsegno.graph.documents.header import Header, read_header
from dalsegno.graph.documents.normalise import canonical_form, content_hash, normalise
from dalsegno.graph.plan import Edge, Node, Plan
from dalsegno.graph.run_counts import analyse_runs
from dalsegno.lang.runtime.limits import Meter

PROVIDED = "context_keys"
"""Field of a stored document that a message carried: the names of context values it refers to. It is not part of the
content.
"""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A checked definition. ``definition_source`` is canonical JSON that loads to the same plan."""

    plan: Plan
    definition_source: bytes
    hash: str
    warnings: tuple[Finding, ...] = ()


def load_graph(
    source: str | bytes | Mapping[str, Any],
    catalog: Catalog,
    *,
    default_name: str | None = None,
    limits: DocumentLimits = DEFAULT_DOCUMENT_LIMITS,
    stored: bool = False,
    meter: Meter | None = None,
    provided: Collection[str] = (),
) -> Compiled:
    """Read, check and compile a document; raise `InvalidDefinition` with all findings.

    ``provided``: names of values that come with the context, whichever nodes have run. A stored document lists its
    own.

    ``stored``: the document comes from the store and its JSON Schemas are not checked again, because the rules may
    have become stricter since. A light ``meter`` raises Heavy before it compiles an expensive pattern.
    """
    report = Report(stored=stored, meter=meter)
    data = read_document(source, limits)
    report.provided = frozenset(provided_by(data) if stored else provided)
    draft = normalise(data, default_name, report)
    return compile_graph(draft, catalog, report)


def provided_by(document: Mapping[str, Any]) -> list[str]:
    """Return the names of context values that a stored document lists."""
    found = document.get(PROVIDED)
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def content_of(source: str | bytes, limits: DocumentLimits = DEFAULT_DOCUMENT_LIMITS) -> str:
    """Return the content hash of a document without compiling it: the same in any order of keys, and without display
    fields. Raises `InvalidDefinition` if it cannot be read."""
    report = Report(stored=True)
    draft = normalise(read_document(source, limits), None, report)
    if report.failed:
        raise InvalidDefinition(report.sorted())
    return content_hash(draft)


def compile_graph(draft: Draft, catalog: Catalog, report: Report) -> Compiled:
    """Run every check whose prerequisites hold, so that all problems are reported together."""
    resolve_types(draft, catalog, report)
    read_settings(draft, report)
    connect(draft, report)
    compiler = ParameterCompiler(root_names(draft, report.provided), report)
    for node in draft.nodes:
        compiler.compile(node)
    header = read_header(draft, compiler, report)
    check_ends(draft, report)
    acyclic = sort_topologically(draft, report)
    assign_scopes(draft, report)
    check_references(draft, header.output.roots if header.output else (), report)
    if acyclic:
        analyse_runs(draft, report)
    if report.failed:
        raise InvalidDefinition(report.sorted())
    source, digest = canonical_form(draft)
    return Compiled(_assemble(draft, header, digest), source, digest, report.warnings())


def _assemble(draft: Draft, header: Header, digest: str) -> Plan:
    edges = {
        edge.id: Edge(edge.id, edge.src, edge.dst, edge.is_error, edge.position, edge.slot)
        for edge in draft.edges
    }
    entries, entry_edges = entries_of(draft)
    nodes = draft.attached()
    return Plan(
        name=draft.name,
        hash=digest,
        nodes={node.id: _node(node, edges, draft.name) for node in nodes},
        edges=edges,
        entries=entries,
        entry_edges=tuple(edges[edge.id] for edge in entry_edges),
        triggers=tuple(node.id for node in nodes if node.trigger),
        topological=tuple(node.id for node in draft.order),
        output=header.output,
        output_nodes=tuple(node.id for node in nodes if node.type == "output"),
        leaves=tuple(node.id for node in nodes if node.depth == 0 and not node.success and not node.trigger),
        timeout=header.timeout,
        input_schema=header.input_schema,
        limit=header.limit,
        description=header.description,
        names=unique_names(draft),
        members=_members(draft),
        children=frozenset(node.id for node in nodes if node.spec is not None and node.spec.children),
    )


def _members(draft: Draft) -> dict[str, tuple[str, ...]]:
    members: dict[str, list[str]] = {}
    for node in draft.order:
        if node.split is not None:
            members.setdefault(node.split, []).append(node.id)
    return {split: tuple(inside) for split, inside in members.items()}


def _limit_key(node: DraftNode, workflow: str) -> str | None:
    """Return the node's limit key. A node without a key gets one of its own, shared by all versions of the workflow."""
    if node.concurrency is None:
        return None
    return node.concurrency.key or f"{workflow}/{node.id}"


def _node(draft: DraftNode, edges: Mapping[str, Edge], workflow: str) -> Node:
    assert draft.compiled is not None  # noqa: S101 - compiled for every node, or the document was refused
    return Node(
        id=draft.id,
        name=draft.name,
        type=draft.type,
        control=draft.control,
        parameters=draft.compiled,
        join=draft.join,
        in_edges=tuple([edges[edge.id] for edge in draft.ins]),
        success_edges=tuple([edges[edge.id] for edge in draft.success]),
        error_edges=tuple([edges[edge.id] for edge in draft.errors]),
        strategy=draft.strategy,
        despite=_despite(draft, edges),
        retry=draft.retry,
        timeout=draft.timeout,
        queue=draft.queue,
        limit_key=_limit_key(draft, workflow),
        allows=draft.concurrency.allows if draft.concurrency is not None else None,
        credential=draft.credential,
        split=draft.split,
        depth=draft.depth,
        gate=draft.gate,
        multiple=draft.multiple,
        forks=draft.forks,
        solitary=draft.solitary,
        aggregator=draft.aggregator,
        collects=draft.collects,
        merge_timeout=draft.merge_timeout,
        losers=draft.losers,
    )


def _despite(draft: DraftNode, edges: Mapping[str, Edge]) -> tuple[Edge, ...]:
    """Return the edges taken when a failure is ignored."""
    if draft.control == "conditional":
        names = [draft.parameters.get("false_edge_id")]
    elif draft.control == "switch":
        names = _fallback(draft.parameters.get("routes"), draft.parameters.get("rules"))
    else:
        return tuple([edges[edge.id] for edge in draft.success])
    return tuple(edges[name] for name in names if isinstance(name, str) and name in edges)


def _fallback(routes: Any, rules: Any) -> list[Any]:
    """Return the fallback route, which follows the routes of the rules, if there is one."""
    if not isinstance(routes, list) or not isinstance(rules, list):
        return []
    return routes[len(rules) : len(rules) + 1]
