"""Construction of an object from each kind of row: built at once, or created empty (a *shell*) and filled later.

A stored exception is restored as its own class if the workflow can name that class, else as a `TaskError`.
"""

from __future__ import annotations

import base64
import builtins
import collections
import contextlib
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import functools
import pathlib
import re
import types
import uuid
import zoneinfo
from collections.abc import Callable
from types import CellType
from typing import Any

import msgspec

from dalsegno.lang.errors import SnapshotError
from dalsegno.lang.python.allowed_names import dotted_name
from dalsegno.lang.python.compile.fragments import makes_functions, nested_code
from dalsegno.lang.python.errors import TaskError, cancelled_error
from dalsegno.lang.python.exceptions import build, task_error
from dalsegno.lang.python.runtime.nested import NestedCall, NestedFunction
from dalsegno.lang.python.snapshot.format import FUNCTION_NAMES, Row, Tag
from dalsegno.lang.python.snapshot.iterators import ITERABLE, MAKERS, DictIterator, SetIterator
from dalsegno.lang.python.snapshot.itertools_state import CLASSES, slots_of
from dalsegno.lang.python.snapshot.object_table import Build, Fill, Reader, unknown
from dalsegno.lang.python.snapshot.objects import (
    fill_object,
    fill_reduced,
    fill_stateful,
    object_shell,
    reduced_shell,
)
from dalsegno.lang.python.snapshot.registry import LruCache, load_registered
from dalsegno.lang.python.timeouts import Timeout
from dalsegno.lang.python.traces import RECORD, TRACE
from dalsegno.lang.python.values.annotations import is_model, is_named_tuple
from dalsegno.lang.runtime.effects import ErrorValue, GroupKind
from dalsegno.lang.runtime.promises import AnyPromise, Group, Promise, Settled

_CLASSES, _MESSAGE, _TRACE, _RECORD, _SUPPRESS, _ARGUMENTS, _STATE, _CAUSE, _CONTEXT = range(1, 10)


def exception_shell(reader: Reader, row: Row) -> BaseException:
    """Create an exception from its arguments: some exceptions read them only in the constructor."""
    classes = msgspec.json.decode(row[_CLASSES], type=tuple[str, ...])
    record = _record(row)
    kind = _exceptions_class(reader, classes[0])
    if kind is None:
        kind_name = classes[0].rpartition(".")[2]
        error = record or ErrorValue(kind_name, row[_MESSAGE], kind_name, classes=classes)
        return task_error(error, reader.program.naming)
    return build(kind, tuple(reader.value(row[_ARGUMENTS])))


def _exceptions_class(reader: Reader, name: str) -> type[BaseException] | None:
    if name == dotted_name(TaskError):
        return None
    if name == dotted_name(cancelled_error()):
        return cancelled_error()
    found = reader.program.naming.find_class(name)
    return found if found is not None and issubclass(found, BaseException) else None


def _record(row: Row) -> ErrorValue | None:
    return None if row[_RECORD] is None else msgspec.json.decode(row[_RECORD], type=ErrorValue)


def fill_exception(reader: Reader, made: BaseException, row: Row) -> None:
    state: dict[str, Any] = reader.value(row[_STATE]) or {}
    if not isinstance(made, TaskError):
        made.__dict__.update(state)
        record = _record(row)
        if record is not None:
            made.__dict__[RECORD] = record
    made.__dict__[TRACE] = msgspec.json.decode(row[_TRACE], type=list[tuple[str, str, int]])
    made.__cause__ = reader.value(row[_CAUSE])
    made.__context__ = reader.value(row[_CONTEXT])
    made.__suppress_context__ = row[_SUPPRESS]


# ruff: noqa: ARG001 - functions of a dispatch table share one signature


# -- built at once ----------------------------------------------------------------------------------------------


def _name(reader: Reader, row: Row) -> Any:
    found = reader.program.naming.find(row[1])
    if found is None:
        raise unknown(row[1])
    return found


