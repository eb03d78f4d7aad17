"""What travels over edges: tokens delivered, slots resolved, dead paths closed.

An *exit* is an out-edge of a unit: of a node, or of a split together with its region and aggregator, which count as
one node for deadness. A unit that runs once closes its exits with its run. A unit that may run several times (a
gate) only notes which it used; its ``closed`` step closes the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from dalsegno.core.body import Body, encode
from dalsegno.core.situation import Situation, system_token
from dalsegno.graph.plan import Edge, Node, Plan
from dalsegno.model.barrier import BarrierSpec, GateSpec
from dalsegno.model.effect import AdjustGate, Effect, ResolveSlot, SpawnToken
from dalsegno.model.event import NewEvent
from dalsegno.model.ids import barrier_id, derive
from dalsegno.model.token import NewToken

VISITED = -1
"""Among a gate's used exits: it was visited at all."""


def unit_of(plan: Plan, node: Node) -> Node:
    """The node that stands for this one where edges close: the split for its aggregator, else the node itself."""
    return plan.nodes[node.collects] if node.collects is not None else node


def exits_of(plan: Plan, unit: Node) -> tuple[Edge, ...]:
    if unit.control != "split":
        return unit.success_edges + unit.error_edges
    if unit.aggregator is None:
        return unit.error_edges
    aggregator = plan.nodes[unit.aggregator]
    return aggregator.success_edges + aggregator.error_edges + unit.error_edges


def token_over(edge: Edge, situation: Situation, target: Node, body: Body) -> NewToken:
    lease = situation.lease
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
    )


def deliver(situation: Situation, edge: Edge, body: Body, *, source_closes: bool) -> list[Effect]:
    """Sends a token over an edge: at a barrier it resolves a slot, anywhere else it is a new visit.

    ``source_closes``: the edge closes with this token, so at a gate one open in-edge turns into one live visit.
    """
    target = situation.plan.nodes[edge.dst]
    if target.barrier:
        return [_arrival(situation, edge, target, body)]
    spawn = SpawnToken(token_over(edge, situation, target, body))
    if target.gate and not source_closes:
        return [spawn, AdjustGate(gate_of(situation, target), 1)]
    return [spawn]


def _arrival(situation: Situation, edge: Edge, target: Node, body: Body) -> ResolveSlot:
    lease = situation.lease
    spec = barrier_of(situation, target, body)
    waiting = NewEvent("NodeWaiting", target.id, lease.scope, situation.now)
    dropped = NewEvent("ArrivalDropped", target.id, lease.scope, situation.now, token=lease.token)
    return ResolveSlot(spec, edge.slot, True, encode(body), waiting, dropped)


def barrier_of(situation: Situation, target: Node, body: Body) -> BarrierSpec:
    lease = situation.lease
    join = system_token(situation, "join", target.id, target.id, encode(Body(loops=body.loops)))
    if target.control == "plain":
        # The node itself runs with this token, so it belongs where the node does.
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


def gate_of(situation: Situation, node: Node) -> GateSpec:
    lease = situation.lease
    closed = system_token(situation, "closed", node.id, node.id, encode(Body(loops=situation.body.loops)))
    return GateSpec(
        barrier_id(lease.epoch, lease.scope, node.id, "gate"),
        lease.scope,
        node.id,
        len(node.in_edges),
        closed,
    )


def close_unit(
    situation: Situation, node: Node, taken: Sequence[Edge]
) -> tuple[list[Effect], list[NewEvent]]:
    """The end of one run of a unit: what it did not take is dead, or merely noted if it may run again."""
    plan = situation.plan
    unit = unit_of(plan, node)
    exits = exits_of(plan, unit)
    if not unit.multiple and len(exits) == len(taken):
        return [], []
    used = {edge.id for edge in taken}
    if unit.gate:
        positions = tuple(position for position, edge in enumerate(exits) if edge.id in used)
        return [AdjustGate(gate_of(situation, unit), -1, (VISITED, *positions))], []
    if unit.multiple:
        return [], []
    return close_edges(situation, [edge for edge in exits if edge.id not in used])


def close_edges(situation: Situation, edges: Iterable[Edge]) -> tuple[list[Effect], list[NewEvent]]:
    """Closes edges that carried nothing: whatever only they could reach is skipped, joins behind it are told."""
    effects: list[Effect] = []
    events: list[NewEvent] = []
    lease = situation.lease
    for edge in edges:
        run = situation.plan.dead_run(edge)
        events += [NewEvent("NodeSkipped", node, lease.scope, situation.now) for node in run.skipped]
        effects += [close_at(situation, stop) for stop in run.stops]
    return effects, events


def close_at(situation: Situation, edge: Edge) -> Effect:
    """One edge into a barrier or gate closes without (another) token."""
    target = situation.plan.nodes[edge.dst]
    if target.barrier:
        return ResolveSlot(barrier_of(situation, target, situation.body), edge.slot, False)
    return AdjustGate(gate_of(situation, target), -1)


def close_losers(situation: Situation, losers: Iterable[str]) -> list[Effect]:
    """What was cancelled sends nothing more: the joins between the losers of a race are told. Somebody who has not
    lost may still lead there, and its token must not wait for those that have."""
    nodes = situation.plan.nodes
    lost = frozenset(losers)
    joins = [nodes[name] for name in losers if nodes[name].barrier]
    return [close_at(situation, edge) for join in joins for edge in join.in_edges if edge.src in lost]
