"""Custom storage of types: those that a program registers, and those of the standard library that need it.

`register_type` is for objects that cannot cross an ``await`` otherwise. A registered type is found by its name in this
registry only: a snapshot can name only types that the running program has registered.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from dalsegno.errors import UsageError
from dalsegno.lang.errors import SnapshotError
from dalsegno.lang.python.module_names import stored_name_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredType:
    kind: type
    name: str
    dump: Callable[[Any], Any]
    load: Callable[[Any], Any]


_by_class: dict[type, StoredType] = {}
_by_name: dict[str, StoredType] = {}


def register_type(kind: type[T], dump: Callable[[T], Any], load: Callable[[Any], T]) -> None:
    """Store objects of exactly this class as the result of ``dump``, and rebuild them with ``load``.

    ``dump`` may return any storable value. Registering a class again replaces its functions.
    """
    given: Any = (kind, dump, load)
    if not isinstance(given[0], type):
        raise UsageError(f"register_type() takes a class, not {type(given[0]).__name__}")
    if not all(map(callable, given)):
        raise UsageError(f"register_type({kind.__name__}): give two functions, dump and load")
    found = StoredType(kind, f"{stored_name_of(kind.__module__)}.{kind.__qualname__}", dump, load)
    _by_class[kind] = _by_name[found.name] = found


def registered(kind: type) -> StoredType | None:
    found = _by_class.get(kind)
    if found is not None or kind.__module__ == "builtins":
        return found
    return _of_library(f"{kind.__module__}.{kind.__qualname__}", kind)


def load_registered(name: str, plain: Any) -> Any:
    found = _by_name.get(name) or _of_library(name)
    if found is None:
        raise SnapshotError(
            f"the stored workflow holds a '{name}', which this process has not registered: call register_type() for it "
            "where the workflow's module is imported"
        )
    made = found.load(plain)
    if not isinstance(made, found.kind):
        raise SnapshotError(f"load of the registered type '{name}' gave {type(made).__name__}")
    return made


# -- standard library -------------------------------------------------------------------------------------------


def _load_random(kind: Any, state: Any) -> Any:
    made = kind(0)
    made.setstate(state)
    return made


def _load_queue(kind: Any, state: Any) -> Any:
    most, items, unfinished = state
    made = kind(most)
    made.queue.extend(items)
    made.unfinished_tasks = unfinished
    return made


def _dump_queue(value: Any) -> Any:
    return value.maxsize, list(value.queue), value.unfinished_tasks


_QUEUE = (_dump_queue, _load_queue)
_LIBRARY: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    "array.array": (
        lambda value: (value.typecode, value.tobytes()),
        lambda kind, state: kind(state[0], state[1]),
    ),
    "operator.itemgetter": (lambda value: value.__reduce__()[1], lambda kind, state: kind(*state)),
    "queue.LifoQueue": _QUEUE,
    "queue.PriorityQueue": _QUEUE,
    "queue.Queue": _QUEUE,
    "random.Random": (lambda value: value.getstate(), _load_random),
}
"""By name, so that no module is imported before it is needed."""


def _of_library(name: str, kind: type | None = None) -> StoredType | None:
    functions = _LIBRARY.get(name)
    if functions is None:
        return None
    module_name, _, own = name.rpartition(".")
    found = vars(sys.modules.get(module_name) or importlib.import_module(module_name)).get(own)
    if not isinstance(found, type) or (kind is not None and found is not kind):
        return None
    dump, load = functions
    return StoredType(found, name, dump, lambda state: load(found, state))
