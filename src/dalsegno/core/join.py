"""Where branches meet: what a barrier's slots amount to."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from dalsegno.core.body import Body, ItemResult, decode_body
from dalsegno.core.complete import Step, transition_of
from dalsegno.core.context import Entry, extend, key_of, unite, value
from dalsegno.core.edges import close_unit
from dalsegno.core.ending import branch_ends
from dalsegno.core.situation import Result, Situation
from dalsegno.core.skip import skip_unit
from dalsegno.model.barrier import SlotView
from dalsegno.model.effect import StoreOutput
from dalsegno.model.failure import Failure


class Meeting(Struct, frozen=True):
    """The live arrivals at a barrier, in edge order."""

    body: Body
    """The united context, ready for the node behind the barrier to run in."""
    arrivals: tuple[Body, ...]
    stores: tuple[StoreOutput, ...]
    """Pages of the united context: part of whatever transition the run leads to."""

    @property
    def payloads(self) -> tuple[Entry | None, ...]:
        return tuple(body.payload for body in self.arrivals)


def meet(situation: Situation, slots: Sequence[SlotView]) -> Meeting:
    arrivals = tuple(decode_body(slot.data) for slot in slots if slot.live and slot.data is not None)
    context, stores = unite([body.context for body in arrivals], situation.lease.token)
    path = arrivals[0].path if arrivals else ""
    body = Body(context, None, path, situation.body.loops, joined=True)
    return Meeting(body, arrivals, tuple(stores))


def dead(situation: Situation) -> Step:
    """No branch will come: the node is skipped, and so is what only it leads to."""
    effects, events = skip_unit(situation, situation.node)
    effects.append(branch_ends(situation, situation.body.context))
    return Step(transition_of(situation, effects, events), {})


def end_split(situation: Situation, summary: Result) -> Step:
    """All items of a split without aggregator have ended. ``summary`` is its ``{total, failed}``."""
    lease, body = situation.lease, situation.body
    context, stores = extend(body.context, key_of(lease.node), value(summary.raw), lease.token)
    effects, events = close_unit(situation, situation.node, ())
    effects = [*stores, *effects, branch_ends(situation, context)]
    return Step(transition_of(situation, effects, events), {})


def merge_timeout(situation: Situation, arrived: int, expected: int) -> Failure:
    node = situation.node
    what = "aggregator" if node.control == "aggregator" else "merge" if node.control == "merge" else "join"
    return Failure(
        f"{what} '{node.id}' gave up after {node.merge_timeout:g} s with {arrived} of {expected} arrived",
        code="MERGE_TIMEOUT" if node.control != "aggregator" else "AGGREGATOR_TIMEOUT",
        type="TimeoutError",
        details={"arrived": arrived, "expected": expected, "timeout": node.merge_timeout},
        retryable=False,
    )


def item_failure(index: int, result: ItemResult) -> Failure:
    """The split's own failure, when a failed item fails all of it."""
    error = msgspec.json.decode(result.value.raw)["error"] if result.value is not None else {}
    return Failure(
        f"item {index} failed: {error.get('message', 'no reason recorded')}",
        code="ITEM_FAILED",
        type="ItemFailed",
        details={"index": index, "error": error},
        retryable=False,
    )
