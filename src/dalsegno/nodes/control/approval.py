"""The ``approval`` node: waits for a decision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from dalsegno.core.graph.external_waits import DECISIONS, check_decision
from dalsegno.errors import InvalidInput
from dalsegno.nodes.builder import node_type
from dalsegno.nodes.control.wait import SignalName
from dalsegno.nodes.parameters import RAW, NodeParameters, Seconds, Text
from dalsegno.ports.node import AwaitSignal, NodeContext, Unacceptable


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
