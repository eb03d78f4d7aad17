"""The classes, functions and modules that a stored workflow may name, and their meaning in this process.

A snapshot never makes Python import anything except what the workflow's own code imports. A name in it is looked up in
the bindings of the workflow's module (or of the function around it), in modules bound there or imported by the workflow
itself, among the builtins, and among the classes that annotations of the workflow and of its known tasks mention. A
result counts only if the workflow's code reaches it: see `reachable_names`.
"""

from __future__ import annotations

import builtins
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType, MappingProxyType, ModuleType
from typing import Any

from dalsegno.lang.python import api
from dalsegno.lang.python.compile import unsupported
from dalsegno.lang.python.durable_calls import Durable
from dalsegno.lang.python.environment import Surroundings, stored_name_of
from dalsegno.lang.python.reachable_names import DATA_TYPES, Reach, is_forbidden
from dalsegno.lang.python.requests import Request
from dalsegno.lang.python.values.annotations import classes_in
from dalsegno.lang.python.values.decisions import Decision

_VERBS: dict[str, Any] = {
    f"{stored_name_of(verb.__module__)}.{verb.__qualname__}": verb
    for verb in (
        *unsupported.ITERTOOLS_CLASSES.values(),
        api.approval,
        api.cancel,
        api.first,
        api.gather,
        api.log,
        api.now,
        api.progress,
        api.publish,
        api.race,
        api.request,
        api.requests,
        api.run,
        api.set_tags,
        api.checkpoint,
        api.signal,
        api.sleep,
        api.start,
        api.stream,
        api.timeout,
        Decision,
        Request,
        api.OutputStream,
    )
}
"""Verbs and iterators that every workflow can name."""


