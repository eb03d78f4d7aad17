"""Schemas of requests to running workflows, and of their answers."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from dalsegno.engine.operations.requests import RequestState, RequestView
from dalsegno.server.schemas.values import Asked, Kept, stored


class AskRequest(Asked, BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"payload": {"items": 3}}})

    payload: Annotated[Any, Kept("values", "the request's payload")] = None
    id: str | None = Field(
        default=None,
        min_length=1,
        max_length=500,
        description="The same id with the same name and payload is the same request.",
    )


class RequestInfo(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "example": {"id": "quote-17", "name": "quote", "state": "answered", "value": {"price": 29.9}}
        }
    )

    id: str
    name: str
    state: RequestState = Field(
        description="`waiting`: the workflow has not received it. `received`: it has not answered yet. `unanswered`: "
        "its execution ended without an answer."
    )
    value: Any = Field(default=None, description="The answer.")
    message: str | None = Field(default=None, description="Why the workflow refused it.")

    @classmethod
    def of(cls, view: RequestView) -> RequestInfo:
        value = stored(bytes(view.value)) if view.state == "answered" else None
        return cls.model_construct(
            id=view.id, name=view.name, state=view.state, value=value, message=view.message
        )


class OpenRequests(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={"example": {"items": [{"id": "quote-17", "name": "quote", "state": "waiting"}]}}
    )

    items: list[RequestInfo]
