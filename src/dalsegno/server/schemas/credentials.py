"""Credentials: what is set up, and what may be shown of it. Values only ever come in."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dalsegno.engine.secrets.credentials import LONGEST_VALUE, MOST_FIELDS, MOST_PATTERNS, NewCredential
from dalsegno.engine.secrets.credentials import CredentialInfo as Info
from dalsegno.engine.secrets.vault import Rotation
from dalsegno.server.schemas.values import Asked, moment

Type = Literal["bearer", "basic", "header", "query", "custom"]
Hosts = Annotated[list[Annotated[str, Field(max_length=260)]], Field(max_length=MOST_PATTERNS)]
Workflows = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=MOST_PATTERNS)
]
Values = Annotated[
    dict[Annotated[str, Field(max_length=100)], Annotated[str, Field(max_length=LONGEST_VALUE)]],
    Field(max_length=MOST_FIELDS),
]

EXAMPLE: dict[str, Any] = {
    "type": "bearer",
    "fields": {"token": "a-long-token-of-the-service"},
    "hosts": ["api.example.com"],
    "workflows": ["billing-*"],
    "description": "The CRM's key of the billing team",
}


class CredentialSetting(Asked, BaseModel):
    """A credential as it is to be from now on."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": EXAMPLE})

    type: Type = Field(description="How the `http` node sends it; `custom` is for tasks.")
    fields: Values | None = Field(
        default=None,
        description="The values: `token` of a bearer, `username` and `password` of basic, `value` of header and query, "
        "any of custom. Without them the stored values are kept.",
    )
    hosts: Hosts = Field(
        default=[],
        description="Where the `http` node may send it over https: `api.example.com` (port 443), "
        "`api.example.com:8443`, `*.example.com`, `*`. `http://localhost:9000` allows plain http there.",
    )
    workflows: Workflows = Field(
        default=["*"], description="Names or patterns of the workflows that may use it."
    )
    sent_as: str = Field(
        default="", max_length=200, description="Of header and query: the header's or parameter's name."
    )
    description: str = Field(default="", max_length=1000)

    def named(self, name: str) -> NewCredential:
        return NewCredential(
            name, self.type, self.fields, self.hosts, self.workflows, self.sent_as, self.description
        )


class CredentialInfo(BaseModel):
    """A credential without its values."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                **EXAMPLE,
                "name": "crm-key",
                "fields": ["token"],
                "sent_as": "",
                "keys": ["5f0c9d27a1be"],
                "version": 1,
                "created_at": "2030-01-31T09:00:00Z",
                "changed_at": "2030-01-31T09:00:00Z",
            }
        }
    )

    name: str
    type: Type
    fields: list[str] = Field(description="Their names.")
    hosts: list[str]
    workflows: list[str]
    sent_as: str
    description: str
    keys: list[str] = Field(description="Ids of the keys that its values are sealed with.")
    version: int = Field(description="Counts its changes.")
    created_at: datetime
    changed_at: datetime

    @classmethod
    def of(cls, info: Info) -> CredentialInfo:
        return cls.model_validate(
            {
                **{name: getattr(info, name) for name in Info.__slots__},
                "created_at": moment(info.created_at),
                "changed_at": moment(info.changed_at),
            }
        )


class RotationReply(BaseModel):
    """What a rotation did."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"rotated": ["crm-key"], "current": 3, "unreadable": {}}}
    )

    rotated: list[str] = Field(description="Sealed anew with the first key.")
    current: int = Field(description="How many were sealed with it already.")
    unreadable: dict[str, str] = Field(description="Left as they are, and why.")

    @classmethod
    def of(cls, done: Rotation) -> RotationReply:
        return cls(rotated=done.rotated, current=done.current, unreadable=done.unreadable)
