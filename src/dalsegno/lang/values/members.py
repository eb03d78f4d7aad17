"""Reading members and indexes. `MISSING` is the result of a read without a value, for callers that tolerate it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from dalsegno.lang.errors import ScriptThrow
from dalsegno.lang.runtime.effects import ErrorValue
from dalsegno.lang.runtime.promises import Group, Promise
from dalsegno.lang.values.kinds import Value, is_number, key_of, kind_of


class _Missing:
    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()
_SHOWN_KEYS = 8
_SHOWN_NAME = 200
"""Maximum length of a name in a message."""


def read_member(value: Value, name: str) -> Value:
    """Return ``value.name``, or `MISSING`."""
    if type(value) is dict:
        return value.get(name, MISSING)
    if name == "length" and isinstance(value, (str, list)):
        return len(value)
    if type(value) is ErrorValue:
        return _error_field(value, name)
    return value.id if name == "id" and type(value) is Promise else MISSING


def _error_field(error: ErrorValue, name: str) -> Value:
    match name:
        case "code":
            return error.code
        case "message":
            return error.message
        case "type":
            return error.type or error.code
        case "data":
            return error.data
        case "stack":
            return list(error.stack)
    return MISSING


def read_index(value: Value, index: Value) -> Value:
    """Return ``value[index]``, or `MISSING`; out of range of a list or string is null, not missing."""
    if type(value) is dict:
        return value.get(key_of(index), MISSING)
    if isinstance(value, (list, str)) and is_number(index):
        return value[int(index)] if 0 <= index < len(value) and index == int(index) else None
    if type(index) is str and isinstance(value, (list, str, ErrorValue, Promise)):
        return read_member(value, index)
    return MISSING


def _known_keys(keys: Iterable[str]) -> str:
    names = list(islice(keys, _SHOWN_KEYS + 1))
    if not names:
        return "the object is empty"
    shown = ", ".join([name[:_SHOWN_NAME] for name in names[:_SHOWN_KEYS]])
    return f"it has: {shown}" + (", …" if len(names) > _SHOWN_KEYS else "")


def absent(value: Value, name: Value, path: str) -> ScriptThrow:
    """Return the error for a read that found nothing.

    ``path`` is the source text of the whole reference, if it is plain.
    """
    shown = (
        f"'{name[:_SHOWN_NAME]}'"
        if isinstance(name, str)
        else f"[{name}]"
        if is_number(name)
        else kind_of(name)
    )
    where = f"{path}: " if path else ""
    if isinstance(value, dict):
        return ScriptThrow("PROPERTY_NOT_FOUND", f"{where}property {shown} not found ({_known_keys(value)})")
    if isinstance(value, (list, str)):
        hint = f"a {kind_of(value)} has no property {shown}"
        return ScriptThrow("PROPERTY_NOT_FOUND", f"{where}{hint}; methods need parentheses")
    if isinstance(value, ErrorValue):
        known = "code, message, type, data, stack"
        return ScriptThrow("PROPERTY_NOT_FOUND", f"{where}an error has no property {shown} (it has: {known})")
    if isinstance(value, (Promise, Group)):
        hint = "await it first"
        return ScriptThrow("PROPERTY_NOT_FOUND", f"{where}a promise has no property {shown}; {hint}")
    return ScriptThrow("TYPE_ERROR", f"{where}cannot read {shown} of {kind_of(value)}")
