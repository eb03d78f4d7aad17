"""Schemas of definitions, their versions and aliases, and of approvals of definitions that credentials list."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from dalsegno.engine.secrets.definition_approvals import Grace, ListedDefinition
from dalsegno.model.definition import Definition, DeployedTrigger, TriggerStatus
from dalsegno.server.http.problems import Place
from dalsegno.server.schemas.values import Asked, Name, OrRaw, moment, shown

EXAMPLE_GRAPH: dict[str, Any] = {
    "name": "hello",
    "nodes": [
        {
            "id": "greet",
            "type": "edit",
            "parameters": {"assignments": [{"name": "greeting", "value": "Hello, {{ input.name }}!"}]},
        }
    ],
    "output": "$greet.greeting",
}

Kind = Literal["graph", "script", "python"]


class DefinitionSource(Asked, BaseModel):
    """A graph document as an object, or the text of a graph (JSON, YAML) or of a script."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"document": EXAMPLE_GRAPH, "alias": "stable"}}
    )

    document: dict[str, Any] | None = Field(default=None, description="A graph document.")
    source: str | None = Field(default=None, description="The text of a graph document or of a script.")
    kind: Literal["graph", "script"] | None = Field(
        default=None, description="Kind of `source`; detected if absent."
    )
    name: Name | None = Field(default=None, description="For documents that do not name themselves.")
    alias: str | None = Field(default=None, description="An alias for this version, such as `stable`.")
    _raw: bytes | None = PrivateAttr(None)

    @property
    def raw(self) -> bytes | None:
        """Return the JSON of a large document, which is not parsed in this process."""
        return self._raw

    @classmethod
    def unread(cls, raw: bytes, **fields: Any) -> DefinitionSource:
        made = cls(document={}, **fields)
        made._raw = raw
        return made


class GraphDocument(BaseModel):
    """A graph document itself, with `nodes` or with `dag`; see the reference of graphs. It may be the whole body;
    then `name` and `alias` are query parameters."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"example": EXAMPLE_GRAPH})

    name: str | None = Field(default=None, description="The workflow's name.")
    nodes: list[dict[str, Any]] | None = Field(default=None, description="Its nodes.")
    edges: list[dict[str, Any]] | None = Field(default=None, description="Its edges.")
    dag: dict[str, Any] | None = Field(
        default=None,
        description="`{nodes: [{id, handler, dependencies, config}]}`, instead of nodes and edges.",
    )


class Checked(BaseModel):
    """The result of a validation. Nothing was stored."""

    valid: bool
    name: str | None = None
    kind: Kind | None = None
    findings: Annotated[list[Place], OrRaw] = []


class DefinitionInfo(BaseModel):
    """One version of a workflow, without its source."""

    name: str
    version: int
    kind: str
    hash: str
    created_at: datetime

    @classmethod
    def of(cls, definition: Definition) -> DefinitionInfo:
        return shown(cls, definition)


class TriggerInfo(BaseModel):
    """A schedule or webhook that a node of the graph defines."""

    kind: Literal["schedule", "webhook"]
    name: str = Field(description="The schedule's name, or the webhook's id.")
    status: TriggerStatus
    about: str = Field(default="", description="Its times, or the path of its deliveries.")
    node: str | None = Field(default=None, description="Absent if the node was removed.")
    secret: str | None = Field(
        default=None, description="Secret that signs deliveries, if one was generated. It is shown this once."
    )

    @classmethod
    def of(cls, trigger: DeployedTrigger) -> TriggerInfo:
        return cls(**msgspec.structs.asdict(trigger))


class DeployedDefinition(DefinitionInfo):
    status: Literal["new", "unchanged", "current again"]
    previous: int | None = Field(default=None, description="The version that was current before.")
    warnings: list[Place] = []
    triggers: list[TriggerInfo] = Field(
        default=[], description="Schedules and webhooks of its trigger nodes: created, changed and removed."
    )


class DefinitionDetail(DefinitionInfo):
    aliases: dict[str, int] = {}
    source: str = Field(
        description="The original text of the graph, script or function; YAML of a graph that was deployed as data."
    )
    first_line: int = Field(
        default=1, description="Number of its first line in the file of a Python workflow."
    )
    document: dict[str, Any] | None = Field(default=None, description="Of a graph: the stored document.")
    input_schema: dict[str, Any] | None = None


class VersionInfo(DefinitionInfo):
    current: bool
    aliases: list[str] = []


class Difference(BaseModel):
    name: str
    before: int
    after: int
    changed: bool
    changes: dict[str, Any]
    """Nodes, edges and fields of graphs; a unified diff of everything else."""


class AliasTarget(Asked, BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"version": 3}})

    version: int = Field(ge=1)


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
        return shown(
            cls,
            listed,
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
