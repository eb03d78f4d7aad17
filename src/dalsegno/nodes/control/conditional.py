"""The ``conditional`` node: takes one of two edges."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from dalsegno.lang.values.kinds import truthy
from dalsegno.nodes.builder import node_type
from dalsegno.nodes.parameters import CONDITION, RAW, NodeParameters
from dalsegno.ports.node import NodeContext, Route


class ConditionalParameters(NodeParameters):
    expression: Annotated[Any, CONDITION] = Field(
        description="A boolean expression, or a list of comparisons {op1, op2, operator} joined by `operator`."
    )
    operator: Annotated[Literal["and", "or", "AND", "OR"], RAW] = Field(
        "and", description="Joins the comparisons when `expression` is a list."
    )
    true_edge_id: Annotated[str | None, RAW] = Field(
        None, description="Edge taken when the condition holds; without one, that path ends."
    )
    false_edge_id: Annotated[str | None, RAW] = Field(
        None, description="Edge taken when it does not hold; without one, that path ends."
    )


@node_type(
    "conditional",
    parameters=ConditionalParameters,
    control="conditional",
    output_schema={"type": "object", "properties": {"result": {"type": "boolean"}}},
)
async def conditional(ctx: NodeContext, parameters: ConditionalParameters) -> Route:
    """Evaluates a condition and takes the true or the false edge."""
    result = truthy((await ctx.evaluate_each("expression", [None]))[0])
    edge = parameters.true_edge_id if result else parameters.false_edge_id
    return Route(output={"result": result}, edges=(edge,) if edge else ())
