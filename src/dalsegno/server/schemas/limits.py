"""Limits over HTTP."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from dalsegno.model.limits import LimitView, show_rate
from dalsegno.server.schemas.values import Asked

RATE = "How many may start in a period: 10/s, 100/m, 5/30s."


class LimitRequest(Asked, BaseModel):
    """What is not given is as definitions say again."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"concurrency": 5, "rate": "10/s"}]}
    )

    concurrency: int | None = Field(
        default=None, ge=0, le=1_000_000, description="How many run at once; 0: nothing starts."
    )
    rate: str | None = Field(default=None, max_length=40, description=RATE)


class LimitInfo(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "key": "gmail",
                    "concurrency": 5,
                    "rate": "10/s",
                    "in_use": 5,
                    "waiting": 12,
                    "opens_at": None,
                }
            ]
        }
    )

    key: str
    concurrency: int | None = Field(description="As operators have set it; null: as definitions say.")
    rate: str | None = Field(description="As operators have set it; null: as definitions say.")
    in_use: int = Field(description="Slots that running steps and executions hold.")
    waiting: int = Field(description="Ready steps that wait in line; counted up to 1,000.")
    opens_at: float | None = Field(
        description="When the operators' rate allows the next start; null: at once."
    )

    @classmethod
    def of(cls, view: LimitView) -> Self:
        rate = view.rule.rate
        return cls(
            key=view.key,
            concurrency=view.rule.concurrency,
            rate=show_rate(rate) if rate is not None else None,
            in_use=view.in_use,
            waiting=view.waiting,
            opens_at=view.opens_at,
        )