def _class(reader: Reader, name: str, test: Callable[[type], bool]) -> Any:
    found = reader.program.naming.find_class(name)
    if found is None:
        raise unknown(name)
    if not test(found):
        raise SnapshotError(
            f"the class '{name}' has changed: it is not of the kind it was when it was stored"
        )
    return found


def _durable(reader: Reader, row: Row) -> Any:
    found = reader.program.naming.durable(row[1], row[2])
    if found is None:
        raise unknown(row[2])
    options = reader.value(row[3])
    return found if options is None else found.with_options(**options)


def _module(reader: Reader, row: Row) -> Any:
    found = reader.program.naming.stored_module(row[1])
    if found is None:
        raise unknown(row[1])
    return found


def _method(reader: Reader, row: Row) -> Any:
    owner = reader.value(row[2])
    permitted = reader.program.naming.reach.permits_method(owner, row[1])
    found = getattr(owner, row[1], None) if permitted else None
    if not callable(found):
        raise SnapshotError(
            f"the stored workflow is about to call '{row[1]}', which its object no longer has, or which its code does "
            "not reach"
        )
    return found


def _datetime(reader: Reader, row: Row) -> dt.datetime:
    return dt.datetime.fromisoformat(row[1]).replace(fold=row[2], tzinfo=reader.value(row[3]))


def _time(reader: Reader, row: Row) -> dt.time:
    return dt.time.fromisoformat(row[1]).replace(fold=row[2], tzinfo=reader.value(row[3]))


def _timezone(reader: Reader, row: Row) -> dt.timezone:
    offset = reader.value(row[2])
    if row[1] is not None:
        return dt.timezone(offset, row[1])
    return dt.timezone(offset) if offset else dt.UTC


_PATHS: dict[str, type[pathlib.PurePath]] = {
    kind.__name__: kind
    for kind in (
        pathlib.Path,
        pathlib.PosixPath,
        pathlib.PurePath,
        pathlib.PurePosixPath,
        pathlib.PureWindowsPath,
        pathlib.WindowsPath,
    )
}


def _path(reader: Reader, row: Row) -> Any:
    return _PATHS.get(row[1], pathlib.PurePath)(row[2])


def _enum(reader: Reader, row: Row) -> Any:
    kind = _class(reader, row[1], _is_enum)
    member = kind.__members__.get(row[2])
    if member is None:
        raise SnapshotError(f"the stored workflow holds {row[1]}.{row[2]}, which that Enum no longer has")
    return member


def _is_enum(kind: type) -> bool:
    return issubclass(kind, enum.Enum)


def _partial(reader: Reader, row: Row) -> Any:
    function, arguments, keywords = (reader.value(part) for part in row[1:])
    return functools.partial(function, *arguments, **keywords)


def _iterator(reader: Reader, row: Row) -> Any:
    """Build an iterator. Its position is set at the end: a list must have its items first."""
    state, *arguments = (reader.value(part) for part in row[2:])
    _check_iterator(row[1], state, arguments)
    made = MAKERS[row[1]](*arguments)  # type: ignore[operator]
    if state is not None:
        reader.at_the_end(lambda: made.__setstate__(state))
    return made


def _check_iterator(maker: str, state: Any, arguments: list[Any]) -> None:
    """Allow only Python's own containers and iterators as arguments.

    Creating the iterator then calls no other code.
    """
    sources = arguments[1:] if maker in ("map", "filter") else arguments
    if maker == "enumerate" and len(arguments) == 2 and isinstance(arguments[1], int):
        sources = arguments[:1]
    is_plain = all(isinstance(source, ITERABLE) for source in sources)
    if not is_plain or (maker in ("iter", "reversed") and len(sources) != 1) or type(state) not in _STATES:
        raise SnapshotError(
            "the snapshot is damaged: an iterator does not go through one of Python's containers"
        )


_STATES = (type(None), int, bool)


def _dict_view(reader: Reader, row: Row) -> Any:
    mapping = _dict(reader.value(row[2]))
    return {"keys": mapping.keys, "values": mapping.values, "items": mapping.items}[row[1]]()


