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
        description="How long to wait for all items, from the split on; without it, as long as it takes.",
    )
    output: Annotated[Any, EXPRESSION] = Field(
        None, description="What each item brings, evaluated in the item; without it, the item's payload."
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
