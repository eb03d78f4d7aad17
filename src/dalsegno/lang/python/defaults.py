"""Defaults of dataclasses that were rebuilt from JSON.

msgspec leaves a default that was not given to the class: reading the attribute finds it there, but the instance does
not hold it, and whoever writes the instance as JSON again (msgspec itself among them) leaves it out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from types import MemberDescriptorType
from typing import Any

import msgspec


def has_plain_defaults(kind: type) -> bool:
    """Whether a class has defaults that its instances may lack."""
    return dataclasses.is_dataclass(kind) and any(
        field.default is not dataclasses.MISSING for field in dataclasses.fields(kind)
    )


def with_defaults(value: Any) -> Any:
    """The same value; every dataclass in it holds all of its fields."""
    waiting, seen = [value], set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:  # JSON is a tree, but a ``__post_init__`` may have tied knots
            continue
        seen.add(id(one))
        if dataclasses.is_dataclass(one) and not isinstance(one, type):
            _fill(one)
        waiting.extend(_inside(one))
    return value


def _fill(instance: Any) -> None:
    """Past ``__setattr__``, which frozen classes refuse. What has a slot is there already."""
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
