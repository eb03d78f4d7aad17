"""The ``group`` and ``dedupe`` nodes: equal items, grouped or reduced to one."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from dalsegno.nodes.builder import node_type
from dalsegno.nodes.data.lists import (
    LIST_OUTPUT,
    LOCAL_NAMES,
    FieldRule,
    ItemPath,
    ListParameters,
    OrField,
    evaluate_each,
    field_values,
    in_slices,
    input_items,
    list_result,
)
from dalsegno.nodes.parameters import EXPRESSION, RAW
from dalsegno.ports.node import NodeContext, NodeError, Working

FieldRules = Annotated[list[Annotated[FieldRule, OrField()]], RAW]


class GroupParameters(ListParameters):
    field: Annotated[ItemPath | None, RAW] = Field(None, description="Path inside each item to group by.")
    expression: Annotated[Any, EXPRESSION] = Field(
        None, description="The key to group by, evaluated per `item`, instead of a field."
    )
    rules: FieldRules = Field(
        default=[],
        description="Fields to group by, instead of one; the key of a group by several is the list of their values.",
    )

    @model_validator(mode="after")
    def _check_exclusive(self) -> GroupParameters:
        if (self.field is not None) + (self.expression is not None) + bool(self.rules) > 1:
            raise ValueError("give only one of 'field', 'expression' and 'rules'")
        return self


class DedupeParameters(ListParameters):
    fields: Annotated[list[ItemPath], RAW] = Field(
        default=[], description="Paths inside each item that must be equal; without any, whole items must be."
    )
    expression: Annotated[Any, EXPRESSION] = Field(
        None, description="The value that must be equal, evaluated per `item`, instead of fields."
    )
    rules: FieldRules = Field(default=[], description="The fields as rules: another spelling of `fields`.")
    keep: Literal["first", "last"] = Field("first", description="Which of several equal items is kept.")

    @model_validator(mode="after")
    def _check_exclusive(self) -> DedupeParameters:
        if self.rules and (self.fields or self.expression is not None):
            raise ValueError("give only one of 'fields', 'expression' and 'rules'")
        return self


@node_type(
    "group", parameters=GroupParameters, needs=("$json",), local_names=LOCAL_NAMES, output_schema=LIST_OUTPUT
)
async def group(ctx: NodeContext, parameters: GroupParameters) -> Working:
    """Gathers the items of a list by a field or expression into `{key, items, count}`, in order of appearance."""
    items = input_items(ctx, parameters)
    groups: dict[Hashable, dict[str, Any]] = {}
    pairs = zip(items, await _group_keys(ctx, parameters, items), strict=True)
    async for chunk in in_slices(ctx, pairs):
        for item, key in chunk:
            found = groups.setdefault(identity(key), {"key": key, "items": [], "count": 0})
            found["items"].append(item)
            found["count"] += 1
    return list_result(list(groups.values()), len(items))


@node_type(
    "dedupe",
    parameters=DedupeParameters,
    needs=("$json",),
    local_names=LOCAL_NAMES,
    output_schema=LIST_OUTPUT,
)
async def dedupe(ctx: NodeContext, parameters: DedupeParameters) -> Working:
    """Keeps one of several equal items. Items are compared by some fields, by an expression, or as a whole."""
    items = input_items(ctx, parameters)
    fields = parameters.fields or [rule.field for rule in parameters.rules]
    if ctx.has_expression("expression"):
        keys = await evaluate_each(ctx, "expression", items)
    else:
        keys = await field_values(ctx, items, fields) if fields else items
    chosen: dict[Hashable, int] = {}
    async for chunk in in_slices(ctx, enumerate(keys)):
        for position, key in chunk:
            known = identity(key)
            if parameters.keep == "last" or known not in chosen:
                chosen[known] = position
    return list_result([items[position] for position in sorted(chosen.values())], len(items))


async def _group_keys(ctx: NodeContext, parameters: GroupParameters, items: list[Any]) -> list[Any]:
    if ctx.has_expression("expression"):
        return await evaluate_each(ctx, "expression", items)
    fields = [rule.field for rule in parameters.rules] if parameters.field is None else [parameters.field]
    if not fields:
        raise NodeError(
            "group needs 'field', 'expression' or 'rules' to determine the groups",
            code="INVALID_PARAMETERS",
            retryable=False,
        )
    return await field_values(ctx, items, fields)


def identity(value: Any) -> Hashable:
    """Return a key that is equal exactly for equal JSON values: 1 and 1.0 are equal, 1 and true are not."""
    match value:
        case bool():
            return ("boolean", value)
        case list():
            return ("list", tuple(identity(inner) for inner in value))
        case dict():
            return ("object", frozenset((key, identity(inner)) for key, inner in value.items()))
        case _:
            return (None if value is None else isinstance(value, str), value)
