"""The JSON shape of an annotation: the type that msgspec decodes in place of a type that it does not support.

- Abstract collections (``Iterable[int]``, ``Mapping[str, int]``) become the list, object or set that fits them.
- ``float`` takes integers as they are (PEP 484), so that ``6`` stays ``6`` and ``6.0`` stays ``6.0``.
- Collections of the standard library (``deque[int]``, ``Counter[str]``), iterators, and classes whose fields mention
  any of these are *rebuilt*: first the shape, then the value.
"""

from __future__ import annotations

import collections
import dataclasses
import types
import typing
from collections import abc
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Union

from dalsegno.lang.python.values.annotations import classes_in, hints_of, is_model, is_named_tuple

_LISTS = frozenset(
    (
        abc.Collection,
        abc.Container,
        abc.Iterable,
        abc.MutableSequence,
        abc.Reversible,
        abc.Sequence,
        abc.ValuesView,
    )
)
_SETS = frozenset((abc.ItemsView, abc.KeysView, abc.MutableSet, abc.Set))
_MAPPINGS = frozenset((abc.Mapping, abc.MutableMapping))
_ITERATORS = frozenset((abc.Generator, abc.Iterator))
_BYTES = frozenset(getattr(abc, name) for name in ("Buffer", "ByteString") if name in abc.__all__)
_CONCRETE = frozenset(
    (
        collections.ChainMap,
        collections.Counter,
        collections.OrderedDict,
        collections.defaultdict,
        collections.deque,
    )
)
_SHAPED = frozenset((float, *_LISTS, *_SETS, *_MAPPINGS, *_ITERATORS, *_BYTES, *_CONCRETE))
"""Classes for which msgspec decodes another type."""
_FACTORIES = frozenset((bool, bytes, dict, float, frozenset, int, list, set, str, tuple))
"""Allowed factories of a ``defaultdict``."""


class Rebuilt(type):
    """A placeholder class in a shape, for a type that is decoded in two steps."""

    _make_shape: Callable[[], Any]
    finish: Callable[[Any], Any]
    """Converts the shape's value to the annotation's value."""
    beside_others: Any
    """The type used in a union with other types, where msgspec accepts no custom class."""

    def __instancecheck__(cls, value: Any) -> bool:
        return True

    @property
    def shape(cls) -> Any:
        """Return the shape. It is computed late: classes may mention themselves."""
        return cls._make_shape()


def _rebuilt(
    name: str, make_shape: Callable[[], Any], finish: Callable[[Any], Any], beside_others: Any
) -> Rebuilt:
    space = {
        "_make_shape": staticmethod(make_shape),
        "finish": staticmethod(finish),
        "beside_others": beside_others,
    }
    return Rebuilt(name, (), space)


def shape_of(annotation: Any) -> Any:
    """Return the type that msgspec decodes; the annotation itself if msgspec supports it."""
    if annotation is float:
        return int | float
    if isinstance(annotation, typing.TypeVar | typing.ParamSpec):
        return shape_of(annotation.__bound__) if getattr(annotation, "__bound__", None) is not None else Any
    if isinstance(annotation, typing.NewType):
        return shape_of(annotation.__supertype__)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _annotated(arguments)
    if origin in (Union, types.UnionType):
        return _union([shape_of(each) for each in arguments])
    if origin is typing.Literal:
        return annotation
    kind = origin or annotation
    if isinstance(kind, type):
        return _class_shape(annotation, kind, arguments)
    if hasattr(kind, "__value__"):  # ``type Name = …``
        return shape_of(kind.__value__)
    return annotation


def _annotated(arguments: tuple[Any, ...]) -> Any:
    """Apply the limits of a number to integers and floats alike."""
    inner, *notes = arguments
    if inner is float:
        return Union[typing.Annotated[(int, *notes)], typing.Annotated[(float, *notes)]]  # noqa: UP007 - at run time
    return typing.Annotated[(shape_of(inner), *notes)]


def _union(members: list[Any]) -> Any:
    is_mixed = len([member for member in members if member is not type(None)]) > 1
    return Union[  # noqa: UP007 - at run time
        tuple(
            member.beside_others if is_mixed and isinstance(member, Rebuilt) else member for member in members
        )
    ]


def _class_shape(annotation: Any, kind: Any, arguments: tuple[Any, ...]) -> Any:
    inner = [shape_of(each) for each in arguments]
    if kind in _LISTS or kind in _SETS or kind in _MAPPINGS or kind in _BYTES:
        return _abstract(kind, inner)
    if kind in _ITERATORS:
        whole = _of(list, *inner[:1])
        return _rebuilt("iterator", lambda: whole, iter, whole)
    if kind in _CONCRETE:
        return _concrete(kind, inner, arguments)
    if kind in (list, dict, set, frozenset, tuple) and arguments:
        return _of(kind, *inner)
    if kind.__module__ in ("collections.abc", "typing") or kind is type:
        return Any  # a protocol, which says nothing about JSON
    if annotation is kind and _is_rebuilt_by_fields(kind):
        return _by_fields(kind)
    return annotation


