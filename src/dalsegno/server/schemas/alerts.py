"""Failure alerts: whom to tell, and how it goes."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from dalsegno.server.alerting import State
from dalsegno.server.alerts import MOST_ADDRESSES, Alert
from dalsegno.server.schemas.values import PRINTABLE, Asked, Delay, maybe_moment, moment

EXAMPLE: dict[str, Any] = {"workflow": "checkout", "url": "https://chat.example.com/hooks/1", "every": 60}


class AlertSetting(Asked, BaseModel):
    """An alert as it is to be from now on."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": EXAMPLE})

    workflow: str | None = Field(default=None, max_length=300, description="Without it: every workflow.")
    url: str | None = Field(
        default=None,
        max_length=2000,
        pattern=PRINTABLE,
        description="Gets a POST with JSON. Sealed in the store, never shown.",
    )
    mail: Annotated[list[Annotated[str, Field(max_length=320)]], Field(max_length=MOST_ADDRESSES)] = Field(
        default=[], description="Addresses, instead of `url`."
    )
    every: float = Field(
        default=60.0,
        ge=0,
        le=86_400,
        description="Seconds between two messages at least; what fails meanwhile comes with the next one.",
    )
    enabled: bool = True

    def named(self, id: str, now: float) -> Alert:
        return Alert(
            id,
            self.workflow,
            tuple(self.mail),
            self.every,
            self.enabled,
            now,
        )


class AlertInfo(BaseModel):
    """An alert, without what may be secret in its address."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "id": "ops",
                "workflow": "checkout",
                "target": "https://chat.example.com/…",
                "every": 60,
                "enabled": True,
                "created_at": "2030-01-31T09:00:00Z",
                "waiting": 0,
            }
        }
    )

    id: str
    workflow: str | None
    target: str
    every: float
    enabled: bool
    created_at: datetime
    waiting: int = Field(default=0, description="Failures that are still to be told.")
    told_at: datetime | None = Field(default=None, description="When the last message was taken.")
    error: str | None = Field(default=None, description="Why the last one was not.")
    warning: str | None = Field(default=None, description="Why it tells of nothing, if it does not.")
    signed: bool = Field(
        default=False, description="Whether messages carry a signature (Standard Webhooks); mail does not."
    )

    @classmethod
    def of(cls, alert: Alert, state: State | None, warning: str | None = None) -> AlertInfo:
        return cls(
            id=alert.id,
            workflow=alert.workflow,
            target=alert.target,
            every=alert.every,
            enabled=alert.enabled,
            created_at=moment(alert.created_at),
            waiting=_waiting(state) if state is not None else 0,
            told_at=maybe_moment((state.told_at or None) if state is not None else None),
            error=state.error if state is not None else None,
            warning=warning,
            signed=alert.signed,
        )


class AlertSaved(AlertInfo):
    """An alert that was created or changed."""

    secret: str | None = Field(
        default=None,
        description="The secret that signs its messages, where one was made now. It is shown this once.",
    )


class RotateRequest(Asked, BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"overlap": "24h"}})

    overlap: Delay = Field(
        default="24h", description="How long the secret before signs as well: seconds, or text such as `24h`."
    )


class RotatedSecret(BaseModel):
    model_config = ConfigDict(json_schema_extra={"example": {"secret": "whsec_…"}})

    secret: str = Field(description="Signs from now on. It is shown this once.")


class Tested(BaseModel):
    model_config = ConfigDict(json_schema_extra={"example": {"delivered": True, "error": None}})

    delivered: bool
    error: str | None = None


def _waiting(state: State) -> int:
    return state.count + (state.batch.count if state.batch is not None else 0)
