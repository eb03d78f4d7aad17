"""Schemas of the two-step start: a definition is submitted first and triggered later."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from dalsegno.model.execution import ExecutionState, ExecutionView
from dalsegno.server.schemas.executions import EXAMPLE_ID, NodeInfo
from dalsegno.server.schemas.values import Asked, Input, OrRaw, Rest, maybe_moment, moment, stored

EXAMPLE_DOCUMENT: dict[str, Any] = {
    "name": "greeting",
    "dag": {
        "nodes": [
            {"id": "who", "handler": "input", "dependencies": [], "config": {}},
            {
                "id": "english",
                "handler": "log",
                "dependencies": ["who"],
                "config": {"message": "Hello, {{ $who.name }}!"},
            },
            {
                "id": "german",
                "handler": "log",
                "dependencies": ["who"],
                "config": {"message": "Hallo, {{ $who.name }}!"},
            },
            {"id": "both", "handler": "output", "dependencies": ["english", "german"], "config": {}},
        ]
    },
}


class SubmitRequest(Asked, BaseModel):
    """A graph document, with nodes and their `dependencies` under `dag` (or with `nodes` and `edges`), and the
    settings of the execution. All fields that are not listed here belong to the document."""

    model_config = ConfigDict(
        extra="allow", json_schema_extra={"example": {**EXAMPLE_DOCUMENT, "input": {"name": "Ada"}}}
    )

    name: str | None = Field(default=None, max_length=200, description="The workflow's name.")
    dag: dict[str, Any] | None = Field(
        default=None, description="`{nodes: [{id, handler, dependencies, config}]}`."
    )
    input: Input = Field(default=None, description="Input of the execution, unless the trigger has one.")
    idempotency_key: str | None = Field(
        default=None, min_length=1, max_length=500, description="The same key again is the same execution."
    )

    document: Annotated[SkipJsonSchema[Any], Rest(("input", "idempotency_key"))] = Field(
        default=None, description="The body as a document, unread."
    )


class TriggerRequest(Asked, BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"input": {"name": "Grace"}}})

    input: Input = Field(default=None, description="Replaces the submitted input, if it is given.")


class Submission(BaseModel):
    """An execution and its progress."""

    id: str = Field(examples=[EXAMPLE_ID], description="Of the execution.")
    execution_id: str = Field(
        examples=[EXAMPLE_ID], deprecated=True, description="The same as `id`, under its earlier name."
    )
    workflow: str
    version: int
    state: ExecutionState

    @classmethod
    def of(cls, view: ExecutionView) -> Submission:
        names = {"id": view.id, "execution_id": view.id}
        return cls(**names, workflow=view.workflow, version=view.version, state=view.state)


class SubmissionStatus(Submission):
    created_at: datetime
    ended_at: datetime | None = None
    nodes: dict[str, NodeInfo] = Field(description="State and runs of every node by its id.")

    @classmethod
    def with_nodes(cls, view: ExecutionView, nodes: dict[str, NodeInfo]) -> SubmissionStatus:
        return cls(
            **Submission.of(view).model_dump(),
            created_at=moment(view.created_at),
            ended_at=maybe_moment(view.ended_at),
            nodes=nodes,
        )


class SubmissionResults(Submission):
    results: dict[str, Any] = Field(
        description="Outputs by node id. Before the end, those of finished branches."
    )
    output: Any = None
    error: Annotated[dict[str, Any] | None, OrRaw] = None

    @classmethod
    def with_results(cls, view: ExecutionView, results: dict[str, Any]) -> SubmissionResults:
        return cls(
            **Submission.of(view).model_dump(),
            results=results,
            output=stored(view.output),
            error=stored(view.error),
        )
