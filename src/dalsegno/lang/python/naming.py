"""Which classes, functions and modules a stored workflow may name, and what their names mean in this process.

A snapshot never makes Python import anything but what the workflow's own code imports. A name in it is looked up in
what the workflow's module (or the function around it) binds, in modules bound there or imported by the workflow itself,
among the builtins, and among the classes that annotations of the workflow and of the tasks it knows mention. What is
found counts only if the workflow's code reaches it: see `reach`.
"""

from __future__ import annotations

import builtins
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType, MappingProxyType, ModuleType
from typing import Any

from dalsegno.lang.python import itertools_spellings, verbs
from dalsegno.lang.python.annotations import classes_in
from dalsegno.lang.python.approvals import Decision
from dalsegno.lang.python.calls import Durable
from dalsegno.lang.python.homes import home_of
from dalsegno.lang.python.reach import DATA_TYPES, Reach, is_forbidden
from dalsegno.lang.python.surroundings import Surroundings

_VERBS: dict[str, Any] = {
    f"{verb.__module__}.{verb.__qualname__}": verb
    for verb in (
        *itertools_spellings.OURS.values(),
        verbs.first,
        verbs.gather,
        verbs.log,
        verbs.race,
        verbs.run,
        verbs.signal,
        verbs.sleep,
        verbs.start,
        verbs.timeout,
    )
}
"""Every workflow can name these, however it came by them."""
_VERBS.update({f"{each.__module__}.{each.__qualname__}": each for each in (verbs.approval, Decision)})


def dotted_name(thing: Any) -> str | None:
    """``module.Qualified.name`` of a class, function or durable callable."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    return f"{home_of(module)}.{name}" if isinstance(module, str) and isinstance(name, str) else None


class Naming:
    """Built on first use, because a module is complete only after its workflows were compiled."""

    def __init__(
        self, surroundings: Surroundings, imports: Iterable[str], codes: Callable[[], Iterable[CodeType]]
    ) -> None:
        """``codes``: the program's own code."""
        self.reach = Reach(surroundings, codes)
        self._surroundings = surroundings
        self._imports = tuple(imports)
        self._size = -1
        self._keys: dict[str, str] = {}
        """From dotted names to names around the workflow; their values are looked up when they are needed, because a
        module may be loaded again."""
        self._aliases: dict[int, str] = {}
        self._modules: dict[str, ModuleType] = {}
        self._annotated: dict[str, type] | None = None

    # -- from things to names ---------------------------------------------------------------------------------

    def name_of(self, thing: Any) -> str | None:
        """A name under which `find` finds this very thing; None if there is none."""
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
        """Of what is read from a module that did not define it, such as ``operator.add`` and ``functools.reduce``."""
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

    # -- and back ---------------------------------------------------------------------------------------------

    def find(self, name: str) -> Any:
        """What the name means here, or None."""
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
        """What a class, the builtins or a module of that name hold, if the workflow's code reaches it."""
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
        """A name under which `find_instance_class` finds this very class."""
        name = dotted_name(kind)
        if name is not None and self.find_instance_class(name) is kind:
            return name
        return self.name_of(kind)

    def find_instance_class(self, name: str) -> type | None:
        """A class of stored instances. There are more of them than classes that are values, which could be called."""
        found = self.find_class(name)
        return found if found is not None else self.reach.instance_classes().get(name)

    def find_class(self, name: str) -> type | None:
        found = self.find(name)
        return found if isinstance(found, type) else None

    def stored_module(self, name: str) -> ModuleType | None:
        """A module as a value: one that the workflow's code reads or imports itself."""
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
        """The task or workflow of that name among those the workflow's code can name."""
        for thing in self._reachable():
            if isinstance(thing, Durable) and thing.kind == kind and thing.name == name:
                return thing
        return None

    # -- inside -----------------------------------------------------------------------------------------------

    def _bound(self, name: str) -> Any:
        key = self._keys.get(name)
        return self._surroundings.value(key) if key is not None else None

    def _refresh(self, *, again: bool = False) -> None:
        """Whenever the module has got more names."""
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
            # Fields of classes that the module names are as good as annotations.
            bound = [thing for thing in self._surroundings.bound().values() if isinstance(thing, type)]
            hints.extend(kind for kind in bound if self.reach.permits(kind))
            named = {dotted_name(kind): kind for kind in classes_in(*hints) if not is_forbidden(kind)}
            self._annotated = {key: kind for key, kind in named.items() if key is not None}
        return self._annotated.get(name)


def _is_defined_with(holder: type, found: Any) -> bool:
    """Whether a class and what it holds are of one module, which is not Python's own."""
    is_own = getattr(found, "__module__", None) == holder.__module__
    return is_own and holder.__module__.partition(".")[0] not in sys.stdlib_module_names


def _splits(name: str) -> Iterator[tuple[str, str]]:
    """``a.b.C`` as (``a.b``, ``C``), (``a``, ``b.C``): the longest module first."""
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
