"""Keys, sessions and the audit log."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from dalsegno.model.token import SYSTEM_QUEUE
from dalsegno.server.access import Caller, Scope
from dalsegno.server.audit import Entry
from dalsegno.server.key_usage import QuotaUse
from dalsegno.server.keys import LONGEST_QUEUE, MAX_NAME, MOST_QUEUES, NAME, Key
from dalsegno.server.quotas import HIGHEST, Quotas
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
    "queues": None,
    "quotas": {"starts_per_minute": 600},
    "use": None,
}
Quota = Annotated[int, Field(ge=0, le=HIGHEST, description="0: no limit.")]
Queue = Annotated[
    str, Field(min_length=1, max_length=LONGEST_QUEUE, json_schema_extra={"not": {"const": SYSTEM_QUEUE}})
]


class QuotaSettings(BaseModel):
    """What a key may use. Left away or null: the server's default, which is no limit unless it is set."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"starts_per_minute": 600}})

    starts_per_minute: Quota | None = Field(
        default=None, description="Starts, submissions, retries and reruns."
    )
    bytes_per_minute: Quota | None = Field(default=None, description="Bodies of requests and of replies.")
    open_streams: Quota | None = Field(default=None, description="Event streams and calls that wait.")
    stored_executions: Quota | None = Field(
        default=None, description="Unfinished and kept ones that it started."
    )

    @staticmethod
    def of(quotas: Quotas) -> QuotaSettings:
        return QuotaSettings(**msgspec.structs.asdict(quotas))

    def named(self) -> dict[str, int | None]:
        """Those that were sent."""
        return self.model_dump(exclude_unset=True)


class QuotaUseInfo(BaseModel):
    """One quota and its use. Rates and streams are those of the server process that answers."""

    limit: int | None = Field(default=None, description="Absent: no limit.")
    used: int | None = Field(
        default=None, description="Absent where nothing limits it and it is not counted."
    )


class QuotaUses(BaseModel):
    """Limits that apply to a key, and what it uses of them."""

    starts_per_minute: QuotaUseInfo = QuotaUseInfo()
    bytes_per_minute: QuotaUseInfo = QuotaUseInfo()
    open_streams: QuotaUseInfo = QuotaUseInfo()
    stored_executions: QuotaUseInfo = QuotaUseInfo()

    @staticmethod
    def of(told: Mapping[str, QuotaUse]) -> QuotaUses:
        return QuotaUses(**{name: QuotaUseInfo(limit=use.limit, used=use.used) for name, use in told.items()})


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
    queues: list[Queue] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_QUEUES,
        description="Whose tasks a remote worker may take with it, by their exact names; `*` means all. Needed with the"
        " scope `worker`, unless `admin` is there, too; not taken without it.",
    )
    quotas: QuotaSettings | None = None


class KeyChange(Asked, BaseModel):
    """What is left away stays as it is."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"queues": ["images"], "quotas": {"open_streams": 20}}},
    )

    queues: list[Queue] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_QUEUES,
        description="Replaces the list; only of a key with the scope `worker` and without `admin`.",
    )
    quotas: QuotaSettings | None = Field(
        default=None, description="Those that are named change; null takes the server's default again."
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
    queues: list[str] | None = Field(
        default=None, description="Whose tasks a remote worker may take with it; null: those of all queues."
    )
    quotas: QuotaSettings = Field(
        default=QuotaSettings(), description="Its own, without the server's defaults."
    )
    use: QuotaUses | None = Field(default=None, description="What it uses here, in lists alone.")

    @classmethod
    def of(cls, key: Key, use: Mapping[str, QuotaUse] | None = None) -> KeyInfo:
        return cls(
            id=key.id,
            name=key.name,
            scopes=list(key.scopes),
            created_at=moment(key.created_at),
            created_by=key.created_by,
            expires_at=maybe_moment(key.expires_at),
            revoked_at=maybe_moment(key.revoked_at),
            used_at=maybe_moment(key.used_at),
            queues=list(key.queues) if key.queues is not None else None,
            quotas=QuotaSettings.of(key.quotas),
            use=QuotaUses.of(use) if use is not None else None,
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
    queues: list[str] | None = Field(
        default=None, description="Whose tasks a remote worker may take; null: those of all queues."
    )
    use: QuotaUses | None = Field(
        default=None, description="Quotas of the key, and what it uses of them here."
    )

    @classmethod
    def of(
        cls, caller: Caller, expires_at: float | None = None, use: Mapping[str, QuotaUse] | None = None
    ) -> SessionInfo:
        return cls(
            name=caller.name,
            scopes=sorted(caller.scopes),
            via=caller.via,
            expires_at=maybe_moment(expires_at),
            queues=sorted(caller.queues) if caller.queues is not None else None,
            use=QuotaUses.of(use) if use is not None else None,
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
