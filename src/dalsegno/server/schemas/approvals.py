"""Schemas of open approvals, decisions and approval links."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from dalsegno.core.graph.external_waits import LONGEST_COMMENT
from dalsegno.engine.operations.approvals import Approval
from dalsegno.model.ids import LONGEST_ID
from dalsegno.server.schemas.executions import EXAMPLE_ID, Decision
from dalsegno.server.schemas.values import Asked, Delay, Kept, shown

Indexes = Annotated[list[Annotated[int, Field(ge=0, le=2**53)]], Field(max_length=20)]


class ApprovalInfo(BaseModel):
    """A question that an execution waits for."""

    execution: str = Field(examples=[EXAMPLE_ID])
    workflow: str = Field(examples=["refund"])
    node: str = Field(examples=["gate"])
    message: str = Field(examples=["Refund 80 EUR?"])
    approvers: list[str] = Field(description="The people who should decide; shown, not enforced.")
    form: dict[str, Any] | None = Field(
        default=None, description="JSON Schema of the data that come with an approval."
    )
    since: datetime
    due: datetime | None = Field(default=None, description="When the node times out.")
    signal: str = Field(description="Name of the signal that can carry the decision instead.")
    indexes: list[int] = Field(
        default=[], description="The item's number in every split around the node, outermost first."
    )

    @classmethod
    def of(cls, approval: Approval) -> ApprovalInfo:
        return shown(cls, approval)


class DecisionRequest(Asked, BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"decision": "approved", "data": {"amount": 80}, "by": "ann"}},
    )

    decision: Decision
    data: Annotated[Any, Kept("values", "the decision's data")] = Field(
        default=None, description="Data for the form; not needed for a rejection."
    )
    by: str | None = Field(
        default=None, max_length=500, description="Who decides; without it, the name of the key."
    )
    index: Indexes | None = Field(default=None, description="Number of the item, inside a split.")
    comment: str | None = Field(default=None, max_length=LONGEST_COMMENT, description="Why; needs no form.")


class DecisionInfo(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "example": {"execution": EXAMPLE_ID, "node": "gate", "decision": "approved", "by": "ann"}
        }
    )

    execution: str
    node: str
    decision: Decision
    by: str | None
    comment: str | None = None


class LinkRequest(Asked, BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"execution": EXAMPLE_ID, "node": "gate", "expires": "3d", "by": "ann"}
        },
    )

    execution: str = Field(max_length=LONGEST_ID)
    node: str = Field(max_length=500)
    index: Indexes | None = Field(default=None, description="Number of the item, inside a split.")
    expires: Delay = Field(default="7d", description="How long it is valid: seconds, or text such as `3d`.")
    by: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Name of the recipient, who decides; without it the person who opens the link enters a name.",
    )


class LinkInfo(BaseModel):
    """An approval link. It is shown only once: the store keeps a hash of it."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "url": "http://127.0.0.1:8700/v1/approvals/links/u4…",
                "expires_at": "2030-01-31T09:00:00Z",
            }
        }
    )

    url: str
    expires_at: datetime
