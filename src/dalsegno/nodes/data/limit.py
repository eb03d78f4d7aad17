"""The ``limit`` node: a part of a list."""

from __future__ import annotations

from typing import Literal

from pydantic import AliasChoices, Field

from dalsegno.nodes.builder import node_type
from dalsegno.nodes.data.lists import LIST_OUTPUT, ListParameters, input_items, list_result
from dalsegno.nodes.parameters import WholeNumber
from dalsegno.ports.node import NodeContext, Working


class LimitParameters(ListParameters):
    count: WholeNumber = Field(
        ge=0, validation_alias=AliasChoices("count", "limit"), description="Number of items to keep."
    )
    offset: WholeNumber = Field(0, ge=0, description="Number of items to skip first.")
    keep: Literal["first", "last"] = Field("first", description="From which end of the list to count.")


@node_type("limit", parameters=LimitParameters, needs=("$json",), output_schema=LIST_OUTPUT)
async def limit(ctx: NodeContext, parameters: LimitParameters) -> Working:
    """Keeps the first or last items of a list."""
    items = input_items(ctx, parameters)
    if parameters.keep == "first":
        kept = items[parameters.offset : parameters.offset + parameters.count]
    else:
        end = max(len(items) - parameters.offset, 0)
        kept = items[max(end - parameters.count, 0) : end]
    return list_result(kept, len(items))
