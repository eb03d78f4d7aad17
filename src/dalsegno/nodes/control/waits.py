"""Nodes that wait: ``wait`` until a time or a signal, ``approval`` for a decision. Parked tokens hold no resources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from dalsegno.core.graph.external_waits import DECISIONS, check_decision
from dalsegno.errors import InvalidInput
from dalsegno.nodes.builder import node_type
from dalsegno.nodes.data.times import InstantError, from_unix, iso_text, read_instant
from dalsegno.nodes.parameters import RAW, NodeParameters, Number, Seconds, Text
from dalsegno.ports.node import AwaitSignal, NodeContext, NodeError, SleepUntil, Unacceptable

Unit = Literal["second", "seconds", "minute", "minutes", "hour", "hours", "day", "days"]

_UNIT_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}
LONGEST_SIGNAL_NAME = 500


def _is_name(text: str) -> str:
    if not 0 < len(text) <= LONGEST_SIGNAL_NAME:
        raise ValueError(f"should be a name of 1 to {LONGEST_SIGNAL_NAME} characters")
    return text


SignalName = Annotated[Text, AfterValidator(_is_name)]


def _is_instant(value: Any) -> Any:
    if value is not None:
        read_instant(value)
    return value


class WaitParameters(NodeParameters):
    resume: Literal["time_interval", "until", "signal"] = Field(
        "time_interval",
        description="Whether to wait for a span of time, until a point in time, or for a signal.",
    )
    amount: Number = Field(1, ge=0, description="Number of units to wait; may be fractional.")
    unit: Unit = Field("seconds", description="Unit of `amount`.")
    until: Annotated[Any, AfterValidator(_is_instant)] = Field(
        None,
        description="Point in time: ISO text (UTC unless it names an offset) or Unix seconds; "
        "a past one wakes at once.",
    )
    signal: SignalName | None = Field(
        None,
        description="Name of the signal to wait for. A signal that arrived before is taken at once; each is taken by "
        "one waiting node, in the order in which they began to wait. Inside a split, name the item in it: "
        "`approved-{{ $item.id }}`.",
    )
    timeout: Seconds | None = Field(
        None,
        gt=0,
        description="How long to wait for the signal; then the node fails with `TIMEOUT`, which is not retried. "
        "Default: the node's own `timeout`, else none.",
    )

    @model_validator(mode="after")
    def _check_wait(self) -> WaitParameters:
        if self.resume == "until" and self.until is None:
            raise ValueError("parameter 'until' is missing: resume 'until' needs the point in time")
        if self.resume == "signal" and self.signal is None:
            raise ValueError("parameter 'signal' is missing: resume 'signal' needs the name of the signal")
        for name in ("signal", "timeout"):
            if self.resume != "signal" and getattr(self, name) is not None:
                raise ValueError(f"parameter '{name}' needs resume 'signal'")
        return self


@node_type(
    "wait",
    parameters=WaitParameters,
    control="wait",
    output_schema={
        "description": "With `resume: signal` the signal's payload, else an object with `resume_at`.",
        "properties": {"resume_at": {"type": "string", "format": "date-time"}},
    },
)
async def wait(ctx: NodeContext, parameters: WaitParameters) -> SleepUntil | AwaitSignal:
    """Waits for a span of time, until a point in time or for a signal, then passes on its input."""
    if parameters.signal is not None:
        return AwaitSignal(parameters.signal, parameters.timeout)
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


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class ApprovalParameters(NodeParameters):
    message: Text = Field("", description="The question, for the people who decide.")
    approvers: Annotated[list[Text], BeforeValidator(_listed)] = Field(
        default=[],
        description="The people who should decide: names, addresses or groups. Shown with the approval, not enforced.",
    )
    form: Annotated[dict[str, Any] | None, RAW] = Field(
        None,
        description="JSON Schema of the data that come with an approval; a decision that does not fit is refused.",
    )
    timeout: Seconds | None = Field(
        None,
        gt=0,
        description="How long to wait; then the node fails with `TIMEOUT`, which is not retried. "
        "Default: the node's own `timeout`, else none.",
    )
    signal: SignalName | None = Field(
        None,
        description="Name of the signal that carries the decision. Default: `approval:<node id>`, and inside a split "
        "`approval:<node id>:<index>`.",
    )


def _receive(raw: Mapping[str, Any], payload: Any) -> dict[str, Any]:
    try:
        return check_decision(raw.get("form"), payload)
    except InvalidInput as error:
        raise Unacceptable(str(error)) from None


@node_type(
    "approval",
    parameters=ApprovalParameters,
    receive=_receive,
    schemas=("form",),
    output_schema={
        "type": "object",
        "properties": {
            "decision": {"enum": list(DECISIONS)},
            "data": {"description": "Data of the decision; those of an approval fit `form`."},
            "by": {"type": ["string", "null"], "description": "Who decided."},
            "comment": {"type": "string", "description": "The comment, if there is one."},
        },
    },
)
async def approval(ctx: NodeContext, parameters: ApprovalParameters) -> AwaitSignal:
    """Waits for a decision. A rejection is a success too: check `decision` with a `conditional`."""
    question = {
        "message": parameters.message,
        "approvers": list(parameters.approvers),
        "form": parameters.form,
    }
    return AwaitSignal(parameters.signal or _own_signal(ctx), parameters.timeout, question)


def _own_signal(ctx: NodeContext) -> str:
    return ":".join(("approval", ctx.node_id, *map(str, ctx.indexes)))
