"""Edges: delivery of tokens, resolution of slots, closing of dead paths.

An *exit* is an out-edge of a unit: of a node, or of a split together with its region and aggregator, which
count as one node for deadness. A unit that runs once closes its exits with its run. A unit that may run several
times (a gate) only records which exits it used; its ``closed`` step closes the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from dalsegno.core.graph.step_input import Body, StepInput, encode, system_token
from dalsegno.graph.plan import Edge, Node, Plan
from dalsegno.model.barrier import BarrierSpec, GateSpec
from dalsegno.model.effect import AdjustGate, Effect, ResolveSlot, SpawnToken
from dalsegno.model.event import NewEvent
from dalsegno.model.ids import barrier_id, derive
from dalsegno.model.token import NewToken

VISITED = -1
"""Among a gate's used exits: the gate was visited at least once."""


def unit_of(plan: Plan, node: Node) -> Node:
    """Return the node whose edges close: the split for its aggregator, else the node itself."""
    return plan.nodes[node.collects] if node.collects is not None else node


def exits_of(plan: Plan, unit: Node) -> tuple[Edge, ...]:
    if unit.control != "split":
        return unit.success_edges + unit.error_edges
    if unit.aggregator is None:
        return unit.error_edges
    aggregator = plan.nodes[unit.aggregator]
    return aggregator.success_edges + aggregator.error_edges + unit.error_edges


def token_over(edge: Edge, step_input: StepInput, target: Node, body: Body) -> NewToken:
    lease = step_input.lease
    return NewToken(
        derive(lease.token, edge.id),
        lease.scope,
        "node",
        target.id,
        encode(body),
        target.queue,
        lease.priority,
        target.limit_key,
        allowance=target.allows,
        edge=edge.id,
        sender=edge.src,
    )


def deliver(step_input: StepInput, edge: Edge, body: Body, *, source_closes: bool) -> list[Effect]:
    """Send a token over an edge: at a barrier it resolves a slot, elsewhere it is a new visit.

    ``source_closes``: the edge closes with this token, so at a gate one open in-edge becomes one live visit.
    """
    target = step_input.plan.nodes[edge.dst]
    if target.barrier:
        return [_arrival(step_input, edge, target, body)]
    spawn = SpawnToken(token_over(edge, step_input, target, body))
    if target.gate and not source_closes:
        return [spawn, AdjustGate(gate_of(step_input, target), 1)]
    return [spawn]


def _arrival(step_input: StepInput, edge: Edge, target: Node, body: Body) -> ResolveSlot:
    lease = step_input.lease
    spec = barrier_of(step_input, target, body)
    waiting = NewEvent("NodeWaiting", target.id, lease.scope, step_input.now)
    dropped = NewEvent("ArrivalDropped", target.id, lease.scope, step_input.now, token=lease.token)
    return ResolveSlot(spec, edge.slot, True, encode(body), waiting, dropped)


def barrier_of(step_input: StepInput, target: Node, body: Body) -> BarrierSpec:
    lease = step_input.lease
    join = system_token(step_input, "join", target.id, target.id, encode(Body(loops=body.loops)))
    if target.control == "plain":
        # The node itself runs with this token, so the token goes to the node's queue.
        join = replace(join, queue=target.queue)
    return BarrierSpec(
        barrier_id(lease.epoch, lease.scope, target.id),
        lease.scope,
        target.id,
        len(target.in_edges),
        join,
        "any" if target.join == "any" else "all",
        target.merge_timeout,
    )


def gate_of(step_input: StepInput, node: Node) -> GateSpec:
    lease = step_input.lease
    closed = system_token(step_input, "closed", node.id, node.id, encode(Body(loops=step_input.body.loops)))
    return GateSpec(
        barrier_id(lease.epoch, lease.scope, node.id, "gate"),
        lease.scope,
        node.id,
        len(node.in_edges),
        closed,
    )


def close_unit(
    step_input: StepInput, node: Node, taken: Sequence[Edge]
) -> tuple[list[Effect], list[NewEvent]]:
    """End one run of a unit: exits it did not take are dead, or only recorded if it may run again."""
    plan = step_input.plan
    unit = node if node.collects is None else unit_of(plan, node)
    is_simple = not unit.multiple and unit.control != "split"
    if is_simple and len(unit.success_edges) + len(unit.error_edges) == len(taken):
        return [], []  # the common case: all exits were taken
    exits = exits_of(plan, unit)
    if not unit.multiple and len(exits) == len(taken):
        return [], []
    used = {edge.id for edge in taken}
    if unit.gate:
        positions = tuple(position for position, edge in enumerate(exits) if edge.id in used)
        return [AdjustGate(gate_of(step_input, unit), -1, (VISITED, *positions))], []
    if unit.multiple:
        return [], []
    return close_edges(step_input, [edge for edge in exits if edge.id not in used])


def close_edges(step_input: StepInput, edges: Iterable[Edge]) -> tuple[list[Effect], list[NewEvent]]:
    """Close edges that carried nothing: nodes behind them alone are skipped, joins behind them are resolved."""
    effects: list[Effect] = []
    events: list[NewEvent] = []
    lease = step_input.lease
    for edge in edges:
        run = step_input.plan.dead_run(edge)
        events += [NewEvent("NodeSkipped", node, lease.scope, step_input.now) for node in run.skipped]
        effects += [close_at(step_input, stop) for stop in run.stops]
    return effects, events


def close_at(step_input: StepInput, edge: Edge) -> Effect:
    """Close one edge into a barrier or gate without (another) token."""
    target = step_input.plan.nodes[edge.dst]
    if target.barrier:
        return ResolveSlot(barrier_of(step_input, target, step_input.body), edge.slot, False)
    return AdjustGate(gate_of(step_input, target), -1)


def close_losers(step_input: StepInput, losers: Iterable[str]) -> list[Effect]:
    """Resolve the joins between the losers of a race, which send nothing more.

    A branch that has not lost may still lead to such a join, and its token must not wait for those that have.
    """
    nodes = step_input.plan.nodes
    lost = frozenset(losers)
    joins = [nodes[name] for name in losers if nodes[name].barrier]
    return [close_at(step_input, edge) for join in joins for edge in join.in_edges if edge.src in lost]
