"""Schemas of moves: executions that go on with another version of their workflow."""

from __future__ import annotations

from typing import Annotated, Literal, Self

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from dalsegno.engine.operations.moves import CHUNK, LARGEST_CHUNK, Moved, MoveReport
from dalsegno.server.schemas.executions import EXAMPLE_ID, FramePreview
from dalsegno.server.schemas.values import Asked

MOST_SOURCE = 1_000_000
"""Characters of a script that is checked without being deployed."""

MoveVersion = Annotated[
    int | Annotated[str, Field(max_length=100)],
    Field(description="A number, an alias or `latest`.", examples=[4]),
]


class MoveRequest(Asked, BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"version": 4, "dry_run": True}})

    version: MoveVersion
    dry_run: bool = Field(default=False, description="Check whether it could be moved, and change nothing.")


class MovedInfo(BaseModel):
    """What became of one execution."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "execution": EXAMPLE_ID,
                "state": "moved",
                "from_version": 3,
                "to_version": 4,
                "frames": [
                    {
                        "function": "checkout",
                        "old_line": 5,
                        "old_text": "paid = await charge(order)",
                        "new_line": 7,
                        "new_text": "paid = await charge(order)",
                    }
                ],
            }
        }
    )

    execution: str
    state: Literal["moved", "movable", "there"] = Field(
        description="`movable`: with `dry_run`, it could be moved. `there`: it had that version already."
    )
    from_version: int
    to_version: int
    frames: list[FramePreview] = Field(description="The functions that wait, outermost first.")

    @classmethod
    def of(cls, done: Moved) -> Self:
        fields = msgspec.to_builtins(done)
        return cls(**{name: fields[name] for name in cls.model_fields})


class MoveReasonInfo(BaseModel):
    """Why an execution cannot go on with the new version, with the lines of both."""

    message: str
    old_line: int
    old_text: str
    new_line: int | None = None
    new_text: str = ""
    advice: str = ""


class MoveRefusalInfo(BaseModel):
    execution: str
    detail: str
    reasons: list[MoveReasonInfo] = []


class MovesRequest(Asked, BaseModel):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"from": 3, "to": 4, "dry_run": True}}
    )

    before: MoveVersion = Field(alias="from")
    to: MoveVersion | None = Field(default=None, description="The new version; not with `source`.")
    source: str | None = Field(
        default=None,
        max_length=MOST_SOURCE,
        description="A script that is not deployed, to check what could be moved to it. Only with `dry_run`.",
    )
    dry_run: bool = Field(default=False, description="Check which could be moved, and change nothing.")
    limit: int = Field(default=CHUNK, ge=1, le=LARGEST_CHUNK, description="Maximum number in this call.")
    cursor: str | None = Field(default=None, max_length=500, description="`next` of the previous call.")


class MovesReply(BaseModel):
    """The result of one call. Repeat the call with ``next`` as ``cursor`` until it is absent."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "workflow": "checkout",
                "from_version": 3,
                "to_version": 4,
                "dry_run": False,
                "moved": 1,
                "there": 0,
                "ended": 0,
                "refusals": [
                    {
                        "execution": EXAMPLE_ID,
                        "detail": "its state of version 3 of 'checkout' cannot continue in version 4 of 'checkout': …",
                        "reasons": [
                            {
                                "message": "the await of 'charge' is not at this place of the new version: it is gone, "
                                "or inside other blocks",
                                "old_line": 5,
                                "old_text": "paid = await charge(order)",
                            }
                        ],
                    }
                ],
                "next": None,
            }
        }
    )

    workflow: str
    from_version: int
    to_version: int
    dry_run: bool
    moved: int = Field(description="Executions that were moved or, with `dry_run`, could be.")
    there: int = Field(description="Executions that had been moved already.")
    ended: int = Field(description="Executions that ended meanwhile.")
    refusals: list[MoveRefusalInfo]
    next: str | None = None

    @classmethod
    def of(cls, report: MoveReport) -> Self:
        return cls(**msgspec.to_builtins(report))
