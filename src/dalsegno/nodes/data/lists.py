"""Shared parts of the list nodes: the source of their items, evaluation of an expression per item, and their result.

The working payload ``$json`` is the input of edit and list nodes unless a parameter names another.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import islice
from time import monotonic
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from dalsegno.nodes.data.paths import Path, parse_path, read_path
from dalsegno.nodes.parameters import NodeParameters, json_type
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