def _of(kind: Any, *inner: Any) -> Any:
    """Build a type such as ``list[int]`` at run time; return the bare class without arguments."""
    return kind[inner] if inner else kind


def _abstract(kind: type, inner: list[Any]) -> Any:
    if kind in _BYTES:
        return bytes
    if kind in _MAPPINGS:
        return _of(dict, *inner)
    if kind in _SETS:
        item = _of(tuple, *inner) if kind is abc.ItemsView and inner else inner[0] if inner else Any
        return _of(set, item)
    item = inner[0] if inner else Any
    if item is Any or item is str:
        return _of(list, item) | str  # a text is a sequence of texts
    return _of(list, item)


def _concrete(kind: type, inner: list[Any], arguments: tuple[Any, ...]) -> Any:
    if kind is collections.deque:
        whole = _of(list, *inner)
    elif kind is collections.Counter:
        whole = _of(dict, inner[0] if inner else Any, Any)
    else:
        whole = _of(dict, *inner)
    finish: Callable[[Any], Any] = kind
    if kind is collections.defaultdict:
        made_by = typing.get_origin(arguments[1]) or arguments[1] if arguments else None
        factory = made_by if made_by in _FACTORIES else None
        finish = lambda value: collections.defaultdict(factory, value)  # noqa: E731
    return _rebuilt(kind.__name__, lambda: whole, finish, whole)


# -- classes with fields ----------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _is_rebuilt_by_fields(kind: type) -> bool:
    """Return whether its fields, or theirs, mention a type that msgspec decodes differently."""
    if is_model(kind) or not (
        dataclasses.is_dataclass(kind) or is_named_tuple(kind) or typing.is_typeddict(kind)
    ):
        return False
    return not _has_arguments_only(kind) and not _SHAPED.isdisjoint(classes_in(kind))


def _has_arguments_only(kind: type) -> bool:
    """Return whether its constructor takes a parameter that is not a field: no value could be given for it."""
    fields = getattr(kind, "__dataclass_fields__", {}).values()
    return any(isinstance(field.type, dataclasses.InitVar) for field in fields) or any(
        isinstance(field.type, str) and "InitVar" in field.type for field in fields
    )


@lru_cache(maxsize=1024)
def _by_fields(kind: type) -> Rebuilt:
    if dataclasses.is_dataclass(kind):
        return _rebuilt(
            kind.__name__, lambda: _dataclass_shape(kind), lambda fields: _instance(kind, fields), kind
        )
    if is_named_tuple(kind):
        make: Callable[[Any], Any] = getattr(kind, "_make")  # noqa: B009 - of named tuples only
        return _rebuilt(kind.__name__, lambda: _named_tuple_shape(kind), make, kind)
    return _rebuilt(kind.__name__, lambda: _typed_dict_shape(kind), lambda value: value, kind)


@lru_cache(maxsize=1024)
def _dataclass_shape(kind: Any) -> Any:
    hints = hints_of(kind)
    return _typed_dict(
        kind.__name__,
        {
            field.name: (shape_of(hints.get(field.name, Any)), not _has_default(field))
            for field in dataclasses.fields(kind)
        },
    )


@lru_cache(maxsize=1024)
def _typed_dict_shape(kind: Any) -> Any:
    fields: dict[str, tuple[Any, bool]] = {}
    for name, hint in hints_of(kind).items():
        mark = typing.get_origin(hint)
        if mark in (
            typing.Required,
            typing.NotRequired,
        ):  # the class does not know these marks where annotations are texts
            fields[name] = shape_of(typing.get_args(hint)[0]), mark is typing.Required
        else:
            fields[name] = shape_of(hint), name in kind.__required_keys__
    return _typed_dict(kind.__name__, fields)


def _typed_dict(name: str, fields: dict[str, tuple[Any, bool]]) -> Any:
    entries = {
        field: typing.Required[shape] if is_required else typing.NotRequired[shape]
        for field, (shape, is_required) in fields.items()
    }
    return typing.TypedDict(name, entries)  # type: ignore[operator]


@lru_cache(maxsize=1024)
def _named_tuple_shape(kind: Any) -> Any:
    defaults = [kind._field_defaults[name] for name in kind._fields if name in kind._field_defaults]
    make: Any = collections.namedtuple  # noqa: PYI024 - the fields are known only now
    made = make(kind.__name__, kind._fields, defaults=defaults)
    hints = hints_of(kind)
    made.__annotations__ = {name: shape_of(hints.get(name, Any)) for name in kind._fields}
    return made


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def _instance(kind: Any, fields: dict[str, Any]) -> Any:
    """Create an instance as msgspec does for dataclasses: set the fields, then call ``__post_init__``."""
    made = kind.__new__(kind)
    for field in dataclasses.fields(kind):
        if field.name in fields:
            value = fields[field.name]
        elif field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        else:
            value = field.default
        object.__setattr__(made, field.name, value)
    if hasattr(made, "__post_init__"):
        made.__post_init__()
    return made