def _dict(value: Any) -> dict[Any, Any]:
    if isinstance(value, dict):
        return value
    raise SnapshotError("the snapshot is damaged: what should be a dict is not one")


def _suppress(reader: Reader, row: Row) -> contextlib.suppress:
    kinds = [reader.value(part) for part in row[1:]]
    if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
        raise SnapshotError("the snapshot is damaged: what is suppressed is not an exception")
    return contextlib.suppress(*kinds)


def _group(reader: Reader, row: Row) -> Group:
    kind, shape = msgspec.convert(row[1:3], tuple[GroupKind, str])
    return Group(kind, _promises(reader, row[3:]), shape=shape)


def _named_group(reader: Reader, row: Row) -> Group:
    kind, shape, keys = msgspec.convert(row[1:4], tuple[GroupKind, str, tuple[str, ...]])
    items = _promises(reader, row[4:])
    if len(keys) != len(items):
        raise SnapshotError("the snapshot is damaged: a group of promises has other names than promises")
    return Group(kind, items, keys, shape)


def _promises(reader: Reader, parts: Row) -> tuple[AnyPromise, ...]:
    items = tuple(reader.values(parts))
    if not all(isinstance(item, Promise | Group | Settled) for item in items):
        raise SnapshotError("the snapshot is damaged: a group of promises holds something else")
    return items


def _frozen_set(reader: Reader, row: Row) -> frozenset[Any]:
    items = reader.values(row[1:])
    reader.wait_for_keys(items)
    return frozenset(items)


def _registered(reader: Reader, row: Row) -> Any:
    plain = reader.value(row[2])
    reader.wait_for(row[2])
    return load_registered(row[1], plain)


def _manager(reader: Reader, row: Row) -> Any:
    function = reader.value(row[1])
    if not isinstance(function, types.FunctionType):
        raise SnapshotError("the snapshot is damaged: a context manager is made by something else")
    return contextlib.contextmanager(function)


def _structure(reader: Reader, row: Row) -> Any:
    """Build a msgspec structure. Fields that the class has gained get their defaults, lost ones are dropped."""
    kind = _class(reader, row[1], _is_structure)
    state = _named(reader, row, 2)
    known = {name: state[name] for name in kind.__struct_fields__ if name in state}
    try:
        made = kind(**known)
    except (TypeError, ValueError) as error:
        raise SnapshotError(f"the class '{row[1]}' has changed: {error}") from error
    for name, value in known.items():  # as they were, whatever ``__post_init__`` makes of them
        msgspec.structs.force_setattr(made, name, value)
    return made


def _is_structure(kind: type) -> bool:
    return issubclass(kind, msgspec.Struct)


