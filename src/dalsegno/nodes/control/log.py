"""The ``log`` node: one line in the execution's log view."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from dalsegno.nodes.builder import node_type
from dalsegno.nodes.parameters import NodeParameters, as_text
from dalsegno.ports.node import NodeContext

Level = Literal["debug", "info", "warn", "warning", "error", "critical"]


class LogParameters(NodeParameters):
    message: Any = Field(description="The line; anything but text is written as JSON.")
    level: Level = Field("info", description="Level of the line.")


@node_type(
    "log",
    parameters=LogParameters,
    output_schema={
        "type": "object",
        "properties": {"message": {"type": "string"}, "level": {"type": "string"}},
    },
)
async def log(ctx: NodeContext, parameters: LogParameters) -> dict[str, Any]:
    """Writes a line to the execution's log and passes on its input."""
    message = as_text(parameters.message)
    level = "warning" if parameters.level == "warn" else parameters.level
    ctx.log(message, level)
    return {"message": message, "level": level}
