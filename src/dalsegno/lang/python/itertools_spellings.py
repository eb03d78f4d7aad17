"""Names of `itertools` in a workflow that mean ours, because Python does not tell how far its own iterators have come.

Python 3.14 hides the place of most of them, and all releases hide that of ``batched``. As with asyncio's names, they
are replaced in the syntax tree before anything is compiled. Iterators that a called function makes stay Python's.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from dalsegno.lang.python import itertools_classes as own

OURS: Mapping[str, Any] = {
    "accumulate": own.Accumulate,
    "batched": own.Batched,
    "chain": own.Chain,
    "combinations": own.Combinations,
    "combinations_with_replacement": own.CombinationsWithReplacement,
    "compress": own.Compress,
    "count": own.Count,
    "cycle": own.Cycle,
    "dropwhile": own.DropWhile,
    "filterfalse": own.FilterFalse,
    "groupby": own.GroupBy,
    "islice": own.Islice,
    "pairwise": own.Pairwise,
    "permutations": own.Permutations,
    "product": own.Product,
    "repeat": own.Repeat,
    "starmap": own.StarMap,
    "takewhile": own.TakeWhile,
    "tee": own.tee,
    "zip_longest": own.ZipLongest,
}
_VISIBLE = frozenset(("accumulate", "groupby", "pairwise"))
"""The garbage collector tells their place in every release."""


def _hides_its_place(name: str) -> bool:
    found = vars(itertools).get(name)
    kind: Any = type(itertools.tee(())[0]) if name == "tee" else found
    return found is not None and name not in _VISIBLE and "__reduce__" not in vars(kind)


HIDDEN = frozenset(name for name in OURS if _hides_its_place(name))


def special(name: str) -> str:
    """The name under which an iterator stands in a rewritten tree."""
    return f"@itertools.{name}"


class ItertoolsSpellings(ast.NodeTransformer):
    """``known`` gives the value of a global name; ``hidden``: the names to replace."""

    def __init__(self, known: Callable[[str], Any], hidden: frozenset[str] = HIDDEN) -> None:
        self._known = known
        self._hidden = hidden
        self._local: set[str] = set()

    def replace_in(self, function: ast.AsyncFunctionDef, local: set[str]) -> None:
        """``local``: names that the workflow binds itself."""
        imports = [node for node in ast.walk(function) if isinstance(node, ast.Import)]
        aliases = [alias for node in imports for alias in node.names if alias.name == "itertools"]
        self._modules = {alias.asname or alias.name for alias in aliases}
        self._local = local
        if self._hidden:
            function.body = [self.visit(statement) for statement in function.body]

    def visit(self, node: ast.AST) -> Any:
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=name) if self._is_itertools(module):
                return self._replaced(node, name)
            case ast.Name(id=name, ctx=ast.Load()) if name not in self._local:
                value = self._known(name)
                found = next((own for own in self._hidden if vars(itertools).get(own) is value), "")
                return self._replaced(node, found)
        return self.generic_visit(node)

    def _is_itertools(self, name: str) -> bool:
        if name in self._local:
            return name in self._modules
        value = self._known(name)
        return isinstance(value, ModuleType) and value is itertools

    def _replaced(self, node: ast.AST, name: str) -> ast.AST:
        if name not in self._hidden:
            return node
        return ast.copy_location(ast.Name(special(name), ast.Load()), node)
