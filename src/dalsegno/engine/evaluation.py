"""Expressions that belong to no single node's run: the workflow's output, what an item brings to its aggregator."""

from __future__ import annotations

from dalsegno.core.body import Body
from dalsegno.core.complete import Run
from dalsegno.core.context import Context, key_of, value
from dalsegno.core.ending import output_failure, output_roots, output_value
from dalsegno.core.situation import Result, Situation
from dalsegno.engine.budget import Meters
from dalsegno.engine.definitions import Program
from dalsegno.engine.loader import Loader
from dalsegno.engine.results import Results
from dalsegno.engine.runner import failure_of
from dalsegno.engine.settings import DEFAULT_LIMITS, EngineLimits
from dalsegno.errors import LimitExceeded, NotJson
from dalsegno.lang import ExpressionFailed
from dalsegno.model.failure import Failure


class Evaluation:
    def __init__(self, loader: Loader, results: Results, limits: EngineLimits = DEFAULT_LIMITS) -> None:
        self.loader = loader
        self.results = results
        self._meters = Meters(limits)

    def expects(self, situation: Situation, target: str) -> bool:
        """Whether a node is an aggregator that says itself what items bring to it."""
        node = situation.plan.nodes[target]
        return node.control == "aggregator" and "output" in node.parameters.expressions

    async def contribution(
        self, program: Program, situation: Situation, body: Body, aggregator: str
    ) -> Result | Failure | None:
        """The aggregator's ``output`` expression, evaluated in the item; None if it has none."""
        node = situation.plan.nodes[aggregator]
        expression = node.parameters.expressions.get("output")
        if expression is None:
            return None
        execution = situation.lease.execution
        lookup = await self.loader.lookup(execution, body, expression.roots, program.meta)
        try:
            brought = await self._meters.evaluate(
                lambda meter: expression.evaluate(lookup, now=situation.now, meter=meter)
            )
            return await self.results.of(execution, brought, f"what the item brings to '{aggregator}'")
        except (ExpressionFailed, NotJson, LimitExceeded) as error:
            return failure_of(error, node)

    async def ending(self, program: Program, situation: Situation, context: Context) -> Result | Failure:
        """The execution's output, from what is in its final context."""
        plan, execution = situation.plan, situation.lease.execution
        lookup = await self.loader.lookup(execution, Body(context), output_roots(plan), program.meta)
        try:
            output = await self._meters.evaluate(
                lambda meter: output_value(plan, lookup, situation.now, meter)
            )
            return await self.results.of(execution, output, "the workflow's output")
        except (ExpressionFailed, NotJson, LimitExceeded) as error:
            return output_failure(error)


def with_output(situation: Situation, run: Run) -> Context:
    """The context as it will be once this run is recorded; large outputs count as values here."""
    context = situation.body.context
    entries = dict(context.entries)
    for key, result in (run.entries or {}).items():
        entries[key] = value(result.raw)
    entries[key_of(situation.lease.node)] = value(run.output.raw)
    if run.json is not None:
        entries["$json"] = value(run.json.raw)
    return Context(entries, context.pages, context.size)
