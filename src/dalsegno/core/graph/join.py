"""Barriers in graphs: the step when one opens, and the skipping of nodes that will never run.

A node never runs if it is a join without a live branch, or a gate that was never visited.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from dalsegno.core.graph.complete import Step, transition_of
from dalsegno.core.graph.edges import VISITED, close_at, close_edges, close_unit, exits_of
from dalsegno.core.graph.ending import branch_ends, finisher
from dalsegno.core.graph.step_input import (
    Body,
    Entry,
    ItemResult,
    Result,
    StepInput,
    decode_body,
    extend,
    key_of,
    merge_contexts,
    value,
)
from dalsegno.graph.plan import Node
from dalsegno.model.barrier import SlotView
from dalsegno.model.effect import Effect, EndIfLast, StoreOutput
from dalsegno.model.event import NewEvent
from dalsegno.model.failure import Failure

JOIN_TIMEOUT = 300.0
"""Seconds that an implicit join waits for the rest after an arrival from outside; otherwise it has no timeout."""


def skip_unit(step_input: StepInput, node: Node) -> tuple[list[Effect], list[NewEvent]]:
    """Skip the node, and a split's whole region with it; its exits close unused."""
    effects, events = close_edges(step_input, exits_of(step_input.plan, node))
    skipped = (node.id, *step_input.plan.region(node.id))
    own = [NewEvent("NodeSkipped", name, step_input.lease.scope, step_input.now) for name in skipped]
    return effects, own + events


def skip_run(step_input: StepInput) -> Step:
    """Skip one run: the node and what only it leads to. Other runs of it, in a loop, are not affected."""
    node, lease = step_input.node, step_input.lease
    effects, events = close_unit(step_input, node, ())
    own = NewEvent("NodeSkipped", node.id, lease.scope, step_input.now, token=lease.token)
    inner = [
        NewEvent("NodeSkipped", name, lease.scope, step_input.now) for name in step_input.plan.region(node.id)
    ]
    effects.append(branch_ends(step_input, step_input.body.context))
    return Step(transition_of(step_input, effects, [own, *inner, *events]), {})


def close_gate(step_input: StepInput, used: tuple[int, ...]) -> Step:
    """Close a gate after its last visit: unused exits are dead, the others are closed behind the last visit."""
    node = step_input.node
    if VISITED not in used:
        effects, events = skip_unit(step_input, node)
    else:
        exits = exits_of(step_input.plan, node)
        effects, events = close_edges(
            step_input, [edge for position, edge in enumerate(exits) if position not in used]
        )
        for position in used:
            if position != VISITED and step_input.plan.nodes[exits[position].dst].gate:
                effects.append(close_at(step_input, exits[position]))
    effects.append(EndIfLast(step_input.lease.scope, finisher(step_input)))
    return Step(transition_of(step_input, effects, events), {})


class LiveArrivals(Struct, frozen=True):
    """The live arrivals at a barrier, in edge order."""

    body: Body
    """The merged context, ready for the node behind the barrier to run in."""
    arrivals: tuple[Body, ...]
    stores: tuple[StoreOutput, ...]
    """Pages of the merged context, to be stored by the transition the run leads to."""

    @property
    def payloads(self) -> tuple[Entry | None, ...]:
        return tuple(body.payload for body in self.arrivals)


def read_arrivals(step_input: StepInput, slots: Sequence[SlotView]) -> LiveArrivals:
    arrivals = tuple(decode_body(slot.data) for slot in slots if slot.live and slot.data is not None)
    context, stores = merge_contexts([body.context for body in arrivals], step_input.lease.token)
    path = arrivals[0].path if arrivals else ""
    body = Body(context, None, path, step_input.body.loops, joined=True)
    return LiveArrivals(body, arrivals, tuple(stores))


def dead(step_input: StepInput) -> Step:
    """Skip a join that no branch will reach, and what only it leads to."""
    effects, events = skip_unit(step_input, step_input.node)
    effects.append(branch_ends(step_input, step_input.body.context))
    return Step(transition_of(step_input, effects, events), {})


def end_split(step_input: StepInput, summary: Result) -> Step:
    """Complete a split without aggregator after all its items have ended. ``summary`` is its ``{total, failed}``."""
    lease, body = step_input.lease, step_input.body
    context, stores = extend(body.context, key_of(lease.node), value(summary.raw), lease.token)
    effects, events = close_unit(step_input, step_input.node, ())
    effects = [*stores, *effects, branch_ends(step_input, context)]
    return Step(transition_of(step_input, effects, events), {})


def merge_timeout(step_input: StepInput, arrived: int, expected: int) -> Failure:
    node = step_input.node
    what = "aggregator" if node.control == "aggregator" else "merge" if node.control == "merge" else "join"
    timeout = node.merge_timeout if node.merge_timeout is not None else JOIN_TIMEOUT
    return Failure(
        f"{what} '{node.id}' gave up after {timeout:g} s with {arrived} of {expected} arrived",
        code="MERGE_TIMEOUT" if node.control != "aggregator" else "AGGREGATOR_TIMEOUT",
        type="TimeoutError",
        details={"arrived": arrived, "expected": expected, "timeout": timeout},
        retryable=False,
    )


def item_failure(index: int, result: ItemResult) -> Failure:
    """Return the split's own failure, for a failed item that fails the whole split."""
    error = msgspec.json.decode(result.value.raw)["error"] if result.value is not None else {}
    return Failure(
        f"item {index} failed: {error.get('message', 'no reason recorded')}",
        code="ITEM_FAILED",
        type="ItemFailed",
        details={"index": index, "error": error},
        retryable=False,
    )
