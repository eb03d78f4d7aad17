"""The ``merge`` node: joins branches into one. The kernel waits for the tokens; this module combines their payloads."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from dalsegno.nodes.builder import node_type
from dalsegno.nodes.parameters import RAW, NodeParameters, Seconds, json_type
from dalsegno.ports.node import NodeContext, NodeError

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
