"""The ``sort`` node. Sorting is stable, any mix of types has an order, and nulls come last in both directions."""

from __future__ import annotations

import heapq
import json
from operator import itemgetter
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from dalsegno.nodes.builder import node_type
from dalsegno.nodes.data.lists import (
    LIST_OUTPUT,
    LOCAL_NAMES,
    ItemPath,
    ListParameters,
    OrField,
    evaluate_each,
    in_slices,
    input_items,
    item_values,
    list_result,
)
from dalsegno.nodes.parameters import EXPRESSION, RAW, NodeParameters
from dalsegno.ports.node import NodeContext, Working

RUN = 1000
"""Items sorted at once."""

_first = itemgetter(0)


def _short(value: Any) -> Any:
    words = {"ascending": "asc", "descending": "desc"}
    return words.get(value.lower(), value.lower()) if isinstance(value, str) else value


Direction = Annotated[Literal["asc", "desc"], BeforeValidator(_short)]


class SortRule(NodeParameters):
    field: ItemPath = Field("$item", description="Path inside each item; `$item` is the item itself.")
    direction: Direction = Field("asc", description="Ascending or descending.")


class SortParameters(ListParameters):
    rules: Annotated[list[Annotated[SortRule, OrField()]], RAW] = Field(
        default=[],
        description="The keys to sort by; a later rule decides between items that are equal by the earlier ones.",
    )
    expression: Annotated[Any, EXPRESSION] = Field(
        None, description="The key to sort by, evaluated per `item`, instead of rules."
    )
    direction: Direction = Field("asc", description="For sorting by `expression`, or without rules.")

    @model_validator(mode="after")
    def _check_exclusive(self) -> SortParameters:
        if self.rules and self.expression is not None:
            raise ValueError("give either 'rules' or 'expression', not both")
        return self


@node_type(
    "sort", parameters=SortParameters, needs=("$json",), local_names=LOCAL_NAMES, output_schema=LIST_OUTPUT
)
async def sort(ctx: NodeContext, parameters: SortParameters) -> Working:
    """Sorts a list by fields or by an expression."""
    items = input_items(ctx, parameters)
    if ctx.has_expression("expression"):
        keys = [(await evaluate_each(ctx, "expression", items), parameters.direction)]
    else:
        rules = parameters.rules or [SortRule(field="$item", direction=parameters.direction)]
        keys = [(await item_values(ctx, items, rule.field), rule.direction) for rule in rules]
    order = list(range(len(items)))
    for values, direction in reversed(keys):
        order = await _ordered(ctx, order, values, direction)
    return list_result([items[position] for position in order], len(items))


async def _ordered(
    ctx: NodeContext, order: list[int], values: list[Any], direction: Literal["asc", "desc"]
) -> list[int]:
    """Sort by one key, stably. Applied from the last key to the first, this sorts by all of them.

    A long list is sorted in runs, which are merged. The event loop gets control back between the runs.
    """
    runs: list[list[tuple[tuple[int, Any], int]]] = []
    absent: list[int] = []
    is_reversed = direction == "desc"
    async for positions in in_slices(ctx, order, RUN):
        run = [
            (sort_key(values[position]), position) for position in positions if values[position] is not None
        ]
        absent += [position for position in positions if values[position] is None]
        run.sort(key=_first, reverse=is_reversed)
        runs.append(run)
    merged = runs[0] if len(runs) == 1 else heapq.merge(*runs, key=_first, reverse=is_reversed)
    return [position async for group in in_slices(ctx, merged) for _, position in group] + absent


def sort_key(value: Any) -> tuple[int, Any]:
    """Order numbers before text before booleans before lists before objects; each kind in its own order."""
    match value:
        case bool():
            return (2, value)
        case int() | float():
            return (0, value)
        case str():
            return (1, value)
        case list():
            return (3, json.dumps(value, sort_keys=True))
        case _:
            return (4, json.dumps(value, sort_keys=True))
