"""Fields of request bodies: what a refusal says of one that a model does not have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from fastapi import Request
from pydantic import BaseModel

from dalsegno.model.suggestion import did_you_mean, listed

KNOWN = "known"
"""The key of a finding's context under which a route that reads its body itself gives the model."""


def body_model(request: Request) -> Any:
    """Return the annotation of the body of the route that was asked; None if it has none."""
    field = getattr(request.scope.get("route"), "body_field", None)
    return None if field is None else field.field_info.annotation


def unknown_field(found: Mapping[str, Any], model: Any) -> str:
    """Return the message for a finding of the type ``extra_forbidden``: the name that was probably meant, or all."""
    place = found["loc"][1:]
    known = fields_at(found.get("ctx", {}).get(KNOWN, model), place[:-1])
    instead = did_you_mean(str(place[-1]), known)
    if not instead and known:
        instead = f"; there are {listed(known)}"
    return f"There is no field of this name{instead}"


def fields_at(annotation: Any, place: Sequence[str | int]) -> list[str]:
    """Return the names of the fields that an object at this place of a body may have.

    Items of lists, keys of objects and tags of unions lead to no field: the models inside stay the same.
    """
    models = list(_models(annotation))
    for part in place:
        inner = [model.model_fields[part] for model in models if part in model.model_fields]
        models = [each for field in inner for each in _models(field.annotation)] if inner else models
    fields = {
        field.alias or name: field.deprecated
        for model in models
        for name, field in model.model_fields.items()
    }
    return sorted(name for name, deprecated in fields.items() if not deprecated)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that an annotation names: ``M``, ``M | None``, ``list[M]``, ``dict[str, M]``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)
