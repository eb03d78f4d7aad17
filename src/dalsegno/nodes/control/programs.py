"""Nodes that run other programs: ``task`` a registered Python task, ``script`` a `.flow` script, ``workflow`` another
workflow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, AliasChoices, BeforeValidator, Field

from dalsegno.errors import InvalidInput, NotFound
from dalsegno.graph.catalog import ParameterProblem
from dalsegno.lang import validate
from dalsegno.model.definition import parse_target, part_hash, part_name, read_version
from dalsegno.nodes.builder import node_type
from dalsegno.nodes.parameters import RAW, NodeParameters
from dalsegno.ports.node import NodeContext, NodeError, StartChild


class TaskParameters(NodeParameters):
    task: str = Field(
        min_length=1,
        validation_alias=AliasChoices("task", "name"),
        description="Name the task is registered under.",
    )
    input: Any = Field(None, description="The task's input.")


@node_type("task", parameters=TaskParameters, aliases=("python",))
async def task(ctx: NodeContext, parameters: TaskParameters) -> Any:
    """Runs a registered Python task; its output is what the task returns."""
    tasks = ctx.services.get("tasks")
    if tasks is None:
        raise _not_found(parameters.task, "this worker has no tasks registered")
    try:
        return await tasks.run(parameters.task, parameters.input, ctx)
    except NotFound as error:
        raise _not_found(parameters.task, str(error)) from error


def _not_found(name: str, reason: str) -> NodeError:
    return NodeError(
        f"task '{name}' cannot be run: {reason}",
        code="TASK_NOT_FOUND",
        details={"task": name},
        retryable=False,
    )


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