BUILDERS: dict[str, Build] = {
    Tag.BIG_INT: lambda reader, row: int(row[1], 16),
    Tag.SPECIAL_FLOAT: lambda reader, row: float(row[1]),
    Tag.BROKEN_TEXT: lambda reader, row: base64.b64decode(row[1]).decode("utf-8", "surrogatepass"),
    Tag.LONG_TEXT: lambda reader, row: str(row[1]),
    Tag.CONSTANT: lambda reader, row: {"Ellipsis": ..., "NotImplemented": builtins.NotImplemented}[row[1]],
    Tag.COMPLEX: lambda reader, row: complex(row[1]),
    Tag.BYTES: lambda reader, row: base64.b64decode(row[1]),
    Tag.TUPLE: lambda reader, row: tuple(reader.values(row[1:])),
    Tag.FROZENSET: _frozen_set,
    Tag.DECIMAL: lambda reader, row: decimal.Decimal(row[1]),
    Tag.UUID: lambda reader, row: uuid.UUID(row[1]),
    Tag.FRACTION: lambda reader, row: fractions.Fraction(row[1]),
    Tag.DATETIME: _datetime,
    Tag.DATE: lambda reader, row: dt.date.fromisoformat(row[1]),
    Tag.TIME: _time,
    Tag.TIMEDELTA: lambda reader, row: dt.timedelta(row[1], row[2], row[3]),
    Tag.TIMEZONE: _timezone,
    Tag.ZONE: lambda reader, row: zoneinfo.ZoneInfo(row[1]),
    Tag.PATH: _path,
    Tag.PATTERN: lambda reader, row: re.compile(reader.value(row[2]), row[1]),
    Tag.RANGE: lambda reader, row: range(*(reader.value(part) for part in row[1:])),
    Tag.SLICE: lambda reader, row: slice(*(reader.value(part) for part in row[1:])),
    Tag.NAME: _name,
    Tag.DURABLE: _durable,
    Tag.MODULE: _module,
    Tag.METHOD: _method,
    Tag.PARTIAL: _partial,
    Tag.ENUM: _enum,
    Tag.FLAG: lambda reader, row: _class(reader, row[1], _is_enum)(reader.value(row[2])),
    Tag.NAMED_TUPLE: lambda reader, row: _class(reader, row[1], is_named_tuple)._make(reader.values(row[2:])),
    Tag.STRUCT: _structure,
    Tag.OUTSIDE: lambda reader, row: reader.outside(row[1]),
    Tag.PROMISE: lambda reader, row: None,
    Tag.GROUP: _group,
    Tag.NAMED_GROUP: _named_group,
    Tag.SETTLED: lambda reader, row: Settled(reader.value(row[1])),
    Tag.ITERATOR: _iterator,
    Tag.DICT_VIEW: _dict_view,
    Tag.SUPPRESS: _suppress,
    Tag.MANAGER: _manager,
    Tag.REGISTERED: _registered,
}


# -- created empty and filled -----------------------------------------------------------------------------------


def _fill_list(reader: Reader, made: list[Any], row: Row) -> None:
    made[:] = reader.values(row[1:])


def _fill_dict(reader: Reader, made: dict[Any, Any], row: Row) -> None:
    entries = list(reader.entries(row[1:]))
    reader.wait_for_keys(key for key, _ in entries)
    made.clear()
    made.update(entries)


def _fill_default_dict(reader: Reader, made: collections.defaultdict[Any, Any], row: Row) -> None:
    made.default_factory = reader.value(row[1])
    _fill_dict(reader, made, row[1:])


def _fill_counter(reader: Reader, made: collections.Counter[Any], row: Row) -> None:
    entries = list(reader.entries(row[1:]))
    reader.wait_for_keys(key for key, _ in entries)
    made.update(dict(entries))


def _fill_set(reader: Reader, made: set[Any], row: Row) -> None:
    items = reader.values(row[1:])
    reader.wait_for_keys(items)
    made.update(items)


def _fill_deque(reader: Reader, made: collections.deque[Any], row: Row) -> None:
    items = reader.values(row[2:])
    made.clear()
    made.extend(items)


def _fill_bytearray(reader: Reader, made: bytearray, row: Row) -> None:
    made[:] = base64.b64decode(row[1])


def _named(reader: Reader, row: Row, start: int) -> dict[str, Any]:
    """Return values by name. There must be as many names as values."""
    half = (len(row) - start) // 2
    values = [reader.value(part) for part in row[start + half :]]
    return dict(zip(row[start : start + half], values, strict=True))


def _fill_namespace(reader: Reader, made: types.SimpleNamespace, row: Row) -> None:
    vars(made).update(_named(reader, row, 1))


def _instance(reader: Reader, row: Row) -> Any:
    return object.__new__(_class(reader, row[1], _is_plain_dataclass))


def _is_plain_dataclass(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) and kind.__new__ is object.__new__


@functools.lru_cache(maxsize=1024)
def _computed(kind: type) -> frozenset[str]:
    """Return the names that the class computes: setting one would call its code."""
    return frozenset(
        name
        for each in kind.__mro__
        for name, found in each.__dict__.items()
        if hasattr(type(found), "__set__") and not isinstance(found, _STORED_ATTRIBUTES)
    )


_STORED_ATTRIBUTES = (types.MemberDescriptorType, types.GetSetDescriptorType)


