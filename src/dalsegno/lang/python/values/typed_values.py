"""Conversion of typed values at the boundaries of a workflow: to JSON on the way out, by annotation on the way in."""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import math
import pathlib
import re
import types
import typing
import uuid
from collections.abc import Callable, Mapping, Sequence, ValuesView
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Any

import msgspec

from dalsegno.errors import InvalidInput, NotJson
from dalsegno.lang.python.values.annotations import (
    classes_in,
    has_declared_fields,
    has_plain_defaults,
    is_model,
    with_defaults,
)
from dalsegno.lang.python.values.json_shapes import Rebuilt, shape_of
from dalsegno.lang.runtime.limits import MAX_NESTING
from dalsegno.lang.runtime.promises import Group, Promise, Settled

# -- outwards ---------------------------------------------------------------------------------------------------


def to_plain(value: Any, what: str) -> Any:
    """Return the value as JSON.

    ``what`` begins the path that an error names (``result``, ``task 'charge': order``).
    """
    return _plain(value, what, 0)


def _plain(value: Any, path: str, depth: int) -> Any:
    kind = type(value)
    if value is None or kind is bool or kind is int:
        return value
    if kind is str:
        return _text(value, path)
    if kind is float:
        return _number(value, path)
    if depth >= MAX_NESTING:
        raise NotJson(f"{path} is nested deeper than {MAX_NESTING} levels, or contains itself")
    if kind is list or kind is tuple:
        return [_plain(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
    if kind is dict:
        return _object(value, path, depth)
    return _other(value, path, depth)


def _text(value: str, path: str) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise NotJson(f"{path} holds half of a character (a lone surrogate): {value!r:.60}") from error
    return value


def _number(value: float, path: str) -> float:
    if not math.isfinite(value):
        raise NotJson(f"{path} is {value!r}, which JSON cannot represent: use None, or text")
    return value


def _object(value: Mapping[Any, Any], path: str, depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, item in value.items():
        name = _key(key, path)
        if name in found:
            raise NotJson(f"{path} has two keys that read {name!r} as JSON")
        found[name] = _plain(item, f"{path}.{name}", depth + 1)
    return found


def _key(key: Any, path: str) -> str:
    """Return a key as text, as JSON requires.

    Other scalars are written so that their annotation can be rebuilt from the text.
    """
    if isinstance(key, enum.Enum):
        key = key.value
    if isinstance(key, str):
        return _text(str(key), path)
    if isinstance(key, bool) or key is None:
        raise NotJson(f"{path} has the key {key!r}; JSON objects have text keys")
    if isinstance(key, int | float | decimal.Decimal | uuid.UUID | dt.date | dt.time):
        plain = _plain(key, path, 0)
        return plain if isinstance(plain, str) else repr(plain)
    raise NotJson(f"{path} has a key of type {type(key).__name__}; JSON objects have text keys")


def _other(value: Any, path: str, depth: int) -> Any:
    if is_model(type(value)):
        return _plain(_dumped(value, path), path, depth)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return _object(fields, path, depth)
    if isinstance(value, msgspec.Struct):
        return _plain(msgspec.to_builtins(value), path, depth)
    for kind, convert in _SCALARS:
        if isinstance(value, kind):
            return _plain(convert(value), path, depth + 1)
    if isinstance(value, Mapping):
        return _object(value, path, depth)
    if isinstance(value, list | tuple | Sequence | ValuesView) and not isinstance(value, memoryview):
        return _plain(list(value), path, depth)
    if isinstance(value, AbstractSet):
        return _plain(_in_order(value), path, depth)
    raise NotJson(_cannot(value, path))


def _dumped(value: Any, path: str) -> Any:
    """Return the fields from which a model can be created again; computed fields are omitted."""
    try:
        return value.model_dump(mode="json", round_trip=True)
    except ValueError as error:  # Pydantic's own errors are ValueErrors
        raise NotJson(
            f"{path} is a {type(value).__name__} that Pydantic cannot write as JSON: {error}. (For bytes that are not "
            "text, set ser_json_bytes='base64' and val_json_bytes='base64' in its model_config.)"
        ) from error


def _in_order(value: AbstractSet[Any]) -> list[Any]:
    """Sort the items where they have an order, so that the same set is the same JSON in every process."""
    try:
        return sorted(value)
    except TypeError:
        return list(value)


_SCALARS: tuple[tuple[type | tuple[type, ...], Callable[[Any], Any]], ...] = (
    (enum.Enum, lambda value: value.value),
    (str, str.__str__),
    (int, int),
    (float, float),
    (dt.timedelta, msgspec.to_builtins),
    ((dt.datetime, dt.date, dt.time), lambda value: value.isoformat()),
    ((decimal.Decimal, uuid.UUID, fractions.Fraction, pathlib.PurePath), str),
    ((bytes, bytearray), lambda value: base64.b64encode(value).decode("ascii")),
)


def _cannot(value: Any, path: str) -> str:
    if isinstance(value, Promise | Group | Settled):
        return f"{path} is a promise: await it first"
    kind = type(value)
    if kind is types.CoroutineType:
        return f"{path} is a coroutine: await a task instead"
    return (
        f"{path} is of type {kind.__module__}.{kind.__qualname__}, which JSON cannot represent: give plain data, "
        "a dataclass or a Pydantic model"
    )


# -- inwards ----------------------------------------------------------------------------------------------------


def from_plain(value: Any, annotation: Any, what: str = "the value") -> Any:
    """Rebuild JSON as the annotation says. Without an annotation, or with an opaque one, return the value as it is."""
    if type(value) is annotation:
        return value
    decode = _decoder_of(annotation)
    if decode is None:
        return value
    try:
        return decode(value)
    except (ValueError, TypeError, RecursionError) as error:  # both libraries' own errors are ValueErrors
        raise InvalidInput(f"{what} does not fit {_shown(annotation)}: {_problem_text(error)}") from error


_INNER_PLACE = re.compile(r" - at `\$([^`]*)`(?= - at `\$([^`]*)`$)")


def _problem_text(error: Exception) -> str:
    """Return the error's text with a single path, from the outside inwards.

    Types have the names that the annotation uses.
    """
    text = str(error)
    while (found := _INNER_PLACE.search(text)) is not None:
        text = f"{text[: found.start()]} - at `${found[2]}{found[1]}`"
    return text.replace("int | float", "float")


def _shown(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _decoder_of(annotation: Any) -> Callable[[Any], Any] | None:
    try:
        return _decoder(annotation)
    except TypeError:  # an annotation that cannot be hashed
        return _make_decoder(annotation)


@lru_cache(maxsize=1024)
def _decoder(annotation: Any) -> Callable[[Any], Any] | None:
    return _make_decoder(annotation)


def converts(annotation: Any) -> bool:
    """Return whether `from_plain` gives what the annotation says: a class of JSON data, or anything."""
    return annotation in (Any, object) or _decoder_of(annotation) is not None


def _make_decoder(annotation: Any) -> Callable[[Any], Any] | None:
    if annotation in (Any, object, typing.Optional, None) or isinstance(annotation, str | typing.TypeVar):
        return None
    for shape in (shape_of(annotation), annotation):
        if _understood(annotation, shape):
            return _msgspec_decoder(annotation, shape)
    return _pydantic_decoder(annotation) if _involves(annotation, is_model) else None


def _msgspec_decoder(annotation: Any, shape: Any) -> Callable[[Any], Any]:
    def decode(value: Any) -> Any:
        return msgspec.convert(value, shape, str_keys=True, dec_hook=_rebuild)

    if not _involves(annotation, has_plain_defaults):
        return decode
    return lambda value: with_defaults(decode(value))


def _understood(annotation: Any, shape: Any) -> bool:
    """Return whether msgspec can rebuild the annotation.

    It cannot rebuild custom classes without fields, except those that `json_shapes` rebuilds, and it cannot choose
    between models.
    """
    try:
        for each in _shapes_in(shape):
            msgspec.json.Decoder(each, dec_hook=_rebuild)
        return not _involves(annotation, _is_opaque)
    except (TypeError, NameError):
        return False


def _shapes_in(shape: Any) -> list[Any]:
    """Return the shape and the shapes of everything rebuilt in it."""
    found, seen = [shape], set()
    for each in found:
        for kind in classes_in(each):
            if isinstance(kind, Rebuilt) and kind not in seen:
                seen.add(kind)
                found.append(kind.shape)
    return found


def _involves(annotation: Any, test: Callable[[type], bool]) -> bool:
    """Return whether a class that passes the test occurs anywhere in the annotation, fields of classes included."""
    return any(test(kind) for kind in classes_in(annotation))


def _pydantic_decoder(annotation: Any) -> Callable[[Any], Any]:
    from pydantic import TypeAdapter  # noqa: PLC0415 - only where a model is used, and then it is loaded

    adapter = TypeAdapter(annotation)
    # Decode from JSON, so that a strict model accepts a date. Accept field names as well: models are written by name
    # here.
    return lambda value: adapter.validate_json(msgspec.json.encode(value), by_alias=True, by_name=True)


_model_decoder = lru_cache(maxsize=1024)(_pydantic_decoder)


def _rebuild(kind: Any, value: Any) -> Any:
    if isinstance(kind, Rebuilt):
        return kind.finish(_converted(value, kind.shape))
    shape = shape_of(kind)
    if shape is not kind:
        return _converted(value, shape)
    if is_model(kind):
        return _model_decoder(kind)(value)
    if issubclass(kind, pathlib.PurePath | fractions.Fraction) and isinstance(value, str):
        return kind(value)
    raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")


def _converted(value: Any, shape: Any) -> Any:
    """Convert a part of a value. msgspec adds the part's path to every error except its own."""
    try:
        return msgspec.convert(value, shape, str_keys=True, dec_hook=_rebuild)
    except msgspec.ValidationError as error:
        raise TypeError(str(error)) from error


_KNOWN = (
    str,
    int,
    float,
    bytes,
    bytearray,
    type(None),
    list,
    tuple,
    dict,
    set,
    frozenset,
    dt.date,
    dt.time,
    dt.timedelta,
    decimal.Decimal,
    uuid.UUID,
    enum.Enum,
    pathlib.PurePath,
    fractions.Fraction,
)
_ABSTRACT = frozenset(("collections", "collections.abc", "typing", "types"))


def _is_opaque(kind: type) -> bool:
    """Return whether a class is neither known nor has declared fields."""
    if issubclass(kind, _KNOWN) or has_declared_fields(kind) or dataclasses.is_dataclass(kind):
        return False
    if is_model(kind):
        return False
    return getattr(kind, "__module__", "") not in _ABSTRACT
