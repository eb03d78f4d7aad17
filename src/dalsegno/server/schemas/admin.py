"""Schemas of keys, sessions, the audit log, failure alerts and credentials.

Values of credentials occur only in requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from dalsegno.admin.alerts import MOST_ADDRESSES, Alert
from dalsegno.admin.keys import HIGHEST, LONGEST_QUEUE, MAX_NAME, MOST_QUEUES, NAME, Key, Quotas, Scope
from dalsegno.engine.secrets.credentials import LONGEST_VALUE, MOST_FIELDS, MOST_PATTERNS, NewCredential
from dalsegno.engine.secrets.credentials import CredentialInfo as Info
from dalsegno.engine.secrets.vault import Rotation
from dalsegno.model.token import SYSTEM_QUEUE
from dalsegno.server.alerts import State
from dalsegno.server.auth.audit import Entry
from dalsegno.server.auth.authentication import Caller
from dalsegno.server.auth.quotas import QuotaUse
from dalsegno.server.schemas.values import PRINTABLE, Asked, Delay, maybe_moment, shown

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
    """Quotas of a key. Omitted or null: the server's default, which is unlimited unless it is set."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"starts_per_minute": 600}})

    starts_per_minute: Quota | None = Field(
        default=None, description="Starts, submissions, retries and reruns."
    )
    bytes_per_minute: Quota | None = Field(default=None, description="Bodies of requests and of replies.")
    open_streams: Quota | None = Field(default=None, description="Event streams and calls that wait.")
    stored_executions: Quota | None = Field(
        default=None, description="Stored executions that it started, ended ones included."
    )

    @staticmethod
    def of(quotas: Quotas) -> QuotaSettings:
        return QuotaSettings(**msgspec.structs.asdict(quotas))

    def named(self) -> dict[str, int | None]:
        """Return the quotas that were sent."""
        return self.model_dump(exclude_unset=True)


class QuotaUseInfo(BaseModel):
    """One quota and its use. Rates and streams are those of the server process that answers."""

    limit: int | None = Field(default=None, description="Absent: no limit.")
    used: int | None = Field(default=None, description="Absent if there is no limit and no count.")


class QuotaUses(BaseModel):
    """Limits that apply to a key, and their use."""

    starts_per_minute: QuotaUseInfo = QuotaUseInfo()
    bytes_per_minute: QuotaUseInfo = QuotaUseInfo()
    open_streams: QuotaUseInfo = QuotaUseInfo()
    stored_executions: QuotaUseInfo = QuotaUseInfo()

    @staticmethod
    def of(uses: Mapping[str, QuotaUse]) -> QuotaUses:
        return QuotaUses(**{name: QuotaUseInfo(limit=use.limit, used=use.used) for name, use in uses.items()})


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
        description="How long it is valid: `30d`, `12h`. Default: without a limit.",
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
    """Omitted fields stay unchanged."""

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
        default=None, description="Only the given quotas change; null resets one to the server's default."
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
    use: QuotaUses | None = Field(default=None, description="Its use on this server; only in lists.")

    @classmethod
    def of(cls, key: Key, use: Mapping[str, QuotaUse] | None = None) -> KeyInfo:
        return shown(
            cls,
            key,
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
    action: str | None = Field(default=None, description="The route.")
    status: int | None = Field(
        default=None, description="Status of the reply; absent if the caller had disconnected."
    )
    address: str | None = None
    count: int | None = Field(
        default=None,
        description="For refusals of callers without a key: number of similar ones within the minute.",
    )

    @classmethod
    def of(cls, number: int, entry: Entry) -> AuditEntry:
        return shown(cls, entry, number=number)


ALERT_EXAMPLE: dict[str, Any] = {
    "workflow": "checkout",
    "url": "https://chat.example.com/hooks/1",
    "every": 60,
}


class AlertSetting(Asked, BaseModel):
    """The settings of an alert."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": ALERT_EXAMPLE})

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
        description="Minimum seconds between two messages; failures in between are grouped in the next one.",
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
    """An alert, without parts of its address that may be secret."""

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
    waiting: int = Field(default=0, description="Failures that are not reported yet.")
    told_at: datetime | None = Field(default=None, description="When the last message was accepted.")
    error: str | None = Field(default=None, description="Why the last message was not accepted.")
    warning: str | None = Field(default=None, description="Why it can report nothing, if so.")
    signed: bool = Field(
        default=False, description="Whether messages carry a signature (Standard Webhooks); mail does not."
    )

    @classmethod
    def of(cls, alert: Alert, state: State | None, warning: str | None = None) -> AlertInfo:
        return shown(
            cls,
            alert,
            waiting=_waiting(state) if state is not None else 0,
            told_at=maybe_moment((state.told_at or None) if state is not None else None),
            error=state.error if state is not None else None,
            warning=warning,
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
        default="24h", description="How long the previous secret also signs: seconds, or text such as `24h`."
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


Type = Literal["bearer", "basic", "header", "query", "custom"]
Hosts = Annotated[list[Annotated[str, Field(max_length=260)]], Field(max_length=MOST_PATTERNS)]
Workflows = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=MOST_PATTERNS)
]
Values = Annotated[
    dict[Annotated[str, Field(max_length=100)], Annotated[str, Field(max_length=LONGEST_VALUE)]],
    Field(max_length=MOST_FIELDS),
]

CREDENTIAL_EXAMPLE: dict[str, Any] = {
    "type": "bearer",
    "fields": {"token": "a-long-token-of-the-service"},
    "hosts": ["api.example.com"],
    "workflows": ["billing-*"],
    "description": "The CRM's key of the billing team",
}


class CredentialSetting(Asked, BaseModel):
    """The settings of a credential."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": CREDENTIAL_EXAMPLE, "required": ["type", "workflows"]}
    )

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
        default=[],
        description="Names or patterns of the workflows that may use it, at least one: definitions under them need an "
        "approval. `*`: every definition may use it, without an approval.",
    )
    sent_as: str = Field(
        default="", max_length=200, description="Of header and query: the header's or parameter's name."
    )
    description: str = Field(default="", max_length=1000)
    adoptable: bool = Field(
        default=False,
        description="Definitions that execution messages of other programs carry may use it, whatever their name.",
    )

    def named(self, name: str) -> NewCredential:
        return NewCredential(
            name,
            self.type,
            self.fields,
            self.hosts,
            self.workflows,
            self.sent_as,
            self.description,
            self.adoptable,
        )


class CredentialInfo(BaseModel):
    """A credential without its values."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                **CREDENTIAL_EXAMPLE,
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
    adoptable: bool = False

    @classmethod
    def of(cls, info: Info) -> CredentialInfo:
        return shown(cls, info)


class RotationReply(BaseModel):
    """The result of a rotation."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"rotated": ["crm-key"], "current": 3, "unreadable": {}}}
    )

    rotated: list[str] = Field(description="Sealed again with the first key.")
    current: int = Field(description="Number of secrets that were sealed with it already.")
    unreadable: dict[str, str] = Field(description="Secrets that were not changed, with the reason.")

    @classmethod
    def of(cls, done: Rotation) -> RotationReply:
        return shown(cls, done)