def _fill_instance(reader: Reader, made: Any, row: Row) -> None:
    """Fill an instance.

    Fields that the class has gained since then get their defaults; fields that it has lost are dropped.
    """
    state = _named(reader, row, 2)
    for field in dataclasses.fields(made):
        if field.name in state:
            continue
        if field.default is not dataclasses.MISSING:
            state[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            state[field.name] = field.default_factory()
    kind: Any = type(made)
    computed = _computed(kind)
    for name, value in state.items():
        if name in _NEVER_SET or name in computed:
            raise SnapshotError(f"the class '{row[1]}' has changed: '{name}' is not one of its fields")
        with contextlib.suppress(AttributeError):
            object.__setattr__(made, name, value)


_NEVER_SET = frozenset(("__class__", "__dict__"))


def _model(reader: Reader, row: Row) -> Any:
    kind = _class(reader, row[1], is_model)
    return kind.__new__(kind)


def _fill_model(reader: Reader, made: Any, row: Row) -> None:
    made.__setstate__(_named(reader, row, 2))


def _fill_cell(reader: Reader, made: CellType, row: Row) -> None:
    if len(row) > 1:
        made.cell_contents = reader.value(row[1])


def _function(reader: Reader, row: Row) -> types.FunctionType:
    natives = reader.program.natives[row[1]]
    code = natives.nested[tuple(int(part) for part in row[2].split("."))]
    cells = tuple(reader.value(part) for part in row[4 : 4 + row[3]])
    return types.FunctionType(code, reader.program.surroundings.globals, code.co_name, None, cells)


def _fill_function(reader: Reader, made: types.FunctionType, row: Row) -> None:
    _fill_settings(reader, made, row[4 + row[3] :])


def _fill_settings(reader: Reader, made: types.FunctionType, written: Row) -> None:
    """Restore a function's settings. Names are stored only if they differ from those of the definition."""
    defaults, keyword_defaults, attributes, *names = (reader.value(part) for part in written)
    made.__defaults__ = defaults
    made.__kwdefaults__ = keyword_defaults
    made.__dict__.update(attributes or {})
    for name, value in names[0].items() if names else ():
        if name in FUNCTION_NAMES and (value is None or isinstance(value, str)):
            setattr(made, name, value)


def _closure(reader: Reader, row: Row) -> types.FunctionType:
    """Build a function that another function created, from the code inside that one."""
    maker = reader.program.naming.find(row[1])
    code = nested_code(maker, row[2]) if makes_functions(maker) else None
    cells = tuple(reader.value(part) for part in row[5 : 5 + row[4]])
    fits = code is not None and code.co_qualname == row[3] and len(code.co_freevars) == len(cells)
    if code is None or not fits or not all(isinstance(cell, CellType) for cell in cells):
        raise SnapshotError(
            f"the stored workflow holds the function '{row[3]}', which '{row[1]}' no longer makes: run the execution "
            "with the code it was started with"
        )
    return types.FunctionType(code, maker.__globals__, code.co_name, None, cells)


def _fill_closure(reader: Reader, made: types.FunctionType, row: Row) -> None:
    _fill_settings(reader, made, row[5 + row[4] :])


def _stored_iterator(reader: Reader, row: Row) -> Any:
    kind: Any = CLASSES.get(row[1])
    if kind is None or len(row) - 2 != len(slots_of(kind)):
        raise SnapshotError(f"the snapshot holds an iterator unknown to this version: '{row[1]}'")
    return kind.__new__(kind)


def _fill_stored_iterator(reader: Reader, made: Any, row: Row) -> None:
    for name, part in zip(slots_of(type(made)), row[2:], strict=True):
        setattr(made, name, reader.value(part))


def _fill_cache(reader: Reader, made: LruCache, row: Row) -> None:
    state = [reader.value(part) for part in row[1:]]
    if len(state) != 7 or not isinstance(state[0], types.FunctionType):
        raise SnapshotError("the snapshot is damaged: a cache has no function")
    reader.wait_for_keys(state[5])
    made.restore(state)


def _fill_nested(reader: Reader, made: NestedFunction, row: Row) -> None:
    binder, *cells = (reader.value(part) for part in row[2:])
    if not all(isinstance(cell, CellType) for cell in cells):
        raise SnapshotError("the snapshot is damaged: a function's variable is not a variable")
    is_known = isinstance(row[1], int) and 0 < row[1] < len(reader.program.functions)
    if not is_known or not isinstance(binder, types.FunctionType):
        raise SnapshotError("the snapshot is damaged: a nested function is not one of its program")
    made.number, made.binder, made.cells = row[1], binder, tuple(cells)


def _fill_call(reader: Reader, made: NestedCall, row: Row) -> None:
    function, arguments = reader.value(row[2]), reader.value(row[3])
    if not isinstance(function, NestedFunction) or not isinstance(arguments, tuple):
        raise SnapshotError("the snapshot is damaged: a call is not one of a nested function")
    made.awaited, made.function, made.arguments = bool(row[1]), function, arguments


def _fill_timeout(reader: Reader, made: Timeout, row: Row) -> None:
    promise = reader.value(row[3])
    if not isinstance(promise, Promise | None):
        raise SnapshotError("the snapshot is damaged: a time limit has no timer")
    made.fired, made.promise = bool(row[2]), promise


def _dict_iterator(reader: Reader, row: Row) -> DictIterator:
    return DictIterator({}, row[1], row[2], row[3])


def _fill_dict_iterator(reader: Reader, made: DictIterator, row: Row) -> None:
    made.mapping = _dict(reader.value(row[4]))


def _set_iterator(reader: Reader, row: Row) -> SetIterator:
    return SetIterator(set(), [], row[1])


def _fill_set_iterator(reader: Reader, made: SetIterator, row: Row) -> None:
    made.owner, *made.remaining = reader.values(row[2:])


SHELLS: dict[str, tuple[Build, Fill]] = {
    Tag.LIST: (lambda reader, row: [], _fill_list),
    Tag.DICT: (lambda reader, row: {}, _fill_dict),
    Tag.SET: (lambda reader, row: set(), _fill_set),
    Tag.DEFAULTDICT: (lambda reader, row: collections.defaultdict(), _fill_default_dict),
    Tag.ORDEREDDICT: (lambda reader, row: collections.OrderedDict(), _fill_dict),
    Tag.COUNTER: (lambda reader, row: collections.Counter(), _fill_counter),
    Tag.DEQUE: (lambda reader, row: collections.deque(maxlen=row[1]), _fill_deque),
    Tag.BYTEARRAY: (lambda reader, row: bytearray(), _fill_bytearray),
    Tag.NAMESPACE: (lambda reader, row: types.SimpleNamespace(), _fill_namespace),
    Tag.INSTANCE: (_instance, _fill_instance),
    Tag.MODEL: (_model, _fill_model),
    Tag.CELL: (lambda reader, row: CellType(), _fill_cell),
    Tag.FUNCTION: (_function, _fill_function),
    Tag.NESTED: (lambda reader, row: NestedFunction.__new__(NestedFunction), _fill_nested),
    Tag.CALL: (lambda reader, row: NestedCall.__new__(NestedCall), _fill_call),
    Tag.TIMEOUT: (lambda reader, row: Timeout(msgspec.convert(row[1], float | None)), _fill_timeout),
    Tag.DICT_ITERATOR: (_dict_iterator, _fill_dict_iterator),
    Tag.SET_ITERATOR: (_set_iterator, _fill_set_iterator),
    Tag.EXCEPTION: (exception_shell, fill_exception),
    Tag.CLOSURE: (_closure, _fill_closure),
    Tag.STORED_ITERATOR: (_stored_iterator, _fill_stored_iterator),
    Tag.CACHE: (lambda reader, row: LruCache(), _fill_cache),
    Tag.OBJECT: (object_shell, fill_object),
    Tag.STATEFUL: (object_shell, fill_stateful),
    Tag.REDUCED: (reduced_shell, fill_reduced),
}
