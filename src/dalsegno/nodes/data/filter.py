"""The ``filter`` node: keeps the items of a list that satisfy a condition."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from dalsegno.lang.values.kinds import truthy
from dalsegno.nodes.builder import node_type
from dalsegno.nodes.data.lists import (
    LIST_OUTPUT,
    LOCAL_NAMES,
    ListParameters,
    evaluate_each,
    in_slices,
    input_items,
    list_result,
)
from dalsegno.nodes.parameters import CONDITION, RAW
from dalsegno.ports.node import NodeContext, Working


class FilterParameters(ListParameters):
    expression: Annotated[Any, CONDITION] = Field(
        None, description="Condition that an item must meet, e.g. `item.price > 10 and item.stock`."
    )
    rules: Annotated[Any, CONDITION] = Field(
        None, description="A list of comparisons {op1, op2, operator} instead, e.g. of `$item.price` with 10."
    )
    operator: Annotated[Literal["and", "or", "AND", "OR"], RAW] = Field(
        "and", description="Whether an item must meet all rules or any of them."
    )

    @model_validator(mode="after")
    def _check_exclusive(self) -> FilterParameters:
        if self.expression is not None and self.rules is not None:
            raise ValueError("give either 'expression' or 'rules', not both")
        return self


@node_type(
    "filter",
    parameters=FilterParameters,
    needs=("$json",),
    local_names=LOCAL_NAMES,
    output_schema=LIST_OUTPUT,
)
async def filter_items(ctx: NodeContext, parameters: FilterParameters) -> Working:
    """Keeps the items of a list for which a condition holds; without a condition, those that are truthy."""
    items = input_items(ctx, parameters)
    given = [name for name in ("expression", "rules") if ctx.has_expression(name)]
    verdicts = await evaluate_each(ctx, given[0], items) if given else items
    pairs = zip(items, verdicts, strict=True)
    kept = [item async for group in in_slices(ctx, pairs) for item, verdict in group if truthy(verdict)]
    return list_result(kept, len(items))
