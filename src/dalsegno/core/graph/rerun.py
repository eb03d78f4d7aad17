"""The first transition of a rerun: an execution that starts in the middle of its graph."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from dalsegno.core.graph.complete import passes_payload
from dalsegno.core.graph.edges import barrier_of, gate_of
from dalsegno.core.graph.start import deadline_token, entry_token, origin
from dalsegno.core.graph.step_input import (
    EMPTY,
    KEY,
    Body,
    Context,
    Entry,
    StepInput,
    encode,
    extend,
    key_of,
    place,
    reference,
    reference_name,
)
from dalsegno.core.history import RunFacts, took
from dalsegno.graph.plan import Edge, Node, Plan
from dalsegno.model.effect import AdjustGate, CreateExecution, Effect, LeaveContext, ResolveSlot, SpawnToken
from dalsegno.model.event import NewEvent
from dalsegno.model.execution import NewExecution
from dalsegno.model.transition import Transition

TRIGGER_REFERENCE = reference(KEY, "$trigger")
RECORDED = "!"
"""Sorts before every path: where contexts disagree, nodes that ran again override the record."""


class Restart(Struct, frozen=True):
    """The node to start at, and the record of the old execution."""

    starts: tuple[str, ...]
    facts: Mapping[str, RunFacts]
    outputs: Mapping[str, bytes]
    edits: Mapping[str, bytes]
    working: Mapping[str, bytes]
    """The working payloads that the nodes left."""


class _Builder:
    """Collects the effects of a restart; contexts are built once per node."""

    def __init__(self, plan: Plan, new: NewExecution, record: Restart, now: float) -> None:
        self.plan = plan
        self.record = record
        self.step_input = origin(plan, new, now, Body())
        self.effects: list[Effect] = [CreateExecution(new)]
        self.again = frozenset(record.starts).union(*(plan.descendants(name) for name in record.starts))
        self._input = new.input

    def context_of(self, node: str, *, with_self: bool = False) -> Context:
        """Return the recorded outputs of everything before a node (and its own, for what it sent), edits applied."""
        before = self.plan.ancestors(node)
        names = [name for name in self.plan.topological if name in before or (with_self and name == node)]
        owner = f"{self.step_input.lease.execution}/{node}/{with_self}"
        context = self._remember(EMPTY, "$trigger", self._input, owner)
        for name in names:
            raw = self.record.outputs.get(name)
            if raw is not None and self.plan.nodes[name].depth == 0:
                context = self._remember(context, key_of(name), raw, owner)
            for key, left in self._entries(name).items():
                context = self._remember(context, key, left, owner)
        last = next((name for name in reversed(names) if name in self.record.working), None)
        if last is not None:
            context = self._remember(context, "$json", self._working(last), owner)
        for key, raw in self.record.edits.items():
            context = self._remember(context, key, raw, owner)
        return context

    def _remember(self, context: Context, key: str, raw: bytes, owner: str) -> Context:
        entry, stores = place(self.record.edits.get(key, raw), f"{owner}/{key}", None)
        self.effects += stores
        context, pages = extend(context, key, entry, f"{owner}/{key}")
        self.effects += pages
        return context

    def _entries(self, node: str) -> Mapping[str, bytes]:
        """Return the further context entries of a node: for an aggregator its ``$<split>``."""
        facts = self.record.facts.get(node)
        return facts.entries if facts is not None else {}

    def _working(self, node: str) -> bytes:
        """Return the ``$json`` a node left; if that is its output and the output was edited, the edited one."""
        left = self.record.working[node]
        same = left == self.record.outputs.get(node)
        return self.record.edits.get(key_of(node), left) if same else left

    def body_for(self, node: Node) -> Body:
        """Return the body of a token that came to this node."""
        return Body(self.context_of(node.id), self._received(node))

    def _received(self, node: Node) -> Entry:
        """Return the payload a node received: that of the last edge that carried one, or of all edges at a join."""
        carried = [self._carried(edge) for edge in node.in_edges if self.sent(edge)]
        if node.barrier:
            raw = b"[" + b",".join(self._value(entry) for entry in carried) + b"]"
            entry, stores = place(raw, f"{self.step_input.lease.execution}/{node.id}/payload", None)
            self.effects += stores
            return entry
        return carried[-1] if carried else TRIGGER_REFERENCE

    def _carried(self, edge: Edge) -> Entry:
        """Return the payload on an edge: its source's output, or the source's input if the source passes it on."""
        if edge.src in self.plan.triggers:
            return TRIGGER_REFERENCE
        source = self.plan.nodes[edge.src]
        return self._received(source) if passes_payload(source) else reference(KEY, key_of(source.id))

    def _value(self, entry: Entry) -> bytes:
        """Return the JSON of a payload from the record."""
        if entry.kind != KEY:
            return bytes(entry.raw)
        key = reference_name(entry)
        recorded = self._input if key == "$trigger" else self.record.outputs.get(key[1:], b"null")
        return self.record.edits.get(key, recorded)

    def sent(self, edge: Edge) -> bool:
        """Return True if the old execution sent a token over the edge."""
        if edge.src in self.plan.triggers:
            return True
        source = self.plan.nodes[edge.src]
        if source.control == "split" and source.aggregator is not None and not edge.is_error:
            return False
        facts = self.record.facts.get(edge.src)
        return facts is not None and took(facts, source, edge.id)

    def prefill(self, node: Node) -> None:
        """Resolve the slots of a join whose sources do not run again, as they were resolved before."""
        for edge in node.in_edges:
            if edge.src in self.again:
                continue
            if node.barrier:
                self.effects.append(self._slot(node, edge))
            elif node.gate:
                self.effects.append(AdjustGate(gate_of(self.step_input, node), -1))

    def leave(self) -> None:
        """Add the contexts of branches that ended and do not run again: they are part of the final context."""
        for name in self.plan.topological:
            node, facts = self.plan.nodes[name], self.record.facts.get(name)
            if facts is None or name in self.again or node.depth or node.aggregator is not None:
                continue
            halted = facts.failed and facts.edges is None
            if not halted and not any(self.sent(edge) for edge in node.success_edges + node.error_edges):
                body = Body(self.context_of(name, with_self=True))
                self.effects.append(LeaveContext("", f"{RECORDED}{name}", encode(body)))

    def _slot(self, node: Node, edge: Edge) -> ResolveSlot:
        spec = barrier_of(self.step_input, node, Body())
        if not self.sent(edge):
            return ResolveSlot(spec, edge.slot, False)
        context = self.context_of(edge.src, with_self=True)
        body = Body(context, self._carried(edge), f"{edge.slot:04x}")
        return ResolveSlot(spec, edge.slot, True, encode(body))


def restart(plan: Plan, new: NewExecution, record: Restart, now: float) -> Transition:
    builder = _Builder(plan, new, record, now)
    for name in plan.topological:
        node = plan.nodes[name]
        runs_again = name in builder.again and node.depth == 0
        if runs_again and (node.barrier or (node.gate and name not in record.starts)):
            builder.prefill(node)
    builder.leave()
    for position, name in enumerate(record.starts):
        node = plan.nodes[name]
        if node.barrier:
            continue
        body = msgspec.structs.replace(builder.body_for(node), path=f"{position:04x}")
        builder.effects.append(SpawnToken(entry_token(builder.step_input, name, body)))
        if node.gate:
            closed = sum(edge.src not in builder.again for edge in node.in_edges)
            builder.effects.append(AdjustGate(gate_of(builder.step_input, node), 1 - closed))
    if plan.timeout is not None:
        builder.effects.append(SpawnToken(deadline_token(new, now + plan.timeout)))
    return Transition(new.id, tuple(builder.effects), (_started(builder.step_input, new, record),))


def _started(step_input: StepInput, new: NewExecution, record: Restart) -> NewEvent:
    data = {
        "input": msgspec.Raw(new.input),
        "relation": new.relation,
        "from": new.parent,
        "nodes": record.starts,
        "edits": {key: msgspec.Raw(raw) for key, raw in record.edits.items()},
    }
    return NewEvent("ExecutionStarted", "", "", step_input.now, msgspec.json.encode(data))
