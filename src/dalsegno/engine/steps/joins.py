"""Joins and aggregators: reading what arrived at a barrier, and evaluating expressions that belong to no single run,
such as the workflow's output and an item's contribution to its aggregator.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from msgspec import Struct

from dalsegno.core.graph import join
from dalsegno.core.graph.complete import Run
from dalsegno.core.graph.ending import output_failure, output_roots, output_value
from dalsegno.core.graph.step_input import (
    EMPTY,
    Body,
    Context,
    Fan,
    ItemResult,
    Result,
    StepInput,
    decode_result,
    key_of,
    value,
)
from dalsegno.core.values import decode_value, refuse_size
from dalsegno.engine.definitions import Program
from dalsegno.engine.settings import DEFAULT_LIMITS, EngineLimits
from dalsegno.engine.steps.budget import Meters, is_light
from dalsegno.engine.steps.run_node import failure_of
from dalsegno.engine.steps.values import Loader, Results
from dalsegno.errors import LimitExceeded, NotJson
from dalsegno.lang import ExpressionFailed
from dalsegno.lang.runtime.limits import Heavy
from dalsegno.model.barrier import SlotView
from dalsegno.model.failure import Failure
from dalsegno.model.ids import barrier_id
from dalsegno.ports.ledger import SLOTS_PAGE, Ledger


class Evaluation:
    def __init__(self, loader: Loader, results: Results, limits: EngineLimits = DEFAULT_LIMITS) -> None:
        self.loader = loader
        self.results = results
        self._meters = Meters(limits)

    def expects(self, step_input: StepInput, target: str) -> bool:
        """Return True if a node is an aggregator with an ``output`` expression."""
        node = step_input.plan.nodes[target]
        return node.control == "aggregator" and "output" in node.parameters.expressions

    async def contribution(
        self, program: Program, step_input: StepInput, body: Body, aggregator: str
    ) -> Result | Failure | None:
        """Return the value of the aggregator's ``output`` expression in the item; None if it has none."""
        node = step_input.plan.nodes[aggregator]
        expression = node.parameters.expressions.get("output")
        if expression is None:
            return None
        execution = step_input.lease.execution
        lookup = await self.loader.lookup(execution, body, expression.roots, program.meta)
        try:
            contribution = await self._meters.evaluate(
                lambda meter: expression.evaluate(lookup, now=step_input.now, meter=meter)
            )
            return await self.results.of(execution, contribution, f"what the item brings to '{aggregator}'")
        except (ExpressionFailed, NotJson, LimitExceeded) as error:
            return failure_of(error, node)

    async def ending(self, program: Program, step_input: StepInput, context: Context) -> Result | Failure:
        """Return the execution's output, from its final context."""
        plan, execution = step_input.plan, step_input.lease.execution
        lookup = await self.loader.lookup(execution, Body(context), output_roots(plan), program.meta)
        try:
            output = await self._meters.evaluate(
                lambda meter: output_value(plan, lookup, step_input.now, meter)
            )
            return await self.results.of(execution, output, "the workflow's output")
        except (ExpressionFailed, NotJson, LimitExceeded) as error:
            return output_failure(error)


def with_output(step_input: StepInput, run: Run) -> Context:
    """Return the context as it will be once this run is recorded; large outputs count as values here."""
    context = step_input.body.context
    entries = dict(context.entries)
    for key, result in (run.entries or {}).items():
        entries[key] = value(result.raw)
    entries[key_of(step_input.lease.node)] = value(run.output.raw)
    if run.json is not None:
        entries["$json"] = value(run.json.raw)
    return Context(entries, context.pages, context.size)


GATHERED = 4 * 1024 * 1024
"""Bytes that a light step gathers: they are only concatenated, not decoded."""


class Gathered(Struct):
    """The results of a split's items, as one JSON list spliced from their bytes, and their failures."""

    raw: bytearray
    arrived: int = 0
    failed: int = 0
    first_failure: Failure | None = None


class JoinReader:
    def __init__(self, ledger: Ledger, loader: Loader, value_bytes: int) -> None:
        """``value_bytes``: limit on the results of the items of a split together."""
        self.ledger = ledger
        self.loader = loader
        self.value_bytes = value_bytes

    async def branches(self, step_input: StepInput) -> tuple[join.LiveArrivals, list[Any]]:
        """Return the live arrivals at a merge or join, and their payloads in edge order."""
        lease = step_input.lease
        barrier = barrier_id(lease.epoch, lease.scope, lease.node)
        slots = [slot async for slot in self._slots(lease.execution, barrier)]
        live_arrivals = join.read_arrivals(step_input, slots)
        payloads = [
            decode_value(await self.loader.raw(lease.execution, arrival, arrival.payload))
            for arrival in live_arrivals.arrivals
            if arrival.payload is not None
        ]
        return live_arrivals, payloads

    async def items(self, step_input: StepInput, fan: Fan) -> Gathered:
        """Return the results of the items. They are read page by page: a list of 100,000 results is never held as
        100,000 objects.
        """
        lease = step_input.lease
        gathered = Gathered(bytearray(b"["))
        expected, small = 0, min(GATHERED, self.value_bytes)
        barrier = barrier_id(lease.epoch, lease.scope, fan.split, fan.token)
        async for slot in self._slots(lease.execution, barrier):
            _fill(gathered.raw, expected, slot.slot)
            expected = slot.slot + 1
            await self._add(lease.execution, gathered, slot)
            if len(gathered.raw) > small:
                if len(gathered.raw) > GATHERED and is_light.get():
                    raise Heavy
                refuse_size(len(gathered.raw), f"the output of '{lease.node}'", self.value_bytes)
        _fill(gathered.raw, expected, fan.total)
        if len(gathered.raw) > 1:
            gathered.raw.pop()
        gathered.raw += b"]"
        return gathered

    async def _add(self, execution: str, gathered: Gathered, slot: SlotView) -> None:
        result = decode_result(slot.data) if slot.data is not None else ItemResult(None)
        gathered.arrived += 1
        if result.failed:
            gathered.failed += 1
            if gathered.first_failure is None:
                gathered.first_failure = join.item_failure(slot.slot, result)
        if result.value is None:
            gathered.raw += b"null,"
            return
        body = Body(result.context or EMPTY)
        gathered.raw += await self.loader.raw(execution, body, result.value)
        gathered.raw += b","

    async def _slots(self, execution: str, barrier: str) -> AsyncIterator[SlotView]:
        after = -1
        while page := await self.ledger.slots(execution, barrier, after, SLOTS_PAGE):
            for slot in page:
                yield slot
            after = page[-1].slot
            if len(page) < SLOTS_PAGE:
                break


def _fill(raw: bytearray, expected: int, number: int) -> None:
    """Add null for items that are still open because the barrier timed out."""
    raw += b"null," * (number - expected)
