"""Error messages for values that cannot be stored: which variable, where, of what type, and what to do instead."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from dalsegno.lang.python.code import Op
from dalsegno.lang.python.reachable_names import is_forbidden
from dalsegno.lang.python.runtime.frames import Frame
from dalsegno.lang.python.snapshot.objects import layout_of
from dalsegno.lang.python.values.annotations import is_model
from dalsegno.lang.runtime.promises import Group, Promise

LOOPED = "the iterator of a 'for' loop"
MANAGED = "the context manager of a 'with' block"

_KINDS = (
    "plain data, tuples, sets, bytes, dates, Decimal, UUID, Enum members, dataclasses, Pydantic models, msgspec "
    "structs, named tuples, instances of classes that the workflow's module names, functions, promises"
)


def complaint(root: str, path: str, value: Any, line: int) -> str:
    """Return the message for a value that cannot be stored.

    ``root`` is the variable or other holder; ``path`` leads from there to the value.
    """
    if is_forbidden(value):
        where = f"holds, at {path.strip()}," if path else "is"
        return (
            f"{root} {where} {_own_name(value)}, which may not live across the await in line {line}: it runs, loads or "
            "finds code by itself, and what is stored must not choose it. Await first, keep the result in a variable, "
            "and use it afterwards; or use it inside a task."
        )
    verb = f"holds, at {path.strip()}, a value" if path else "is"
    return (
        f"{root} {verb} of type {_type_name(value)}, which cannot be stored across the await in line {line}. "
        f"{_cure(value, root if not path else '')}"
    )


def _own_name(value: Any) -> str:
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", type(value).__name__)
    return f"'{name}'" if module in (None, "builtins") else f"'{module}.{name}'"


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _cure(value: Any, role: str) -> str:
    """Return the advice. ``role`` says how the workflow uses the value, where that is known."""
    kind: type = type(value)
    if isinstance(value, types.GeneratorType):
        return "Use a list instead: list(…) or […]."
    if hasattr(kind, "__next__") and (role == LOOPED or not hasattr(kind, "__exit__")):
        return "Loop over a list of its items instead: list(…)."
    if isinstance(value, types.CoroutineType):
        return "Await tasks instead of coroutines."
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
        return "Import it in the workflow's module, or name it there, so that another process can find it."
    if isinstance(value, types.ModuleType):
        return "Import it at the top of the workflow's module."
    if dataclasses.is_dataclass(value) or is_model(kind) or isinstance(value, msgspec.Struct):
        return (
            f"Import the class {kind.__name__} in the workflow's module, so that another process can find it."
        )
    if hasattr(kind, "__del__") and role != MANAGED and not kind.__module__.startswith("_"):
        return (
            f"{kind.__name__} frees something when an instance goes (__del__). Make it again after the await, or use "
            f"it inside a task; or say how it is stored: {_registering(kind)}"
        )
    if layout_of(kind) is not None:
        return (
            f"Import the class {kind.__name__} in the workflow's module, so that another process can find it; "
            f"or say how it is stored: {_registering(kind)}"
        )
    if role == MANAGED:
        return "Use it inside a task, or let its 'with' block end before the await."
    return (
        f"Make it again after the await, or use it inside a task: what lives across an await must be {_KINDS}. "
        f"Or say how it is stored: {_registering(kind)}"
    )


def _registering(kind: type) -> str:
    return f"app.register_type({kind.__name__}, dump, load)."


def path_of(chain: Sequence[tuple[Any, Any]]) -> str:
    """Convert (container, item) pairs, outermost first, to text such as ``['client'].pool``."""
    return "".join(_step(container, item) for container, item in chain)


def _step(container: Any, item: Any) -> str:
    if isinstance(container, types.CellType):
        return ""
    if (
        type(item) in (dict, list, set, tuple)
        and type(container) is not type(item)
        and _is_content(container, item)
    ):
        return ""
    if isinstance(container, dict):
        return next((f"[{key!r:.40}]" for key, value in container.items() if value is item), " (a key)")
    if isinstance(container, list | tuple):
        return next((f"[{index}]" for index, value in enumerate(container) if value is item), "[…]")
    for name, value in _attributes(container):
        if value is item:
            return f".{name}"
    return f" ({type(container).__name__})"


def _is_content(container: Any, item: Any) -> bool:
    """Return whether the item is the content of a subclass of a builtin."""
    return isinstance(container, type(item)) and len(container) == len(item) and container == item


def _attributes(container: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(container, types.FunctionType):
        for name, cell in zip(container.__code__.co_freevars, container.__closure__ or (), strict=True):
            yield f"<variable {name}>", cell
    if isinstance(container, types.MethodType | types.BuiltinMethodType):
        yield "__self__", container.__self__
    if dataclasses.is_dataclass(container):
        for each in dataclasses.fields(container):
            yield each.name, getattr(container, each.name, None)
    yield from getattr(container, "__dict__", {}).items()


def role_of(frame: Frame, index: int) -> str:
    """Describe a value on the machine's stack in terms of the workflow's source."""
    value = frame.stack[index]
    kind = type(value)
    if isinstance(value, Promise | Group):
        return "the promise that is awaited"
    if isinstance(value, types.MethodType | types.BuiltinMethodType):
        kind_of = "function" if isinstance(value.__self__, types.ModuleType | None) else "method"
        return f"the {kind_of} '{value.__name__}' that is about to be called"
    if hasattr(kind, "__exit__") and _is_managed(frame, index):
        return MANAGED
    if hasattr(kind, "__next__"):
        return LOOPED
    return "a part of an expression"


def _is_managed(frame: Frame, index: int) -> bool:
    """Return whether the value is the manager of a ``with`` block.

    Only the code shows this: a file, for example, could also be the iterable of a loop.
    """
    code = frame.code
    return any(
        handler.depth == index + 1
        and handler.start <= frame.position <= handler.stop
        and code.instructions[handler.target][0] == Op.ESCAPE
        for handler in code.handlers
    )
