"""Bulk actions: one action for all executions that a filter finds."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from dalsegno.model.execution import ExecutionKind, ExecutionState
from dalsegno.ports.archive import ExecutionFilter
from dalsegno.server.filters import TEXT, seconds_of
from dalsegno.server.schemas.executions import EXAMPLE_ID
from dalsegno.server.schemas.values import Asked, Tags

BulkAction = Literal["cancel", "terminate", "pause", "resume", "retry", "delete"]

Relation = Annotated[str, Field(max_length=50)]


class FilterBody(Asked, BaseModel):
    """As in the list of executions. All that is given must fit."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"workflow": "checkout", "tags": {"env": "test"}}}
    )

    workflow: str | None = Field(default=None, max_length=200)
    states: list[ExecutionState] = Field(default=[], max_length=6)
    kinds: list[ExecutionKind] = Field(default=[], max_length=5, description="Empty: all but schedules.")
    tags: Tags = {}
    parent: str | None = Field(default=None, max_length=100)
    relations: list[Relation] = Field(default=[], max_length=10)
    created_since: datetime | None = None
    created_until: datetime | None = None
    ended_since: datetime | None = None
    ended_until: datetime | None = None
    text: str | None = Field(default=None, min_length=1, max_length=200, description=TEXT)

    def is_empty(self) -> bool:
        """Whether it means every execution."""
        return not any(getattr(self, name) for name in FilterBody.model_fields)

    def of_states(self, states: tuple[ExecutionState, ...]) -> ExecutionFilter:
        return ExecutionFilter(
            self.workflow,
            states,
            tuple(sorted(self.tags.items())),
            self.parent,
            tuple(dict.fromkeys(self.kinds)),
            tuple(dict.fromkeys(self.relations)),
            created_since=seconds_of(self.created_since),
            created_until=seconds_of(self.created_until),
            ended_since=seconds_of(self.ended_since),
            ended_until=seconds_of(self.ended_until),
            text=self.text,
        )


class BulkRequest(Asked, BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "action": "cancel",
                "filter": {"workflow": "checkout", "created_until": "2026-01-05T09:00:00Z"},
                "dry_run": True,
                "reason": "ordered by mistake",
            }
        },
    )

    action: BulkAction
    filter: FilterBody = Field(default_factory=FilterBody)
    all: bool = Field(default=False, description="Needed where the filter is empty.")
    dry_run: bool = Field(default=False, description="Counts what would be changed and changes nothing.")
    reason: str | None = Field(default=None, max_length=2000, description="Of a cancellation or termination.")
    limit: int = Field(default=1000, ge=1, le=10_000, description="How many executions at most in this call.")
    cursor: str | None = Field(default=None, max_length=500, description="`next` of the call before.")


class Refusal(BaseModel):
    """An execution that was not changed, and why."""

    id: str
    detail: str


class BulkReply(BaseModel):
    """What one call did. Repeat it with ``next`` as ``cursor`` until there is none."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "action": "cancel",
                "dry_run": False,
                "matched": 2,
                "changed": 1,
                "skipped": 1,
                "ids": [EXAMPLE_ID],
                "refusals": [{"id": EXAMPLE_ID, "detail": "it has ended (COMPLETED)"}],
                "next": None,
            }
        }
    )

    action: BulkAction
    dry_run: bool
    matched: int = Field(description="Executions that the filter found, in a state that allows the action.")
    changed: int = Field(description="With `dry_run`: how many would be.")
    skipped: int = Field(description="Changed by somebody else meanwhile, or done already.")
    ids: list[str] = Field(description="The first of those that were changed.")
    refusals: list[Refusal] = Field(default=[], description="The first of those that were not.")
    next: str | None = Field(default=None, description="There is more: give it as `cursor`.")
