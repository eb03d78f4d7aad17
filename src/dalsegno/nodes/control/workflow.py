"""The ``workflow`` node: another workflow as one step of this one."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from dalsegno.errors import InvalidInput
from dalsegno.model.definition import parse_target, read_version
from dalsegno.nodes.builder import node_type
from dalsegno.nodes.parameters import NodeParameters
from dalsegno.ports.node import NodeContext, StartChild


def _is_target(name: str) -> str:
    try:
        parse_target(name)
    except InvalidInput as error:
        raise ValueError(f"is unusable: {error}") from None
    return name


def _is_version(version: Any) -> Any:
    if version is None:
        return None
    if isinstance(version, bool) or not isinstance(version, int | str):
        raise ValueError("should be a version's number or an alias such as 'stable'")
    try:
        return read_version(version)
    except InvalidInput as error:
        raise ValueError(f"is unusable: {error}") from None


class WorkflowParameters(NodeParameters):
    name: Annotated[str, AfterValidator(_is_target)] = Field(
        min_length=1,
        description="The workflow, of any kind; `checkout@3` or `checkout@stable` names its version.",
    )
    version: Annotated[int | str | None, BeforeValidator(_is_version)] = Field(
        None,
        description="Number or alias. Default: the version that is current when the node runs.",
    )
    input: Any = Field(None, description="Its start payload. Default: the payload of the incoming edge.")
    wait: bool = Field(
        True,
        description="Whether to wait for its end. If so, it is cancelled with this execution, and its error is the "
        "node's; every further attempt starts another one. If not, it continues independently.",
    )


@node_type(
    "workflow",
    parameters=WorkflowParameters,
    needs=("$payload",),
    children=True,
    output_schema={"description": "The workflow's output; with `wait: false` an object with its `id`."},
)
async def workflow(ctx: NodeContext, parameters: WorkflowParameters) -> StartChild:
    """Runs another workflow; its output is this node's. The node's `timeout` limits each attempt."""
    given = "input" in parameters.model_fields_set
    return StartChild(
        parameters.name,
        parameters.input if given else ctx.payload,
        parameters.version,
        parameters.wait,
    )
