"""The ``task`` node: runs a registered Python task."""

from __future__ import annotations

from typing import Any

from pydantic import AliasChoices, Field

from dalsegno.errors import NotFound
from dalsegno.nodes.builder import node_type
from dalsegno.nodes.parameters import NodeParameters
from dalsegno.ports.node import NodeContext, NodeError


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
