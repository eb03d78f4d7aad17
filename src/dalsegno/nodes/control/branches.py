"""Nodes that open and join branches: ``split``, ``aggregator`` and ``merge``.

``split`` opens one scope per item of a list, and ``aggregator`` collects their results. ``merge`` joins branches into
one: the kernel waits for the tokens; this module combines their payloads.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from dalsegno.nodes.builder import node_type
from dalsegno.nodes.parameters import EXPRESSION, RAW, NodeParameters, Seconds, WholeNumber, json_type
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


MergeMode = Literal["append", "combine", "first"]


class MergeParameters(NodeParameters):
    mode: MergeMode = Field(
        "append",
        description="`append` lists the payloads in the order of the edges, `combine` merges objects (later ones win), "
        "`first` takes the first payload.",
    )
    wait_mode: Annotated[Literal["wait_for_all", "wait_for_any", "all", "any"], RAW] = Field(
        "wait_for_all",
        description="Whether to wait for every branch that can still arrive, or for the first.",
    )
    timeout: Annotated[Seconds | None, RAW] = Field(
        300, gt=0, description="Time limit for all branches, from the first arrival on."
    )
    losers: Annotated[Literal["keep", "cancel"], RAW] = Field(
        "keep",
        description="With `wait_for_any`: whether the branches that lost keep running or are cancelled.",
    )


@node_type("merge", parameters=MergeParameters, control="merge", needs=("$payload",))
async def merge(ctx: NodeContext, parameters: MergeParameters) -> Any:
    """Joins branches and combines their payloads."""
    return combine_payloads(parameters.mode, ctx.payload)


def combine_payloads(mode: MergeMode, payloads: list[Any]) -> Any:
    """Return a merge's output, given the live payloads in the order of the edges."""
    match mode:
        case "append":
            return payloads
        case "first":
            return payloads[0] if payloads else None
        case "combine":
            return _combine(payloads)


def _combine(payloads: list[Any]) -> dict[str, Any]:
    combined: dict[str, Any] = {}
    for position, payload in enumerate(payloads):
        if not isinstance(payload, dict):
            raise NodeError(
                f"mode 'combine' merges objects, but payload {position} is {json_type(payload)}; "
                "use mode 'append' to list payloads of any type",
                code="NOT_AN_OBJECT",
                details={"position": position, "type": json_type(payload)},
                retryable=False,
            )
        combined.update(payload)
    return combined
