"""Keys, sessions and the audit log."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dalsegno.server.access import Caller, Scope
from dalsegno.server.audit import Entry
from dalsegno.server.keys import MAX_NAME, NAME, Key
from dalsegno.server.schemas.values import Asked, maybe_moment, moment

_KEY: dict[str, Any] = {
    "id": "5f0c2ab19d3e",
    "name": "deploy",
    "scopes": ["run"],
    "created_at": "2030-01-31T09:00:00Z",
    "created_by": "ops",
    "expires_at": "2030-03-02T09:00:00Z",
    "revoked_at": None,
    "used_at": None,
}


class KeyRequest(Asked, BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"name": "deploy", "scopes": ["run"], "expires": "30d"}},
    )

    name: str = Field(
        max_length=MAX_NAME, pattern=f"^{NAME}$", description="Letters, digits, spaces, . @ : + - _"
    )
    scopes: list[Scope] = Field(
        min_length=1, max_length=4, description="`run` includes `read`; `admin` includes everything."
    )
    expires: str | None = Field(
        default=None,
        pattern=r"^[1-9][0-9]{0,3}[smhd]$",
        description="How long it is valid: `30d`, `12h`. Without it, for good.",
    )


class KeyInfo(BaseModel):
    """A key without its secret."""

    model_config = ConfigDict(json_schema_extra={"example": _KEY})

    id: str
    name: str
    scopes: list[Scope]
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    used_at: datetime | None = Field(default=None, description="To the minute.")

    @classmethod
    def of(cls, key: Key) -> KeyInfo:
        return cls(
            id=key.id,
            name=key.name,
            scopes=list(key.scopes),
            created_at=moment(key.created_at),
            created_by=key.created_by,
            expires_at=maybe_moment(key.expires_at),
            revoked_at=maybe_moment(key.revoked_at),
            used_at=maybe_moment(key.used_at),
        )


class NewKey(KeyInfo):
    model_config = ConfigDict(json_schema_extra={"example": {**_KEY, "key": "ds_5f0c2ab19d3e_…"}})

    key: str = Field(description="The key itself. It is shown this once and stored nowhere.")


class SignIn(Asked, BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"key": "ds_5f0c2ab19d3e_…"}})

    key: str = Field(min_length=1, max_length=200)


class SessionInfo(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "name": "deploy",
                "scopes": ["read", "run"],
                "via": "session",
                "expires_at": "2030-01-31T21:00:00Z",
            }
        }
    )

    name: str = Field(description="The name of the key; `open` where the server has no keys.")
    scopes: list[Scope]
    via: Literal["open", "key", "session", "nobody"]
    expires_at: datetime | None = Field(default=None, description="When one has to sign in again.")

    @classmethod
    def of(cls, caller: Caller, expires_at: float | None = None) -> SessionInfo:
        return cls(
            name=caller.name,
            scopes=sorted(caller.scopes),
            via=caller.via,
            expires_at=maybe_moment(expires_at),
        )


class AuditEntry(BaseModel):
    """One call that may have changed something."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "number": 812,
                "at": "2030-01-31T09:00:00Z",
                "who": "deploy",
                "via": "key",
                "key": "5f0c2ab19d3e",
                "method": "POST",
                "path": "/v1/executions",
                "action": "executions.start",
                "status": 201,
                "address": "127.0.0.1",
            }
        }
    )

    number: int
    at: datetime
    who: str = Field(description="The name of the key, `open`, or `nobody` on public routes.")
    via: str
    key: str | None = Field(default=None, description="The id of the key.")
    method: str
    path: str
    action: str | None = Field(default=None, description="Which route it was.")
    status: int | None = Field(
        default=None, description="What was answered; absent when the caller had gone away."
    )
    address: str | None = None
    count: int | None = Field(
        default=None,
        description="For refusals of callers without a key: how many like this followed within the minute.",
    )

    @classmethod
    def of(cls, number: int, entry: Entry) -> AuditEntry:
        return cls(
            number=number,
            at=moment(entry.at),
            who=entry.who,
            via=entry.via,
            key=entry.key,
            method=entry.method,
            path=entry.path,
            action=entry.action,
            status=entry.status,
            address=entry.address,
            count=entry.count,
        )
