"""The ``switch`` node: takes the route of the first rule that holds."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from dalsegno.lang import compare
from dalsegno.nodes.builder import node_type
from dalsegno.nodes.control.comparison import Operator
from dalsegno.nodes.data.lists import in_slices
from dalsegno.nodes.parameters import RAW, NodeParameters
from dalsegno.ports.node import NodeContext, Route


class SwitchRule(NodeParameters):
    value: Any = Field(None, description="The value to compare.")
    operator: Operator = Field(
        "==", description="The operator, by sign (`==`, `>`) or name (`eq`, `contains`)."
    )
    compare: Any = Field(None, description="The value to compare it with.")


class SwitchParameters(NodeParameters):
    rules: list[SwitchRule] = Field(description="Tried in order; the first that holds decides.")
    routes: Annotated[list[str | None], RAW] = Field(
        default=[],
        description="Edge ids in the order of the rules; one more than there are rules is the fallback.",
    )


@node_type(
    "switch",
    parameters=SwitchParameters,
    control="switch",
    output_schema={"type": "object", "properties": {"output_index": {"type": ["integer", "null"]}}},
)
async def switch(ctx: NodeContext, parameters: SwitchParameters) -> Route:
    """Takes the route of the first rule that holds, else the fallback, else no edge."""
    index = await _first_match(ctx, parameters.rules)
    if index is None and len(parameters.routes) > len(parameters.rules):
        index = len(parameters.rules)
    edge = parameters.routes[index] if index is not None and index < len(parameters.routes) else None
    return Route(output={"output_index": index}, edges=(edge,) if edge else ())


async def _first_match(ctx: NodeContext, rules: list[SwitchRule]) -> int | None:
    async for chunk in in_slices(ctx, enumerate(rules), 1):
        for index, rule in chunk:
            if compare(rule.operator, rule.value, rule.compare):
                return index
    return None
