"""The surroundings of a workflow's code: its module, the function it was defined in, its own signature.

Surroundings belong to the running code, never to a snapshot: native functions and globals are those of this process.

The name under which other processes import a module.

The file that Python was started with is ``__main__`` in that process only. A workflow of that file is stored under the
name by which a worker imports the same file, so that the worker can continue it.
"""

from __future__ import annotations

import builtins
import inspect
import sys
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from types import CellType, FunctionType, ModuleType
from typing import Any

from dalsegno.lang.errors import SnapshotError
from dalsegno.lang.python import api
from dalsegno.lang.python.compile import unsupported
from dalsegno.lang.python.compile.unsupported import ASYNCIO_NAMES, asyncio_alias
from dalsegno.lang.python.values.annotations import hints_of

MAIN = "__main__"


STORED_NAMES = {
    "dalsegno.engine.scripts.programs": "dalsegno.engine.scripting.sources",
    "dalsegno.lang.python.api": "dalsegno.lang.python.verbs",
    "dalsegno.lang.python.runtime.itertools_classes": "dalsegno.lang.python.itertools_classes",
    "dalsegno.lang.python.values.decisions": "dalsegno.lang.python.approvals",
    "dalsegno.model.failure": "dalsegno.model.retry",
    "dalsegno.nodes.http.egress": "dalsegno.nodes.egress",
}
"""Modules of this package under the names that stored snapshots and errors use.

A module may move, a stored name may not.
"""


def stored_name_of(module: str) -> str:
    """Return the name under which a module is stored."""
    if module == MAIN:
        return _name_of_main()
    return STORED_NAMES.get(module, module)


def imported(stored_name: str) -> ModuleType | None:
    """Return the module in this process, whatever its name here; nothing is imported."""
    found = sys.modules.get(stored_name)
    if found is None and stored_name == _name_of_main():
        return sys.modules.get(MAIN)
    return found if stored_name != MAIN or _name_of_main() == MAIN else None


@cache
def _name_of_main() -> str:
    """Return the importable name of ``__main__``; ``__main__`` itself for an interactive prompt or a pipe."""
    main = sys.modules.get(MAIN)
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name)
    return _dotted(Path(file)) if file else MAIN


def _dotted(file: Path) -> str:
    """Return the dotted name of a file, with the packages that it belongs to."""
    parts, folder = [file.stem], file.resolve().parent
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts)


# -- surroundings --------------------------------------------------------------------------------------------


SPECIALS: Mapping[str, CellType] = {
    **{asyncio_alias(name): CellType(getattr(api, name)) for name in sorted(ASYNCIO_NAMES)},
    **{
        unsupported.itertools_alias(name): CellType(made)
        for name, made in unsupported.ITERTOOLS_CLASSES.items()
    },
}
"""The verbs that replace asyncio's, and the iterators that replace those of itertools."""


class Surroundings:
    """The surroundings of a function, or of a module alone if the function no longer exists."""

    def __init__(
        self,
        module: str,
        globals: dict[str, Any],
        cells: Mapping[str, CellType],
        function: FunctionType | None = None,
    ) -> None:
        self.module = module
        self.globals = globals
        self._cells = dict(cells)
        self._function = function

    @classmethod
    def of(cls, function: FunctionType) -> Surroundings:
        names = function.__code__.co_freevars
        cells = dict(zip(names, function.__closure__ or (), strict=True))
        return cls(stored_name_of(function.__module__), function.__globals__, cells, function)

    @classmethod
    def of_module(cls, name: str) -> Surroundings:
        module = imported(name)
        if module is None:
            raise SnapshotError(
                f"the workflow's module '{name}' is not imported in this process: import it before its executions run"
            )
        return cls(name, vars(module), {})

    @property
    def outside(self) -> frozenset[str]:
        """Names that are cells outside of the workflow."""
        return frozenset((*self._cells, *SPECIALS))

    def cell(self, name: str) -> CellType:
        """Return a variable around the workflow; it is unbound if the running code no longer has it."""
        found = self._cells.get(name) or SPECIALS.get(name)
        if found is None:
            found = self._cells[name] = CellType()
        return found

    def known(self, name: str) -> Any:
        """Return the value of a name as the workflow sees it from outside, or None."""
        found = self.value(name)
        return getattr(builtins, name, None) if found is None else found

    def has_cell(self, name: str) -> bool:
        """Return whether a variable around the workflow has a value."""
        cell = self._cells.get(name) or SPECIALS.get(name)
        return cell is not None and is_bound(cell)

    def lacks_global(self, path: str) -> str | None:
        """Return the part of ``name`` or ``module.name`` that the workflow's module lacks, or None."""
        name, _, rest = path.partition(".")
        if name not in self.globals:
            return None if hasattr(builtins, name) else name
        missing = _missing_part(self.globals[name], rest.split(".")) if rest else None
        return f"{name}.{missing}" if missing is not None else None

    def value(self, name: str) -> Any:
        """Return the value of a name, without the builtins."""
        cell = self._cells.get(name)
        if cell is not None and is_bound(cell):
            return cell.cell_contents
        return self.globals.get(name)

    @property
    def size(self) -> int:
        """The number of names."""
        return len(self.globals) + len(self._cells)

    def bound(self) -> dict[str, Any]:
        """Return all names around the workflow that have a value."""
        if not self._cells:
            return self.globals
        return {
            **self.globals,
            **{name: cell.cell_contents for name, cell in self._cells.items() if is_bound(cell)},
        }

    @property
    def has_function(self) -> bool:
        """True if the workflow's own function is available: without it, defaults and annotations are unknown."""
        return self._function is not None

    @cached_property
    def hints(self) -> dict[str, Any]:
        """The annotations of the workflow's parameters and result."""
        return hints_of(self._function, self.bound()) if self._function is not None else {}

    def default(self, parameter: str) -> Any:
        """Return the default of a parameter, or ``inspect.Parameter.empty``."""
        if self._function is None:
            return inspect.Parameter.empty
        found = inspect.signature(self._function).parameters.get(parameter)
        return found.default if found is not None else inspect.Parameter.empty


def _missing_part(holder: Any, names: list[str]) -> str | None:
    """Return the first part of a path that a module lacks.

    Attributes of other objects are checked when they are read.
    """
    for position, name in enumerate(names):
        if not isinstance(holder, ModuleType):
            return None
        if not hasattr(holder, name):
            return ".".join(names[: position + 1])
        holder = getattr(holder, name)
    return None


def is_bound(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - asking is the test
    except ValueError:
        return False
    return True
