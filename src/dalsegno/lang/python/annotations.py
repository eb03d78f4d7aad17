"""What annotations say: their names resolved, and every class they mention.

Pydantic is looked for, not imported: whoever uses a model has loaded it, and nobody else pays for it.
"""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from collections.abc import Mapping
from typing import Any

import msgspec


def model_class() -> type[Any] | None:
    """Pydantic's base class, once anybody has imported it."""
    found = getattr(sys.modules.get("pydantic"), "BaseModel", None)
    return found if isinstance(found, type) else None


def is_model(kind: type) -> bool:
    base = model_class()
    return base is not None and issubclass(kind, base)


def classes_in(*annotations: Any) -> set[type]:
    """All classes an annotation mentions, and those its dataclasses, models, named tuples and typed dicts mention."""
    found: set[type] = set()
    waiting = list(annotations)
    while waiting:
        one = waiting.pop()
        origin = typing.get_origin(one)
        if origin is not typing.Literal:
            waiting.extend(typing.get_args(one))
        kind = origin or one
        if isinstance(kind, type) and kind not in found:
            found.add(kind)
            waiting.extend(_field_types(kind))
    return found


def _field_types(kind: type) -> list[Any]:
    if is_model(kind):
        return [field.annotation for field in getattr(kind, "model_fields", {}).values()]
    if dataclasses.is_dataclass(kind) or has_declared_fields(kind):
        return list(hints_of(kind).values())
    return []


def has_declared_fields(kind: type) -> bool:
    """Typed dicts, named tuples and msgspec's structures."""
    return typing.is_typeddict(kind) or is_named_tuple(kind) or issubclass(kind, msgspec.Struct)


def is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and isinstance(getattr(kind, "_fields", None), tuple)


def hints_of(thing: Any, names: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Annotations with their names resolved; one that cannot be resolved (yet) is left out."""
    try:
        return typing.get_type_hints(thing, localns=dict(names) if names else None, include_extras=True)
    except Exception:  # noqa: BLE001 - annotations are arbitrary code
        return _one_by_one(thing, names)


def _one_by_one(thing: Any, names: Mapping[str, Any] | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    scope = getattr(thing, "__globals__", None) or vars(sys.modules.get(thing.__module__, types))
    for name, annotation in getattr(thing, "__annotations__", {}).items():
        single = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            found.update(typing.get_type_hints(single, dict(scope), dict(names or {}), include_extras=True))
        except Exception:  # noqa: BLE001, S112 - arbitrary code, and the others may still be good
            continue
    return found
