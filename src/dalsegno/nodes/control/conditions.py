"""Nodes that choose edges by conditions: ``conditional`` takes one of two, ``switch`` the route of the first rule that
holds. Operators of rules are checked when the document is read.
"""

from __future__ import annotations

import difflib
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from dalsegno.lang import COMPARISON_OPERATORS, compare
from dalsegno.lang.values.kinds import truthy
from dalsegno.nodes.builder import node_type
from dalsegno.nodes.data.lists import in_slices
from dalsegno.nodes.parameters import CONDITION, RAW, NodeParameters
from dalsegno.ports.node import NodeContext, Route


def _known_operator(name: str) -> str:
    if name in COMPARISON_OPERATORS:
        return name
    close = difflib.get_close_matches(name, sorted(COMPARISON_OPERATORS), n=1)
    hint = f"did you mean '{close[0]}'?" if close else "use a sign such as '==' or a name such as 'contains'"
    raise ValueError(f"is not a comparison: {name!r}; {hint}")


Operator = Annotated[str, AfterValidator(_known_operator)]


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


class ConditionalParameters(NodeParameters):
    expression: Annotated[Any, CONDITION] = Field(
        description="A boolean expression, or a list of comparisons {op1, op2, operator} joined by `operator`."
    )
    operator: Annotated[Literal["and", "or", "AND", "OR"], RAW] = Field(
        "and", description="Joins the comparisons when `expression` is a list."
    )
    true_edge_id: Annotated[str | None, RAW] = Field(
        None, description="Edge taken when the condition holds; without one, that path ends."
    )
    false_edge_id: Annotated[str | None, RAW] = Field(
        None, description="Edge taken when it does not hold; without one, that path ends."
    )


@node_type(
    "conditional",
    parameters=ConditionalParameters,
    control="conditional",
    output_schema={"type": "object", "properties": {"result": {"type": "boolean"}}},
)
async def conditional(ctx: NodeContext, parameters: ConditionalParameters) -> Route:
    """Evaluates a condition and takes the true or the false edge."""
    result = truthy((await ctx.evaluate_each("expression", [None]))[0])
    edge = parameters.true_edge_id if result else parameters.false_edge_id
    return Route(output={"result": result}, edges=(edge,) if edge else ())
