"""Nodes that will never run: a join none of whose branches lives, a gate that nobody visited."""

from __future__ import annotations

from dalsegno.core.complete import Step, transition_of
from dalsegno.core.edges import VISITED, close_at, close_edges, exits_of
from dalsegno.core.ending import finisher
from dalsegno.core.situation import Situation
from dalsegno.graph.plan import Node
from dalsegno.model.effect import Effect, EndIfLast
from dalsegno.model.event import NewEvent


def skip_unit(situation: Situation, node: Node) -> tuple[list[Effect], list[NewEvent]]:
    """The node, and a split's whole region with it, is skipped; its exits close unused."""
    effects, events = close_edges(situation, exits_of(situation.plan, node))
    skipped = (node.id, *situation.plan.region(node.id))
    own = [NewEvent("NodeSkipped", name, situation.lease.scope, situation.now) for name in skipped]
    return effects, own + events


def close_gate(situation: Situation, used: tuple[int, ...]) -> Step:
    """A gate has seen its last visit: exits that no visit used are dead, the others are closed behind the last."""
    node = situation.node
    if VISITED not in used:
        effects, events = skip_unit(situation, node)
    else:
        exits = exits_of(situation.plan, node)
        effects, events = close_edges(
            situation, [edge for position, edge in enumerate(exits) if position not in used]
        )
        for position in used:
            if position != VISITED and situation.plan.nodes[exits[position].dst].gate:
                effects.append(close_at(situation, exits[position]))
    effects.append(EndIfLast(situation.lease.scope, finisher(situation)))
    return Step(transition_of(situation, effects, events), {})
