"""The ``wait`` node: parks its token until a time; nothing is held meanwhile."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from dalsegno.nodes.builder import node_type
from dalsegno.nodes.instants import InstantError, from_unix, iso_text, read_instant
from dalsegno.nodes.parameters import NodeParameters, Number
from dalsegno.ports.node import NodeContext, NodeError, SleepUntil

Unit = Literal["second", "seconds", "minute", "minutes", "hour", "hours", "day", "days"]

_UNIT_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}


def _is_instant(value: Any) -> Any:
    if value is not None:
        read_instant(value)
    return value


class WaitParameters(NodeParameters):
    resume: Literal["time_interval", "until"] = Field(
        "time_interval", description="Whether to wait for a span of time or until a point in time."
    )
    amount: Number = Field(1, ge=0, description="How many units to wait; may be fractional.")
    unit: Unit = Field("seconds", description="Unit of `amount`.")
    until: Annotated[Any, AfterValidator(_is_instant)] = Field(
        None,
        description="Point in time: ISO text (UTC unless it names an offset) or Unix seconds; "
        "a past one wakes at once.",
    )

    @model_validator(mode="after")
    def _has_its_time(self) -> WaitParameters:
        if self.resume == "until" and self.until is None:
            raise ValueError("parameter 'until' is missing: resume 'until' needs the point in time")
        return self


@node_type(
    "wait",
    parameters=WaitParameters,
    control="wait",
    output_schema={"type": "object", "properties": {"resume_at": {"type": "string", "format": "date-time"}}},
)
async def wait(ctx: NodeContext, parameters: WaitParameters) -> SleepUntil:
    """Waits for a span of time or until a point in time, then passes on what it received."""
    due = _due(ctx.now, parameters)
    try:
        return SleepUntil(due=due, output={"resume_at": iso_text(from_unix(due))})
    except InstantError as error:
        raise NodeError(
            f"parameter 'amount' is too large: {error}",
            code="INVALID_TIME",
            details={"parameter": "amount"},
            retryable=False,
        ) from error


def _due(now: float, parameters: WaitParameters) -> float:
    if parameters.resume == "until":
        return read_instant(parameters.until).timestamp()
    return now + parameters.amount * _UNIT_SECONDS[parameters.unit.removesuffix("s")]
