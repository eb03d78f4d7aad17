"""Instances of ordinary classes: the name of the class, and their state.

The state is the result of ``__getstate__`` where the class has one, else slots and ``__dict__``. If ``__reduce__``
names only the class itself as its constructor, the class is called with those arguments. A subclass of a builtin
(``class Stack(list)``) also has its items. Otherwise constructors are not called, and properties are not set.
"""

from __future__ import annotations

import collections
import copyreg
import decimal
import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import MemberDescriptorType
from typing import Any

from dalsegno.lang.errors import SnapshotError
from dalsegno.lang.python.snapshot.format import Row, Tag
from dalsegno.lang.python.snapshot.object_table import Reader

_OF_TYPING = "__orig_class__"
_HEAP, _IMMUTABLE = 1 << 9, 1 << 8
"""Flags of types: created at run time; immutable. Classes of Python code have the first flag and not the second."""
_PLAIN_LIBRARY = frozenset(
    (
        "argparse.Namespace",
        "collections.ChainMap",
        "collections.UserDict",
        "collections.UserList",
        "collections.UserString",
        "statistics.NormalDist",
        "string.Template",
    )
)
"""Classes of the standard library whose instances consist of their attributes only."""


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a subclass of a builtin, without its attributes."""

    dump: Callable[[Any], Any]
    make: Callable[[type, Any], Any] | None = None
    """Creates an immutable instance from its content."""
    fill: Callable[[Any, Any], None] | None = None


def _fill_default_dict(made: Any, content: Any) -> None:
    factory, entries = content
    made.default_factory = factory
    dict.update(made, entries)


def _fill_deque(made: Any, content: Any) -> None:
    items, most = content
    collections.deque.__init__(made, items, most)


def _fill_ordered_dict(made: Any, content: Any) -> None:
    for key, value in content.items():
        collections.OrderedDict.__setitem__(made, key, value)


CONTENTS: dict[type, Content] = {
    list: Content(lambda value: list(list.__iter__(value)), fill=list.extend),
    dict: Content(lambda value: dict(dict.items(value)), fill=dict.update),
    set: Content(lambda value: set(set.__iter__(value)), fill=set.update),
    bytearray: Content(lambda value: bytes(memoryview(value)), fill=bytearray.extend),
    collections.OrderedDict: Content(
        lambda value: dict(collections.OrderedDict.items(value)), fill=_fill_ordered_dict
    ),
    collections.defaultdict: Content(
        lambda value: (value.default_factory, dict(dict.items(value))), fill=_fill_default_dict
    ),
    collections.deque: Content(
        lambda value: (list(collections.deque.__iter__(value)), value.maxlen), fill=_fill_deque
    ),
    int: Content(int.__int__, make=int.__new__),
    float: Content(float.__float__, make=float.__new__),
    complex: Content(complex.__pos__, make=complex.__new__),
    str: Content(str.__str__, make=str.__new__),
    bytes: Content(lambda value: bytes.__getitem__(value, slice(None)), make=bytes.__new__),
    tuple: Content(lambda value: tuple(tuple.__iter__(value)), make=tuple.__new__),
    frozenset: Content(lambda value: frozenset(frozenset.__iter__(value)), make=frozenset.__new__),
    decimal.Decimal: Content(decimal.Decimal, make=decimal.Decimal.__new__),
}
_BY_NAME = {kind.__name__: kind for kind in CONTENTS}


@dataclass(frozen=True, slots=True)
class Layout:
    """How instances of a class are decomposed and rebuilt."""

    base: type
    """`object`, or the builtin base class."""
    slots: dict[str, MemberDescriptorType]
    reduces: bool
    has_state: bool
    """True if the class defines its own state, or how it is set."""


def layout_of(kind: type) -> Layout | None:
    """Return the layout of a class; None if its instances cannot be stored."""
    return _layout_of(kind)


@functools.lru_cache(maxsize=2048)
def _layout_of(kind: Any) -> Layout | None:
    base = _base_of(kind)
    is_library = is_of_library(kind) and f"{kind.__module__}.{kind.__qualname__}" not in _PLAIN_LIBRARY
    if base is None or is_library or kind in CONTENTS or hasattr(kind, "__del__"):
        return None
    slots = _slots(kind)
    if base is object and not _is_plain(kind, len(slots)):
        return None
    return Layout(
        base,
        slots,
        _defines(kind, "__reduce__", "__reduce_ex__", "__getnewargs__", "__getnewargs_ex__"),
        _defines(kind, "__getstate__", "__setstate__"),
    )


def is_of_library(kind: type) -> bool:
    """Return whether a class belongs to the standard library or to this package."""
    root = kind.__module__.partition(".")[0]
    return root in sys.stdlib_module_names or root == "dalsegno"


def _base_of(kind: type) -> type | None:
    for each in kind.__mro__:
        if each in CONTENTS or each is object:
            return each
        if not each.__flags__ & _HEAP or each.__flags__ & _IMMUTABLE:
            return None
    return None


def _is_plain(kind: type, slots: int) -> bool:
    """Return whether instances consist of slots and a ``__dict__`` only."""
    most = object.__basicsize__ + (slots + 2) * object.__basicsize__ // 2
    if kind.__itemsize__ or kind.__basicsize__ > most:
        return False
    try:
        object.__new__(kind)
    except TypeError:
        return False
    return True


def _slots(kind: type) -> dict[str, MemberDescriptorType]:
    return {
        name: member
        for each in reversed(kind.__mro__)
        for name, member in each.__dict__.items()
        if isinstance(member, MemberDescriptorType)
    }


def _defines(kind: type, *names: str) -> bool:
    """Return whether a class in the MRO, outside of the standard library, defines one of these names."""
    for name in names:
        definer = next((each for each in kind.__mro__ if name in each.__dict__), object)
        if definer is not object and not is_of_library(definer):
            return True
    return False


# -- decomposition ----------------------------------------------------------------------------------------------


def explode_object(value: Any, class_name: Callable[[type], str]) -> tuple[list[Any], list[Any]] | None:
    """Return the beginning of an object's row and the values that follow; None for an object that cannot be stored.

    ``class_name`` raises if no other process could find the class.
    """
    layout = layout_of(type(value))
    if layout is None:
        return None
    name = class_name(type(value))
    if layout.reduces:
        return _reduced(value, name)
    base = "" if layout.base is object else layout.base.__name__
    content = CONTENTS[layout.base].dump(value) if base else None
    if layout.has_state:
        return [Tag.STATEFUL, name, base], [content, value.__getstate__()]
    names, values = _attributes(value, layout)
    if names is None:
        return None
    is_own_dict = getattr(value, "__dict__", None) is value
    return [Tag.OBJECT, name, base, is_own_dict, len(names), *names], [content, *values]


def _reduced(value: Any, name: str) -> tuple[list[Any], list[Any]] | None:
    """Return the parts of an object whose ``__reduce__`` calls the class itself with plain arguments."""
    found = value.__reduce_ex__(2)
    if not isinstance(found, tuple) or any(each is not None for each in found[3:]):
        return None
    maker, arguments = found[0], tuple(found[1])
    state = found[2] if len(found) > 2 else None
    if maker is type(value):
        return [Tag.REDUCED, name, "call"], [arguments, state]
    if maker is copyreg.__newobj__ and arguments[:1] == (type(value),):  # type: ignore[attr-defined]
        return [Tag.REDUCED, name, "new"], [arguments[1:], state]
    return None


def _attributes(value: Any, layout: Layout) -> tuple[list[str] | None, list[Any]]:
    """Return the attributes, slots first, without cached values and those that only ``typing`` uses.

    The names are None if one of them is not text.
    """
    names: list[str] = []
    values: list[Any] = []
    for name, member in layout.slots.items():
        try:
            values.append(member.__get__(value, type(value)))
        except AttributeError:
            continue
        names.append(name)
    attributes = getattr(value, "__dict__", {})
    if attributes is value:
        return names, values
    for name, item in attributes.items():
        if not isinstance(name, str):
            return None, []
        if name != _OF_TYPING and not isinstance(
            inspect.getattr_static(type(value), name, None), functools.cached_property
        ):
            names.append(name)
            values.append(item)
    return names, values


# -- rebuilding -------------------------------------------------------------------------------------------------


def _layout(reader: Reader, name: str, base: str, tag: str) -> tuple[Any, Layout]:
    kind = reader.instance_class(name)
    layout = layout_of(kind)
    wanted = object if not base else _BY_NAME.get(base)
    fits = layout is not None and (tag == Tag.REDUCED or layout.base is wanted)
    if layout is None or not fits or layout.reduces != (tag == Tag.REDUCED):
        raise SnapshotError(
            f"the class '{name}' has changed: it is not of the kind it was when it was stored"
        )
    return kind, layout


def object_shell(reader: Reader, row: Row) -> Any:
    kind, layout = _layout(reader, row[1], row[2], row[0])
    if layout.base is object:
        return object.__new__(kind)
    content = CONTENTS[layout.base]
    if content.make is None:
        return _new(layout.base, kind)
    written = row[3] if row[0] == Tag.STATEFUL else row[5 + row[4]]
    given = reader.value(written)
    if type(given) is not layout.base:
        raise SnapshotError(f"the snapshot is damaged: a {row[1]} is made of something else")
    return content.make(kind, given)


def _new(base: Any, kind: type) -> Any:
    """Create an empty instance without calling the class's ``__new__``."""
    return base.__new__(kind)


