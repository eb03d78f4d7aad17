"""Trigger nodes: where an execution starts. They are never executed; their parameters configure what starts it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from dalsegno.errors import InternalError
from dalsegno.nodes.boundary import NoParameters
from dalsegno.nodes.builder import node_type
from dalsegno.nodes.instants import ZoneName
from dalsegno.nodes.parameters import RAW, NodeParameters
from dalsegno.ports.node import NodeContext, NodeType

_CRON_WORDS = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")


def _cron_shape(line: str) -> str:
    if line.strip().lower() not in _CRON_WORDS and len(line.split()) not in (5, 6):
        raise ValueError(f"should be a cron line of five fields such as '0 9 * * mon-fri', not {line!r}")
    return line


def _upper(method: Any) -> Any:
    return method.upper() if isinstance(method, str) else method


class ScheduleParameters(NodeParameters):
    cron: Annotated[str, AfterValidator(_cron_shape), RAW] = Field(
        description="When to start: minute, hour, day of month, month, day of week."
    )
    timezone: Annotated[ZoneName, RAW] = Field("UTC", description="IANA time zone of the cron line.")


class WebhookParameters(NodeParameters):
    path: Annotated[str, RAW] = Field(min_length=1, description="Path below `/v1/hooks/`, for the reader.")
    method: Annotated[Literal["GET", "POST", "PUT", "PATCH", "DELETE"], BeforeValidator(_upper), RAW] = Field(
        "POST", description="HTTP method that is answered; a deploy takes POST, PUT and PATCH."
    )
    secret: Annotated[str | None, RAW] = Field(
        None,
        description="Name of the credential whose field `secret` signs the requests; it lists the workflow. Without "
        "it, the deploy makes a secret and tells it once.",
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
