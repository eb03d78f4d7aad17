"""Schemas of definitions that credentials list, and of their approval by an admin."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from dalsegno.engine.secrets.definition_approvals import Grace, ListedDefinition
from dalsegno.server.schemas.values import moment

EXAMPLE: dict[str, Any] = {
    "workflow": "billing",
    "version": 3,
    "hash": "5f0c9d27a1be5f0c9d27a1be5f0c9d27a1be5f0c9d27a1be5f0c9d27a1be5f0c",
    "credentials": ["crm-key"],
    "approved": True,
    "approved_by": "ann",
    "approved_at": "2030-01-31T09:00:00Z",
}


class ListedDefinitionInfo(BaseModel):
    """A current or aliased version of a workflow that a credential lists by name."""

    model_config = ConfigDict(json_schema_extra={"example": EXAMPLE})

    workflow: str
    version: int
    hash: str
    credentials: list[str] = Field(description="Those that list it.")
    approved: bool = Field(description="Whether it may use them.")
    approved_by: str | None = None
    approved_at: datetime | None = None

    @classmethod
    def of(cls, listed: ListedDefinition) -> ListedDefinitionInfo:
        approval = listed.approval
        return cls(
            workflow=listed.workflow,
            version=listed.version,
            hash=listed.hash,
            credentials=list(listed.credentials),
            approved=approval is not None,
            approved_by=approval.by if approval is not None else None,
            approved_at=moment(approval.at) if approval is not None else None,
        )


class ListedDefinitions(BaseModel):
    model_config = ConfigDict(json_schema_extra={"example": {"items": [EXAMPLE], "grace_until": None}})

    items: list[ListedDefinitionInfo]
    grace_until: datetime | None = Field(
        default=None,
        description="Until when definitions and credentials from before approvals work without one; null: they do not, "
        "or none has been used yet.",
    )

    @classmethod
    def of(cls, listed: list[ListedDefinition], grace: Grace | None) -> ListedDefinitions:
        until = moment(grace.until) if grace is not None and grace.until else None
        return cls(items=[ListedDefinitionInfo.of(each) for each in listed], grace_until=until)


class ApprovedDefinition(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={"example": {name: EXAMPLE[name] for name in ("workflow", "version", "hash")}}
    )

    workflow: str
    version: int
    hash: str
