"""The ``aggregator`` node: collects the results of a split's items."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from dalsegno.nodes.builder import node_type
from dalsegno.nodes.parameters import EXPRESSION, RAW, NodeParameters, Seconds
from dalsegno.ports.node import NodeContext


class AggregatorParameters(NodeParameters):
    timeout: Annotated[Seconds | None, RAW] = Field(
        None,
        gt=0,
        description="Time limit for all items, from the split on. Default: none.",
    )
    output: Annotated[Any, EXPRESSION] = Field(
        None, description="The value of each item, evaluated in the item. Default: the item's payload."
    )


@node_type(
    "aggregator",
    parameters=AggregatorParameters,
    control="aggregator",
    needs=("$payload",),
    output_schema={"type": "array"},
)
async def aggregator(ctx: NodeContext, _parameters: AggregatorParameters) -> Any:
    """Gathers the results of a split's items, in the items' order."""
    return ctx.payload
