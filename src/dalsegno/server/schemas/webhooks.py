"""Schemas of webhooks: settings, their readable part, and replies to senders."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from dalsegno.admin.webhook_signatures import PRESETS, TOLERANCE, Signature, Style
from dalsegno.admin.webhooks import METHODS, Webhook, WebhookOptions
from dalsegno.model.execution import ExecutionState
from dalsegno.server.schemas.executions import EXAMPLE_ID
from dalsegno.server.schemas.values import Asked, Tags, moment

HeaderName = Annotated[str, Field(max_length=100)]
Method = Literal["POST", "PUT", "PATCH"]

EXAMPLE: dict[str, Any] = {
    "path": "github/push",
    "workflow": "build@stable",
    "secret": "a-long-secret-that-the-sender-knows",
    "signature": {"style": "github"},
    "headers": ["x-github-event"],
}


class SignatureSetting(Asked, BaseModel):
    """The signature scheme of the sender. A style has its header names; each can be changed."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"style": "github"}})

    style: Style = Field(
        default="github",
        description="`github`, `stripe`, `slack`, `standard` (Standard Webhooks), `plain` (HMAC-SHA256 in hex, alone "
        "in a header), `token` (the secret itself in a header) or `none`.",
    )
    header: HeaderName | None = Field(default=None, description="Which header has the signature.")
    prefix: str | None = Field(default=None, max_length=50, description="Prefix of the signature: `sha256=`.")
    timestamp: HeaderName | None = Field(
        default=None,
        description="Of `github` and `plain`: the header with the time of sending. "
        "The signature then covers the time, a dot and the body.",
    )
    tolerance: float = Field(
        default=TOLERANCE,
        gt=0,
        le=86_400,
        description="Seconds by which that time may differ from the server's.",
    )

    def rule(self) -> Signature:
        preset = PRESETS[self.style]
        return msgspec.structs.replace(
            preset,
            header=(self.header or preset.header).lower(),
            prefix=preset.prefix if self.prefix is None else self.prefix,
            timestamp=(self.timestamp or preset.timestamp).lower()
            if self.style in ("github", "plain", "slack", "standard")
            else "",
            tolerance=self.tolerance,
        )


class WebhookSetting(Asked, BaseModel):
    """The settings of a webhook."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": EXAMPLE})

    path: str = Field(max_length=1000, description="Deliveries arrive at `/v1/hooks/<path>`.")
    workflow: str = Field(max_length=300, description="`build`, `build@3` or `build@stable`.")
    secret: str | None = Field(
        default=None,
        max_length=1000,
        description="The sender's secret. Sealed in the store, never shown; if absent, the stored one is kept.",
    )
    signature: SignatureSetting = SignatureSetting()
    methods: Annotated[list[Method], Field(min_length=1, max_length=len(METHODS))] = ["POST"]
    headers: Annotated[list[HeaderName], Field(max_length=50)] = Field(
        default=[],
        description="Headers that the workflow gets, in addition to `content-type` and `user-agent`.",
    )
    delivery_header: HeaderName = Field(
        default="",
        description="The header with the delivery's id: the same id starts once. Without it, and without a field, the "
        "same signature starts once.",
    )
    delivery_field: str | None = Field(
        default=None,
        max_length=200,
        description="The same in the JSON body, such as `event.id`. Default: `id` of the style `stripe`, `event_id` of "
        "`slack`.",
    )
    sync_seconds: float | None = Field(
        default=None,
        gt=0,
        le=60,
        description="How long the sender waits for the workflow's output; without it the answer is 202 at once.",
    )
    body_bytes: int = Field(default=1024 * 1024, ge=1, le=16 * 1024 * 1024)
    rate: int = Field(
        default=600, ge=1, le=1_000_000, description="Deliveries a minute that each server accepts."
    )
    enabled: bool = True
    tags: Tags = {}
    description: str = Field(default="", max_length=1000)

    def named(self, id: str, now: float) -> Webhook:
        options: WebhookOptions = {
            "path": self.path,
            "signature": self.signature.rule(),
            "methods": self.methods,
            "headers": self.headers,
            "delivery_header": self.delivery_header,
            "delivery_field": self.delivery_field,
            "sync_seconds": self.sync_seconds,
            "body_bytes": self.body_bytes,
            "rate": self.rate,
            "enabled": self.enabled,
            "tags": self.tags,
            "description": self.description,
        }
        return Webhook.new(id, self.workflow, options, now)


class SignatureInfo(BaseModel):
    style: Style
    header: str
    prefix: str
    timestamp: str
    tolerance: float


class WebhookInfo(BaseModel):
    """A webhook without its secret."""

    id: str = Field(examples=["github-push"])
    path: str = Field(examples=["github/push"])
    url: str = Field(description="Path of deliveries on this server.", examples=["/v1/hooks/github/push"])
    workflow: str
    signature: SignatureInfo
    methods: list[str]
    headers: list[str]
    delivery_header: str
    delivery_field: str
    sync_seconds: float | None
    body_bytes: int
    rate: int
    enabled: bool
    tags: dict[str, str]
    description: str
    created_at: datetime
    warning: str | None = Field(
        default=None,
        description="Why deliveries are refused: its workflow is not deployed, or its secret cannot be read.",
    )

    @classmethod
    def of(cls, webhook: Webhook, warning: str | None = None) -> WebhookInfo:
        fields = msgspec.to_builtins(webhook)
        url, created_at = f"/v1/hooks/{webhook.path}", moment(webhook.created_at)
        return cls.model_validate({**fields, "url": url, "created_at": created_at, "warning": warning})


class HookReply(BaseModel):
    """The reply to the sender of a delivery: the execution it started, and its state."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"id": EXAMPLE_ID, "execution": EXAMPLE_ID, "state": "RUNNING", "repeated": False}
        }
    )

    id: str = Field(description="Of the execution.")
    execution: str = Field(deprecated=True, description="The same as `id`, under its earlier name.")
    state: ExecutionState
    repeated: bool = Field(description="Whether the same delivery arrived before; then nothing was started.")
