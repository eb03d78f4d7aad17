"""The names that a stored workflow may use: those that its own code reaches, except for anything that runs code.

A snapshot is data from the store. A function that it names may be called with arguments that the snapshot also chooses,
so a name resolves only if one of these holds:

* the thing is defined in the workflow's module, or its code (helper functions of its module included) reads it;
* it is defined in a module of a function that the code reads (a *helper module*);
* it is a class of data (dataclass, model, named tuple, Enum, exception) in a module that the workflow's module imports;
* it is a builtin, or a type of the standard library that holds data.

`is_forbidden` overrides all of them.
"""

from __future__ import annotations

import builtins
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import operator
import pathlib
import re
import sys
import types
import uuid
import zoneinfo
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

from dalsegno.lang.python.compile.scopes import attribute_names, outside_names
from dalsegno.lang.python.environment import Surroundings, stored_name_of
from dalsegno.lang.python.values.annotations import is_model, is_named_tuple

FORBIDDEN_BUILTINS = frozenset(
    (
        "__build_class__",
        "__import__",
        "breakpoint",
        "compile",
        "delattr",
        "eval",
        "exec",
        "exit",
        "getattr",
        "globals",
        "help",
        "input",
        "locals",
        "open",
        "quit",
        "setattr",
        "vars",
    )
)
_FORBIDDEN_MODULES = frozenset(
    (
        "_frozen_importlib",
        "_frozen_importlib_external",
        "_imp",
        "_posixsubprocess",
        "_pyrepl",
        "_winapi",
        "bdb",
        "cffi",
        "cloudpickle",
        "code",
        "codeop",
        "ctypes",
        "dill",
        "gc",
        "imp",
        "importlib",
        "inspect",
        "marshal",
        "multiprocessing",
        "pdb",
        "pickle",
        "pkgutil",
        "pty",
        "runpy",
        "subprocess",
        "sys",
        "timeit",
        "trace",
        "zipimport",
    )
)
"""Modules whose content is forbidden, including their submodules."""
_OS = frozenset(("os", "posix", "nt"))
_FORBIDDEN_OF_OS = re.compile(
    r"system|popen|startfile|f?d?open|exec\w+|spawn\w+|posix_spawn\w*|fork\w*|kill\w*"
)
_FORBIDDEN_OBJECTS = frozenset(
    id(thing)
    for thing in (
        types.BuiltinFunctionType,
        types.CodeType,
        types.FunctionType,
        types.ModuleType,
        operator.attrgetter,
        operator.methodcaller,
        *(vars(builtins)[name] for name in FORBIDDEN_BUILTINS if name in vars(builtins)),
    )
)

DATA_TYPES: dict[str, type] = {
    f"{kind.__module__}.{kind.__qualname__}": kind
    for kind in (
        collections.ChainMap,
        collections.Counter,
        collections.OrderedDict,
        collections.defaultdict,
        collections.deque,
        decimal.Decimal,
        dt.date,
        dt.datetime,
        dt.time,
        dt.timedelta,
        dt.timezone,
        fractions.Fraction,
        pathlib.PurePath,
        pathlib.PurePosixPath,
        pathlib.PureWindowsPath,
        re.Pattern,
        types.SimpleNamespace,
        uuid.UUID,
        zoneinfo.ZoneInfo,
    )
}
"""Types of the standard library that every workflow may name."""

_OPERATORS = frozenset(
    (
        *(name for name, found in vars(operator).items() if name.startswith("__") and callable(found)),
        *(
            "__bool__",
            "__enter__",
            "__exit__",
            "__hash__",
            "__iter__",
            "__len__",
            "__next__",
            "__repr__",
            "__str__",
        ),
    )
) - {"__call__"}
"""The special methods that stand for operators."""
_DESCRIPTORS = (
    FunctionType,
    classmethod,
    staticmethod,
    types.BuiltinFunctionType,
    types.ClassMethodDescriptorType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    type(lru_cache(lambda: None)),
)
_MOST_CONTAINED = 10_000
_DEEPEST = 5
"""Limits when searching a container that the code reads: number of values, and depth."""


def is_forbidden(thing: Any) -> bool:
    """Return whether a thing runs, loads or finds code itself, so that no workflow may keep it across an await."""
    if id(thing) in _FORBIDDEN_OBJECTS:
        return True
    module = getattr(thing, "__module__", None)
    if not isinstance(module, str):
        return False
    root = module.partition(".")[0]
    if root in _FORBIDDEN_MODULES:
        return not (isinstance(thing, type) and issubclass(thing, BaseException))
    return root in _OS and _FORBIDDEN_OF_OS.fullmatch(getattr(thing, "__name__", "")) is not None


def is_data_class(kind: Any) -> bool:
    """Return whether instances are rebuilt from stored fields."""
    return isinstance(kind, type) and (
        issubclass(kind, BaseException | enum.Enum)
        or dataclasses.is_dataclass(kind)
        or is_named_tuple(kind)
        or is_model(kind)
    )