def dotted_name(thing: Any) -> str | None:
    """Return ``module.Qualified.name`` of a class, function or durable callable."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    return f"{stored_name_of(module)}.{name}" if isinstance(module, str) and isinstance(name, str) else None


class Naming:
    """The mapping between names and things of a workflow.

    It is built on first use: a module is complete only after its workflows are compiled.
    """

    def __init__(
        self, surroundings: Surroundings, imports: Iterable[str], codes: Callable[[], Iterable[CodeType]]
    ) -> None:
        """``codes`` returns the program's own code."""
        self.reach = Reach(surroundings, codes)
        self._surroundings = surroundings
        self._imports = tuple(imports)
        self._size = -1
        self._keys: dict[str, str] = {}
        """From dotted names to names around the workflow.

        Values are looked up when needed, because a module may be reloaded.
        """
        self._aliases: dict[int, str] = {}
        self._modules: dict[str, ModuleType] = {}
        self._annotated: dict[str, type] | None = None

    # -- from things to names ---------------------------------------------------------------------------------

    def name_of(self, thing: Any) -> str | None:
        """Return a name under which `find` finds this very thing; None if there is none."""
        found = self._name_of(thing)
        if found is None:
            self._refresh(again=True)
            found = self._name_of(thing)
        return found

    def _name_of(self, thing: Any) -> str | None:
        name = dotted_name(thing)
        if name is not None and self.find(name) is thing:
            return name
        alias = self._aliases.get(id(thing))
        if alias is not None and self.find(alias) is thing:
            return alias
        return self._name_in_modules(thing)

    def _name_in_modules(self, thing: Any) -> str | None:
        """Return the name of a thing that was read from a module that did not define it.

        Examples are ``operator.add`` and ``functools.reduce``.
        """
        own = getattr(thing, "__name__", None)
        if not isinstance(own, str):
            return None
        for home, module in self._modules.items():
            if vars(module).get(own) is thing and self.find(f"{home}.{own}") is thing:
                return f"{home}.{own}"
        return None

    def module_name(self, module: ModuleType) -> str | None:
        name = module.__name__
        return name if self.stored_module(name) is module else None

    # -- from names to things ---------------------------------------------------------------------------------

    def find(self, name: str) -> Any:
        """Return the thing that a name refers to in this process, or None."""
        self._refresh()
        verb = _VERBS.get(name)
        if verb is not None:
            return verb
        found = self._bound(name)
        if found is not None and self.reach.permits(found):
            return found
        for prefix, rest in _splits(name):
            found = self._found_in(prefix, rest)
            if found is not None and not isinstance(found, ModuleType):
                return found
        return self._by_annotation(name) or DATA_TYPES.get(name)

    def _found_in(self, prefix: str, rest: str) -> Any:
        """Look up a member of a class, of the builtins or of a module, if the workflow's code reaches it."""
        if prefix == "builtins":
            if any(part.startswith("_") for part in rest.split(".")):
                return None  # `object.__getattribute__` is `getattr` by another name
            found = _walk(builtins, rest)
            return None if is_forbidden(found) else found
        holder = self._bound(prefix)
        if holder is None:
            holder = self.find_module(prefix)
        found = _walk(holder, rest) if holder is not None else None
        if found is None or self.reach.permits(found):
            return found
        is_own = isinstance(holder, type) and self.reach.permits(holder) and _is_defined_with(holder, found)
        is_imported = prefix in self._imports and self.reach.mentions(rest.rpartition(".")[2])
        return found if (is_own or is_imported) and not is_forbidden(found) else None

    def instance_class_name(self, kind: type) -> str | None:
        """Return a name under which `find_instance_class` finds this very class."""
        name = dotted_name(kind)
        if name is not None and self.find_instance_class(name) is kind:
            return name
        return self.name_of(kind)

    def find_instance_class(self, name: str) -> type | None:
        """Return a class of stored instances. More classes qualify than as values, which could be called."""
        found = self.find_class(name)
        return found if found is not None else self.reach.instance_classes().get(name)

    def find_class(self, name: str) -> type | None:
        found = self.find(name)
        return found if isinstance(found, type) else None

    def stored_module(self, name: str) -> ModuleType | None:
        """Return a module as a value: one that the workflow's code reads or imports itself."""
        found = self.find_module(name)
        is_reached = found is not None and (name in self._imports or self.reach.reads_module(found))
        return found if is_reached else None

    def find_module(self, name: str) -> ModuleType | None:
        self._refresh()
        if name in self._modules:
            return self._modules[name]
        if name in self._imports:
            return importlib.import_module(name)  # the workflow's own code imports it
        for module in self._modules.values():
            for inner in list(vars(module).values()):
                if isinstance(inner, ModuleType) and inner.__name__ == name:
                    return inner
        return None

    def durable(self, kind: str, name: str) -> Durable[Any, Any] | None:
        """Return the task or workflow of that name among those the workflow's code can name."""
        for thing in self._reachable():
            if isinstance(thing, Durable) and thing.kind == kind and thing.name == name:
                return thing
        return None

    # -- internals --------------------------------------------------------------------------------------------

    def _bound(self, name: str) -> Any:
        key = self._keys.get(name)
        return self._surroundings.value(key) if key is not None else None

    def _refresh(self, *, again: bool = False) -> None:
        """Rebuild the tables when the module has new names."""
        if self._surroundings.size == self._size and not again:
            return
        bound = self._surroundings.bound()
        self._size = self._surroundings.size
        self._annotated = None
        self.reach.forget()
        self._keys, self._aliases, self._modules = {}, {}, {}
        own = self._surroundings.module
        for name, thing in bound.items():
            if isinstance(thing, ModuleType):
                self._modules[thing.__name__] = thing
            elif isinstance(thing, type | FunctionType | Durable) or callable(thing):
                alias = f"{own}.{name}"
                self._keys[alias] = name
                self._aliases[id(thing)] = alias
        for name, thing in bound.items():
            if isinstance(thing, type | FunctionType | Durable):
                canonical = dotted_name(thing)
                if canonical is not None:
                    self._keys.setdefault(canonical, name)

    def _reachable(self) -> Iterator[Any]:
        bound = self._surroundings.bound()
        yield from bound.values()
        for module in bound.values():
            if isinstance(module, ModuleType):
                yield from list(vars(module).values())

    def _by_annotation(self, name: str) -> type | None:
        if self._annotated is None:
            hints = list(self._surroundings.hints.values())
            for thing in self._reachable():
                if isinstance(thing, Durable):
                    hints.extend([*thing.hints.values(), *thing.raises])
            # Fields of classes that the module names count as annotations.
            bound = [thing for thing in self._surroundings.bound().values() if isinstance(thing, type)]
            hints.extend(kind for kind in bound if self.reach.permits(kind))
            named = {dotted_name(kind): kind for kind in classes_in(*hints) if not is_forbidden(kind)}
            self._annotated = {key: kind for key, kind in named.items() if key is not None}
        return self._annotated.get(name)


def _is_defined_with(holder: type, found: Any) -> bool:
    """Return whether a class and its member are defined in the same module, outside of the standard library."""
    is_own = getattr(found, "__module__", None) == holder.__module__
    return is_own and holder.__module__.partition(".")[0] not in sys.stdlib_module_names


def _splits(name: str) -> Iterator[tuple[str, str]]:
    """Split ``a.b.C`` into (``a.b``, ``C``), (``a``, ``b.C``): the longest module first."""
    position = name.rfind(".")
    while position > 0:
        yield name[:position], name[position + 1 :]
        position = name.rfind(".", 0, position)


def _walk(holder: Any, path: str) -> Any:
    found = holder
    for part in path.split("."):
        space = vars(found) if isinstance(found, type | ModuleType) else MappingProxyType({})
        found = space.get(part)
        if found is None:
            return None
    return found.__func__ if isinstance(found, staticmethod | classmethod) else found
