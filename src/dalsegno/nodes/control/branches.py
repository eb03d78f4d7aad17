"""Nodes that choose, open and join branches.

- ``conditional`` takes one of two edges, ``switch`` the route of the first rule that holds. Operators of rules are
  checked when the document is read.
- ``split`` opens one scope per item of a list, and ``aggregator`` collects their results.
- ``merge`` joins branches into one: the kernel waits for the tokens; this module combines their payloads.
"""

from __future__ import annotations

import difflib
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from dalsegno.lang import COMPARISON_OPERATORS, compare
from dalsegno.lang.values.kinds import truthy
from dalsegno.nodes.builder import node_type
from dalsegno.nodes.data.lists import in_slices
from dalsegno.nodes.parameters import (
    CONDITION,
    EXPRESSION,
    RAW,
    NodeParameters,
    Seconds,
    WholeNumber,
    json_type,
)
from dalsegno.ports.node import FanOut, NodeContext, NodeError, Route


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


# -- `conditional` and `switch` --------------------------------------------------------------------------------


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
