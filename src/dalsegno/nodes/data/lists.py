"""Nodes that work on lists: ``filter``, ``map``, ``limit``, ``sort``, ``group`` and ``dedupe``, and what they share:
the source of their items, evaluation of an expression per item, and their result.

The working payload ``$json`` is the input of edit and list nodes unless a parameter names another. Sorting is stable,
any mix of types has an order, and nulls come last in both directions.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import AsyncIterator, Hashable, Iterable, Sequence
from itertools import islice
from operator import itemgetter
from time import monotonic
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from dalsegno.lang.values.kinds import truthy
from dalsegno.nodes.builder import node_type
from dalsegno.nodes.data.paths import Path, parse_path, read_path
from dalsegno.nodes.parameters import CONDITION, EXPRESSION, RAW, NodeParameters, WholeNumber, json_type
from dalsegno.ports.node import NodeContext, NodeError, Working


def working_payload(ctx: NodeContext) -> Any:
    """Return the value of ``$json``, or None without a payload and without an edit before."""
    try:
        return ctx.lookup("$json")
    except KeyError:
        return None


LOCAL_NAMES = ("item", "index")
"""Names that expressions of list nodes may use, in addition to ``$item`` and ``$index``."""

LIST_OUTPUT = {
    "type": "object",
    "properties": {
        "items": {"type": "array"},
        "count": {"type": "integer", "description": "Number of items in the output."},
        "original_count": {"type": "integer", "description": "Number of items in the input."},
    },
}

T = TypeVar("T")

SLICE = 0.005
"""Seconds of work on a list before the event loop gets control back."""


def _item_path(text: str) -> str:
    item_path(text)
    return text


ItemPath = Annotated[str, AfterValidator(_item_path)]
"""A dotted path inside each item; ``$item.price`` and ``price`` mean the same, ``$item`` is the item itself."""


class ListParameters(NodeParameters):
    input_array: Any = Field(None, description="The list. Default: the working payload `$json`.")


class OrField:
    """Marks a rule (in ``Annotated``) that its field alone abbreviates: ``"price"`` for ``{"field": "price"}``."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(_with_field, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [{"type": "string"}, handler(schema)]}


def _with_field(rule: Any) -> Any:
    return {"field": rule} if isinstance(rule, str) else rule


class FieldRule(NodeParameters):
    field: ItemPath = Field(description="Path inside each item; `$item` is the item itself.")


def item_path(text: str) -> Path:
    """Return the segments of an item path."""
    if text.strip() == "$item":
        return ()
    return parse_path(text.strip().removeprefix("$item."))


async def item_values(ctx: NodeContext, items: list[Any], text: str) -> list[Any]:
    """Return the value at the path of each item, null where there is none."""
    path = item_path(text)
    if not path:
        return items
    return [read_path(item, path) async for group in in_slices(ctx, items) for item in group]


async def field_values(ctx: NodeContext, items: list[Any], fields: Sequence[str]) -> list[Any]:
    """Return the value at the path of each item; for several paths, the list of their values."""
    columns = [await item_values(ctx, items, field) for field in fields]
    return columns[0] if len(columns) == 1 else [list(row) for row in zip(*columns, strict=True)]


def input_items(ctx: NodeContext, parameters: ListParameters) -> list[Any]:
    """Return the list that a node works on; raise NodeError if the value is not a list."""
    given = "input_array" in parameters.model_fields_set
    items = parameters.input_array if given else working_payload(ctx)
    if isinstance(items, list):
        return items
    what = "'input_array'" if given else "the working payload `$json` (no 'input_array' is given)"
    raise NodeError(
        f"{what} should be a list, but is {json_type(items)}",
        code="NOT_A_LIST",
        details={"parameter": "input_array", "type": json_type(items)},
        retryable=False,
    )


async def evaluate_each(ctx: NodeContext, parameter: str, items: list[Any]) -> list[Any]:
    """Return the parameter's value for each item."""
    return await ctx.evaluate_each(
        parameter,
        ({"item": item, "index": index, "$item": item, "$index": index} for index, item in enumerate(items)),
    )


async def in_slices(ctx: NodeContext, items: Iterable[T], at_once: int = 64) -> AsyncIterator[list[T]]:
    """Yield the items in groups of ``at_once``. The event loop gets control back when a slice of time has elapsed."""
    until = monotonic() + SLICE
    rest = iter(items)
    while group := list(islice(rest, at_once)):
        yield group
        if monotonic() > until:
            ctx.heartbeat()
            await ctx.give_way()
            until = monotonic() + SLICE


def list_result(items: list[Any], original_count: int) -> Working:
    """Return the output of a list node. Its items become the working payload."""
    output = {"items": items, "count": len(items), "original_count": original_count}
    return Working(output=output, json=items)


# -- nodes that work on lists: `filter`, `map`, `limit`, `sort`, `group` and `dedupe` ------------------------

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
