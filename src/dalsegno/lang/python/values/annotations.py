"""Annotations with their names resolved, the classes they mention, and the defaults of decoded dataclasses.

Pydantic is looked up in `sys.modules`, never imported: a program that uses a model has loaded it already.
msgspec does not set a missing field on an instance if the class has a default. Reading the attribute finds the default
on the class, but the instance does not hold it, and encoding the instance to JSON (also by msgspec) omits it.
`with_defaults` sets such fields.
"""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from collections.abc import Iterable, Mapping
from types import MemberDescriptorType
from typing import Any

import msgspec


def model_class() -> type[Any] | None:
    """Return Pydantic's base class if Pydantic is loaded."""
    found = getattr(sys.modules.get("pydantic"), "BaseModel", None)
    return found if isinstance(found, type) else None


def is_model(kind: type) -> bool:
    base = model_class()
    return base is not None and issubclass(kind, base)


def classes_in(*annotations: Any) -> set[type]:
    """Return all classes that an annotation mentions, directly or in the fields of its classes.

    Dataclasses, models, named tuples and typed dicts are searched.
    """
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
    """Return whether the class is a typed dict, a named tuple or a msgspec structure."""
    return typing.is_typeddict(kind) or is_named_tuple(kind) or issubclass(kind, msgspec.Struct)


def is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and isinstance(getattr(kind, "_fields", None), tuple)


def hints_of(thing: Any, names: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return annotations with their names resolved. One that cannot be resolved (yet) is omitted."""
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


def has_plain_defaults(kind: type) -> bool:
    """Return whether a class has defaults that its instances may lack."""
    return dataclasses.is_dataclass(kind) and any(
        field.default is not dataclasses.MISSING for field in dataclasses.fields(kind)
    )


def with_defaults(value: Any) -> Any:
    """Set all fields on every dataclass in the value, and return the value."""
    waiting, seen = [value], set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:  # JSON is a tree, but a ``__post_init__`` may have created cycles
            continue
        seen.add(id(one))
        if dataclasses.is_dataclass(one) and not isinstance(one, type):
            _fill(one)
        waiting.extend(_inside(one))
    return value


def _fill(instance: Any) -> None:
    """Set missing fields without ``__setattr__``, which frozen classes refuse. Slots are set already."""
    held = getattr(instance, "__dict__", None)
    if held is None:
        return
    for field in dataclasses.fields(instance):
        has_slot = isinstance(getattr(type(instance), field.name, None), MemberDescriptorType)
        if field.default is not dataclasses.MISSING and not has_slot:
            held.setdefault(field.name, field.default)


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        return value
    if isinstance(value, msgspec.Struct):
        return [getattr(value, name) for name in value.__struct_fields__]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    return ()