def fill_object(reader: Reader, made: Any, row: Row) -> None:
    count = row[4]
    names, content = row[5 : 5 + count], row[5 + count]
    values = [reader.value(part) for part in row[6 + count :]]
    layout = _layout(reader, row[1], row[2], row[0])[1]
    _fill_content(reader, made, layout, content)
    if row[3]:
        object.__setattr__(made, "__dict__", made)
    _set_attributes(made, layout, dict(zip(names, values, strict=True)))


def fill_stateful(reader: Reader, made: Any, row: Row) -> None:
    layout = _layout(reader, row[1], row[2], row[0])[1]
    _fill_content(reader, made, layout, row[3])
    state = reader.value(row[4])
    reader.wait_for_all()
    _set_state(made, layout, state)


def _fill_content(reader: Reader, made: Any, layout: Layout, written: Any) -> None:
    content = CONTENTS.get(layout.base)
    if content is None or content.fill is None:
        return
    given = reader.value(written)
    reader.wait_for(written)
    try:
        content.fill(made, given)
    except (TypeError, ValueError, AttributeError) as error:
        raise SnapshotError(
            f"the snapshot is damaged: a {type(made).__name__} holds no such content"
        ) from error


def reduced_shell(reader: Reader, row: Row) -> Any:
    """Call the class, as its ``__reduce__`` asks."""
    kind, _ = _layout(reader, row[1], "", row[0])
    arguments = reader.value(row[3])
    if not isinstance(arguments, tuple):
        raise SnapshotError(f"the snapshot is damaged: a {row[1]} is made of something else")
    return kind.__new__(kind, *arguments) if row[2] == "new" else kind(*arguments)


def fill_reduced(reader: Reader, made: Any, row: Row) -> None:
    state = reader.value(row[4])
    layout = layout_of(type(made))
    if state is None or layout is None:
        return
    reader.wait_for_all()
    _set_state(made, layout, state)


def _set_state(made: Any, layout: Layout, state: Any) -> None:
    """Set the state the way Python's `copy` does."""
    if hasattr(type(made), "__setstate__"):
        if state is not None:
            made.__setstate__(state)
        return
    attributes, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    for found in (attributes, slots):
        if isinstance(found, dict):
            _set_attributes(made, layout, found)
        elif found is not None:
            raise SnapshotError(
                f"the class '{type(made).__qualname__}' has changed: it no longer says how its state is set"
            )


def _set_attributes(made: Any, layout: Layout, state: dict[str, Any]) -> None:
    """Set attributes without properties and ``__setattr__``: no code of the class runs.

    Attributes that no longer have a slot are dropped.
    """
    for name, value in state.items():
        member = layout.slots.get(name)
        if member is not None:
            member.__set__(made, value)
        elif hasattr(made, "__dict__"):
            made.__dict__[name] = value
