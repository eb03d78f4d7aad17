"""JSON bodies of requests, decoded by the shape of their route: short ones here, long ones in a process."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, get_args

from fastapi import Request
from fastapi.routing import APIRoute
from pydantic import BaseModel

from dalsegno.core.json_fields import Shape, read_fields, unpacked_fields
from dalsegno.engine.subprocesses.job_pool import Offload
from dalsegno.job_process import value_of
from dalsegno.server.schemas.values import Items, Kept, Rest

INLINE_BYTES: Final = 65_536
"""Bytes of a body that is decoded in the event loop, which takes a few milliseconds."""


class JsonRequest(Request):
    """A request whose body is decoded by a shape. The framework's own decoder builds every object of it in the
    event loop."""

    shape = Shape()

    async def json(self) -> Any:
        """Return the decoded body. Raises json.JSONDecodeError, ValueError or RecursionError, as the framework
        expects, and DalSegnoError."""
        if not hasattr(self, "_json"):
            offload: Offload = self.app.state.services.client.offload
            self._json = await read_json(await self.body(), self.shape, offload)
        return self._json


async def read_json(body: bytes, shape: Shape, offload: Offload) -> Any:
    if len(body) <= INLINE_BYTES:
        return read_fields(body, shape)
    return unpacked_fields(value_of(await offload.large("fields", body, shape)))


def shape_of(route: APIRoute) -> Shape:
    """Return the shape of the model that a route takes as its body."""
    field = route.body_field
    models = _models_in(field.field_info.annotation) if field is not None else []
    return _shape_of(models[0]) if len(models) == 1 else Shape()


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for each in get_args(annotation) for model in _models_in(each)]


@cache
def _shape_of(model: type[BaseModel]) -> Shape:
    kept: dict[str, dict[str, str]] = {"values": {}, "documents": {}, "members": {}}
    items: dict[str, Shape] = {}
    rest: str | None = None
    apart: tuple[str, ...] = ()
    for name, field in model.model_fields.items():
        for mark in field.metadata:
            if isinstance(mark, Rest):
                rest, apart = name, mark.apart
            elif isinstance(mark, Items):
                items[name] = _shape_of(_models_in(field.annotation)[0])
            elif isinstance(mark, Kept):
                kept[mark.kind][name] = mark.what
    is_closed = rest is not None or model.model_config.get("extra") == "forbid"
    known = tuple(field.alias or name for name, field in model.model_fields.items() if name != rest)
    return Shape(**kept, known=known if is_closed else None, rest=rest, apart=apart, items=items)
