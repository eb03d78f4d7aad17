"""Where data enters and leaves a graph: triggers, ``input``, ``output`` and ``log``.

Triggers are the start of an execution. They never run; their parameters configure what starts the execution.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from dalsegno.core.schedules.cron import read_cron
from dalsegno.errors import InternalError, InvalidInput
from dalsegno.nodes.builder import node_type
from dalsegno.nodes.data.times import ZoneName
from dalsegno.nodes.parameters import RAW, NodeParameters, as_text
from dalsegno.ports.node import NodeContext, NodeType


class NoParameters(NodeParameters):
    """No parameters."""


def _cron_line(line: str) -> str:
    try:
        read_cron(line)
    except InvalidInput as error:
        raise ValueError(f"cannot be used: {error}") from None
    return line


def _upper(method: Any) -> Any:
    return method.upper() if isinstance(method, str) else method


class ScheduleParameters(NodeParameters):
    cron: Annotated[str, AfterValidator(_cron_line), RAW] = Field(
        description="When to start: minute, hour, day of month, month, day of week."
    )
    timezone: Annotated[ZoneName, RAW] = Field("UTC", description="IANA time zone of the cron line.")


class WebhookParameters(NodeParameters):
    path: Annotated[str, RAW] = Field(min_length=1, description="The path of deliveries, below `/v1/hooks/`.")
    method: Annotated[Literal["GET", "POST", "PUT", "PATCH", "DELETE"], BeforeValidator(_upper), RAW] = Field(
        "POST", description="HTTP method of deliveries; a deploy accepts POST, PUT and PATCH."
    )
    secret: Annotated[str | None, RAW] = Field(
        None,
        description="Name of the credential whose field `secret` signs the requests; it lists the workflow. Without "
        "it, the deploy creates a secret and shows it once.",
    )


async def _never_executed(ctx: NodeContext, _parameters: object) -> object:
    raise InternalError(
        f"trigger node '{ctx.node_id}' was executed; triggers only mark where an execution starts"
    )


def _trigger(kind: str, alias: str, parameters: type[NodeParameters], description: str) -> NodeType:
    build = node_type(
        kind, parameters=parameters, control="trigger", aliases=(alias,), description=description
    )
    return build(_never_executed)


manual = _trigger(
    "manual", "ManualTrigger", NoParameters, "Starts by hand: over HTTP, from Python, by a command."
)
schedule = _trigger("schedule", "ScheduledTrigger", ScheduleParameters, "Starts at the times of a cron line.")
webhook = _trigger("webhook", "WebhookTrigger", WebhookParameters, "Starts when an HTTP request comes in.")


@node_type("input", parameters=NoParameters, needs=("$trigger",))
async def input_node(ctx: NodeContext, _parameters: NoParameters) -> Any:
    """Passes the start payload on."""
    return ctx.input


@node_type("output", parameters=NoParameters, needs=("$predecessors",), output_schema={"type": "object"})
async def output_node(ctx: NodeContext, _parameters: NoParameters) -> dict[str, Any]:
    """Collects the outputs of the nodes before it, by node id."""
    return dict(ctx.outputs)


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


class PublishParameters(NodeParameters):
    key: str = Field(description="Under which the value is published; of each key the newest one is kept.")
    value: Any = Field(description="What is published: any JSON.")


@node_type(
    "publish",
    parameters=PublishParameters,
    output_schema={"type": "object", "properties": {"key": {"type": "string"}, "value": {}}},
)
async def publish(ctx: NodeContext, parameters: PublishParameters) -> dict[str, Any]:
    """Publishes a value for those who watch the execution, and passes on its input."""
    ctx.publish(parameters.key, parameters.value)
    return {"key": parameters.key, "value": parameters.value}
