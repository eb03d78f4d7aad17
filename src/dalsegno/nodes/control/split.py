"""The ``split`` node: one scope per item of a list."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from dalsegno.nodes.builder import node_type
from dalsegno.nodes.parameters import NodeParameters, WholeNumber, json_type
from dalsegno.ports.node import FanOut, NodeContext, NodeError


class SplitParameters(NodeParameters):
    input_array: Any = Field(
        description="The list whose items run one by one, each as `$item` with its `$index`."
    )
    max_concurrency: WholeNumber = Field(
        1000, ge=1, description="Maximum number of items that are open at the same time."
    )
    on_item_error: Literal["collect", "halt"] | None = Field(
        None,
        description="The effect of a failed item: `collect` puts its error in its place, `halt` fails the split. "
        "Default: `collect` where an aggregator follows, else `halt`.",
    )


@node_type("split", parameters=SplitParameters, control="split")
async def split(_ctx: NodeContext, parameters: SplitParameters) -> FanOut:
    """Runs what follows once per item of a list."""
    items = parameters.input_array
    if not isinstance(items, list):
        raise NodeError(
            f"'input_array' should be a list, but is {json_type(items)}",
            code="NOT_A_LIST",
            details={"parameter": "input_array", "type": json_type(items)},
            retryable=False,
        )
    return FanOut(items=items, window=parameters.max_concurrency, on_item_error=parameters.on_item_error)
