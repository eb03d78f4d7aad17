"""Whether an execution can go on with another version of its graph: what has run must be there, as it was.

A rerun starts at some nodes of the new version. They and everything after them run; everything else keeps its result
from the record. So the part of the graph that does not run must be the part that has run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dalsegno.core.history import RunFacts
from dalsegno.graph.plan import Edge, Node, Plan


def obstacles(old: Plan, new: Plan, starts: Sequence[str], facts: Mapping[str, RunFacts]) -> tuple[str, ...]:
    """Return what keeps an execution from going on with the new version, as sentences; nothing if it can.

    ``facts`` are the runs of the old version's nodes. The new version starts at ``starts``.
    """
    unknown = [
        f"the new version has no node '{name}' to start at" for name in starts if name not in new.nodes
    ]
    if unknown:
        return tuple(unknown)
    again = frozenset(starts).union(*(new.descendants(name) for name in starts))
    replaced = frozenset(starts).union(*(old.descendants(name) for name in starts if name in old.nodes))
    kept = {
        name: run
        for name, run in facts.items()
        if name not in again and (name in new.nodes or name not in replaced)
    }
    return (*_lost(old, new, kept), *_new_before(old, new, again), *_new_behind(old, new, again, starts))


def _lost(old: Plan, new: Plan, facts: Mapping[str, RunFacts]) -> Iterator[str]:
    """Yield the nodes whose results are kept, and that are gone or something else."""
    for name in (each for each in old.topological if each in facts):
        before, after = old.nodes[name], new.nodes.get(name)
        if after is None:
            yield f"'{name}' has run, and the new version does not have it"
        elif _sort(before) != _sort(after):
            yield f"'{name}' has run with type {before.type}; in the new version its type or its split is another"
        else:
            yield from _other_ways(before, after, facts[name])


def _sort(node: Node) -> tuple[object, ...]:
    """Return what decides the form of a node's result, and who may read it."""
    return (node.type, node.control, node.split, node.aggregator, node.collects)


def _other_ways(before: Node, after: Node, facts: RunFacts) -> Iterator[str]:
    """Yield the edges that carried the node's result and are gone."""
    there = {edge.id for edge in _out(after)}
    for edge in _out(before):
        if facts.edges is not None and edge.id in facts.edges and edge.id not in there:
            yield f"'{before.id}' has gone on to '{edge.dst}', and the new version has no such edge"


def _out(node: Node) -> tuple[Edge, ...]:
    return node.success_edges + node.error_edges


def _new_before(old: Plan, new: Plan, again: frozenset[str]) -> Iterator[str]:
    """Yield the nodes that the old version does not have, and that would have to run before those that run again."""
    before = frozenset[str]().union(*(new.ancestors(name) for name in again))
    for name in new.topological:
        if name in before and name not in again and name not in old.nodes and name not in new.triggers:
            yield f"'{name}' is new, and it is before a node that runs: start at '{name}', too"


def _new_behind(old: Plan, new: Plan, again: frozenset[str], starts: Sequence[str]) -> Iterator[str]:
    """Yield the edges that the old version does not have, from nodes that do not run again: nothing is sent there."""
    known = {edge.id for node in old.nodes.values() for edge in _out(node)}
    for name in new.topological:
        if name in again:
            continue
        for edge in _out(new.nodes[name]):
            if edge.id not in known and edge.dst not in starts:
                yield f"'{edge.dst}' comes after '{name}' by a new edge, which nothing takes: start at it, too"