class Reach:
    """The things that a program's code reaches, computed once on first use."""

    def __init__(self, surroundings: Surroundings, codes: Callable[[], Iterable[CodeType]]) -> None:
        self._surroundings = surroundings
        self._codes = codes
        self._is_computed = False
        self._attributes: frozenset[str] = frozenset()
        self._modules: frozenset[str] = frozenset()
        self._things: dict[int, Any] = {}
        """By identity, and kept alive: the things that the code reads, and the content of containers that it reads."""
        self._instance_classes: dict[str, type] | None = None

    def forget(self) -> None:
        """Discard the results because the module has new names."""
        self._is_computed = False
        self._instance_classes = None

    def permits(self, thing: Any) -> bool:
        """Return whether a snapshot may name a class or function that is in, or below, the workflow's module."""
        if is_forbidden(thing):
            return False
        module = getattr(thing, "__module__", None)
        if isinstance(module, str) and stored_name_of(module) == self._surroundings.module:
            return True
        if is_data_class(thing) or DATA_TYPES.get(_full_name(thing)) is thing:
            return True
        self._compute()
        return id(thing) in self._things or module in self._modules

    def permits_method(self, owner: Any, name: str) -> bool:
        """Return whether a snapshot may bind this method of an object or class.

        The method is looked up without running code.
        """
        if name.startswith("__") and name not in _OPERATORS:
            return False
        kind = owner if isinstance(owner, type) else type(owner)
        found, holder = _static(kind, name)
        if not isinstance(found, _DESCRIPTORS) or is_forbidden(owner):
            return False
        if holder.__module__ == "builtins" or DATA_TYPES.get(_full_name(holder)) is holder:
            return True
        is_foreign = holder.__module__.partition(".")[0] not in sys.stdlib_module_names
        if is_foreign and _function_module(found) == kind.__module__:
            return True
        self._compute()
        return name in self._attributes

    def instance_classes(self) -> dict[str, type]:
        """The classes that instances in a snapshot may have, by full name.

        They are the classes bound in the workflow's module, and in the modules of the functions and classes that its
        code reads, without Python's own.
        """
        if self._instance_classes is None:
            self._compute()
            read = {
                getattr(thing, "__module__", None) for thing in self._things.values() if _is_own_code(thing)
            }
            spaces = [self._surroundings.bound()]
            spaces.extend(vars(module) for name in read if (module := sys.modules.get(str(name))) is not None)
            self._instance_classes = {
                f"{stored_name_of(kind.__module__)}.{kind.__qualname__}": kind
                for space in spaces
                for kind in _classes_in(space)
            }
        return self._instance_classes

    def mentions(self, name: str) -> bool:
        """Return whether the code reads an attribute, or imports something, of this name."""
        self._compute()
        return name in self._attributes

    def reads_module(self, module: ModuleType) -> bool:
        """Return whether the code itself reads the module."""
        self._compute()
        return id(module) in self._things

    def _compute(self) -> None:
        if self._is_computed:
            return
        self._things = {}
        attributes: set[str] = set()
        modules: set[str] = set()
        waiting = list(self._codes())
        seen: set[int] = set()
        while waiting:
            code = waiting.pop()
            if id(code) in seen:
                continue
            seen.add(id(code))
            attributes.update(attribute_names(code))
            for name in set(outside_names(code)):
                for thing in self._along(name):
                    self._things[id(thing)] = thing
                    if isinstance(thing, FunctionType):
                        waiting.extend(self._helper(thing, modules))
        self._attributes, self._modules = frozenset(attributes), frozenset(modules)
        self._is_computed = True

    def _helper(self, function: FunctionType, modules: set[str]) -> Iterator[CodeType]:
        """Yield the code of a function of the workflow's module, or add its module to the helper modules.

        Functions of the workflow's module are part of the workflow's code.
        """
        if function.__globals__ is self._surroundings.globals:
            yield function.__code__
        elif function.__module__.partition(".")[0] not in sys.stdlib_module_names:
            modules.add(function.__module__)

    def _along(self, path: str) -> Iterator[Any]:
        """Yield the objects along a path such as ``module.name``, and the functions in a container at its end."""
        name, *rest = path.split(".")
        found = self._surroundings.value(name)
        while found is not None:
            yield found
            if not rest or not isinstance(found, ModuleType | type):
                break
            found = vars(found).get(rest.pop(0))
            found = getattr(found, "__func__", found)  # of a static or class method
        if not rest:
            yield from _callables_in(found)


def _is_own_code(thing: Any) -> bool:
    """Return whether it is a function or class outside of the standard library and this package."""
    module = getattr(thing, "__module__", None)
    if not isinstance(thing, FunctionType | type) or not isinstance(module, str):
        return False
    return module.partition(".")[0] not in (*sys.stdlib_module_names, "dalsegno")


def _classes_in(space: Mapping[str, Any]) -> Iterator[type]:
    """Yield the classes bound there, and those defined inside them."""
    waiting = list(space.values())
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, type) and _is_own_code(kind) and not is_forbidden(kind):
            yield kind
            prefix = f"{kind.__qualname__}."
            waiting.extend(
                inner
                for inner in vars(kind).values()
                if isinstance(inner, type) and inner.__qualname__.startswith(prefix)
            )


def _callables_in(container: Any) -> Iterator[Any]:
    """Yield functions, classes and modules in a table such as ``HANDLERS = {"a": handle_a}``."""
    waiting = [(container, 0)]
    left = _MOST_CONTAINED
    while waiting and left:
        found, depth = waiting.pop()
        left -= 1
        if callable(found) or isinstance(found, ModuleType):
            yield found
        elif depth < _DEEPEST and isinstance(found, _CONTAINERS):
            items = found.values() if isinstance(found, dict) else found
            waiting.extend((item, depth + 1) for item in list(items)[:left])


_CONTAINERS = (dict, list, tuple, set, frozenset)


def _full_name(thing: Any) -> str:
    return f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', '')}"


@lru_cache(maxsize=2048)
def _static(kind: type, name: str) -> tuple[Any, type]:
    """Return the class's attribute of that name and the base that defines it, ignoring the metaclass."""
    for each in kind.__mro__:
        if name in each.__dict__:
            return each.__dict__[name], each
    return None, kind


def _function_module(found: Any) -> str | None:
    function = getattr(found, "__func__", found)
    return getattr(function, "__module__", None)
