"""What has not arrived at a barrier yet, by name: the nodes before a join, the items of a split."""

from __future__ import annotations

from collections.abc import Mapping

from dalsegno.graph.plan import Plan
from dalsegno.model.barrier import BarrierView
from dalsegno.model.inspection import Inspection
from dalsegno.ports.ledger import SLOTS_PAGE, Ledger

MOST_BARRIERS = 50
"""Of the items of one split each may stand before a barrier of its own: beyond so many they are only counted."""
MOST_NAMES = 20
"""Open slots of one barrier that are named."""


async def open_slots(ledger: Ledger, inspection: Inspection, plan: Plan) -> Mapping[str, tuple[str, ...]]:
    """By the id of the barrier, those that are named."""
    waiting = [barrier for barrier in inspection.barriers if barrier.state == "waiting"]
    return {
        barrier.id: await _of(ledger, inspection.execution.id, plan, barrier)
        for barrier in waiting[:MOST_BARRIERS]
    }


async def _of(ledger: Ledger, execution: str, plan: Plan, barrier: BarrierView) -> tuple[str, ...]:
    node = plan.nodes.get(barrier.node)
    if node is None:
        return ()
    numbers = await _open(ledger, execution, barrier)
    if node.control == "aggregator":
        return tuple(f"item {number}" for number in numbers)
    by_slot = {edge.slot: edge for edge in node.in_edges}
    return tuple(
        _name(by_slot[number].src, by_slot[number].is_error) for number in numbers if number in by_slot
    )


def _name(source: str, is_error: bool) -> str:
    return f"'{source}' (its error edge)" if is_error else f"'{source}'"


async def _open(ledger: Ledger, execution: str, barrier: BarrierView) -> list[int]:
    """The first numbers that are missing among the resolved ones, which come in order, page by page."""
    found: list[int] = []
    after = -1
    while len(found) < MOST_NAMES:
        page = await ledger.slots(execution, barrier.id, after, SLOTS_PAGE)
        for each in page:
            found += range(after + 1, each.slot)
            after = each.slot
        if len(page) < SLOTS_PAGE:
            found += range(after + 1, min(barrier.expected, after + 1 + MOST_NAMES))
            break
    return found[:MOST_NAMES]
