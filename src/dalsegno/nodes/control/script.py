"""The ``script`` node: a `.flow` script as one step of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AliasChoices, Field

from dalsegno.graph.catalog import ParameterProblem
from dalsegno.lang import validate
from dalsegno.model.definition import part_hash, part_name
from dalsegno.nodes.builder import node_type
from dalsegno.nodes.parameters import RAW, NodeParameters
from dalsegno.ports.node import NodeContext, StartChild


class ScriptParameters(NodeParameters):
    source: Annotated[str, RAW] = Field(
        min_length=1,
        description="The script. Its braces and dollar signs are its own: nothing in it is a template.",
    )
    input: Any = Field(
        None,
        validation_alias=AliasChoices("input", "inputs"),
        description="The script's `inputs`. Default: the payload of the incoming edge.",
    )


def _script_problems(parameters: Mapping[str, Any]) -> list[ParameterProblem]:
    """Return every problem of the script, with its line and column."""
    source = parameters.get("source")
    if not isinstance(source, str) or not source:
        return []
    return [
        ParameterProblem(
            ("source",),
            f"line {found.line}, column {found.column}: {found.message}\n{found.excerpt}".rstrip(),
            f"script-{found.rule}",
            found.severity,
        )
        for found in validate(source)
    ]


@node_type(
    "script",
    parameters=ScriptParameters,
    needs=("$payload",),
    children=True,
    check=_script_problems,
    output_schema={"description": "The script's result."},
)
async def script(ctx: NodeContext, parameters: ScriptParameters) -> StartChild:
    """Runs a script as an execution of its own; its output is what the script returns."""
    name = part_name(ctx.workflow, ctx.node_id)
    given = "input" in parameters.model_fields_set
    return StartChild(
        name,
        parameters.input if given else ctx.payload,
        definition=part_hash(name, parameters.source),
    )
