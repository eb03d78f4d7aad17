"""The ``input`` and ``output`` nodes: where a graph's data enters and leaves."""

from __future__ import annotations

from typing import Any

from dalsegno.nodes.builder import node_type
from dalsegno.nodes.parameters import NodeParameters
from dalsegno.ports.node import NodeContext


class NoParameters(NodeParameters):
    """No parameters."""


@node_type("input", parameters=NoParameters, needs=("$trigger",))
async def input_node(ctx: NodeContext, _parameters: NoParameters) -> Any:
    """Passes the start payload on."""
    return ctx.input


@node_type("output", parameters=NoParameters, needs=("$predecessors",), output_schema={"type": "object"})
async def output_node(ctx: NodeContext, _parameters: NoParameters) -> dict[str, Any]:
    """Collects the outputs of the nodes before it, by node id."""
    return dict(ctx.outputs)
