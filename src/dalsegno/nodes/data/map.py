"""The ``map`` node: an expression for every item of a list."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from dalsegno.nodes.builder import node_type
from dalsegno.nodes.data.lists import (
    LIST_OUTPUT,
    LOCAL_NAMES,
    ListParameters,
    evaluate_each,
    input_items,
    list_result,
)
from dalsegno.nodes.parameters import EXPRESSION
from dalsegno.ports.node import NodeContext, Working


class MapParameters(ListParameters):
    expression: Annotated[Any, EXPRESSION] = Field(
        description="The new value of each item, e.g. `{id: item.id, total: item.price * item.count}`."
    )


@node_type(
    "map", parameters=MapParameters, needs=("$json",), local_names=LOCAL_NAMES, output_schema=LIST_OUTPUT
)
async def map_items(ctx: NodeContext, parameters: MapParameters) -> Working:
    """Replaces each item of a list by the value of an expression."""
    items = input_items(ctx, parameters)
    return list_result(await evaluate_each(ctx, "expression", items), len(items))
