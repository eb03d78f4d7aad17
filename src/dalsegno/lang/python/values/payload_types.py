"""The types of signals' payloads: ``signal("decided", type=Decision)``.

A promise keeps its type as text, so that a snapshot names classes only: ``shop.Decision``, and in JSON what is made of
several, ``["builtins.list","shop.Order"]`` or ``["|","shop.Order","None"]``.
"""

from __future__ import annotations

import functools
import operator
import types
import typing
from typing import Any, Literal

import msgspec

from dalsegno.lang.errors import SnapshotError
from dalsegno.lang.python.values.decisions import ClassNames
from dalsegno.lang.python.values.typed_values import converts, from_plain

UNION = "|"
LITERAL = "literal"
_WORDS: dict[str, Any] = {"None": None, "Any": Any, "...": ...}


def type_text(annotation: Any, naming: ClassNames, verb: str = "signal") -> str:
    """Return the text of a type. Raise TypeError if payloads cannot be converted to it, or it has no such text."""
    if not converts(annotation):
        raise TypeError(
            f"{verb}(): 'type' is what the payload becomes (a dataclass, a Pydantic model, list[int] …), "
            f"not {annotation!r}"
        )
    found = _parts(annotation, naming, verb)
    return found if isinstance(found, str) else msgspec.json.encode(found).decode()


def _parts(annotation: Any, naming: ClassNames, verb: str) -> Any:
    for word, meaning in _WORDS.items():
        if annotation is meaning:
            return word
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is types.NoneType:
        return "None"
    if origin is None and isinstance(annotation, type):
        return _class_name(annotation, naming, verb)
    if origin is Literal and all(isinstance(value, str | int | None) for value in arguments):
        return [LITERAL, *arguments]
    inner = [_parts(each, naming, verb) for each in arguments]
    if origin in (typing.Union, types.UnionType):
        return [UNION, *inner]
    if isinstance(origin, type):
        return [_class_name(origin, naming, verb), *inner]
    raise TypeError(
        f"{verb}(): {annotation!r} cannot be stored with the wait: give a class with such a field"
    )


def _class_name(kind: type, naming: ClassNames, verb: str) -> str:
    name = naming.name_of(kind)
    if name is None:
        raise TypeError(
            f"{verb}(): the class {kind.__name__} cannot be found again by its name; define it at the top of the "
            "workflow's module, or import it there"
        )
    return name


def type_of(text: str, naming: ClassNames) -> Any:
    """Return the type in this process. Raise KeyError with the name of a class that the program does not have."""
    if not text.startswith("["):
        return _type(text, naming)
    try:
        return _type(msgspec.json.decode(text), naming)
    except (msgspec.DecodeError, TypeError, ValueError, RecursionError) as error:
        raise SnapshotError(f"the snapshot is damaged: a signal has the type {text!r:.200}") from error


def _type(written: Any, naming: ClassNames) -> Any:
    if isinstance(written, str):
        return _WORDS[written] if written in _WORDS else _class(written, naming)
    kind, *arguments = written
    if kind == LITERAL:
        return Literal[tuple(arguments)]
    inner = tuple(_type(each, naming) for each in arguments)
    if kind == UNION:
        return functools.reduce(operator.or_, (types.NoneType if each is None else each for each in inner))
    made: Any = _class(kind, naming)
    return made[inner]


def _class(name: str, naming: ClassNames) -> type:
    found = naming.find_class(name)
    if found is None:
        raise KeyError(name)
    return found


def payload_of(value: Any, name: str | None, text: str, naming: ClassNames, what: str = "signal") -> Any:
    """Return the payload of a signal or request as an instance of its type. Raise InvalidInput if it does not fit."""
    return from_plain(value, type_of(text, naming), f"the payload of {what} '{name}'")
